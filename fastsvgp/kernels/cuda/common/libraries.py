"""The routines of cuBLAS and cuSOLVER in use: on the current stream, also during graph capture.

CuPy's wrappers refuse under capture. Therefore the routines are called by ctypes, with the handles
that CuPy keeps per thread, and located through CuPy's extensions, which are linked to libraries of
the right version. Matrices are column-major, given by addresses and leading dimensions; ``dtype``
is float32 or float64.
"""

import contextlib
import ctypes
import functools
import threading

import numpy as np

from ....runtime import cuda_devices

NORMAL, TRANSPOSED = 0, 1  # as in the headers of the libraries
LEFT, RIGHT = 0, 1
LOWER, UPPER = 0, 1
NON_UNIT = 0
REALS = {"f": ("S", ctypes.c_float), "d": ("D", ctypes.c_double)}
WORKSPACE = 32 << 20  # bytes: the size that cuBLAS recommends on Hopper


class _Local(threading.local):
    workspace = None  # of the graph that this thread is capturing


_local = _Local()


@functools.cache
def _modules():
    cuda_devices.cupy()
    from cupy.cuda import device
    from cupy_backends.cuda.libs import cublas, cusolver

    return device, {
        "cublas": ctypes.CDLL(cublas.__file__),
        "cusolver": ctypes.CDLL(cusolver.__file__),
    }


@functools.cache
def routine(library, name, *types):
    """Return a library function as a callable that raises if the status is not 0."""
    found = getattr(_modules()[1][library], name)
    found.argtypes, found.restype = (ctypes.c_void_p, *types), ctypes.c_int

    def call(*arguments):
        status = found(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with status {status}")

    return call


@contextlib.contextmanager
def workspace():
    """Let cuBLAS use our workspace within this context; yield that memory.

    The memory must outlive the graph that is captured in the context.
    """
    memory = _local.workspace = cuda_devices.cupy().empty(WORKSPACE, np.uint8)
    try:
        yield memory
    finally:
        _local.workspace = None


_P, _I = ctypes.c_void_p, ctypes.c_int
_GEMM = _I, _I, _I, _I, _I, _P, _P, _I, _P, _I, _P, _P, _I
_TRSM = _I, _I, _I, _I, _I, _I, _P, _P, _I, _P, _I
_POTRF = _I, _I, _P, _I


def _cublas():
    handle, stream = (
        _modules()[0].get_cublas_handle(),
        cuda_devices.cupy().cuda.get_current_stream(),
    )
    # this resets the workspace to that of the library
    routine("cublas", "cublasSetStream_v2", _P)(handle, stream.ptr)
    if _local.workspace is not None:
        routine("cublas", "cublasSetWorkspace_v2", _P, ctypes.c_size_t)(
            handle, _local.workspace.data.ptr, WORKSPACE
        )
    return handle


def _cusolver():
    handle, stream = (
        _modules()[0].get_cusolver_handle(),
        cuda_devices.cupy().cuda.get_current_stream(),
    )
    routine("cusolver", "cusolverDnSetStream", _P)(handle, stream.ptr)
    return handle


def gemm(dtype, op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc):
    """Compute ``C = alpha op(A) op(B) + beta C``."""
    letter, real = REALS[dtype.char]
    alpha, beta = ctypes.byref(real(alpha)), ctypes.byref(real(beta))
    routine("cublas", f"cublas{letter}gemm_v2", *_GEMM)(
        _cublas(), op_a, op_b, m, n, k, alpha, A, lda, B, ldb, beta, C, ldc
    )


def trsm(dtype, side, uplo, op, diag, m, n, alpha, A, lda, B, ldb):
    """Compute ``B = alpha op(A)^-1 B`` or ``alpha B op(A)^-1`` in place."""
    letter, real = REALS[dtype.char]
    alpha = ctypes.byref(real(alpha))
    routine("cublas", f"cublas{letter}trsm_v2", *_TRSM)(
        _cublas(), side, uplo, op, diag, m, n, alpha, A, lda, B, ldb
    )


def potrf_size(dtype, uplo, n, A, lda):
    """Return the workspace of ``potrf``, in numbers."""
    letter, size = REALS[dtype.char][0], _I()
    routine("cusolver", f"cusolverDn{letter}potrf_bufferSize", *_POTRF, _P)(
        _cusolver(), uplo, n, A, lda, ctypes.byref(size)
    )
    return size.value


def potrf(dtype, uplo, n, A, lda, work, size, info):
    """Compute the Cholesky factor in place; ``info`` is the device address of an int32."""
    letter = REALS[dtype.char][0]
    routine("cusolver", f"cusolverDn{letter}potrf", *_POTRF, _P, _I, _P)(
        _cusolver(), uplo, n, A, lda, work, size, info
    )
