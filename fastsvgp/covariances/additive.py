"""Sums over all sets of few columns: functions of single columns, of pairs, and so on.

e_j, the sum of all products of j of the z_d, comes from e_j += z_d e_{j-1}, one column after the
other: nothing is subtracted, as it is in Newton's identities. The reverse rule goes the same way
back. Both process tiles, so that no more than a few matrices exist, whatever D is.
"""

import math
from itertools import combinations

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Array, Number
from .base import ALL, Covariance, needs, needs_fields, no_inputs, tiles

SIZE = 1 << 13  # of a tile: it has R + 1 arrays for each column of the inputs


@record
class Additive(Covariance):
    """k = sum_j variances_j e_j(z), z_d = exp(-(x_d - x'_d)^2 / (2 l_d^2)): few columns interact.

    e_j is the sum of all products of j of the D numbers z_d: e_1 makes functions of single columns,
    e_2 those of pairs.

    Parameters
    ----------
    variances : (R,)
        Positive: one for each number of columns that interact, 1 ... R, R at most D.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.

    Notes
    -----
    Source: Duvenaud, Nickisch & Rasmussen, "Additive Gaussian processes" (2011). The cost is one
    exponential and about 2 R flops per pair and column, and three times that for the gradient.

    Examples
    --------
    >>> pairs = fs.covariances.Additive(variances=[1.0, 0.5], lengthscales=2.0)
    >>> pairs.matrix(np.zeros((1, 3)), np.array([[0.0, 2.0, 2.0]])).round(4)
    array([[3.0035]])
    """

    variances: Array = leaf("positive")
    lengthscales: Number = leaf("positive", default=1.0)
    per_feature = ("lengthscales",)

    def _scale(self, X1, X2):
        """Return both inputs over sqrt(2) lengthscales, with columns as rows: (D, N)."""
        scale = 1 / (math.sqrt(2) * self.lengthscales)
        A = (X1 * scale).T.copy()
        return A, A if X2 is None else (X2 * scale).T.copy()

    def matrix(self, X1, X2=None):
        A, B = self._scale(X1, X2)
        K = kernels.empty((A.shape[1], B.shape[1]), X1)
        for rows, columns in tiles(K.shape, X1, SIZE):
            sums = []
            for a, b in zip(A[:, rows], B[:, columns], strict=True):
                sums = _extend_sums(sums, _bump(a[:, None] - b), len(self.variances))
            total = K[rows, columns]
            np.multiply(sums[0], self.variances[0], out=total)
            for e, variance in zip(sums[1:], self.variances[1:], strict=True):
                e *= variance
                total += e
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        A, B = self._scale(X1, X2)
        total = _Total(A, B, len(self.variances))
        inputs = [name for name in ("X1", "X2") if name in need]
        moving = "X2" in need and X2 is not None, bool(inputs) or needs(need, "lengthscales")
        for tile in tiles((A.shape[1], B.shape[1]), X1, SIZE):
            if needs_fields(need) or inputs:
                self._add_tile(total, (A, B), tile, K_bar[tile], moving)
        scale = 1 / (math.sqrt(2) * self.lengthscales)
        sides = 2 if X2 is None else 1  # K_bar is symmetric, and both sides are one array
        X1_bar = total.A.T.copy() * (sides * scale) if "X1" in need else None
        X2_bar = total.B.T.copy() * scale if moving[0] else None
        squares = total.squares if np.ndim(self.lengthscales) else total.squares.sum()
        lengthscales_bar = squares / self.lengthscales
        bar = self.gradient(need, X1, variances=total.sums, lengthscales=lengthscales_bar)
        return bar, X1_bar, X2_bar

    def _add_tile(self, total, inputs, tile, bar, moving):
        """Add the cotangents of one tile.

        ``moving``: whether the cotangent of the second input is needed, and of inputs or
        lengthscales at all.
        """
        a, b = inputs[0][:, tile[0]], inputs[1][:, tile[1]]
        bumps, before, sums = [], [], []
        for row, other in zip(a, b, strict=True):
            bumps.append(_bump(row[:, None] - other))
            before.append(sums)
            sums = _extend_sums(sums, bumps[-1], len(self.variances))
        for j, e in enumerate(sums):
            total.sums[j] += (bar * e).sum(dtype=np.float64)
        if not moving[1]:
            return
        bars = list(self.variances)  # cotangents of e_1 ... e_R, over that of k
        for d in reversed(range(len(bumps))):
            z, z_bar = bumps[d], bars[0]
            for e, e_bar in zip(before[d], bars[1:], strict=False):
                z_bar = z_bar + e_bar * e
            for j in range(len(bars) - 1):
                bars[j] = bars[j] + z * bars[j + 1]
            z *= z_bar
            z *= bar
            difference = a[d, :, None] - b[d]
            z *= difference
            total.A[d, tile[0]] -= 2 * z.sum(1)
            if moving[0]:
                total.B[d, tile[1]] += 2 * z.sum(0)
            z *= difference
            total.squares[d] += 2 * z.sum(dtype=np.float64)

    def _counts(self, D):
        """Return the numbers of sets of 1 ... R columns."""
        return [math.comb(D, j + 1) for j in range(len(self.variances))]

    def diag(self, X):
        counts = zip(self.variances, self._counts(X.shape[1]), strict=True)
        return kernels.full(len(X), sum(variance * count for variance, count in counts), X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        total = k_bar.sum(dtype=np.float64)
        bar = self.gradient(
            need, X, variances=lambda: np.stack([total * n for n in self._counts(X.shape[1])])
        )
        return bar, *no_inputs(need, X=X)

    def spectral_terms(self, D):
        scales = np.broadcast_to(self.lengthscales, (D,))
        sets = (
            columns
            for size in range(1, 1 + len(self.variances))
            for columns in combinations(range(D), size)
        )
        return [(columns, tuple(map(float, scales[list(columns)])), math.inf) for columns in sets]

    def _of_rows(self, squares):
        """Return the number of columns of each row (m,), and which of these are terms."""
        sizes = (~np.isnan(squares)).sum(axis=1)
        return sizes, (sizes > 0) & (sizes <= len(self.variances))

    def log_spectral_density(self, squares):
        sizes, own = self._of_rows(squares)
        found = np.full(len(squares), -np.inf)
        scales = math.log(2 * math.pi) / 2 + np.log(self.lengthscales)
        each = np.nansum(scales - squares[own] * self.lengthscales**2 / 2, axis=1)
        found[own] = np.log(self.variances)[sizes[own] - 1] + each
        return found

    def log_spectral_density_vjp(self, log_bar, squares, need=("covariance",)):
        sizes, own = self._of_rows(squares)
        counts = np.bincount(sizes[own] - 1, log_bar[own], minlength=len(self.variances))
        slopes = 1 - squares[own] * self.lengthscales**2
        each = np.nansum(log_bar[own, None] * slopes, axis=0)
        each = each if np.ndim(self.lengthscales) else each.sum()
        return self.gradient(
            need,
            squares,
            variances=counts / self.variances,
            lengthscales=each / self.lengthscales,
        )

    def check_dim(self, D):
        shape = np.shape(self.variances)
        if len(shape) != 1 or not 1 <= shape[0] <= D:
            raise ValueError(
                f"Additive: `variances` has shape {shape}, but the inputs have D = {D} columns;"
                f" give it shape (R,), with one entry for each number of columns that interact, R ="
                f" 1 ... {D}"
            )
        self._check_shape("lengthscales", D)


class _Total:
    """Sums over the tiles: cotangents of both scaled inputs, and of the fields in float64."""

    def __init__(self, A, B, R):
        self.A, self.B = np.zeros_like(A), np.zeros_like(B)
        self.squares = np.zeros_like(A, np.float64, shape=len(A))
        self.sums = np.zeros_like(A, np.float64, shape=R)


def _bump(difference):
    """Return exp(-difference^2), in place."""
    difference *= difference
    np.negative(difference, out=difference)
    return np.exp(difference, out=difference)


def _extend_sums(sums, z, R):
    """Return e_1, e_2 ... of one more column from those of the columns before, R at most."""
    more = [e * z for e in sums[: R - 1]]
    for e, product in zip(sums[1:], more, strict=False):
        product += e
    return [sums[0] + z if sums else z, *more]
