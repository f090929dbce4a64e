"""Products, solves and factors of row-major matrices by cuBLAS and cuSOLVER.

They run on the current stream and never synchronise. The libraries are column-major: in their view
a row-major matrix is its transpose, and a lower factor is upper. So C = A B is computed as C' = B'
A', and L X = B as X' L' = B'. The row stride is arbitrary.
"""

from ....runtime import cuda_devices
from . import libraries
from .libraries import LEFT, LOWER, NON_UNIT, RIGHT, UPPER

# rows of one product within a half product: large enough to keep the device busy, at the price of a
# quarter more flops at 1024
BAND = 512


def _lead(A):
    """Return the row stride in elements."""
    return A.strides[0] // A.itemsize if len(A) > 1 else max(1, A.shape[1])


def _has_rows(A):
    """Return whether the libraries can use the matrix without a copy."""
    apart = len(A) <= 1 or (
        A.strides[0] >= A.shape[1] * A.itemsize and A.strides[0] % A.itemsize == 0
    )
    return apart and (A.shape[1] <= 1 or A.strides[1] == A.itemsize)


def rows(A):
    """Return a matrix with contiguous rows: A itself, or a copy."""
    return A if _has_rows(A) else cuda_devices.cupy().ascontiguousarray(A)


def _operand(A, transpose):
    """Return the matrix or its transpose with contiguous rows, and whether to transpose that."""
    if not _has_rows(A) and _has_rows(A.T):
        return A.T, not transpose
    return rows(A), transpose


def gemm(A, B, C, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0):
    """Compute ``C = alpha op(A) op(B) + beta C`` for 2-d arrays; C has contiguous rows."""
    (m, n), k = C.shape, A.shape[0 if transpose_a else 1]
    if C.size == 0:
        return C
    if k == 0:
        if beta:
            C *= beta
        else:
            C.fill(0)  # uninitialised memory may hold NaN
        return C
    (A, transpose_a), (B, transpose_b) = _operand(A, transpose_a), _operand(B, transpose_b)
    libraries.gemm(
        C.dtype, int(transpose_b), int(transpose_a), n, m, k, alpha, B.data.ptr, _lead(B),
        A.data.ptr, _lead(A), beta, C.data.ptr, _lead(C),
    )  # fmt: skip
    return C


def lower_product(A, B, C, alpha=1.0, beta=0.0):
    """Compute the lower triangle of ``C = alpha A B' + beta C``.

    The entries of C above its diagonal are undefined afterwards.
    """
    for start in range(0, len(C), BAND):
        stop = min(start + BAND, len(C))
        gemm(
            A[start:stop], B[:stop], C[start:stop, :stop], transpose_b=True, alpha=alpha, beta=beta
        )
    return C


def solve(L, B, transpose=False, right=False, alpha=1.0):
    """Compute ``B = alpha op(L)^-1 B``, or ``alpha B op(L)^-1`` with ``right``, in place.

    L is a lower factor; B has contiguous rows.
    """
    if B.size == 0:
        return B
    L, (m, n) = rows(L), B.shape
    mode = LEFT if right else RIGHT, UPPER, int(transpose), NON_UNIT
    matrices = L.data.ptr, _lead(L), B.data.ptr, _lead(B)
    libraries.trsm(B.dtype, *mode, n, m, alpha, *matrices)
    return B


def potrf(A, info):
    """Compute the upper factor of a C-contiguous matrix in place; its upper triangle is read.

    ``info`` is (1,) int32, as in LAPACK.
    """
    matrix = A.dtype, LOWER, len(A), A.data.ptr, len(A)
    size = libraries.potrf_size(*matrix)
    work = cuda_devices.cupy().empty(max(1, size), A.dtype)
    libraries.potrf(*matrix, work.data.ptr, size, info.data.ptr)
    return A
