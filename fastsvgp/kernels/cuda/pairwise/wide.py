"""Stationary functions of many features: cuBLAS products and ``kernels_cuda/pairwise_wide.cu``.

One matrix at a time. Inputs are C-contiguous (N, D).
"""

import numpy as np

from ....runtime import cuda_devices
from ..common import blas, loader
from ..common.loader import NULL, number, parameter
from ..products import matmul

BLOCK, WARPS, WARP, EACH = 256, 8, 32, 4  # as in pairwise_wide.cu
BLOCKS_EACH = 16  # blocks of kernel `weigh` per multiprocessor
SAMPLE = 1024  # rows averaged for the centre
# entries of a row tile of the backward pass: fits the L2 cache
TILE = 1 << 22
_launch = loader.launcher("pairwise_wide", BLOCK)


def _moved(X1, X2, lengthscales):
    """Return 1 / lengthscales (D,), and for each input its centred, scaled rows and squared norms.

    Both inputs share one centre.
    """
    cp, (N1, D), dtype = cuda_devices.cupy(), X1.shape, X1.dtype
    scale, centre = cp.empty(D, dtype), cp.empty(D, dtype)
    _launch("invert", dtype, -(-D // BLOCK), *parameter(lengthscales, dtype), np.int32(D), scale)
    rows = X1, np.int64(N1), np.int32(D), np.int64(-(-N1 // SAMPLE))
    _launch("centre", dtype, -(-D // WARP), *rows, centre)
    results = []
    for X in (X1,) if X2 is X1 else (X1, X2):
        A, norms = cp.empty_like(X), cp.empty(len(X), dtype)
        given = X, np.int64(len(X)), np.int32(D), centre, scale, A, norms
        _launch("move", dtype, -(-len(X) // WARPS), *given)
        results += [A, norms]
    return scale, *(results * 2 if X2 is X1 else results)


def _pair(family, X1, X2, variance, scale):
    shape = X1, np.int64(len(X1)), X2, np.int64(len(X2)), np.int32(X1.shape[1])
    return np.int32(family), *shape, *number(variance, X1.dtype), scale


def matrix(family, X1, X2, variance, lengthscales, K):
    """Fill K (N1, N2). If X2 is X1 it is exactly symmetric."""
    scale, A, norms1, B, norms2 = _moved(X1, X2, lengthscales)
    blas.gemm(A, B, K, transpose_b=True)
    blocks = len(X1) * -(-len(X2) // (BLOCK * EACH))
    given = *_pair(family, X1, X2, variance, scale), norms1, norms2, np.int32(X2 is X1), K
    _launch("finish", K.dtype, blocks, *given)


def _add_near(pair, K_bar, near, turned, out, squares):
    """Add the near pairs to the cotangent ``out`` of X1, or of X2 if ``turned``."""
    arguments = *pair, K_bar, near, np.int32(turned), out, squares
    _launch("add_near", out.dtype, -(-len(out) // WARPS), *arguments)


def contract(K_bar, family, X1, X2, variance, lengthscales, names):
    """Compute the cotangents in ``names``, as a dictionary.

    ``names`` is a subset of "X1", "X2", "variance", "lengthscales". With rows a of A and b of B
    (centred and scaled), w the weights of pairs that are not near, and sums over i, j:

    X1_bar_i = sum_j w (b_j - a_i) = (W B)_i - a_i sum_j w
    X2_bar_j = (W' A)_j - b_j sum_i w
    sum w (b - a)^2 = sum_i a_i^2 sum_j w + sum_j b_j^2 sum_i w - 2 sum_i a_i (W B)_i

    The last is elementwise in the features. A column of ones beside A and B makes the sums of w
    part of the products. If X2 is X1, K_bar is symmetric and X1_bar is that of one side.
    """
    cp, (N1, D), N2, dtype, symmetric = cuda_devices.cupy(), X1.shape, len(X2), X1.dtype, X2 is X1
    scale, A, norms1, B, norms2 = _moved(X1, X2, lengthscales)
    A1, B1 = (cp.concatenate([M, cp.ones((len(M), 1), dtype)], axis=1) for M in (A, B))
    size, words = min(N1, max(64, TILE // N2)), -(-N2 // WARP)
    blocks = min(-(-size * words // WARPS), BLOCKS_EACH * cuda_devices.multiprocessors())
    total, squares = cp.empty((-(-N1 // size), blocks)), cp.zeros(D)
    X1_bar = cp.empty((N1, D), dtype)
    X2_sums, X2_near = (
        cp.zeros((N2, D + 1 if "X2" in names else 1), dtype),
        cp.zeros((N2, D), dtype),
    )
    for start in range(0, N1, size):
        here = slice(start, min(start + size, N1))
        a, a1, k_bar = A[here], A1[here], K_bar[here]
        W, near = matmul(a, B, transpose_b=True), cp.empty((len(a), words), np.uint32)
        pair = _pair(family, X1[here], X2, variance, scale)
        given = *pair, norms1[here], norms2, k_bar
        _launch("weigh", dtype, blocks, *given, W, near, total[start // size])
        if names == {"variance"}:
            continue
        pulled, bar, near_squares = matmul(W, B1), cp.zeros_like(a), cp.zeros_like(a)
        row_sums, pulled = pulled[:, D:], pulled[:, :D]
        _add_near(pair, k_bar, near, False, bar, near_squares)
        squares += ((row_sums * (2 if symmetric else 1) * a - 2 * pulled) * a + near_squares).sum(
            0, dtype=np.float64
        )
        X1_bar[here] = (pulled - row_sums * a + bar) * scale
        if not symmetric:
            X2_sums += matmul(W, a1 if "X2" in names else a1[:, D:], transpose_a=True)
        if "X2" in names:
            _add_near(pair, k_bar, near, True, X2_near, NULL)
    column_sums = X2_sums[:, -1:]
    if not symmetric:
        squares += (column_sums * B * B).sum(0, dtype=np.float64)
    bars = {"X1": X1_bar, "variance": total.sum() / variance, "lengthscales": squares * scale}
    if "X2" in names:
        bars["X2"] = (X2_sums[:, :D] - column_sums * B + X2_near) * scale
    if np.ndim(lengthscales) == 0:
        bars["lengthscales"] = bars["lengthscales"].sum()
    return {name: bars[name] for name in names}
