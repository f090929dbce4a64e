"""CUDA twin of ``triangular``: ``kernels_cuda/triangular.cu`` for small factors, else cuBLAS.

Products run in tiles (``tiled``). A factor of up to 128 rows is held in the shared memory of one
block. Larger factors of a batch are split into blocks of that size, with products of the whole
batch between them. One large factor for all right-hand sides is a single cuBLAS call.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from . import tiled
from .common import blas, loader
from .tiled import (
    EVERYTHING,
    FROM_ROW,
    LOWER,
    NN,
    NT,
    ROWS_FROM_ROW,
    ROWS_UP_TO_ROW,
    ROWS_WHOLE,
    TN,
    UP_TO_ROW,
    WHOLE,
    ZEROS,
    Gemm,
    Target,
    TileScale,
    items_of,
)

BLOCK, SQUARE, PANEL = 128, 32, 64  # as in triangular.cu
MATRIX, LOWER_MATRIX, IDENTITY = range(3)  # kind of the right-hand side, as there
# per multiprocessor; beyond that a block takes several panels, to reuse the inverses that it made
BLOCKS_EACH = 4
MOST = 128  # rows of a factor in shared memory, if a device has enough of it
INVERSE_UP_TO = {"d": 8192, "f": 256}  # rows of a factor up to which a bound uses its inverse
_launch, _clear = loader.launcher("triangular", BLOCK), loader.launcher("factorisations", 256)


def _shared_memory(n, dtype):
    """Return the bytes that a block needs for a factor of n rows.

    It is an upper bound: the tensor-core code does without the padding.
    """
    squares = -(-n // SQUARE)
    return (
        squares * (squares + 1) // 2 * SQUARE * (SQUARE + 1) + squares * SQUARE * PANEL
    ) * dtype.itemsize


def _rows_at_once(dtype):
    """Return the rows of the largest factor for which the device has enough shared memory."""
    rows = MOST
    while _shared_memory(rows, dtype) > cuda_devices.shared_memory_limit():
        rows -= SQUARE
    return rows


def _solve(L, B, X, transpose, given=MATRIX):
    """Compute ``X = op(L)^-1 B`` for factors that fit in shared memory.

    L, B and X are (items, rows, columns); L or B may have a single item for all.
    """
    items, n, columns = X.shape
    if items * n * columns == 0:
        return
    batch = (items,)
    right = (loader.NULL, np.int64(0), np.int64(0)) if given == IDENTITY else items_of(B, batch)
    strips = min(-(-columns // PANEL), -(-BLOCKS_EACH * cuda_devices.multiprocessors() // items))
    shape = np.int32(given), np.int32(n), np.int64(columns), np.int32(strips), np.int32(transpose)
    arguments = *items_of(L, batch), *right, *shape, *items_of(X, batch)
    memory = _shared_memory(n, L.dtype)
    _launch("solve", L.dtype, items * strips, *arguments, shared_memory=memory)


def _substitute(L, X, transpose, most):
    """Compute ``X = op(L)^-1 X`` in place by blocks of at most ``most`` rows.

    L and X are (items, rows, columns).
    """
    n = X.shape[1]
    size = -(-n // -(-n // most))
    size = min(most, -(-size // SQUARE) * SQUARE)
    starts = range(0, n, size)
    for start in reversed(starts) if transpose else starts:
        here = slice(start, min(start + size, n))
        rest = slice(0, start) if transpose else slice(here.stop, n)
        _solve(L[:, here, here], X[:, here], X[:, here], transpose)
        left, target = L[:, here, rest] if transpose else L[:, rest, here], X[:, rest]
        if target.size:
            tiled.multiply(
                Gemm(TN if transpose else NN, left, X[:, here]),
                Target(target, ROWS_WHOLE, EVERYTHING),
                batch=X.shape[:1],
                base=target,
                scale=TileScale(-1.0),
            )


def _stack(A, batch):
    """Return A as (items, rows, columns), with a single item if one serves all."""
    if math.prod(A.shape[:-2]) == 1:
        return A.reshape(1, *A.shape[-2:])
    return cuda_devices.cupy().broadcast_to(A, (*batch, *A.shape[-2:])).reshape(-1, *A.shape[-2:])


def solve_triangular(L, B, transpose=False, overwrite_b=False):
    cp = cuda_devices.cupy()
    batch, (n, columns) = np.broadcast_shapes(L.shape[:-2], B.shape[:-2]), B.shape[-2:]
    most, shape, items = _rows_at_once(B.dtype), (*batch, n, columns), math.prod(batch)
    into_b = overwrite_b and B.flags.c_contiguous and B.shape == shape
    if n <= most:
        X = B if into_b else cp.empty(shape, B.dtype)
        _solve(_stack(L, batch), _stack(B, batch), X.reshape(items, n, columns), transpose)
        return X
    if math.prod(L.shape[:-2]) == 1 and items > 1:
        # one factor: all right-hand sides side by side in one call
        wide = cp.array(cp.moveaxis(_stack(cp.broadcast_to(B, shape), batch), 0, 1), order="C")
        blas.solve(L.reshape(n, n), wide.reshape(n, items * columns), transpose)
        return cp.ascontiguousarray(cp.moveaxis(wide, 1, 0)).reshape(shape)
    X = B if into_b else cp.array(cp.broadcast_to(B, shape), order="C")
    if items == 1:
        blas.solve(L.reshape(n, n), X.reshape(n, columns), transpose)
    elif X.size:
        _substitute(_stack(L, batch), X.reshape(items, n, columns), transpose, most)
    return X


def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    batch = np.broadcast_shapes(L.shape[:-2], B.shape[:-2])
    out = cuda_devices.cupy().empty((*batch, *B.shape[-2:]), B.dtype)
    form, which = (TN, ROWS_FROM_ROW) if transpose else (NN, ROWS_UP_TO_ROW)
    tiled.multiply(Gemm(form, L, B, LOWER), Target(out, which, EVERYTHING), batch=batch)
    return out


def tril_multiply(L, B, overwrite_b=False, lower=False):
    batch = np.broadcast_shapes(L.shape[:-2], B.shape[:-2])
    out = cuda_devices.cupy().empty((*batch, *B.shape[-2:]), B.dtype)
    tiled.multiply(Gemm(NN, L, B, LOWER), Target(out, UP_TO_ROW), batch=batch)
    return tril(out) if lower else out


def solve_tril(L, W, transpose=False, overwrite_w=False):
    batch, n = np.broadcast_shapes(L.shape[:-2], W.shape[:-2]), W.shape[-1]
    if transpose or n > _rows_at_once(W.dtype):
        lower = tril(W) if overwrite_w and W.flags.c_contiguous else cuda_devices.cupy().tril(W)
        return tril(solve_triangular(L, lower, transpose, overwrite_b=True))
    X = cuda_devices.cupy().empty((*batch, n, n), W.dtype)
    _solve(_stack(L, batch), _stack(W, batch), X.reshape(-1, n, n), False, LOWER_MATRIX)
    return X


def prefers_inverse(L, columns):
    return L.shape[-1] <= INVERSE_UP_TO[L.dtype.char]


def inverse_triangular(L, overwrite_l=False):
    n, cp, most = L.shape[-1], cuda_devices.cupy(), _rows_at_once(L.dtype)
    if n <= most:
        X = cp.empty(L.shape, L.dtype)
        _solve(L.reshape(-1, n, n), None, X.reshape(-1, n, n), False, IDENTITY)
        return X
    X = cp.zeros(L.shape, L.dtype)
    for Li, Xi in zip(L.reshape(-1, n, n), X.reshape(-1, n, n), strict=True):
        _invert(Li, Xi, most)
    return X


def _invert(L, X, most):
    """Write L^-1 to X, which holds zeros, by recursive doubling.

    The diagonal blocks of at most ``most`` rows are inverted first; then each pair of them gives a
    block twice as large,

        [L11     ]^-1   [         X11      ]
        [L21  L22]    = [-X22 L21 X11   X22],

    in two launches per size, and two more for a smaller last pair. M^3 / 2 flops: the inner product
    does not skip the zeros of X11.
    """
    n = len(L)
    # a power of two blocks: often none of them is smaller
    size = -(-n // (1 << (-(-n // most) - 1).bit_length()))
    for start, count, rows in (0, n // size, size), (n // size * size, 1, n % size):
        if rows:
            shape = count, rows, rows
            _solve(
                _along(L, start, start, size, shape),
                None,
                _along(X, start, start, size, shape),
                False,
                IDENTITY,
            )
    while size < n:
        pairs, rest = divmod(n, 2 * size)
        for start, count, rows in (0, pairs, size), (n - rest, 1, max(0, rest - size)):
            if count and rows:
                low, step, shape = start + size, 2 * size, (count, rows, size)
                inner = cuda_devices.cupy().empty(shape, L.dtype)
                upper, corner = (
                    _along(X, start, start, step, (count, size, size)),
                    _along(X, low, start, step, shape),
                )
                tiled.multiply(
                    Gemm(NN, _along(L, low, start, step, shape), upper),
                    Target(inner, ROWS_WHOLE, EVERYTHING),
                    batch=(count,),
                )
                lower = _along(X, low, low, step, (count, rows, rows))
                tiled.multiply(
                    Gemm(NN, lower, inner, LOWER),
                    Target(corner, ROWS_UP_TO_ROW, EVERYTHING),
                    batch=(count,),
                    scale=TileScale(-1.0),
                )
        size *= 2


def _along(A, row, column, step, shape):
    """Return blocks (count, rows, columns) of A, as views.

    The first begins at (row, column), each other one ``step`` further along the diagonal.
    """
    down, right = A.strides
    return cuda_devices.cupy().lib.stride_tricks.as_strided(
        A[row:, column:], shape, (step * (down + right), down, right)
    )


def tril_gram(L, w=None):
    out = cuda_devices.cupy().empty(L.shape, L.dtype)
    weighted = L if w is None else L * w[:, None]
    tiled.multiply(Gemm(TN, L, weighted, LOWER, LOWER), Target(out, FROM_ROW), batch=L.shape[:-2])
    return out


def tril_product(A, B, out=None, add=False, lower=False):
    # `lower`: the zeros are multiplied too
    batch = np.broadcast_shapes(A.shape[:-2], B.shape[:-2])
    if out is None:
        out, add = cuda_devices.cupy().empty((*batch, A.shape[-2], B.shape[-2]), A.dtype), False
    if A.shape[-1] == 0 and add:
        return tril(out)
    base = out if add else None
    tiled.multiply(Gemm(NT, A, B), Target(out, WHOLE, ZEROS), batch=batch, base=base)
    return out


def tril(A):
    M = A.shape[-1]
    if A.size:
        _clear("clear_upper", A.dtype, A.size // M * -(-M // 256), A, np.int64(M))
    return A
