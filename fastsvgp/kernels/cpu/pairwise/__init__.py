"""CPU twin of ``pairwise``: stationary functions, weighted inner products, and their pullbacks.

The squared distance r^2 = sum_d ((x_d - x'_d) / l_d)^2 has two forms. With few features: direct
differences. With many: norms and one matrix product of centred, scaled inputs, with every pair
whose r^2 suffers cancellation recomputed directly.
"""

import numpy as np
from scipy.linalg import blas

from ..common import scratch
from ..common.batching import plain
from ..common.thread_pool import over_rows
from . import direct, tiles as rows

FAMILIES = {
    "rbf": rows.RBF,
    "matern12": rows.MATERN12,
    "matern32": rows.MATERN32,
    "matern52": rows.MATERN52,
}
DIRECT_BELOW = 41  # features; from here on the form with the matrix product is faster
# nanoseconds of work, roughly: less than two hand-overs to other threads cost
SMALL_BELOW = 60_000
# entries of a row tile of the backward pass for many features (2 MB in float64)
TILE = 1 << 18
SMALLEST = {np.dtype(t): 2 / np.sqrt(np.finfo(t).max) for t in (np.float64, np.float32)}
_none = {np.dtype(t): np.empty((0, 0), t) for t in (np.float64, np.float32)}


def _scale(lengthscales, D, dtype):
    """Return 1 / lengthscales, clipped so that its square is finite.

    With any smaller lengthscale too, unequal points are infinitely far apart.
    """
    return np.divide(
        1, np.maximum(lengthscales, SMALLEST[dtype]), out=np.empty(D, dtype), casting="same_kind"
    )


def vector(lengthscales, D, dtype):
    """Return lengthscales as (D,) or (1,) in the dtype; a number is clipped to its range."""
    if np.ndim(lengthscales) == 0:
        return np.array(
            [min(max(float(lengthscales), float(SMALLEST[dtype])), float(np.finfo(dtype).max))],
            dtype,
        )
    if lengthscales.shape != (D,):
        raise ValueError(
            f"`lengthscales` must have shape () or ({D},), one per feature, got"
            f" {lengthscales.shape}"
        )
    return plain(np.asarray(lengthscales, dtype))


def _gemm(dtype):
    return blas.dgemm if dtype == np.float64 else blas.sgemm


