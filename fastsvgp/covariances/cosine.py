"""Waves, and mixtures of waves: covariances given by their spectrum.

cos(t - t') = cos t cos t' + sin t sin t': a covariance of rank two, by weighted inner products.
"""

import numpy as np

from .. import kernels
from ..errors import names_options
from ..records import leaf, record
from ..records.typed import ArrayLike, Number
from .base import ALL, Covariance, wanted, zeros_like
from .compose import Product, Sum
from .features import Explicit
from .stationary import RBF


@record
class Cosine(Covariance):
    """k = variance cos(2 pi sum_d frequencies_d (x_d - x'_d)): a wave of unknown size and phase.

    Parameters
    ----------
    variance : ()
        Positive.
    frequencies : () or (D,)
        Periods per unit: one number for all columns, or one per column.

    Notes
    -----
    The rank is two, so multiply it by another covariance, or add one, if it is to fit more than one
    wave. See ``spectral_mixture``.

    Examples
    --------
    >>> fs.Cosine(2.0, frequencies=0.5).matrix(np.array([[0.0], [1.0]]))
    array([[ 2., -2.],
           [-2.,  2.]])
    """

    variance: Number = leaf("positive", default=1.0)
    frequencies: Number = leaf(default=1.0)
    per_feature = ("frequencies",)

    def _circle(self, X):
        """Return cos t and sin t, (N, 2); None for None."""
        if X is None:
            return None
        turns = (X * self.frequencies).sum(1)
        t = (turns - np.rint(turns)) * (2 * np.pi)
        return np.stack([np.cos(t), np.sin(t)], axis=1)

    def features(self, num, seeds, columns):
        root = np.sqrt(self.variance)  # Phi = sqrt(variance) (cos t, sin t)
        return Explicit(
            2,
            lambda X: root * self._circle(X),
            lambda Phi_bar, X: self._spread(self._back(self._circle(X), Phi_bar) * root, X),
        )

    def matrix(self, X1, X2=None):
        return kernels.inner(self._circle(X1), self._circle(X2), self.variance)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        frequencies = wanted(need, "frequencies")
        inputs = {"X1": X1} if X2 is None else {"X1": X1, "X2": X2}
        inputs = {name: X for name, X in inputs.items() if frequencies or name in need}
        names = [*inputs, *["weights"] * wanted(need, "variance")]
        points = {"X1": self._circle(X1), "X2": self._circle(X2)}
        *bars, variance_bar = kernels.inner_vjp(
            K_bar, points["X1"], points["X2"], self.variance, need=names
        )
        bars = dict(zip(("X1", "X2"), bars, strict=True))
        t_bars = {name: self._back(points[name], bars[name]) for name in inputs}
        frequencies_bar = None
        if frequencies:
            frequencies_bar = self._frequencies_bar([(X, t_bars[n]) for n, X in inputs.items()], X1)
        if variance_bar is None and frequencies_bar is None:
            covariance_bar = None
        else:
            covariance_bar = Cosine(variance_bar, frequencies_bar)
        return covariance_bar, *(
            self._spread(t_bars[name], inputs[name]) if name in need and name in inputs else None
            for name in ("X1", "X2")
        )

    @staticmethod
    def _back(U, U_bar):
        """Return 2 pi times the cotangent of t, (N,)."""
        return (U[:, 0] * U_bar[:, 1] - U[:, 1] * U_bar[:, 0]) * (2 * np.pi)

    def _spread(self, t_bar, X):
        return t_bar[:, None] * (self.frequencies * np.ones_like(X))

    def _frequencies_bar(self, sides, X1):
        """Sum t_bar x over both sides; the sum of all t_bar is 0, so the origin is free."""
        origin, axis = X1[:1].sum(0), 0 if np.ndim(self.frequencies) else None
        return sum(
            (t_bar[:, None] * (X - origin)).sum(axis, dtype=np.float64) for X, t_bar in sides
        ).astype(X1.dtype)

    def diag(self, X):
        return kernels.full(len(X), self.variance, X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        variance_bar = frequencies_bar = None
        if wanted(need, "variance"):
            variance_bar = k_bar.sum(dtype=np.float64).astype(X.dtype)
        if wanted(need, "frequencies"):
            frequencies_bar = zeros_like(self.frequencies, X)
        has_gradient = variance_bar is not None or frequencies_bar is not None
        return Cosine(variance_bar, frequencies_bar) if has_gradient else None, (
            np.zeros_like(X) if "X" in need else None
        )


@names_options
def spectral_mixture(weights: ArrayLike, means: ArrayLike, scales: ArrayLike) -> Sum:
    """Return the covariance whose spectral density is a mixture of Q Gaussians.

    It is sum_q weights_q exp(-2 pi^2 sum_d scales_qd^2 (x_d - x'_d)^2)
    cos(2 pi sum_d means_qd (x_d - x'_d)).

    Parameters
    ----------
    weights : (Q,)
        Positive: the variances.
    means : (Q, D)
        Frequencies, in periods per unit of each column.
    scales : (Q, D)
        Positive: standard deviations of the frequencies, in the same units.

    Returns
    -------
    Sum
        Products of an ``RBF``, which has the weight, and a ``Cosine`` of variance 1. Hold the
        latter in training: ``fixed=("covariance.parts.0.parts.1.variance", ...)``.

    Raises
    ------
    ValueError
        The shapes do not agree.

    Notes
    -----
    Source: Wilson & Adams, "Gaussian process kernels for pattern discovery and extrapolation"
    (2013).

    Examples
    --------
    >>> mixture = fs.spectral_mixture([1.0, 0.5], means=[[0.1], [0.7]], scales=[[0.1], [0.2]])
    >>> mixture.matrix(np.array([[0.0], [1.0]])).round(4)
    array([[1.5   , 0.5939],
           [0.5939, 1.5   ]])
    """
    weights, means, scales = (np.asarray(a, np.float64) for a in (weights, means, scales))
    if weights.ndim != 1 or means.ndim != 2 or not len(weights) or len(means) != len(weights):
        raise ValueError(
            "spectral_mixture: `weights` must have shape (Q,) and `means` (Q, D), got"
            f" {weights.shape} and {means.shape}"
        )
    if scales.shape != means.shape:
        raise ValueError(
            f"spectral_mixture: `scales` must have the shape of `means`, {means.shape}, got"
            f" {scales.shape}"
        )
    parts = zip(weights.tolist(), means, 1 / (2 * np.pi * scales), strict=True)
    return Sum(tuple(Product((RBF(w, scale), Cosine(1.0, m))) for w, m, scale in parts))
