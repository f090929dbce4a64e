"""Products of matrices of which some are triangular: what ``kernels_cuda/tiled.cu`` is launched with.

A tile of the result is a block, which sums over those k alone that are not zero anyway: the flops are those of the algorithm.
Sums are cut into slices where there would be too few blocks, or a few with much more to do than the others; where depends on the
shapes and on the device alone, so results are the same from run to run.
"""

import math

import numpy as np

from . import loader

BLOCK, TILE, DEPTH = 128, 64, 16  # as in tiled.cu: threads of a block, rows and columns of its tile, values of k at a time
NN, TN, NT = range(3)  # as there: left right, left' right, left right'
FULL, LOWER, HALF = range(3)  # which of an operand counts: all, the lower triangle, that with half its diagonal
BETWEEN, FROM_ROW, UP_TO_COLUMN, UP_TO_ROW, WHOLE = range(5)  # which k count, for a result of which the lower tiles are made
ROWS_UP_TO_ROW, ROWS_FROM_ROW, ROWS_WHOLE = range(5, 8)  # for one of which all tiles are
UNTOUCHED, ZEROS, MIRRORED, EVERYTHING = range(4)  # what happens above the diagonal of the result
STORE, DEVIATION, INNER = range(3)
BLOCKS_EACH = 4  # for each multiprocessor: two waves of the blocks that fit at a time
LEAST = 8  # chunks of 16 values of k: a shorter slice costs more to add up than it saves
NULL = np.uint64(0)


def items_of(X, batch):
    """``(X, stride, item)``: X as kernels take the items of a batch, and the elements from row to row and from item to item.

    The last is 0 where one matrix serves all. Matrices with contiguous rows, and stacks of them with one leading axis, stay where
    they are.
    """
    cp, size, single = loader.cupy(), X.itemsize, math.prod(X.shape[:-2]) == 1
    if not single and X.shape[:-2] != tuple(batch):
        X = cp.broadcast_to(X, (*batch, *X.shape[-2:]))
    steps = X.strides
    if X.ndim > 3 or steps[-1] != size or any(s % size or s < 0 for s in steps) or steps[-2] < X.shape[-1] * size:
        X = cp.ascontiguousarray(X)
    return X, np.int64(X.strides[-2] // size), np.int64(0 if single else X.strides[-3] // size)


def summed_to(bar, X):
    """The sum over those leading axes that were broadcast from X."""
    extra = bar.ndim - X.ndim
    axes = tuple(i for i in range(bar.ndim - 2) if i < extra or X.shape[i - extra] != bar.shape[i])
    return bar.sum(axis=axes, keepdims=True).reshape(X.shape) if axes else bar.reshape(X.shape)


def _tiles(n):
    return -(-n // TILE)


def _chunks(which, high, wide, deep):
    """How many tiles the result has, the sum of their lengths, and the longest one, in tiles of k."""
    triangle = high * (high + 1) // 2
    if which in (BETWEEN, FROM_ROW, UP_TO_COLUMN):
        return triangle, high * (high + 1) * (high + 2) // 6, high
    if which == UP_TO_ROW:
        return triangle, triangle * (2 * high + 1) // 3, high
    if which == WHOLE:
        return triangle, triangle * deep, deep
    return high * wide, wide * (high * deep if which == ROWS_WHOLE else triangle), deep


def multiply(form, left, right, out, which, *, batch=(), left_kind=FULL, right_kind=FULL, both=False, epilogue=STORE, base=None,
             sizes=None, factor=1.0, upper=UNTOUCHED):  # fmt: skip
    """``out = base + factor sizes left right``, or with transposes as ``form`` says, for each item of the batch.

    Parameters
    ----------
    left, right : (..., rows, columns), any strides; their leading axes broadcast to ``batch``
    base : likewise, with the strides of ``out`` where there are both
    out : (*batch, rows, columns), C-contiguous, or a view with one leading axis and contiguous rows, or None; may be ``base``
    which : the k that count for a tile
    both : also add right left, with the same transposes
    sizes : (*batch,) float64 on the device, or None for 1; an item of size 0 costs a copy of base

    Returns
    -------
    (items, tiles, 4) float64 : what ``DEVIATION`` and ``INNER`` leave of each tile, else None
    """
    cp, dtype = loader.cupy(), left.dtype
    rows, depth = left.shape[-2:][:: -1 if form == TN else 1]
    columns = right.shape[-2 if form == NT else -1]
    high, wide, deep, items = _tiles(rows), _tiles(columns), _tiles(depth), math.prod(batch)
    place, out_stride, out_item = NULL, np.int64(columns), np.int64(0)
    if out is not None:
        place, out_stride, out_item = items_of(out, batch)
    base_item = np.int64(0)
    if base is None:
        base = NULL
    elif base is out:
        base, base_item = place, out_item
    else:
        base, stride, base_item = items_of(base, batch)
        if stride != out_stride:
            base = loader.cupy().ascontiguousarray(base)
            base_item = np.int64(rows * columns if base_item else 0)
    tiles, total, longest = _chunks(which, high, wide, deep)
    segments, per_tile = 2 if both else 1, TILE // DEPTH
    sums = None if epilogue == STORE else cp.empty((items, tiles, 4), np.float64)
    if not (items and tiles and depth):
        if base is NULL:
            out[...] = 0
        else:
            out[...] = base
        return sums
    slice_ = max(LEAST, -(-items * total * per_tile * segments // (BLOCKS_EACH * loader.multiprocessors())))
    slices = -(-min(longest * TILE, -(-depth // DEPTH) * DEPTH) // DEPTH * segments // slice_)
    parts = cp.empty((items * tiles, slices, TILE, TILE), dtype) if slices > 1 else NULL
    shape = tuple(np.int32(n) for n in (rows, columns, depth, which, segments, slice_))
    operands = (*items_of(left, batch), np.int32(left_kind), *items_of(right, batch), np.int32(right_kind))
    end = (np.int32(epilogue), base, base_item, NULL if sizes is None else sizes, np.float64(factor), np.int32(upper), place,
           out_stride, out_item, NULL if sums is None else sums, parts)  # fmt: skip
    loader.launch("tiled", "multiply", dtype, (items * tiles, slices), (BLOCK,), (np.int32(form), *shape, *operands, *end))
    if slices > 1:
        loader.launch("tiled", "finish", dtype, (items * tiles,), (BLOCK,), (*shape, *end, np.int32(slices)))
    return sums
