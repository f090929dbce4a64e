"""CUDA twin of ``sparse_rows``: launches the kernels of ``kernels_cuda/sparse_rows.cu``.

Nothing waits for the device. Only the device knows how many rows are distinct, so results are as
long as inputs. Blocks sort runs of rows, which are then merged in pairs.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader

BLOCK, TILE, RUN = 256, 32, 512  # as in sparse_rows.cu
_launch_grid = loader.launcher("sparse_rows", BLOCK)


def _launch(kernel, dtype, count, *arguments, threads=BLOCK):
    """Launch one thread for each of ``count``."""
    _launch_grid(kernel, dtype, -(-count // threads), *arguments, threads=threads)


def _numbers(rows):
    return cuda_devices.cupy().ascontiguousarray(rows, dtype=np.int64)


def gather_rows(A, rows, out):
    n, k = len(rows), A.shape[1]
    if n and k:
        strides = (np.int64(s // A.itemsize) for s in A.strides)
        grid = -(-n // TILE), -(-k // TILE)
        arguments = A, *strides, _numbers(rows), np.int64(n), np.int64(k), out
        _launch_grid("gather", A.dtype, grid, *arguments)
    return out


def _sorted(rows, dtype):
    """``(rows in increasing order, their places before)``; equal ones stay in their order."""
    cp, n = cuda_devices.cupy(), len(rows)
    there, spare = ((cp.empty(n, np.int64), cp.empty(n, np.int64)) for _ in range(2))
    _launch("sort_runs", dtype, n, rows, np.int64(n), *there, threads=RUN)
    width = RUN
    while width < n:
        _launch("merge_runs", dtype, n, *there, np.int64(n), np.int64(width), *spare)
        there, spare, width = spare, there, 2 * width
    return there


def sum_rows(rows, values):
    cp, dtype, shape = cuda_devices.cupy(), values[0].dtype, values[0].shape[1:]
    rows = _numbers(rows[0] if len(rows) == 1 else cp.concatenate(rows))
    values = cp.ascontiguousarray(values[0] if len(values) == 1 else cp.concatenate(values))
    n, width = len(rows), math.prod(shape)
    distinct, out = cp.empty(n, np.int64), cp.empty((n, *shape), dtype)
    if n == 0:
        return distinct, out
    ordered, order = _sorted(rows, dtype)
    first = cp.empty(n, np.int64)
    _launch("mark_first", dtype, n, ordered, np.int64(n), first)
    numbers = cp.cumsum(first)
    _launch("list_distinct", dtype, n, ordered, numbers, np.int64(n), distinct)
    if width:
        given = ordered, order, numbers, np.int64(n), values, np.int64(width), out
        _launch("add_rows", dtype, n * width, *given)
    return distinct, out


def adagrad_rows(array, sums, rows, bar, step_size, epsilon, positive, period):
    real, (n, k) = array.dtype.type, bar.shape
    if n and k:
        sizes = np.int64(k), real(step_size), real(epsilon), np.int32(positive), np.int64(period)
        _launch(
            "adagrad", array.dtype, n * k, array, sums, _numbers(rows), np.int64(n), bar, *sizes
        )


def stratified_units(num, size, seed, step, stream, like):
    cp = cuda_devices.cupy()
    units, widths = cp.empty(size, np.int64), cp.empty(size, np.float64)
    numbers = np.int64(num), np.int64(size), np.uint64(seed), np.uint64(step), np.uint32(stream)
    _launch("draw_units", like.dtype, size, *numbers, units, widths)
    return units, widths