def _blocks(N):
    return -(-N // rows.ROWS)


def stationary(family, X1, X2, variance, lengthscales):
    if X1.ndim > 2:
        return np.stack(
            [
                stationary(family, x, None if X2 is None else X2[i], variance, lengthscales)
                for i, x in enumerate(X1)
            ]
        )
    symmetric = X2 is None
    X1 = plain(X1)
    X2 = X1 if symmetric else plain(X2)
    (N1, D), N2, dtype = X1.shape, X2.shape[0], X1.dtype
    family, variance = FAMILIES[family], dtype.type(variance)
    if D < DIRECT_BELOW:
        return _by_differences(family, X1, X2, variance, lengthscales, symmetric)
    scale, K = _scale(lengthscales, D, dtype), scratch.empty((N1, N2), dtype)
    if K.size == 0:
        return K
    A, norms1, B, norms2 = _centred(X1, X2, scale)
    if symmetric:
        syrk = blas.dsyrk if dtype == np.float64 else blas.ssyrk
        # the upper triangle of K' is the lower one of K
        syrk(-2, A.T, trans=1, c=K.T, overwrite_c=1)
    else:
        _gemm(dtype)(-2, B.T, A.T, trans_a=1, c=K.T, overwrite_c=1)
    arguments = family, variance, rows.Pairs(X1, norms1, X2, norms2, scale), symmetric, K
    over_rows(rows.finish, _blocks(N1), 1.5 * N1 * N2, *arguments)
    return K


def _by_differences(family, X1, X2, variance, lengthscales, symmetric):
    (N1, D), N2, dtype = X1.shape, X2.shape[0], X1.dtype
    lengthscales, smallest = vector(lengthscales, D, dtype), SMALLEST[dtype]
    work = N1 * N2 * (0.7 + 0.06 * D)  # in nanoseconds, roughly
    if work < SMALL_BELOW:
        return direct.matrix(family, X1, X2, lengthscales, smallest, variance, symmetric)
    Bt, scale = direct.prepared(X2, lengthscales, smallest)
    K = scratch.empty((N1, N2), dtype)
    arguments = family, variance, X1, Bt, scale, symmetric, K
    over_rows(direct.matrix_rows, _blocks(N1), work, *arguments)
    return K


def _centred(X1, X2, scale):
    """Return inputs scaled about their mean, and their squared norms.

    A NaN in the mean must not spread to other points.
    """
    c = np.nan_to_num(X1.mean(0), nan=0.0, posinf=0.0, neginf=0.0)
    results = []
    for X in (X1,) if X2 is X1 else (X1, X2):
        A, norms = np.empty_like(X), np.empty(len(X), X.dtype)
        over_rows(rows.centre, len(X), X.size, X, c, scale, A, norms)
        results += [A, norms]
    return results * 2 if X2 is X1 else results


def stationary_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K):
    if X1.ndim > 2:
        return _vjp_over_batch(K_bar, family, X1, X2, variance, lengthscales, need, K)
    if X2 is not None and _is_transposed(K_bar):
        return _transposed_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K)
    form, arguments = _plan(K_bar, family, X1, X2, variance, lengthscales, need, K)
    total, squares, X1_bar, X2_bar, scale = form(*arguments)
    variance_bar = lengthscales_bar = None
    dtype = X1.dtype
    if "variance" in need:
        variance_bar = dtype.type(total / float(dtype.type(variance)))
    # squares holds sum w ((x - x') / l)^2, a factor l short of the derivative
    if "lengthscales" in need:
        squares = squares * scale
        lengthscales_bar = (
            dtype.type(squares.sum()) if np.ndim(lengthscales) == 0 else squares.astype(dtype)
        )
    return (
        X1_bar if "X1" in need else None,
        X2_bar if "X2" in need and X2 is not None else None,
        variance_bar,
        lengthscales_bar,
    )


def _is_transposed(K_bar):
    return K_bar.flags.f_contiguous and not K_bar.flags.c_contiguous


def _transposed_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K):
    """Contract a Fortran-ordered cotangent with both inputs exchanged."""
    swap = {"X1": "X2", "X2": "X1"}
    need, K = tuple(swap.get(name, name) for name in need), None if K is None else K.T
    X2_bar, X1_bar, *rest = stationary_vjp(K_bar.T, family, X2, X1, variance, lengthscales, need, K)
    return X1_bar, X2_bar, *rest


def _plan(K_bar, family, X1, X2, variance, lengthscales, need, K):
    """Choose the form of a contraction: return its function and arguments.

    All forms take C-ordered arrays, X2 = X1 in the symmetric case, ``sides`` as in
    ``direct.pullback_rows``, the work in nanoseconds, roughly, and K of an RBF, or an empty K.
    """
    symmetric = X2 is None
    X1, K_bar = plain(X1), plain(K_bar.T if symmetric and _is_transposed(K_bar) else K_bar)
    X2 = X1 if symmetric else plain(X2)
    D, dtype = X1.shape[1], X1.dtype
    if symmetric and K is not None and K.flags.f_contiguous:
        K = K.T  # the same matrix, in C order
    # recomputing k costs less than transposing K, or than dividing by the polynomial
    if family != "rbf" or K is None or not K.flags.carray:
        K = _none[dtype]
    both_sides = symmetric and "X1" in need or not symmetric and "X2" in need
    sides = 2 if both_sides else int("X1" in need or "lengthscales" in need)
    work = K_bar.size * (1 + (0.0, 0.12, 0.15)[sides] * D) / (2 if symmetric else 1)
    form = _direct_vjp if D < DIRECT_BELOW or K_bar.size == 0 else _product_vjp
    variance, family = dtype.type(variance), FAMILIES[family]
    return form, (K_bar, family, X1, X2, variance, lengthscales, symmetric, sides, work, K)


