"""Covariances k(x, x'): what is known of the function before the data.

Come here for a covariance beyond RBF, Matérn, periodic and linear, and for sums, products and
covariances of columns, images, codes or learnt features.
"""

from ..public_names import offer
from . import columns, compose  # noqa: F401, they give covariances +, * and .on

__getattr__, __dir__, __all__ = offer("covariances")
