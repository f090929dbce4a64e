"""Products, solves and factors of row-major matrices by cuBLAS and cuSOLVER, on the current stream and without waiting.

The libraries think in columns: to them a row-major matrix is its transpose, and a lower factor an
upper one. So C = A B is asked for as C' = B' A', and L X = B as X' L' = B'. Rows may be any
distance apart.
"""

from ....runtime import cuda_devices
from . import libraries
from .libraries import LEFT, LOWER, NON_UNIT, RIGHT, UPPER

# rows of a half product that are one product: the device is busy, and a quarter of the flops more
# is spent at 1024
BAND = 512


def _lead(A):
    """Elements from row to row."""
    return A.strides[0] // A.itemsize if len(A) > 1 else max(1, A.shape[1])


def _has_rows(A):
    """Whether the libraries can take the matrix as it is."""
    apart = len(A) <= 1 or (
        A.strides[0] >= A.shape[1] * A.itemsize and A.strides[0] % A.itemsize == 0
    )
    return apart and (A.shape[1] <= 1 or A.strides[1] == A.itemsize)


def rows(A):
    """A matrix with contiguous rows: A itself, or a copy."""
    return A if _has_rows(A) else cuda_devices.cupy().ascontiguousarray(A)


def _operand(A, transpose):
    """The matrix, or its transpose, with contiguous rows, and whether it is then to be transposed."""
    if not _has_rows(A) and _has_rows(A.T):
        return A.T, not transpose
    return rows(A), transpose


def gemm(A, B, C, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0):
    """``C = alpha op(A) op(B) + beta C`` for two-dimensional arrays; C has contiguous rows."""
    (m, n), k = C.shape, A.shape[0 if transpose_a else 1]
    if C.size == 0:
        return C
    if k == 0:
        if beta:
            C *= beta
        else:
            C.fill(0)  # new memory may hold NaN
        return C
    (A, transpose_a), (B, transpose_b) = _operand(A, transpose_a), _operand(B, transpose_b)
    libraries.gemm(
        C.dtype, int(transpose_b), int(transpose_a), n, m, k, alpha, B.data.ptr, _lead(B), A.data.ptr, _lead(A), beta, C.data.ptr,
        _lead(C),
    )  # fmt: skip
    return C


def lower_product(A, B, C, alpha=1.0, beta=0.0):
    """Lower triangle of ``C = alpha A B' + beta C``; what stands above the diagonal of C is not defined afterwards."""
    for start in range(0, len(C), BAND):
        stop = min(start + BAND, len(C))
        gemm(
            A[start:stop], B[:stop], C[start:stop, :stop], transpose_b=True, alpha=alpha, beta=beta
        )
    return C


def solve(L, B, transpose=False, right=False, alpha=1.0):
    """In place ``B = alpha op(L)^-1 B``, or ``alpha B op(L)^-1`` with ``right``, for a lower factor; B has contiguous rows."""
    if B.size == 0:
        return B
    L, (m, n), side = rows(L), B.shape, LEFT if right else RIGHT
    libraries.trsm(
        B.dtype,
        side,
        UPPER,
        int(transpose),
        NON_UNIT,
        n,
        m,
        alpha,
        L.data.ptr,
        _lead(L),
        B.data.ptr,
        _lead(B),
    )
    return B


def potrf(A, info):
    """In place the upper factor of a C-contiguous matrix, whose upper triangle is read; ``info`` (1,) int32 as of LAPACK."""
    matrix = A.dtype, LOWER, len(A), A.data.ptr, len(A)
    size = libraries.potrf_size(*matrix)
    work = cuda_devices.cupy().empty(max(1, size), A.dtype)
    libraries.potrf(*matrix, work.data.ptr, size, info.data.ptr)
    return A
