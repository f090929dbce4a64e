"""Deep Gaussian processes: every posterior as a layer, drawn from and passed on (Salimbeni and Deisenroth 2017)."""

from . import bound, predict  # noqa: F401, which register what serves a DeepGP
