"""CPU twin of ``factorisations``; its reverse rules need no derivative of a factor."""

import numpy as np

from ...errors import NotPositiveDefinite
from .common import blas, blocked, scratch
from .common.batching import each, each_into, flat, matrix, owned
from .common.compiled import FAST, kernel
from .common.thread_pool import over_rows
from .products import lower_copy, scaled_tril
from .triangular import tril


def _factorised(A, jitter):
    """Factor A in place, lower; return 0, or one plus the failing row."""
    if jitter:
        A.reshape(-1)[:: len(A) + 1] += jitter
    return blocked.cholesky(A)


def not_positive_definite(i, pivot, jitter, A):
    """Return the error of matrix i of the batch A (..., M, M)."""
    batch = np.unravel_index(i, A.shape[:-2])
    return NotPositiveDefinite(batch, pivot, jitter, A.shape[-1], A.dtype)


def cholesky(A, jitter=0.0, overwrite_a=False, noise=None):
    L = owned(A, overwrite_a, lower_copy)
    if L is A:
        tril(L)
    if noise is not None:
        for Li in flat(L, 2):
            Li.reshape(-1)[:: len(Li) + 1] += noise
    for i, Li in enumerate(flat(L, 2)):
        if info := _factorised(Li, jitter):  # it keeps the zeros above the diagonal
            raise not_positive_definite(i, info - 1, jitter, L)
    return L


def _whitening(L, C, inverse=None):
    """Replace C by -1/2 L^-T (Phi(C) + Phi(C)') L^-1 in place; only its lower triangle is read."""
    if inverse is None:
        blocked.inverse_congruence(matrix(L), C)
        scaled_tril(C, -0.5, -0.5, 0, C)
    else:
        blocked.mirror(C)
        blas.trmm(matrix(inverse), C, True, blas.T, -0.5)
        blas.trmm(matrix(inverse), C, False, blas.N, 1.0)
    blocked.mirror(C)
    return C


def whitening_vjp(C, L, overwrite_c=False, inverse=None):
    if C.ndim == 2 and L.ndim == 2:
        return _whitening(L, owned(C, overwrite_c), inverse)
    return each(lambda C, L: _whitening(L, scratch.copy(C)), C, L)


def cholesky_inverse(L):
    def one(L, X):
        X[...] = L
        blocked.inverse(X)
        blocked.gram(X)
        blocked.mirror(X)

    return each_into(one, L)[0]


def cholesky_product(L):
    def one(L, A):
        A[...] = L
        blocked.gram_of_rows(A)
        blocked.mirror(A)

    return each_into(one, L)[0]


@kernel("i i R2 R2")
def turn_lower(start, stop, A, out):
    """Set rows of out to the lower triangle of J A' J, zeros above; J reverses the order."""
    n = A.shape[0]
    for i0 in range(start, stop, 8):  # 8 x 8 tiles: every line of A is read once
        for j0 in range(0, i0 + 8, 8):
            for i in range(i0, min(i0 + 8, stop)):
                for j in range(j0, min(j0 + 8, i + 1)):
                    out[i, j] = A[n - 1 - j, n - 1 - i]
        for i in range(i0, min(i0 + 8, stop)):
            out[i, i + 1 :] = 0


def _turned(A, out):
    """Set out to the lower triangle of J A' J with zeros above it."""
    over_rows(turn_lower, len(out), out.size, A, out)


def cholesky_of_inverse(A, jitter=0.0):
    # With J the reversal of rows: J A J = R R', so A = (J R J)(J R J)' with J R J upper, and
    # A^-1 = W W' with W = (J R J)^-T = J R^-T J, which is lower.
    # A is transposed, because its lower triangle is the one that is read.
    def one(A, W):
        R = scratch.empty(A.shape, A.dtype)
        _turned(matrix(A), R)
        info = _factorised(R, jitter)
        if not info:
            blocked.inverse(R)
            _turned(R, W)
        return info

    W, infos = each_into(one, np.ascontiguousarray(A))
    for i, info in enumerate(infos):
        if info:
            raise not_positive_definite(i, W.shape[-1] - info, jitter, W)
    return W


@kernel("i i R2 R1 x R1 R1", fastmath=FAST, error_model="numpy")
def _deflate(start, stop, factor, weights, inverse_root, column, variance):
    j = weights.size
    for n in range(start, stop):
        row = factor[n, :j]
        total = 0.0
        for k in range(j):
            total += row[k] * weights[k]
        c = (column[n] - total) * inverse_root
        factor[n, j] = c
        variance[n] -= c * c


def deflate(factor, j, pivot, column, variance):
    weights, inverse_root = factor[pivot, :j].copy(), 1 / np.sqrt(variance[pivot])
    given = factor, weights, inverse_root, column, variance
    over_rows(_deflate, variance.size, (j + 2) * variance.size, *given)
