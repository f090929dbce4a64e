"""Deep Gaussian processes: layers with any posterior (Salimbeni and Deisenroth 2017)."""

from . import bound  # noqa: F401, registers the functions of a DeepGP
