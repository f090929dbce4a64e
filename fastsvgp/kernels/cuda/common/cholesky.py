"""Cholesky factors by our own kernels: launches of ``kernels_cuda/cholesky.cu``.

There are two launches per 128 columns, less one, whatever the size of the batch. Nothing waits for
the host, and the only memory beside the results is the scratch of the stream, so a captured step
can always contain them.
"""

import math

import numpy as np

from ....runtime import cuda_devices, tuning
from . import loader, scratch

# as in cholesky.cu: columns of a block, rows of a tile below it, threads
PANEL, SQUARE, BLOCK, WARP = 128, 32, 256, 32
SQUARES = 14  # in the shared memory of a block of factor_panel; as there
BLOCKS_EACH = 2  # of factor_panel per multiprocessor at a time
NULL = np.uint64(0)


def _shared_memory(M, dtype):
    """Return the bytes of shared memory of ``factor_block``, which needs most."""
    side = -(-min(M, PANEL) // SQUARE)
    squares = side * (side + 1) // 2 + (2 * PANEL // SQUARE if M > PANEL else 0)
    return squares * SQUARE * SQUARE * dtype.itemsize


def serves(M, dtype):
    """Return whether ``factor`` takes matrices of this size and dtype on the current device."""
    return (
        M <= tuning.current.own_cholesky_rows
        and _shared_memory(M, dtype) <= cuda_devices.shared_memory_limit()
    )


def factor(A, out, jitter, noise, info, fault):
    """Factor matrices (items, M, M); ``out`` gets the factors, and zeros above their diagonals.

    Parameters
    ----------
    A, out : (items, M, M)
        Not empty, C-contiguous; ``out`` may be ``A``, of which only lower triangles are read.
    jitter : float
    noise : (M,), or None
        Added to the diagonals.
    info : (items,) int32
        Set to 0, or to the number (from 1) of the first pivot that is not positive and finite.
    fault : (1,) int32, or None
        Increased by the number of matrices with such a pivot.
    """
    items, M, _ = A.shape
    dtype, memory = A.dtype, _shared_memory(M, A.dtype)
    shift, threads = dtype.type(jitter), BLOCK if M > SQUARE else WARP
    checks = info, NULL if fault is None else fault
    noise = NULL if noise is None else cuda_devices.cupy().ascontiguousarray(noise, dtype=dtype)
    for first in range(0, M, PANEL):
        # from the third block on the launch before has subtracted products from it
        given = (A if first <= PANEL else out), np.int64(M), np.int64(first), shift, noise
        _launch("factor_block", dtype, (items,), threads, (*given, out, *checks), memory)
        if first + PANEL < M:
            _factor_panel(A, out, first)


def _factor_panel(A, out, first):
    """Compute 128 columns below their diagonal block, and start the next diagonal block.

    Sums of n steps are cut into s slices where blocks are few. To add up the part of a slice takes
    about half as long as a step (by counting), so n / s + s / 2 is least at s = sqrt(2 n).
    """
    items, M, _ = A.shape
    rest, dtype, steps = M - first - PANEL, A.dtype, first // SQUARE
    below = -(-rest // SQUARE)
    tiles = below + (-(-min(rest, PANEL) // SQUARE) if first else 0)
    each = BLOCKS_EACH * cuda_devices.multiprocessors() // (items * tiles)
    slice_ = -(-steps // max(1, min(each, math.isqrt(2 * steps))))
    slices = -(-steps // slice_) if steps else 1
    parts = arrived = NULL
    if slices > 1:
        kept = scratch.of_stream()
        parts = kept.parts_of(items * tiles * slices * SQUARE * PANEL, dtype)
        arrived = kept.counters(items * tiles)
    numbers = np.int64(M), np.int64(first), np.int32(below), np.int32(tiles), np.int32(slice_)
    memory = SQUARES * SQUARE * SQUARE * dtype.itemsize
    _launch(
        "factor_panel",
        dtype,
        (items * tiles, slices),
        BLOCK,
        (A, *numbers, out, parts, arrived),
        memory,
    )


def _launch(kernel, dtype, grid, threads, arguments, memory):
    loader.launch("cholesky", kernel, dtype, grid, (threads,), arguments, memory)
