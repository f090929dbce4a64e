"""Rows that are weighted sums of points: f(row) = sum_p w_p g(x_p), g with the covariance k.

A row of X is (x_1, w_1, ..., x_P, w_P). Inducing inputs Z (M, D) are points of g:

    Kuu = k(Z, Z)
    Kuf[m, n]  = sum_p w_np k(z_m, x_np)
    Kff[n, n'] = sum_pq w_np w'_n'q k(x_np, x'_n'q)      kff = its diagonal

All are S[m, n] = sum_pq v_mp w_nq k(x_mp, y_nq), for Kuf with P = 1 and v = 1. With S_bar, the
cotangent of the entry k(x_mp, y_nq) is v_mp w_nq S_bar[m, n], and

    v_bar_mp = sum_nq S_bar[m, n] w_nq k(x_mp, y_nq)     w_bar_nq = sum_mp S_bar[m, n] v_mp k

For kff the cotangent of K_n[p, q] = k(x_np, x_nq) is kff_bar_n w_np w_nq, which is symmetric, and
w_bar_n = 2 kff_bar_n K_n w_n.
"""

from typing import Any

import numpy as np

from .. import check, kernels
from ..records import plus, record, static
from ..records.inducing_sets import sets_of
from ..records.typed import Array, ArrayLike
from .base import ALL, Covariance, matrix_need, need_of
from .checks import check_part, set_depth
from .convolutional_sums import chunk_size, ranges
from .features import OfPoints
from .stationary import Stationary


