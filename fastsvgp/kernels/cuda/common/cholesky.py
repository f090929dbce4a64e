"""Cholesky factors by our own kernels: launches of ``kernels_cuda/cholesky.cu``.

There are two launches per 128 columns, less one, whatever the size of the batch. Nothing waits for
the host, and the only memory beside the results is the scratch of the stream, so a captured step
can always contain them.
"""

import functools
import math
from typing import NamedTuple

import numpy as np

from ....runtime import cuda_devices, tuning
from . import loader, scratch

# as in cholesky.cu: columns of a block, rows of a tile below it, threads
PANEL, SQUARE, BLOCK, WARP = 128, 32, 256, 32
SQUARES = 14  # in the shared memory of a block of factor_panel; as there
BLOCKS_EACH = 2  # of factor_panel per multiprocessor at a time
_launch = loader.launcher("cholesky", BLOCK)


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
    checks = info, loader.NULL if fault is None else fault
    noise = (
        loader.NULL if noise is None else cuda_devices.cupy().ascontiguousarray(noise, dtype=dtype)
    )
    plan = _plan(M, items, cuda_devices.multiprocessors())
    parts = arrived = loader.NULL
    if plan.parts:
        kept = scratch.of_stream()
        parts, arrived = kept.parts_of(plan.parts, dtype), kept.counters(plan.counters)
    for number, (place, grid, numbers) in enumerate(plan.blocks):
        # from the third block on the launch before has subtracted products from it
        given = A if number < 2 else out
        arguments = given, *place, shift, noise, out, *checks
        _launch("factor_block", dtype, items, *arguments, threads=threads, shared_memory=memory)
        if grid:
            arguments = A, *place, *numbers, out, parts, arrived
            below = SQUARES * SQUARE * SQUARE * dtype.itemsize
            _launch("factor_panel", dtype, grid, *arguments, shared_memory=below)


class _Plan(NamedTuple):
    """The launches for matrices of one size.

    blocks : of each diagonal block M and its first column; the grid of ``factor_panel`` below it,
        or None; the other numbers of that launch
    parts, counters : sizes of the scratch for sums in several slices
    """

    blocks: tuple
    parts: int
    counters: int


@functools.lru_cache(maxsize=256)
def _plan(M, items, multiprocessors):
    """Plan the launches; sums of n steps are cut into s slices where blocks are few.

    To add up the part of a slice takes about half as long as a step (by counting), so n / s + s / 2
    is least at s = sqrt(2 n).
    """
    blocks, parts, counters = [], 0, 0
    for first in range(0, M, PANEL):
        place, rest, steps = (np.int64(M), np.int64(first)), M - first - PANEL, first // SQUARE
        if rest <= 0:
            blocks.append((place, None, None))
            continue
        below = -(-rest // SQUARE)
        tiles = below + (-(-min(rest, PANEL) // SQUARE) if first else 0)
        each = BLOCKS_EACH * multiprocessors // (items * tiles)
        slice_ = -(-steps // max(1, min(each, math.isqrt(2 * steps))))
        slices = -(-steps // slice_) if steps else 1
        if slices > 1:
            parts = max(parts, items * tiles * slices * SQUARE * PANEL)
            counters = max(counters, items * tiles)
        numbers = tuple(map(np.int32, (below, tiles, slice_)))
        blocks.append((place, (items * tiles, slices), numbers))
    return _Plan(tuple(blocks), parts, counters)
