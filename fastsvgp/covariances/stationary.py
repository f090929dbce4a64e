"""Stationary covariances: functions of r^2 = sum_d ((x_d - x'_d) / lengthscale_d)^2.

All call one fused kernel, ``kernels.stationary``, whose documentation has the gradients. Source:
Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), section 4.2.1.
"""

from dataclasses import dataclass
from typing import ClassVar

from .. import kernels
from ..records import leaf, record
from ..records.typed import Number
from .base import ALL, Homogeneous, wanted
from .features import StationaryFeatures


@dataclass(frozen=True, eq=False, repr=False)
class OfDistance(Homogeneous):
    """Base of functions of r^2: their fields."""

    per_feature = ("lengthscales",)

    variance: Number = leaf("positive", default=1.0)
    lengthscales: Number = leaf("positive", default=1.0)


@dataclass(frozen=True, eq=False, repr=False)
class Stationary(OfDistance):
    """Base of the covariances that the fused kernel knows by the name of their ``family``."""

    family: ClassVar[str]

    def features(self, num, seeds, columns):
        return StationaryFeatures(self, num, seeds)

    def matrix(self, X1, X2=None):
        return kernels.stationary(self.family, X1, X2, self.variance, self.lengthscales)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        fields = tuple(field for field in ("variance", "lengthscales") if wanted(need, field))
        inputs = (name for name in need if name in ("X1", "X2"))
        X1_bar, X2_bar, variance_bar, lengthscales_bar = kernels.stationary_vjp(
            K_bar,
            self.family,
            X1,
            X2,
            self.variance,
            self.lengthscales,
            need=(*inputs, *fields),
            K=K,
        )
        return type(self)(variance_bar, lengthscales_bar) if fields else None, X1_bar, X2_bar


@record
class RBF(Stationary):
    """k = variance exp(-r^2 / 2): infinitely smooth functions.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.

    Examples
    --------
    >>> fs.RBF(variance=1.0, lengthscales=2.0).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.6065],
           [0.6065, 1.    ]])
    """

    family = "rbf"


@record
class Matern12(Stationary):
    """k = variance exp(-r): continuous functions that are nowhere differentiable.

    The derivative at r = 0 is taken as 0.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.

    Examples
    --------
    >>> fs.Matern12(variance=1.0, lengthscales=2.0).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.3679],
           [0.3679, 1.    ]])
    """

    family = "matern12"


@record
class Matern32(Stationary):
    """k = variance (1 + t) exp(-t), t = sqrt(3) r: functions with one derivative.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.

    Examples
    --------
    >>> fs.Matern32(variance=1.0, lengthscales=2.0).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.4834],
           [0.4834, 1.    ]])
    """

    family = "matern32"


@record
class Matern52(Stationary):
    """k = variance (1 + t + t^2 / 3) exp(-t), t = sqrt(5) r: functions with two derivatives.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.

    Examples
    --------
    >>> fs.Matern52(variance=1.0, lengthscales=2.0).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.   , 0.524],
           [0.524, 1.   ]])
    """

    family = "matern52"
