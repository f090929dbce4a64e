"""CPU twin of ``triangular``: lower factors, solves and products with them."""

import numpy as np

from ..common import blas, blocked, scratch
from ..common.batching import each, entry, flat, matrix, owned
from ..common.thread_pool import over_triangle
from ..products import lower_copy
from . import lower_products

INVERSE_UP_TO = 256  # rows of a factor up to which its inverse pays off


def _apply(operation, L, B, transpose, overwrite):
    trans = blas.T if transpose else blas.N
    L = matrix(L)
    if L.ndim == B.ndim == 2:
        X = owned(B, overwrite)
        operation(L, X, trans)
        return X
    if L.ndim == 2 and B.shape[-1] < L.shape[-1]:
        # one shared factor, few columns each: all right-hand sides side by side are one call
        # a copy, even if B has that layout already
        wide = np.array(np.moveaxis(B, -2, 0), order="C")
        operation(L, wide.reshape(L.shape[0], -1), trans)
        return np.ascontiguousarray(np.moveaxis(wide, 0, -2))
    batch = np.broadcast_shapes(L.shape[:-2], B.shape[:-2])
    X = (
        owned(B, overwrite)
        if B.shape[:-2] == batch
        else scratch.copy(np.broadcast_to(B, batch + B.shape[-2:]))
    )
    for i in np.ndindex(batch):
        operation(entry(L, i), X[i], trans)
    return X


def _multiply(L, X, trans):
    blas.trmm(L, X, True, trans, 1.0)


def solve_triangular(L, B, transpose=False, overwrite_b=False):
    return _apply(blocked.solve, L, B, transpose, overwrite_b)


def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    return _apply(_multiply, L, B, transpose, overwrite_b)


def tril_multiply(L, B, overwrite_b=False, lower=False):
    multiply = lower_products.lower_times_lower if lower else lower_products.lower_times

    def one(L, B, overwrite_b=False):
        X = owned(B, overwrite_b)
        multiply(matrix(L), X)
        return X

    return one(L, B, overwrite_b) if L.ndim == B.ndim == 2 else each(one, L, B)


def solve_tril(L, W, transpose=False, overwrite_w=False):
    batch = np.broadcast_shapes(L.shape[:-2], W.shape[:-2])
    if W.shape[:-2] == batch:
        X = owned(W, overwrite_w, lower_copy)
    else:
        X = lower_copy(np.broadcast_to(W, batch + W.shape[-2:]))
    if X is W:
        tril(X)
    operation = blocked.tril_solve_transposed if transpose else blocked.tril_solve
    for i in np.ndindex(batch):
        operation(matrix(entry(L, i)), X[i])
    return tril(X) if transpose else X


def prefers_inverse(L, columns):
    return L.shape[-1] <= min(INVERSE_UP_TO, columns)


def inverse_triangular(L, overwrite_l=False):
    X = owned(L, overwrite_l, lower_copy)
    for Xi in flat(X, 2):
        blocked.inverse(Xi)
    return X


def tril_gram(L, w=None):
    def one(L, w):
        G = scratch.empty(L.shape, L.dtype)
        np.multiply(L, 1 if w is None else np.sqrt(w)[:, None], out=G)
        blocked.gram(G)
        return G

    return each(lambda L: one(L, w), L)


def tril_product(A, B, out=None, add=False, lower=False):
    if out is None:
        out = scratch.empty(
            (*np.broadcast_shapes(A.shape[:-2], B.shape[:-2]), A.shape[-2], B.shape[-2]), A.dtype
        )
    for i in np.ndindex(out.shape[:-2]):
        _tril_product(entry(A, i), entry(B, i), out[i], 1.0 if add else 0.0, lower)
    return out


def _tril_product(A, B, C, beta, lower):
    A, B = matrix(A), matrix(B)
    if lower:
        lower_products.lower_product(A, B, C, beta)
        blocked.clear_upper(C)
        return
    if A.shape[1] == 0 and not beta:
        C[:] = 0

    def fill(i, j):
        if A.shape[1]:
            blas.gemm(A[i:j], B[:i], C[i:j, :i], blas.N, blas.T, 1.0, beta)
            blocked.tril_product(A[i:j], B[i:j], C[i:j, i:j], 1.0, beta)
        blocked.clear_upper(C[i:j, i:j])
        C[i:j, j:] = 0

    over_triangle(fill, len(C), A.size * len(C))


def tril(A):
    for Ai in flat(A, 2):
        blocked.clear_upper(Ai)
    return A
