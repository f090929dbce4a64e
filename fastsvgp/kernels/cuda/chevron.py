"""CUDA twin of ``chevron``: launches the kernels of ``kernels_cuda/chevron.cu``.

The dense columns are read once for up to four right-hand sides. Sums over rows go through partial
sums of blocks in float64; the number of blocks depends only on the rows and on the device, so
results are the same from run to run.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader

# as in chevron.cu: threads and lines of a block, right-hand sides at once, columns that a block of
# sum_blocks finishes
BLOCK, LINES, TOGETHER, FINISHED, WARP = 256, 128, 4, 8, 32
SHARE = 128  # the fewest rows that a block sums up
# summing blocks per multiprocessor: full waves if 2, 3, 4 or 6 of them fit at a time
BLOCKS_EACH = 12
NULL = np.uint64(0)


def _checked(rows, m):
    """Indices as int64 on the device.

    Their range is checked only on demand: the check waits for the device.
    """
    cp = cuda_devices.cupy()
    rows = cp.ascontiguousarray(rows, dtype=np.int64)
    if loader.checking() and rows.size:
        wrong = rows[(rows < 0) | (rows >= m)]
        if wrong.size:
            raise IndexError(
                f"`rows` holds {int(wrong[0])}, but the matrix has {m} rows (0 to {m - 1})"
            )
    return rows


def _address(a):
    return a.data.ptr if hasattr(a, "__cuda_array_interface__") else a.ctypes.data


def _stride(a):
    """Elements from row to row of a two-dimensional array with contiguous rows."""
    return a.strides[0] // a.itemsize if len(a) > 1 else a.shape[1]


def _is_aligned(a):
    """Whether the rows of an array can be read 128 bits at a time."""
    return _address(a) % 16 == 0 and (len(a) <= 1 or a.strides[0] % 16 == 0)


def _with_contiguous_rows(a):
    size = a.itemsize
    within = a.shape[1] <= 1 or a.strides[1] == size
    between = len(a) <= 1 or (a.strides[0] % size == 0 and a.strides[0] >= a.shape[1] * size)
    return a if within and between else cuda_devices.cupy().ascontiguousarray(a)


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return cuda_devices.cupy().ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _launch(kernel, dtype, blocks, *arguments):
    loader.launch("chevron", kernel, dtype, blocks, (BLOCK,), arguments)


def _matrix(dense, diagonal, rows):
    """``(number of rows, first parameters of the kernels: a chevron and its rows)``."""
    dense, diagonal = _with_contiguous_rows(dense), cuda_devices.cupy().ascontiguousarray(diagonal)
    n = len(dense) if rows is NULL else len(rows)
    layout = np.int64(_stride(dense)), np.int32(_is_aligned(dense))
    return n, (dense, *layout, diagonal, rows, np.int64(n), np.int32(dense.shape[1]))


def _groups(count):
    """Yield (first, number) of right-hand sides that share a pass, and their kernels' suffix."""
    for first in range(0, count, TOGETHER):
        together = min(TOGETHER, count - first)
        yield first, together, 1 if together == 1 else TOGETHER


def _weights(lines):
    return lines, np.int64(lines.shape[1])


