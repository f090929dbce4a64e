"""CPU twin of ``products``: matrix products by BLAS, and the fused passes over (M, N) arrays."""

import numpy as np

from .common import blas, blocked, scratch
from .common.batching import each, flat, matrix, plain
from .common.compiled import FAST, kernel
from .common.thread_pool import over_rows, over_triangle

CHUNK = 2**21  # numbers


def matmul(A, B, transpose_a=False, transpose_b=False):
    def one(A, B):
        C = scratch.empty(
            (A.shape[1 if transpose_a else 0], B.shape[0 if transpose_b else 1]), A.dtype
        )
        if A.size == 0 or B.size == 0:
            C[:] = 0
        elif C.shape[0] == 1:  # one vector: gemm would take twice as long as gemv
            blas.gemv(matrix(B), _vector(A), C.reshape(-1), _letter(not transpose_b))
        elif C.shape[1] == 1:
            blas.gemv(matrix(A), _vector(B), C.reshape(-1), _letter(transpose_a))
        else:
            blas.gemm(matrix(A), matrix(B), C, _letter(transpose_a), _letter(transpose_b), 1.0, 0.0)
        return C

    return each(one, A, B)


def _letter(transpose):
    return blas.T if transpose else blas.N


def _vector(A):
    """Return a matrix of one row or one column as the vector that our BLAS wrappers accept."""
    x = A.reshape(-1)
    return x if x.flags.c_contiguous and x.flags.writeable else x.copy()


def weighted_gram(A, w, out=None, add=False, overwrite_a=False):
    """A diag(w) A' = (A+ A+') - (A- A-'), columns scaled by sqrt|w| and split by the sign of w.

    Equal weights, those of a Gaussian likelihood, are a factor of the product.
    """
    C = scratch.empty((A.shape[0], A.shape[0]), A.dtype) if out is None else out
    if w.size == 0:
        return C if add else _zeroed(C)
    if np.count_nonzero(w == w[0]) == w.size:
        _add_gram(matrix(A), C, float(w[0]), 1.0 if add else 0.0)
        return C
    negative = w < 0
    count = int(np.count_nonzero(negative))
    root = np.sqrt(np.abs(w))
    if 0 < count < w.size:
        order = np.argsort(~negative, kind="stable")
        scaled = np.take(A, order, axis=1)
        scaled *= root[order]
    else:
        scaled = scale_columns(A, root, A if overwrite_a else None)
    if count:
        _add_gram(scaled[:, :count], C, -1.0, 1.0 if add else 0.0)
    if count < w.size:
        _add_gram(scaled[:, count:], C, 1.0, 1.0 if add or count else 0.0)
    return C


def _add_gram(A, C, alpha, beta):
    """Lower triangle of C := alpha A A' + beta C."""

    def fill(i, j):
        blas.gemm(A[i:j], A[:i], C[i:j, :i], blas.N, blas.T, alpha, beta)
        blocked.gram_of_panels(A[i:j], C[i:j, i:j], alpha, beta)

    over_triangle(fill, len(C), A.size * len(C))


def _zeroed(C):
    C[:] = 0
    return C


def chunk_numbers(like):
    return CHUNK


def symmetrise(A):
    for Ai in flat(A, 2):
        blocked.mirror(Ai)
    return A


def empty(shape, like):
    return scratch.empty(shape, like.dtype)


@kernel("i i R2 R2 R1 R1 R1", fastmath=FAST)
def _column_moments(start, stop, A, B, x, dots, squares):
    d, s = np.zeros(stop - start), np.zeros(stop - start)
    for i in range(A.shape[0]):
        a, b = A[i, start:stop], B[i, start:stop]
        for j in range(a.size):
            d[j] += x[i] * a[j]
            s[j] += a[j] * b[j]
    dots[start:stop], squares[start:stop] = d, s


def column_moments(A, x, B=None):
    N = A.shape[1]
    dots, squares = np.empty(N, A.dtype), np.empty(N, A.dtype)
    A, x = plain(A), plain(x)
    over_rows(_column_moments, N, A.size, A, A if B is None else plain(B), x, dots, squares)
    return dots, squares


@kernel("i i R2 r r r R2")
def _scaled_tril(start, stop, C, scale, diagonal, shift, out):
    for i in range(start, stop):
        for j in range(i):
            out[i, j] = scale * C[i, j]
        out[i, i] = shift + diagonal * C[i, i]
        out[i, i + 1 :] = 0


def scaled_tril(C, scale, diagonal, shift, out):
    """Set out to ``scale`` tril(C) below the diagonal, ``shift + diagonal * C_ii`` on it."""
    real = C.dtype.type
    over_rows(_scaled_tril, len(C), C.size, C, real(scale), real(diagonal), real(shift), out)
    return out


def lower_copy(A):
    """Copy lower triangles (..., M, M); the copies have zeros above the diagonals."""
    out = scratch.empty(A.shape, A.dtype)
    for source, copy in zip(flat(plain(A), 2), flat(out, 2), strict=True):
        scaled_tril(source, 1, 1, 0, copy)
    return out


@kernel("i i R2 R1 R2", fastmath=FAST)
def _scale_columns(start, stop, A, w, out):
    for i in range(start, stop):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j] * w[j]


