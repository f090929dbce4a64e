"""Models of several layers or several latent functions.

Come here for deep Gaussian processes, several outputs, and layers on the patches of images.
"""

from ..public_names import offer
from . import bound  # noqa: F401, registers the functions of a DeepGP

__getattr__, __dir__, __all__ = offer("layers")
