"""CUDA twin of ``factorisations``: factors by our kernels, solves and products by cuBLAS.

Large factors are those of cuSOLVER (see ``own_cholesky_rows`` in ``runtime.tuning``).

Inside a bound (see ``runtime.deferred_checks``) a failed factorisation only sets a flag on the
device, so nothing synchronises. Elsewhere the call synchronises and raises at once.
"""

import math

import numpy as np

from ...errors import NotPositiveDefinite
from ...runtime import cuda_devices, deferred_checks
from . import triangular
from .common import blas, cholesky as own, loader
from .products import symmetrise

BLOCK, TILE = 256, 32  # as in factorisations.cu
_launch = loader.launcher("factorisations", BLOCK)


def _matrices(A):
    """Return a C-contiguous batch as (count, M, M)."""
    return A.reshape(math.prod(A.shape[:-2]), *A.shape[-2:])


def _owned(A, overwrite):
    return A if overwrite and A.flags.c_contiguous else cuda_devices.cupy().array(A, order="C")


def _turned(A, out, from_upper, shift=0.0):
    """Transpose one triangle of each matrix of a batch into ``out``; see factorisations.cu.

    Both are C-contiguous.
    """
    M = A.shape[-1]
    if A.size:
        blocks = A.size // (M * M) * (-(-M // TILE)) ** 2
        _launch(
            "turn", A.dtype, blocks, A, np.int64(M), np.int32(from_upper), A.dtype.type(shift), out
        )
    return out


def _factor(A, jitter, overwrite_a, noise=None, reverse=False):
    """Factor every matrix of a batch; ``reverse`` means that its rows are reversed."""
    cp, M = cuda_devices.cupy(), A.shape[-1]
    if not A.flags.c_contiguous:
        A, overwrite_a = cp.ascontiguousarray(A), True
    L = A if overwrite_a else cp.empty(A.shape, A.dtype)
    if A.size:
        matrices, info = _matrices(A), cp.empty(A.size // (M * M), np.int32)
        factor = own.factor if own.serves(M, A.dtype) else _by_library
        flag = deferred_checks.flag()
        factor(matrices, _matrices(L), jitter, noise, info, flag)
        if flag is None:
            _check(info.get(), A, jitter, reverse)
    return L


def _check(info, A, jitter, reverse):
    """Raise if a factorisation of the batch A failed; ``info`` is on the host."""
    if info.any():
        i, M = int(np.flatnonzero(info)[0]), A.shape[-1]
        pivot = M - info[i] if reverse else info[i] - 1
        raise NotPositiveDefinite(np.unravel_index(i, A.shape[:-2]), pivot, jitter, M, A.dtype)


def _by_library(A, out, jitter, noise, info, fault):
    """As ``cholesky.factor`` of this twin's ``common``, by cuSOLVER.

    It computes upper factors of the upper triangles: in its column-major view they are lower, which
    is faster.
    """
    M = A.shape[-1]
    U = _turned(A, cuda_devices.cupy().empty(A.shape, A.dtype), False, jitter)
    for i, Ui in enumerate(U):
        if noise is not None:
            Ui.reshape(-1)[:: M + 1] += noise
        blas.potrf(Ui, info[i : i + 1])
    flag = loader.NULL if fault is None else fault
    _launch("check_pivots", U.dtype, len(info), U, np.int64(M), info, flag)
    _turned(U, out, True)


def cholesky(A, jitter=0.0, overwrite_a=False, noise=None):
    return _factor(A, jitter, overwrite_a, noise)


def _each(function, *operands):
    """Apply ``function`` to each matrix of operands with broadcast leading axes; stack results."""
    if all(A.ndim == 2 for A in operands):
        return function(*operands)
    cp, batch = cuda_devices.cupy(), np.broadcast_shapes(*(A.shape[:-2] for A in operands))
    wide = [cp.broadcast_to(A, batch + A.shape[-2:]) for A in operands]
    results = [function(*(A[i] for A in wide)) for i in np.ndindex(batch)]
    return cp.stack(results).reshape(batch + results[0].shape)


def _whitening(C, L, inverse):
    """Replace C by -1/2 L^-T (Phi(C) + Phi(C)') L^-1 in place; only its lower triangle is read."""
    symmetrise(C)
    if inverse is None:
        blas.solve(L, C, transpose=True, alpha=-0.5)
        blas.solve(L, C, right=True)
    else:
        half = blas.gemm(
            inverse, C, cuda_devices.cupy().empty(C.shape, C.dtype), transpose_a=True, alpha=-0.5
        )
        blas.gemm(half, inverse, C)
    return symmetrise(C)


def whitening_vjp(C, L, overwrite_c=False, inverse=None):
    if C.ndim == L.ndim == 2:
        return _whitening(_owned(C, overwrite_c), L, inverse)
    return _each(lambda C, L: _whitening(_owned(C, False), L, None), C, L)


def cholesky_inverse(L):
    def one(L):
        X = triangular.inverse_triangular(L)
        return symmetrise(
            blas.gemm(X, X, cuda_devices.cupy().empty(X.shape, X.dtype), transpose_a=True)
        )

    return _each(one, L)


def cholesky_product(L):
    def one(L):
        L = triangular.tril(cuda_devices.cupy().array(L, order="C"))
        return symmetrise(blas.lower_product(L, L, cuda_devices.cupy().empty(L.shape, L.dtype)))

    return _each(one, L)


def cholesky_of_inverse(A, jitter=0.0):
    # the factor of the matrix with its rows and columns reversed, inverted: see the CPU twin
    cp = cuda_devices.cupy()
    # transposed, because A's lower triangle is the one that is read
    R = cp.array(A.swapaxes(-1, -2)[..., ::-1, ::-1], order="C")
    X = triangular.inverse_triangular(_factor(R, jitter, True, reverse=True))
    return cp.ascontiguousarray(X.swapaxes(-1, -2)[..., ::-1, ::-1])


def deflate(factor, j, pivot, column, variance):
    deflated = column - factor[:, :j] @ factor[pivot, :j]
    deflated /= cuda_devices.cupy().sqrt(variance[pivot])
    factor[:, j] = deflated
    variance -= deflated**2