def scale_columns(A, w, out=None):
    out = scratch.empty(A.shape, A.dtype) if out is None else out
    over_rows(_scale_columns, A.shape[0], A.size, plain(A), plain(w), out)
    return out


@kernel("i i R2 R1 R1 R1 b", fastmath=FAST)
def _add_outer(start, stop, T, x, a, w, scale):
    for i in range(start, stop):
        t, xi = T[i], x[i]
        if scale:
            for j in range(t.size):
                t[j] = t[j] * w[j] + xi * a[j]
        else:
            for j in range(t.size):
                t[j] += xi * a[j]


def add_outer(T, x, a, w=None):
    x, a = plain(x), plain(a)
    over_rows(_add_outer, T.shape[0], T.size, T, x, a, a if w is None else plain(w), w is not None)
    return T


@kernel("i i R2 R2 r", fastmath=FAST)
def _add_scaled(start, stop, T, A, c):
    for i in range(start, stop):
        t, row = T[i], A[i]
        for j in range(t.size):
            t[j] += c * row[j]


def add_scaled(T, A, c):
    over_rows(_add_scaled, T.shape[0], T.size, T, plain(A), T.dtype.type(c))
    return T


@kernel("i i R2 R1 R1 R1 R2 R1", fastmath=FAST)
def _scale_add_outer(start, stop, T, w, x, a, A, dots):
    for i in range(start, stop):
        t, row, xi = T[i], A[i], x[i]
        dot = T.dtype.type(0)
        for j in range(t.size):
            t[j] = t[j] * w[j] + xi * a[j]
            dot += row[j] * a[j]
        dots[i] = dot


def scale_add_outer(T, w, x, a, A):
    dots = np.empty(len(T), T.dtype)
    arguments = map(plain, (w, x, a, A))
    over_rows(_scale_add_outer, T.shape[0], 2 * T.size, T, *arguments, dots)
    return dots


@kernel("i i R2 R1 R1 R2 R1 b R1", fastmath=FAST)
def _add_outer_minus_scaled(start, stop, T, x, a, A, w, scale, dots):
    for i in range(start, stop):
        t, row, xi = T[i], A[i], x[i]
        dot = T.dtype.type(0)
        if scale:
            for j in range(t.size):
                t[j] = (t[j] - row[j]) * w[j] + xi * a[j]
                dot += row[j] * a[j]
        else:
            for j in range(t.size):
                t[j] += xi * a[j] - row[j] * w[j]
                dot += row[j] * a[j]
        dots[i] = dot


def add_outer_minus_scaled(T, x, a, A, w, scale=False):
    dots = np.empty(len(T), T.dtype)
    arguments = map(plain, (x, a, A, w))
    over_rows(_add_outer_minus_scaled, T.shape[0], 2 * T.size, T, *arguments, scale, dots)
    return dots


@kernel("i i M M", fastmath=FAST)
def _tril_inner(start, stop, P, Q):
    total = 0.0
    for i in range(start, stop):
        for j in range(i + 1):
            total += np.float64(P[i, j]) * np.float64(Q[i, j])
    return total


def tril_inner(P, Q):
    """Return sum_ij P_ij Q_ij over the lower triangles."""
    return sum(over_rows(_tril_inner, len(P), P.size / 2, P, Q))


def tril_sum_of_squares(L):
    return sum(tril_inner(Li, Li) for Li in flat(matrix(L), 2))


def kl_from_standard(means, trils):
    squares = np.add.reduce(np.square(means, dtype=float), axis=None) + tril_sum_of_squares(trils)
    return 0.5 * (squares - means.size) - np.log(trils.diagonal(0, -2, -1), dtype=float).sum()


def raise_to_floor(var, kff, add=False):
    if add:
        var += kff
    floor = np.finfo(var.dtype).eps * kff
    count = int(np.count_nonzero(var < floor))
    if count:
        np.maximum(var, floor, out=var)
    return count


@kernel("i i R2 R2 r b R2", fastmath=FAST)
def _tril_update(start, stop, C, L, shift, transpose, out):
    M = L.shape[0]
    # 8 x 8 tiles: each cache line is read once, and loops of fixed length are vectorised
    if transpose:
        for i0 in range(start, stop, 8):
            tiled = i0 // 8 * 8 if i0 + 8 <= stop else 0
            for j0 in range(0, tiled, 8):
                for i in range(8):
                    for j in range(8):
                        out[i0 + i, j0 + j] = C[j0 + j, i0 + i] + shift * L[i0 + i, j0 + j]
            for i in range(i0, min(i0 + 8, stop)):
                for j in range(tiled, i + 1):
                    out[i, j] = C[j, i] + shift * L[i, j]
    else:
        for i in range(start, stop):
            c, row, o = C[i, : i + 1], L[i, : i + 1], out[i, : i + 1]
            for j in range(o.size):
                o[j] = c[j] + shift * row[j]
    for i in range(start, stop):
        out[i, i + 1 : M] = 0
        out[i, i] -= shift / L[i, i]


def tril_update(C, L, shift, out, transpose=False):
    given = plain(C), plain(L), C.dtype.type(shift), transpose, out
    over_rows(_tril_update, len(C), C.size, *given)
    return out
