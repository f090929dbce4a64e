"""Covariance functions k(x, x'), as records of their parameters."""

from .additive import Additive
from .base import Covariance
from .categories import Categorical, Coregion
from .change_points import ChangePoints
from .columns import On
from .compose import Product, Sum
from .convolutional import Convolutional
from .cosine import Cosine, spectral_mixture
from .image_patches import extract_patches
from .inner_products import ArcCosine, Polynomial
from .linear import Constant, Linear
from .network import Network
from .on_features import OnFeatures
from .periodic import Periodic
from .stationary import RBF, Matern12, Matern32, Matern52, RationalQuadratic

__all__ = [
    "RBF",
    "Additive",
    "ArcCosine",
    "Categorical",
    "ChangePoints",
    "Constant",
    "Convolutional",
    "Coregion",
    "Cosine",
    "Covariance",
    "Linear",
    "Matern12",
    "Matern32",
    "Matern52",
    "Network",
    "On",
    "OnFeatures",
    "Periodic",
    "Polynomial",
    "Product",
    "RationalQuadratic",
    "Sum",
    "extract_patches",
    "spectral_mixture",
]
