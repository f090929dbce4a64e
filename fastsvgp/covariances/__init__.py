"""Covariance functions k(x, x'), as records of their parameters."""

from .base import Covariance
from .columns import On
from .compose import Product, Sum
from .convolutional import Convolutional
from .image_patches import extract_patches
from .linear import Constant, Linear
from .network import Network
from .on_features import OnFeatures
from .periodic import Periodic
from .stationary import RBF, Matern12, Matern32, Matern52

__all__ = [
    "RBF",
    "Constant",
    "Convolutional",
    "Covariance",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Network",
    "On",
    "OnFeatures",
    "Periodic",
    "Product",
    "Sum",
    "extract_patches",
]
