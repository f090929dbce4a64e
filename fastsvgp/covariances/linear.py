"""Covariances of linear and of constant functions."""

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Number
from .base import ALL, Covariance, Homogeneous, needs, no_inputs
from .features import Explicit


@record
class Linear(Covariance):
    """k(x, x') = sum_d variance_d x_d x'_d: functions w . x, independent w_d with these variances.

    Parameters
    ----------
    variance : () or (D,)
        Positive.

    Examples
    --------
    >>> fs.Linear(variance=np.array([1.0, 0.5])).matrix(np.eye(2))
    array([[1. , 0. ],
           [0. , 0.5]])
    """

    variance: Number = leaf("positive", default=1.0)
    per_feature = ("variance",)

    def features(self, num, seeds, columns):
        scale = np.sqrt(self.variance)  # Phi = x sqrt(variance)
        return Explicit(columns, lambda X: X * scale, lambda Phi_bar, X: Phi_bar * scale)

    def matrix(self, X1, X2=None):
        return kernels.inner(X1, X2, self.variance)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        weights = ("weights",) if needs(need, "variance") else ()
        inputs = (name for name in need if name in ("X1", "X2"))
        X1_bar, X2_bar, variance_bar = kernels.inner_vjp(
            K_bar, X1, X2, self.variance, need=(*inputs, *weights)
        )
        return Linear(variance_bar) if weights else None, X1_bar, X2_bar

    def diag(self, X):
        return (self.variance * X * X).sum(-1)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        axis = 0 if np.ndim(self.variance) else None
        bar = self.gradient(
            need, X, variance=lambda: (k_bar[:, None] * X * X).sum(axis, dtype=np.float64)
        )
        return bar, 2 * self.variance * X * k_bar[:, None] if "X" in need else None


@record
class Constant(Homogeneous):
    """k(x, x') = variance: one unknown constant.

    Parameters
    ----------
    variance : ()
        Positive.

    Examples
    --------
    >>> fs.covariances.Constant(variance=2.0).matrix(np.zeros((2, 3)))
    array([[2., 2.],
           [2., 2.]])
    """

    variance: Number = leaf("positive", default=1.0)

    def features(self, num, seeds, columns):
        root = np.sqrt(self.variance)
        return Explicit(
            1, lambda X: kernels.full((len(X), 1), root, X), lambda Phi_bar, X: np.zeros_like(X)
        )

    def matrix(self, X1, X2=None):
        return kernels.full((len(X1), len(X1 if X2 is None else X2)), self.variance, X1)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        bar = self.gradient(need, X1, variance=lambda: K_bar.sum(dtype=np.float64))
        return bar, *no_inputs(need, X1=X1, X2=X2)
