"""Functions drawn from posteriors: evaluated and differentiated anywhere (Wilson et al. 2020)."""

from . import sites_and_weights  # noqa: F401, registers all kinds of model
