"""CUDA twin of ``products``: cuBLAS, and the fused passes of ``kernels_cuda/products.cu``.

Nothing synchronises: sums are returned as 0-d device arrays.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import blas, loader

# as in products.cu
BLOCK, WARP, TEAMS, BAND = 256, 32, 16, 8
# numbers per multiprocessor: 64 tiles of 64 x 64, of which it works on two or three at a time
CHUNK_EACH = 2**18
BLOCKS_EACH = 8  # blocks per multiprocessor, for kernels whose blocks loop over the remaining work
_launch = loader.launcher("products", BLOCK)


def _stride(A):
    return np.int64(A.strides[0] // A.itemsize if len(A) > 1 else A.shape[1])


def _vector(x):
    return cuda_devices.cupy().ascontiguousarray(x)


def matmul(A, B, transpose_a=False, transpose_b=False):
    if A.ndim == B.ndim == 2:
        C = cuda_devices.cupy().empty(
            (A.shape[1 if transpose_a else 0], B.shape[0 if transpose_b else 1]), A.dtype
        )
        return blas.gemm(A, B, C, transpose_a, transpose_b)
    A, B = (
        X.swapaxes(-1, -2) if transpose else X
        for X, transpose in ((A, transpose_a), (B, transpose_b))
    )
    return cuda_devices.cupy().matmul(A, B)


def weighted_gram(A, w, out=None, add=False, overwrite_a=False):
    # a half product of A diag(w) and A is valid for weights of any sign, so no sign is read
    C = cuda_devices.cupy().empty((len(A), len(A)), A.dtype) if out is None else out
    if w.size:
        blas.lower_product(scale_columns(A, w), A, C, beta=1.0 if add else 0.0)
    elif not add:
        C.fill(0)
    return C


def chunk_numbers(like):
    return CHUNK_EACH * cuda_devices.multiprocessors()


def symmetrise(A):
    M = A.shape[-1]
    if A.size:
        blocks = math.prod(A.shape[:-2]) * (-(-M // WARP)) ** 2
        _launch("symmetrise", A.dtype, blocks, A, np.int64(M))
    return A


def empty(shape, like):
    return cuda_devices.cupy().empty(shape, like.dtype)


def column_moments(A, x, B=None):
    cp, N = cuda_devices.cupy(), A.shape[1]
    A = blas.rows(A)
    B = A if B is None else blas.rows(B)
    dots, squares = cp.empty(N, A.dtype), cp.empty(N, A.dtype)
    if N:
        matrices = A, _stride(A), B, _stride(B), _vector(x)
        given = *matrices, np.int64(len(A)), np.int64(N), dots, squares
        _launch("column_moments", A.dtype, -(-N // WARP), *given, threads=WARP * TEAMS)
    return dots, squares


def scale_columns(A, w, out=None):
    A = blas.rows(A)
    out = cuda_devices.cupy().empty(A.shape, A.dtype) if out is None else out
    if A.size:
        (M, N), matrix = A.shape, (A, _stride(A), _vector(w))
        given = *matrix, np.int64(M), np.int64(N), out, _stride(out)
        _launch("scale_columns", A.dtype, -(-M // BAND) * -(-N // BLOCK), *given)
    return out


def _combine(T, A, w, x, a, scaled, minus, with_dots):
    dots = cuda_devices.cupy().empty(len(T), T.dtype) if with_dots else loader.NULL
    if len(T):
        vectors = (w if w is loader.NULL else _vector(w)), _vector(x), _vector(a)
        sizes = np.int64(T.shape[1]), np.int32(scaled), np.int32(minus)
        _launch("combine_rows", T.dtype, len(T), T, A, *vectors, *sizes, dots)
    return dots


def add_outer(T, x, a, w=None):
    _combine(
        T,
        loader.NULL,
        loader.NULL if w is None else w,
        x,
        a,
        scaled=w is not None,
        minus=False,
        with_dots=False,
    )
    return T


def add_scaled(T, A, c):
    if T.size:
        blocks = min(-(-T.size // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors())
        there = isinstance(c, cuda_devices.cupy().ndarray)
        kernel, c = (
            ("add_scaled_by", c.astype(T.dtype)) if there else ("add_scaled", T.dtype.type(c))
        )
        _launch(kernel, T.dtype, blocks, T, _vector(A), c, np.int64(T.size))
    return T


def add_outer_minus_scaled(T, x, a, A, w, scale=False):
    return _combine(T, _vector(A), w, x, a, scaled=scale, minus=True, with_dots=True)


def scale_add_outer(T, w, x, a, A):
    return _combine(T, _vector(A), w, x, a, scaled=True, minus=False, with_dots=True)


def tril_sum_of_squares(L):
    cp = cuda_devices.cupy()
    L, count = cp.ascontiguousarray(L), math.prod(L.shape[:-1])
    rows, total = cp.empty(count), cp.zeros(())
    if count:
        _launch("row_squares", L.dtype, count, L, np.int64(L.shape[-1]), rows)
        _launch("sum_rows", L.dtype, 1, rows, np.int64(count), total)
    return total


def kl_from_standard(means, trils):
    cp = cuda_devices.cupy()
    means, trils = map(cp.ascontiguousarray, (means, trils))
    count = math.prod(means.shape)
    rows, total = cp.empty(count), cp.zeros(())
    if count:
        _launch("row_kl", trils.dtype, count, means, trils, np.int64(trils.shape[-1]), rows)
        _launch("sum_rows", trils.dtype, 1, rows, np.int64(count), total)
    return total


def raise_to_floor(var, kff, add=False):
    count = cuda_devices.cupy().zeros((), np.int64)
    if var.size:
        rows, columns = len(var) if var.ndim == 2 else 1, var.shape[-1]
        strides = (a // var.itemsize for a in (var.strides[0], var.strides[-1], kff.strides[0]))
        blocks = min(-(-var.size // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors())
        real = var.dtype.type
        row_stride, stride, kff_stride = map(np.int64, strides)
        sizes = real(np.finfo(var.dtype).eps), np.int32(add), np.int64(rows), np.int64(columns)
        given = var, row_stride, stride, kff, kff_stride, *sizes, count
        _launch("raise_to_floor", var.dtype, blocks, *given)
    return count


def tril_update(C, L, shift, out, transpose=False):
    if C.size:
        C, L, M = blas.rows(C), blas.rows(L), len(C)
        matrices = C, _stride(C), L, _stride(L), C.dtype.type(shift), np.int32(transpose), out
        _launch("tril_update", C.dtype, (-(-M // WARP)) ** 2, *matrices, np.int64(M))
    return out
