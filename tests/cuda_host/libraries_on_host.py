"""The routines of ``fastsvgp.kernels.cuda.common.libraries``, with its arguments, on the host."""

import ctypes

import numpy as np
from scipy.linalg import blas as host_blas, lapack as host_lapack

quiet = np.errstate(all="ignore")  # a device raises no floating-point flags; as a decorator
C_TYPES = {"f": ctypes.c_float, "d": ctypes.c_double}
LETTERS = {"f": "s", "d": "d"}


def _matrix(kind, address, rows, columns, lead):
    """Return a column-major matrix in memory, as a view.

    Its last column ends where the matrix ends, which is not a whole column.
    """
    assert lead >= max(1, rows), (lead, rows)
    if rows == 0 or columns == 0:
        return np.empty((rows, columns), order="F")
    memory = (C_TYPES[kind] * (lead * (columns - 1) + rows)).from_address(address)
    flat = np.frombuffer(memory, f"f{ctypes.sizeof(C_TYPES[kind])}")
    return np.lib.stride_tricks.as_strided(
        flat, (rows, columns), (flat.itemsize, lead * flat.itemsize)
    )


def _op(kind, transpose, address, rows, columns, lead):
    """Return op(A), rows x columns."""
    return (
        _matrix(kind, address, columns, rows, lead).T
        if transpose
        else _matrix(kind, address, rows, columns, lead)
    )


@quiet
def gemm(dtype, transa, transb, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    kind, alpha, beta = dtype.char, dtype.type(alpha), dtype.type(beta)
    out = _matrix(kind, C, m, n, ldc)
    product = alpha * (_op(kind, transa, A, m, k, lda) @ _op(kind, transb, B, k, n, ldb))
    out[...] = product + beta * out if beta else product


def trsm(dtype, side, uplo, trans, diag, m, n, alpha, A, lda, B, ldb):
    kind = dtype.char
    out, size = _matrix(kind, B, m, n, ldb), n if side else m
    triangle = _matrix(kind, A, size, size, lda)
    triangle = np.asfortranarray(np.triu(triangle) if uplo else np.tril(triangle))
    solve = getattr(host_blas, f"{LETTERS[kind]}trsm")
    out[...] = solve(alpha, triangle, out, side=side, lower=1 - uplo, trans_a=trans, diag=diag)


def potrf(dtype, uplo, n, A, lda, work, size, info):
    out = _matrix(dtype.char, A, n, n, lda)
    factor, failed = getattr(host_lapack, f"{LETTERS[dtype.char]}potrf")(
        out, lower=1 - uplo, clean=0
    )
    out[...] = factor
    ctypes.c_int.from_address(info).value = failed


ROUTINES = {
    "gemm": gemm,
    "trsm": trsm,
    "potrf": potrf,
    "potrf_size": lambda dtype, uplo, n, A, lda: n,
}
