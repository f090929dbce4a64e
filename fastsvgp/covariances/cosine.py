"""Waves, and mixtures of waves: covariances given by their spectrum.

cos(t - t') = cos t cos t' + sin t sin t': a covariance of rank two, by weighted inner products.
"""

import numpy as np

from ..errors import names_options
from ..records import leaf, record
from ..records.typed import ArrayLike, Number
from .base import Homogeneous, needs
from .compose import Product, Sum
from .linear import Linear
from .mapped import OfMap
from .stationary import RBF


@record
class Cosine(OfMap):
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
    >>> fs.covariances.Cosine(2.0, frequencies=0.5).matrix(np.array([[0.0], [1.0]]))
    array([[ 2., -2.],
           [-2.,  2.]])
    """

    variance: Number = leaf("positive", default=1.0)
    frequencies: Number = leaf(default=1.0)
    per_feature = ("frequencies",)
    map_field = "frequencies"

    def inside(self):
        return Linear(self.variance)  # of points on a circle

    def inside_need(self, need):
        return tuple(name for name in need if name != "covariance.frequencies")

    def outer(self, part_bar, frequencies_bar, need, like):
        variance_bar = None if part_bar is None else part_bar.variance
        return self.gradient(need, like, variance=variance_bar, frequencies=frequencies_bar)

    def map(self, X, origin):
        turns = (X * self.frequencies).sum(1)
        t = (turns - np.rint(turns)) * (2 * np.pi)
        U = np.stack([np.cos(t), np.sin(t)], axis=1)

        def back(U_bar, need):
            t_bar = (U[:, 0] * U_bar[:, 1] - U[:, 1] * U_bar[:, 0]) * (2 * np.pi)
            frequencies_bar = X_bar = None
            if needs(need, "frequencies"):  # the sum of all t_bar is 0, so the origin is free
                axis = 0 if np.ndim(self.frequencies) else None
                frequencies_bar = (t_bar[:, None] * (X - origin)).sum(axis, dtype=np.float64)
            if "X" in need:
                X_bar = t_bar[:, None] * (self.frequencies * np.ones_like(X))
            return frequencies_bar, X_bar

        return U, back

    def sizes(self, columns):
        return 2, 4

    diag, diag_vjp = Homogeneous.diag, Homogeneous.diag_vjp


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
    >>> mixture = fs.covariances.spectral_mixture([1.0, 0.5], means=[[0.1], [0.7]],
    ...     scales=[[0.1], [0.2]])
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
