"""Stationary covariances: functions of r^2 = sum_d ((x_d - x'_d) / lengthscale_d)^2.

All but one call one fused kernel, ``kernels.stationary``, whose documentation has the gradients.
For the rational quadratic, with s = r^2 / (2 alpha) and k = variance (1 + s)^-alpha,

    dk / dr^2 = -k / (2 (1 + s))        dk / dalpha = k (s / (1 + s) - log(1 + s)).

Spectral densities S(omega) in D dimensions, with u_d = (omega_d lengthscale_d)^2 and s = sum_d u_d:

    RBF:        log S = log variance + D/2 log 2 pi + sum_d log lengthscale_d - s / 2
    Matern nu:  log S = log variance + D log 2 + D/2 log pi + log Gamma(nu + D/2) - log Gamma(nu)
                        + nu log 2 nu + sum_d log lengthscale_d - (nu + D/2) log(2 nu + s)

    dlog S / dlog variance = 1
    dlog S / dlog lengthscale_d = 1 - u_d, or 1 - (2 nu + D) u_d / (2 nu + s) for a Matern.

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), section 4.2.1.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Number
from .base import ALL, Homogeneous, needs, tiles
from .features import ScaleMixture, StationaryFeatures


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
    smoothness: ClassVar[float] = math.inf  # nu of a Matern

    def spectral_terms(self, D):
        scales = np.broadcast_to(self.lengthscales, (D,))
        return [(tuple(range(D)), tuple(map(float, scales)), self.smoothness)]

    def _scaled_squares(self, squares):
        """Return u (m, D) and 2 nu + s (m,), or s of an RBF; NaN in rows of fewer columns."""
        u = squares * self.lengthscales**2
        return u, u.sum(1) + (0 if math.isinf(self.smoothness) else 2 * self.smoothness)

    def log_spectral_density(self, squares):
        (_, s), nu, D = self._scaled_squares(squares), self.smoothness, squares.shape[1]
        scale = np.log(self.variance) + np.log(np.broadcast_to(self.lengthscales, (D,))).sum()
        if math.isinf(nu):
            found = scale + D / 2 * math.log(2 * math.pi) - s / 2
        else:
            scale += D * math.log(2) + D / 2 * math.log(math.pi) + nu * math.log(2 * nu)
            scale += math.lgamma(nu + D / 2) - math.lgamma(nu)
            found = scale - (nu + D / 2) * np.log(s)
        return np.where(np.isnan(s), -np.inf, found)

    def log_spectral_density_vjp(self, log_bar, squares, need=("covariance",)):
        (u, s), nu, D = self._scaled_squares(squares), self.smoothness, squares.shape[1]
        slopes = 1 - (u if math.isinf(nu) else (2 * nu + D) * u / s[:, None])
        own = ~np.isnan(s)
        log_bar = log_bar[own]
        each = (log_bar[:, None] * slopes[own]).sum(0)
        return self.gradient(
            need,
            squares,
            variance=log_bar.sum() / self.variance,
            lengthscales=(each if np.ndim(self.lengthscales) else each.sum()) / self.lengthscales,
        )

    def features(self, num, seeds, columns):
        return StationaryFeatures(self, num, seeds)

    def matrix(self, X1, X2=None):
        return kernels.stationary(self.family, X1, X2, self.variance, self.lengthscales)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        fields = tuple(field for field in ("variance", "lengthscales") if needs(need, field))
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
    smoothness = 0.5


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
    smoothness = 1.5


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
    smoothness = 2.5


@record
class RationalQuadratic(OfDistance):
    """k = variance (1 + r^2 / (2 alpha))^-alpha: a mixture of RBFs of all lengthscales.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.
    alpha : ()
        Positive. The tail is heavy for a small number; for a large one the covariance is an RBF.

    Examples
    --------
    >>> covariance = fs.covariances.RationalQuadratic(1.0, 2.0, alpha=0.5)
    >>> covariance.matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.7071],
           [0.7071, 1.    ]])
    """

    alpha: Number = leaf("positive", default=1.0)

    def _s(self, X1, X2):
        """Return s, (N1, N2): r^2 with longer lengthscales."""
        return kernels.squared_distances(X1, X2, self.lengthscales * np.sqrt(2 * self.alpha))

    def matrix(self, X1, X2=None):
        K = self._s(X1, X2)
        for tile in tiles(K.shape, K):
            K[tile] = np.exp(np.log1p(K[tile]) * -self.alpha) * self.variance
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        K = self.matrix(X1, X2) if K is None else K
        names = [name for name in ("X1", "X2") if name in need]
        names += ["lengthscales"] * needs(need, "lengthscales")
        W, of_variance = self._s(X1, X2), np.zeros((), like=X1)
        of_alpha, moving = of_variance, needs(need, "alpha")
        for tile in tiles(K.shape, K):
            w, s = K_bar[tile] * K[tile], W[tile]
            of_variance = of_variance + w.sum(dtype=np.float64)
            inverse = 1 / (1 + s)
            if moving:
                of_alpha = of_alpha - np.vdot(w, np.log1p(s) - s * inverse)
            np.multiply(w, inverse, out=s)  # W = -2 K_bar dk / dr^2
        bars = [None] * 3
        if names:
            bars = kernels.squared_distances_vjp(W, X1, X2, self.lengthscales, need=names)
            bars = [None if bar is None else -0.5 * bar for bar in bars]
        *inputs, lengthscales_bar = bars
        variance_bar = of_variance / self.variance
        bar = self.gradient(
            need, X1, variance=variance_bar, lengthscales=lengthscales_bar, alpha=of_alpha
        )
        return bar, *inputs

    def features(self, num, seeds, columns):
        return ScaleMixture(self, num, seeds)