def _vjp_over_batch(K_bar, family, X1, X2, variance, lengthscales, need, K):
    """Apply ``stationary_vjp`` to one matrix at a time; sum the cotangents of shared parameters."""
    results = [
        stationary_vjp(
            K_bar[i],
            family,
            X1[i],
            None if X2 is None else X2[i],
            variance,
            lengthscales,
            need,
            None if K is None else K[i],
        )
        for i in range(len(X1))
    ]
    X1_bar, X2_bar, variance_bar, lengthscales_bar = (
        None if parts[0] is None else np.stack(parts) for parts in zip(*results, strict=True)
    )
    return (
        X1_bar,
        X2_bar,
        *(None if bar is None else bar.sum(0) for bar in (variance_bar, lengthscales_bar)),
    )


def _direct_vjp(K_bar, family, X1, X2, variance, lengthscales, symmetric, sides, work, K):
    dtype = X1.dtype
    lengthscales, smallest = vector(lengthscales, X1.shape[1], dtype), SMALLEST[dtype]
    if work < SMALL_BELOW:
        return direct.matrix_vjp(
            K_bar, family, X1, X2, lengthscales, smallest, variance, symmetric, sides, K
        )
    Bt, scale = direct.prepared(X2, lengthscales, smallest)
    X1_bar = np.zeros(X1.shape, dtype)
    arguments = family, variance, X1, Bt, scale, symmetric, sides, K_bar, K, X1_bar
    # each range has an X2_bar of its own
    (total, squares, X2_bar), *others = over_rows(
        direct.pullback_rows, _blocks(len(X1)), work, *arguments, chunks=2
    )
    for more, more_squares, part in others:
        total += more
        squares += more_squares
        X2_bar += part
    return direct.finished(total, squares, X1_bar, X2_bar, scale, symmetric)


