"""Public names, for type checkers and editors; the module loads them at their first use.

Written by ``python tools/public_names.py``.
"""

from ..covariances.additive import Additive as Additive
from ..covariances.base import Covariance as Covariance
from ..covariances.categories import Categorical as Categorical, Coregion as Coregion
from ..covariances.change_points import ChangePoints as ChangePoints
from ..covariances.columns import On as On
from ..covariances.compose import Product as Product, Sum as Sum
from ..covariances.convolutional import Convolutional as Convolutional
from ..covariances.cosine import Cosine as Cosine, spectral_mixture as spectral_mixture
from ..covariances.image_patches import extract_patches as extract_patches
from ..covariances.inner_products import ArcCosine as ArcCosine, Polynomial as Polynomial
from ..covariances.linear import Constant as Constant, Linear as Linear
from ..covariances.network import Network as Network
from ..covariances.on_features import OnFeatures as OnFeatures
from ..covariances.periodic import Periodic as Periodic
from ..covariances.stationary import (
    RBF as RBF,
    Matern12 as Matern12,
    Matern32 as Matern32,
    Matern52 as Matern52,
    RationalQuadratic as RationalQuadratic,
)
from ..covariances.weighted import Weighted as Weighted, pairs as pairs