def _product(dense, diagonal, rows, head, rest):
    n, matrix = _matrix(dense, diagonal, rows)
    out = cuda_devices.cupy().empty((len(head), n), dense.dtype)
    for first, count, kind in _groups(len(head) if n else 0):
        part = head[first:]
        weights = *_weights(part), np.int32(_is_aligned(part)), *_weights(rest[first:])
        _launch(
            f"multiply_{kind}",
            dense.dtype,
            (-(-n // LINES),),
            *matrix,
            *weights,
            *_weights(out[first:]),
            np.int32(count),
        )
    return out


def _transposed(dense, diagonal, rows, x, head, rest):
    """Write sums over rows to ``head``, per line of x, and the diagonal part to ``rest``."""
    n, matrix = _matrix(dense, diagonal, rows)
    k = dense.shape[1]
    if n == 0:
        head[:, :k] = 0
        return
    pieces = max(1, -(-k * dense.itemsize // 16))
    lanes = min(WARP, 1 << (pieces - 1).bit_length())
    blocks = min(-(-n // SHARE), BLOCKS_EACH * cuda_devices.multiprocessors())
    partial = cuda_devices.cupy().empty((blocks, min(TOGETHER, len(x)), k), np.float64)
    for first, count, kind in _groups(len(x)):
        given = *_weights(x[first:]), partial, *_weights(rest[first:])
        grid, sizes = (blocks, -(-pieces // lanes)), (np.int32(count), np.int32(lanes))
        _launch(f"transposed_{kind}", dense.dtype, grid, *matrix, *given, *sizes)
        if k:
            sizes = np.int32(blocks), np.int32(count), np.int32(k)
            _launch(
                "sum_heads",
                dense.dtype,
                (-(-count * k // FINISHED),),
                partial,
                *sizes,
                *_weights(head[first:]),
            )


def _cotangents(n, k, skip, rows, u, head, rest):
    cp = cuda_devices.cupy()
    dense_bar, diagonal_bar = cp.empty((n, k), u.dtype), cp.empty(n - skip, u.dtype)
    if n:
        target = (
            dense_bar,
            np.int32(_is_aligned(dense_bar)),
            diagonal_bar,
            np.int64(skip),
            rows,
            np.int64(n),
            np.int32(k),
        )
        weights = (
            *_weights(u),
            *_weights(head),
            np.int32(_is_aligned(head)),
            *_weights(rest),
            np.int32(len(u)),
        )
        _launch("outer", u.dtype, (-(-n // LINES),), *target, *weights)
    return dense_bar, diagonal_bar


# --- the operations ----------------------------------------------------------


def multiply(dense, diagonal, z, transpose):
    lines = _lines(z)
    if not transpose:
        return _product(dense, diagonal, NULL, lines, lines).reshape(z.shape)
    out = cuda_devices.cupy().empty(lines.shape, dense.dtype)
    _transposed(dense, diagonal, NULL, lines, out, out)
    return out.reshape(z.shape)


def outer(k, u, z):
    u, z = _lines(u), _lines(z)
    return _cotangents(u.shape[1], k, k, NULL, u, z, z)


def gram_vjp(y_bar, dense, diagonal, x):
    both = cuda_devices.cupy().concatenate([_lines(x), _lines(y_bar)])
    products = multiply(dense, diagonal, both, True)
    half = len(both) // 2
    x_bar = multiply(dense, diagonal, products[half:], False).reshape(x.shape)
    return (
        *outer(
            dense.shape[1],
            both,
            cuda_devices.cupy().concatenate([products[half:], products[:half]]),
        ),
        x_bar,
    )


def multiply_rows(dense, diagonal, rows, head, rest):
    return _product(
        dense, diagonal, _checked(rows, len(dense)), _lines(head), _lines(rest)
    ).reshape(rest.shape)


def multiply_rows_transposed(dense, diagonal, rows, x):
    lines, k = _lines(x), dense.shape[1]
    head, rest = (
        cuda_devices.cupy().empty((len(lines), n), dense.dtype) for n in (k, lines.shape[1])
    )
    _transposed(dense, diagonal, _checked(rows, len(dense)), lines, head, rest)
    return head.reshape(*x.shape[:-1], k), rest.reshape(x.shape)


def outer_rows(rows, u, head, rest):
    rows = cuda_devices.cupy().ascontiguousarray(rows, dtype=np.int64)
    return _cotangents(len(rows), head.shape[-1], 0, rows, *map(_lines, (u, head, rest)))


def log_det(dense, diagonal, rows):
    cp = cuda_devices.cupy()
    n, matrix = _diagonal_places(dense, diagonal, rows)
    out = cp.zeros((), np.float64)
    if n:
        blocks = min(-(-n // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors())
        partial = cp.empty(blocks, np.float64)
        _launch("log_diagonal", dense.dtype, (blocks,), *matrix, partial)
        _launch("sum_logs", dense.dtype, (1,), partial, np.int32(blocks), out)
    return out


def log_det_vjp(log_det_bar, dense, diagonal, rows):
    cp = cuda_devices.cupy()
    n, matrix = _diagonal_places(dense, diagonal, rows)
    out = cp.empty(n, dense.dtype)
    if n:
        _launch(
            "log_diagonal_vjp",
            dense.dtype,
            (-(-n // BLOCK),),
            cp.asarray(log_det_bar, dtype=np.float64),
            *matrix,
            out,
        )
    return out


def _diagonal_places(dense, diagonal, rows):
    rows = NULL if rows is None else _checked(rows, len(dense))
    n, (dense, stride, _, *rest) = _matrix(dense, diagonal, rows)
    return n, (dense, stride, *rest)