def _product_vjp(K_bar, family, X1, X2, variance, lengthscales, symmetric, sides, work, K):
    """Contract one row tile of W = K_bar q at a time.

    With rows a of A and b of B (centred and scaled), and sums over i, j:

    X1_bar_i = sum_j w (b_j - a_i) = (W B)_i - a_i sum_j w
    X2_bar_j = (W' A)_j - b_j sum_i w
    sum w (b - a)^2 = sum_i a_i^2 sum_j w + sum_j b_j^2 sum_i w - 2 sum_i a_i (W B)_i

    The last is elementwise in the features. Near pairs, for which these differences cancel, are not
    in W but added one by one. In the symmetric case only X1's side is computed, and doubled.
    """
    (N1, D), N2, dtype = X1.shape, X2.shape[0], X1.dtype
    scale = _scale(lengthscales, D, dtype)
    gemm, gemv = (blas.dgemm, blas.dgemv) if dtype == np.float64 else (blas.sgemm, blas.sgemv)
    A, norms1, B, norms2 = _centred(X1, X2, scale)
    by_value = family == rows.RBF and K.size > 0
    if by_value:
        norms1, norms2 = np.exp(-rows.NEAR / 2 * norms1), np.exp(-rows.NEAR / 2 * norms2)
    size = min(N1, max(32, TILE // N2))
    tile, row_sums = np.empty((size, N2), dtype), np.empty(size, dtype)
    column_sums = np.zeros(N2, dtype)
    other_side = sides == 2 and not symmetric
    X1_bar, X2_bar = np.zeros((N1, D), dtype), np.zeros((N2, D) if other_side else (0, D), dtype)
    squares, total = np.zeros(D), 0.0
    for start in range(0, N1, size):
        here = slice(start, min(start + size, N1))
        a, bar, W = A[here], X1_bar[here], tile[: here.stop - start]
        if not by_value:
            gemm(-2, B.T, a.T, trans_a=1, c=W.T, overwrite_c=1)
        pairs = rows.Pairs(X1[here], norms1[here], X2, norms2, scale)
        arguments = family, variance, pairs, K_bar[here], K[here], W, row_sums
        results = over_rows(rows.weigh, len(W), 2.0 * W.size, *arguments)
        total += sum(result[0] for result in results)
        if sides == 0:
            continue
        sums = row_sums[: len(W), None]
        gemm(1, B.T, W.T, c=bar.T, overwrite_c=1)
        squares += (((2 if symmetric else 1) * sums * a - 2 * bar) * a).sum(0, dtype=np.float64)
        bar -= sums * a
        if not symmetric:
            gemv(1, W.T, np.ones(len(W), dtype), beta=1, y=column_sums, overwrite_y=1)
        if other_side:
            gemm(1, a.T, W.T, trans_b=1, beta=1, c=X2_bar.T, overwrite_c=1)
        for _, i, j, w in results:
            rows.add_pairs(i, j, w, X1[here], X2, scale, bar, X2_bar, squares)
    if symmetric:
        return total, squares, np.multiply(X1_bar, 2 * scale, out=X1_bar), None, scale
    squares += (column_sums[:, None] * B * B).sum(0, dtype=np.float64)
    if other_side:
        X2_bar -= column_sums[:, None] * B
    X1_bar, X2_bar = (np.multiply(bar, scale, out=bar) for bar in (X1_bar, X2_bar))
    return total, squares, X1_bar, X2_bar, scale


def inner(X1, X2, weights):
    dtype = X1.dtype
    K = scratch.empty((len(X1), len(X1 if X2 is None else X2)), dtype)
    if K.size == 0:
        return K
    weights = np.asarray(weights, dtype)
    if X2 is None:
        A = np.multiply(X1, np.sqrt(weights), order="C")
        syrk = blas.dsyrk if dtype == np.float64 else blas.ssyrk
        syrk(1, A.T, trans=1, c=K.T, overwrite_c=1)
        over_rows(rows.mirror, _blocks(len(K)), K.size, K)
        return K
    A, B = np.multiply(X1, weights, order="C"), np.ascontiguousarray(X2)
    _gemm(dtype)(1, B.T, A.T, trans_a=1, c=K.T, overwrite_c=1)
    return K


def inner_vjp(K_bar, X1, X2, weights, need):
    dtype, weights = X1.dtype, np.asarray(weights, X1.dtype)
    symmetric = X2 is None
    X2 = X1 if symmetric else X2
    X1_bar = X2_bar = weights_bar = None
    if "X1" in need or "weights" in need:
        P = _thin_product(K_bar, X2)
        if "weights" in need:
            weights_bar = (
                (X1 * P).sum(None if weights.ndim == 0 else 0, dtype=np.float64).astype(dtype)
            )
        if "X1" in need:
            X1_bar = np.multiply(P, 2 * weights if symmetric else weights, order="C")
    if "X2" in need and not symmetric:
        X2_bar = np.multiply(_thin_product(K_bar.T, X1), weights, order="C")
    return X1_bar, X2_bar, weights_bar


def _thin_product(W, X):
    """Compute W X for a matrix of either memory order, without copying it, and a thin X."""
    if W.size == 0:
        return np.zeros((W.shape[0], X.shape[1]), W.dtype)
    gemm, X = _gemm(W.dtype), np.ascontiguousarray(X)
    if W.flags.f_contiguous:
        return gemm(1, W, X.T, trans_b=1)
    return gemm(1, X.T, np.ascontiguousarray(W).T).T


# --- squared distances: the pass of an RBF with a given matrix k reads no distances; its weights
# are K_bar k. With k = -2 they are those of r^2. No pair is then near for the form with many
# features, whose differences cancel there as those of a matrix product do.


def squared_distances(X1, X2, lengthscales):
    symmetric = X2 is None
    X1 = plain(X1)
    X2 = X1 if symmetric else plain(X2)
    one = X1.dtype.type(1)
    return _by_differences(rows.SQUARED, X1, X2, one, lengthscales, symmetric)


def squared_distances_vjp(R_bar, X1, X2, lengthscales, need):
    if not R_bar.flags.forc:
        R_bar = np.ascontiguousarray(R_bar)
    weights = scratch.empty(R_bar.shape, R_bar.dtype)
    weights.fill(-2)
    if not R_bar.flags.c_contiguous:
        weights = weights.reshape(R_bar.shape[::-1]).T
    bars = stationary_vjp(R_bar, "rbf", X1, X2, 1.0, lengthscales, need, weights)
    return *bars[:2], bars[3]
