"""The routines of cuBLAS and cuSOLVER that we call, with their arguments as CuPy takes them: addresses, leading dimensions."""

import ctypes
import types

import numpy as np
from scipy.linalg import blas as host_blas
from scipy.linalg import lapack as host_lapack

quiet = np.errstate(all="ignore")  # a device raises no floating-point flags; as a decorator
C_TYPES = {"s": ctypes.c_float, "d": ctypes.c_double}


def _number(kind, address):
    return C_TYPES[kind].from_address(address).value


def _matrix(kind, address, rows, columns, lead):
    """A column-major matrix in memory, as a view. Its last column ends where the matrix ends, not with a whole column."""
    assert lead >= max(1, rows), (lead, rows)
    if rows == 0 or columns == 0:
        return np.empty((rows, columns), order="F")
    memory = (C_TYPES[kind] * (lead * (columns - 1) + rows)).from_address(address)
    flat = np.frombuffer(memory, f"f{ctypes.sizeof(C_TYPES[kind])}")
    return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, lead * flat.itemsize))


def _op(kind, transpose, address, rows, columns, lead):
    """op(A), rows x columns."""
    return _matrix(kind, address, columns, rows, lead).T if transpose else _matrix(kind, address, rows, columns, lead)


def _gemm(kind):
    @quiet
    def gemm(handle, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
        out = _matrix(kind, C, m, n, ldc)
        alpha, beta = _number(kind, alpha), _number(kind, beta)
        product = alpha * (_op(kind, transa, A, m, k, lda) @ _op(kind, transb, B, k, n, ldb))
        out[...] = product + beta * out if beta else product

    return gemm


def _trsm(kind):
    def trsm(handle, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb):
        out, size = _matrix(kind, B, m, n, ldb), n if side else m
        triangle = _matrix(kind, A, size, size, lda)
        triangle = np.asfortranarray(np.triu(triangle) if uplo else np.tril(triangle))
        solve = getattr(host_blas, f"{kind}trsm")
        out[...] = solve(_number(kind, alpha), triangle, out, side=side, lower=1 - uplo, trans_a=trans, diag=diag)

    return trsm


def _potrf(kind):
    def potrf(handle, uplo, n, A, lda, work, size, info):
        out = _matrix(kind, A, n, n, lda)
        factor, failed = getattr(host_lapack, f"{kind}potrf")(out, lower=1 - uplo, clean=0)
        out[...] = factor
        ctypes.c_int.from_address(info).value = failed

    return potrf


_cublas = types.SimpleNamespace(
    CUBLAS_OP_N=0, CUBLAS_OP_T=1, CUBLAS_FILL_MODE_LOWER=0, CUBLAS_FILL_MODE_UPPER=1, CUBLAS_SIDE_LEFT=0, CUBLAS_SIDE_RIGHT=1,
    CUBLAS_DIAG_NON_UNIT=0, CUBLAS_DIAG_UNIT=1,
    **{f"{kind}{name}": make(kind) for kind in "sd" for name, make in (("gemm", _gemm), ("trsm", _trsm))},
)  # fmt: skip
_cusolver = types.SimpleNamespace(
    **{f"{kind}potrf": _potrf(kind) for kind in "sd"},
    **{f"{kind}potrf_bufferSize": lambda handle, uplo, n, A, lda: n for kind in "sd"},
)
_device = types.SimpleNamespace(get_cublas_handle=lambda: 1, get_cusolver_handle=lambda: 2)
LIBRARIES = _device, _cublas, _cusolver