@record
class Weighted(Covariance):
    """Covariance of rows that are weighted sums of points, f(row) = sum_p w_p g(x_p).

    Averages over areas or intervals of time have weights 1 / P, differences 1 and -1. Points with
    weight 0 are absent, so rows can have fewer points. Inducing inputs Z (M, D) are points of g: a
    model with the covariance ``part`` and the same inducing inputs and posterior predicts g.

    Parameters
    ----------
    part : Covariance
        Covariance of g, a function of D columns; can be a sum or product.
    points : int
        P. Rows of X have P (D + 1) numbers: x_1, w_1, ..., x_P, w_P.

    Notes
    -----
    Values and gradients cost as much as those of ``part`` at M N P entries for Kuf, and N P^2 for
    kff. Memory: P times that of Kuf. Gradients in X include those in the weights.

    Examples
    --------
    >>> of_sums = fs.covariances.Weighted(fs.RBF(), points=2)
    >>> rows = np.array([[0.0, 0.5, 1.0, 0.5], [3.0, 1.0, 0.0, 0.0]])  # an average, and one point
    >>> of_sums.blocks(np.zeros((5, 1)), rows).Kuf.shape
    (5, 2)
    >>> of_sums.kff(rows).round(3)
    array([0.803, 1.   ])
    """

    part: Any
    points: int = static()

    def __post_init__(self):
        set_depth(self, (self.part,))

    # --- shapes ---

    @property
    def columns_of(self):
        return "a row of `points` points and their weights"

    def num_columns(self, inducing):
        """P (D + 1)."""
        return check.whole("points of Weighted", self.points) * (sets_of(inducing)[0].shape[1] + 1)

    def check_dim(self, D):
        P = check.whole("points of Weighted", self.points)
        if D % P or D < 2 * P:
            raise ValueError(
                f"Weighted: the inputs have {D} columns, but rows of {P} points have {P} times"
                " (columns of a point, and its weight)"
            )
        check_part("Weighted.part", self.part, D // P - 1, "points of sums")

    def _split(self, X):
        """Return points (N, P, D) and weights (N, P)."""
        rows = X.reshape(*X.shape[:-1], self.points, -1)
        points = np.ascontiguousarray(rows[..., :-1], like=X)
        return points, np.ascontiguousarray(rows[..., -1], like=X)

    def features(self, num, seeds, columns):
        part = self.part.features(num, seeds, columns // self.points - 1)
        return OfPoints(part, self._split, _join)

    # --- inducing variables: values of g ---

    def Kuu(self, inducing, other=None):
        return self.part.matrix(inducing, other)

    def Kuu_vjp(self, K_bar, K, inducing, other=None, need=("covariance", "inducing", "other")):
        names = matrix_need(need_of(need, "part"), "inducing", "other")
        part_bar, *bars = self.part.matrix_vjp(K_bar, K, inducing, other, names)
        return self.gradient(need, inducing, part=part_bar), *bars

    def Kuf(self, inducing, X):
        return self._sums(_alone(inducing), self._split(X))

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        names = matrix_need(tuple(need), "inducing", "X")
        part_bar, Z_bar, X_bar = self._sums_vjp(K_bar, _alone(inducing), self._split(X), names)
        Z_bar = None if Z_bar is None else Z_bar[0][:, 0]
        return self.gradient(need, X, part=part_bar), Z_bar, _join(X_bar)

    # --- rows ---

    def matrix(self, X1, X2=None):
        first = self._split(X1)
        K = self._sums(first, first if X2 is None else self._split(X2))
        return kernels.symmetrise(K) if X2 is None else K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        first, names = self._split(X1), need
        second = first if X2 is None else self._split(X2)
        if X2 is None:  # X1 stands on both sides
            names = (*(one for one in need if one != "X2"), *("X2",) * ("X1" in need))
        part_bar, left, right = self._sums_vjp(K_bar, first, second, names)
        if X2 is None:
            left, right = plus(left, right), None
        return self.gradient(need, X1, part=part_bar), _join(left), _join(right)

    def diag(self, X):
        x, w = self._split(X)
        out = np.empty(len(X), X.dtype, like=X)
        for at in self._runs(x):
            K = self.part.matrix(x[at])
            K *= w[at][..., None] * w[at][..., None, :]
            out[at] = K.sum((-2, -1), dtype=np.float64)
        return out

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        x, w = self._split(X)
        part_bar, X_bar = None, (np.empty_like(x), np.empty_like(w)) if "X" in need else None
        names = matrix_need(need_of(need, "part"), "X", "other")
        for at in self._runs(x):
            K, v = self.part.matrix(x[at]), w[at]
            v_bar = k_bar[at][..., None] * v
            more, x_bar, _ = self.part.matrix_vjp(
                v_bar[..., None] * v[..., None, :], K, x[at], None, names
            )
            part_bar = plus(more, part_bar)
            if X_bar is not None:
                X_bar[0][at], X_bar[1][at] = x_bar, 2 * (K * v_bar[..., None, :]).sum(-1)
        return self.gradient(need, X, part=part_bar), _join(X_bar)

    def _runs(self, x):
        """Rows whose matrices are one call: runs of them for stationary functions, or one."""
        N, P, D = x.shape
        if not isinstance(self.part, Stationary):
            return range(N)
        return [slice(*run) for run in ranges(N, chunk_size(x) // (P * max(P, D)))]

    # --- S of the module's text ---

    def _chunks(self, x, y):
        """Yield runs of rows of y, and their points with all of x as a matrix (M, P, n, Q)."""
        flat, P = x.reshape(-1, x.shape[2]), y.shape[1]
        for run in ranges(len(y), chunk_size(x) // (len(flat) * P)):
            points = y[slice(*run)].reshape(-1, x.shape[2])
            K = self.part.matrix(flat, points)
            yield slice(*run), flat, points, K.reshape(*x.shape[:2], -1, P)

    def _sums(self, first, second):
        (x, v), (y, w) = first, second
        S = np.empty((len(x), len(y)), x.dtype, like=x)
        for rows, _, _, K in self._chunks(x, y):
            K *= w[rows]
            of_x = K.sum(3)
            of_x *= v[:, :, None]
            S[:, rows] = of_x.sum(1)
        return S

    def _sums_vjp(self, S_bar, first, second, need):
        """Return ``(part_bar, (x_bar, v_bar), (y_bar, w_bar))``; None if not in ``need``."""
        (x, v), (y, w) = first, second
        names, part_bar = need_of(need, "part"), None
        left = (np.zeros_like(x), np.zeros_like(v)) if "X1" in need else None
        right = (np.empty_like(y), np.empty_like(w)) if "X2" in need else None
        for rows, points1, points2, K in self._chunks(x, y):
            bar = S_bar[:, None, rows, None] * v[:, :, None, None]
            K_bar = (bar * w[rows]).reshape(len(points1), -1)
            more, x_bar, y_bar = self.part.matrix_vjp(
                K_bar, K.reshape(K_bar.shape), points1, points2, names
            )
            part_bar = plus(more, part_bar)
            if right is not None:
                right[0][rows] = y_bar.reshape(right[0][rows].shape)
                right[1][rows] = (K * bar).sum((0, 1))
            if left is not None:
                left[0][...] += x_bar.reshape(x.shape)
                left[1][...] += (K * (S_bar[:, None, rows, None] * w[rows])).sum((2, 3))
        return part_bar, left, right


def _alone(inducing):
    """Return points as rows of one point with weight 1."""
    return inducing[:, None], 1 + np.zeros((len(inducing), 1), inducing.dtype, like=inducing)


def _join(bars):
    """Return the cotangent of rows from those of points and weights."""
    if bars is None:
        return None
    points_bar, weights_bar = bars
    whole = np.concatenate([points_bar, weights_bar[..., None]], -1)
    return whole.reshape(*whole.shape[:-2], -1)


def pairs(A: ArrayLike, B: ArrayLike) -> Array:
    """Return rows of ``Weighted`` for differences g(a) - g(b): what is preferred, or compared.

    Parameters
    ----------
    A, B : (N, D) array
        The first and the second of each pair.

    Returns
    -------
    (N, 2 (D + 1)) array
        Rows (a, 1, b, -1), for ``Weighted(part, points=2)``.

    Raises
    ------
    ValueError, TypeError
        A and B have different shapes; NaN or infinity.

    Notes
    -----
    With ``BernoulliProbit`` and y = 1 where a is preferred, g is a utility: a is preferred with the
    probability that g(a) - g(b) exceeds standard normal noise (Chu & Ghahramani 2005).

    Examples
    --------
    >>> fs.covariances.pairs([[0.2], [0.5]], [[0.9], [0.1]])
    array([[ 0.2,  1. ,  0.9, -1. ],
           [ 0.5,  1. ,  0.1, -1. ]])
    """
    A, B = check.inputs("A", A), check.inputs("B", B)
    check.one_device(("A", A), ("B", B))
    if A.shape != B.shape:
        raise ValueError(
            f"pairs: `A` has shape {A.shape} and `B` {B.shape}; give the two of each pair in the"
            " same row of both"
        )
    ones = 1 + np.zeros((len(A), 1), np.result_type(A, B), like=A)
    return np.concatenate([A, ones, B, -ones], 1)
