"""CPU twin of ``products``: matrix products by BLAS, and the fused passes over (M, N) arrays."""

import numpy as np
from numba import njit

from .common import blas, blocked, scratch
from .common.batching import each, flat, matrix, plain
from .common.thread_pool import over_rows

FAST = {"contract", "reassoc", "nsz", "arcp"}
GEMM_UP_TO = 128  # rows
CHUNK = 2**21  # numbers
TILE = 1024  # columns: two float64 accumulators of this length stay in the L1 cache


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
        _gram(matrix(A), C, float(w[0]), 1.0 if add else 0.0)
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
        _gram(scaled[:, :count], C, -1.0, 1.0 if add else 0.0)
    if count < w.size:
        _gram(scaled[:, count:], C, 1.0, 1.0 if add or count else 0.0)
    return C


def _gram(A, C, alpha, beta):
    if len(A) <= GEMM_UP_TO:
        blocked.gram_of_panels(A, C, alpha, beta)
    else:
        blas.syrk(A, C, blas.N, alpha, beta)


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


@njit(nogil=True, cache=True, fastmath=FAST)
def _column_moments(start, stop, A, B, x, dots, squares):
    M = A.shape[0]
    fours = M // 4 * 4  # rows at a time: memory delivers four streams faster than one
    d = np.empty(TILE)
    s = np.empty(TILE)
    for j0 in range(start, stop, TILE):
        width = min(TILE, stop - j0)
        end = j0 + width
        d[:width] = 0
        s[:width] = 0
        for i in range(0, fours, 4):
            a0, a1, a2, a3 = A[i, j0:end], A[i + 1, j0:end], A[i + 2, j0:end], A[i + 3, j0:end]
            b0, b1, b2, b3 = B[i, j0:end], B[i + 1, j0:end], B[i + 2, j0:end], B[i + 3, j0:end]
            x0, x1, x2, x3 = x[i], x[i + 1], x[i + 2], x[i + 3]
            for j in range(width):
                d[j] = d[j] + x0 * a0[j] + x1 * a1[j] + x2 * a2[j] + x3 * a3[j]
                s[j] = s[j] + a0[j] * b0[j] + a1[j] * b1[j] + a2[j] * b2[j] + a3[j] * b3[j]
        for i in range(fours, M):
            row, other, xi = A[i, j0:end], B[i, j0:end], x[i]
            for j in range(width):
                d[j] += xi * row[j]
                s[j] += row[j] * other[j]
        for j in range(width):
            dots[j0 + j] = d[j]
            squares[j0 + j] = s[j]


def column_moments(A, x, B=None):
    N = A.shape[1]
    dots, squares = np.empty(N, A.dtype), np.empty(N, A.dtype)
    A, x = plain(A), plain(x)
    over_rows(_column_moments, N, A.size, A, A if B is None else plain(B), x, dots, squares)
    return dots, squares


@njit(nogil=True, cache=True, fastmath=FAST)
def _lower_copy(start, stop, A, out):
    for i in range(start, stop):
        source, lower, upper = A[i, : i + 1], out[i, : i + 1], out[i, i + 1 :]
        for j in range(lower.size):
            lower[j] = source[j]
        for j in range(upper.size):
            upper[j] = 0


def lower_copy(A):
    """Copy lower triangles (..., M, M); the copies have zeros above the diagonals."""
    out = scratch.empty(A.shape, A.dtype)
    for source, copy in zip(flat(plain(A), 2), flat(out, 2), strict=True):
        over_rows(_lower_copy, len(copy), copy.size, source, copy)
    return out


@njit(nogil=True, cache=True, fastmath=FAST)
def _scale_columns(start, stop, A, w, out):
    for i in range(start, stop):
        for j in range(A.shape[1]):
            out[i, j] = A[i, j] * w[j]


def scale_columns(A, w, out=None):
    out = scratch.empty(A.shape, A.dtype) if out is None else out
    over_rows(_scale_columns, A.shape[0], A.size, plain(A), plain(w), out)
    return out


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True, fastmath=FAST)
def _add_scaled(start, stop, T, A, c):
    for i in range(start, stop):
        t, row = T[i], A[i]
        for j in range(t.size):
            t[j] += c * row[j]


def add_scaled(T, A, c):
    over_rows(_add_scaled, T.shape[0], T.size, T, plain(A), T.dtype.type(c))
    return T


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True, fastmath=FAST)
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


@njit(nogil=True, cache=True, fastmath=FAST)
def _tril_squares(start, stop, L):
    total = 0.0
    for i in range(start, stop):
        row = L.dtype.type(0)
        for j in range(i + 1):
            row += L[i, j] * L[i, j]
        total += row
    return total


def tril_sum_of_squares(L):
    return sum(sum(over_rows(_tril_squares, len(Li), Li.size / 2, Li)) for Li in flat(matrix(L), 2))


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


@njit(nogil=True, cache=True, fastmath=FAST)
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
    over_rows(
        _tril_update,
        len(C),
        C.size,
        plain(C),
        plain(L),
        C.dtype.type(shift),
        transpose,
        out,
    )
    return out
