"""Products of matrices, some of them triangular: launches of ``kernels_cuda/tiled.cu``.

A block computes one tile of the result and sums only over those k that can be non-zero, so the
flops are those of the algorithm. Sums are split into slices if there would be too few blocks, or if
a few blocks had much more work than the others. The split depends only on the shapes and the number
of multiprocessors, so results are the same from run to run.
"""

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from ...runtime import cuda_devices
from .common import loader, scratch

# as in tiled.cu: threads of a block, rows and columns of its tile, values of k per stage
BLOCK, TILE, DEPTH = 128, 64, 16
BUFFERED = 3 * 2 * TILE * 20  # as there: elements in shared memory
NN, TN, NT = range(3)  # as there: left right, left' right, left right'
# part of an operand that is used: all, the lower triangle, the lower triangle with half its
# diagonal
FULL, LOWER, HALF = range(3)
# range of k for a tile, if only lower tiles of the result are computed
BETWEEN, FROM_ROW, UP_TO_COLUMN, UP_TO_ROW, WHOLE = range(5)
ROWS_UP_TO_ROW, ROWS_FROM_ROW, ROWS_WHOLE = range(5, 8)  # the same, if all tiles are computed
UNTOUCHED, ZEROS, MIRRORED, EVERYTHING = range(4)  # treatment above the diagonal of the result
STORE, DEVIATION, INNER = range(3)
COPIED, LEFT, GATED = range(3)  # treatment of an item of size 0
# Slices are as long as with this number of full slices per multiprocessor: two waves of the three
# blocks that it holds, so that shorter slices at the ends of sums fill the second. Each slice is
# written and read once more, which costs about the time of 4 chunks of 16 values of k: no slice is
# planned shorter. Counted, not measured on a device: ``bench/sweeps.py`` times other numbers.
BLOCKS_EACH, LEAST = 6, 4
# tiles per multiprocessor of launches with split sums, at most: for each range the longest sum is
# less than 3 times the mean
CUT_UP_TO = 3 * BLOCKS_EACH


class Gemm(NamedTuple):
    """The product of two matrices per item.

    form : which operand is transposed: NN, TN or NT
    left, right : (..., rows, columns), any strides; their leading axes broadcast to the batch
    left_kind, right_kind : part of an operand that is used: FULL, LOWER or HALF
    both : also add right left, with the same transposes
    """

    form: int
    left: Any
    right: Any
    left_kind: int = FULL
    right_kind: int = FULL
    both: bool = False


class Target(NamedTuple):
    """The tiles of a result that are computed.

    out : (*batch, rows, columns), C-contiguous, or a view with one leading axis and contiguous
        rows, or None
    which : range of k of a tile: one of BETWEEN to ROWS_WHOLE
    upper : treatment above the diagonal
    """

    out: Any
    which: int
    upper: int = UNTOUCHED


class TileScale(NamedTuple):
    """The factor of a product: a number, times a size per item.

    sizes : (*batch,) float64 on the device, or None for 1
    idle : an item of size 0 is COPIED from the base or LEFT as it is; with GATED it is left, and
        other sizes do not act as factors
    """

    factor: float = 1.0
    sizes: Any = None
    idle: int = COPIED

    def times(self, number):
        return self._replace(factor=self.factor * number)


class Epilogue(NamedTuple):
    """What a block does with its tile.

    sums : from ``sums_of``; receives the sums of ``DEVIATION`` and ``INNER`` per tile; optional for
        ``DEVIATION``
    """

    kind: int = STORE
    sums: Any = None


class Strides(NamedTuple):
    """Strides of rows and of items, in elements; the base has the row stride of the result."""

    left_stride: int
    left_item: int
    right_stride: int
    right_item: int
    base_item: int
    out_stride: int
    out_item: int


class Mode(NamedTuple):
    """The constants of a launch, named as in ``tiled.cu``; segments : 2 for ``both``, else 1."""

    form: int
    left_kind: int
    right_kind: int
    range: int
    segments: int
    epilogue: int
    upper: int
    idle: int


INTS = (
    "form left_kind right_kind rows columns depth range segments slice epilogue upper idle".split()
)
PLAN = np.dtype(
    [*((name, np.int64) for name in Strides._fields), *((name, np.int32) for name in INTS)],
    align=True,
)
PLAIN, STORED = TileScale(), Epilogue()


def items_of(X, batch):
    """Return ``(X, stride, item)``: X as a kernel argument, and its row and item strides.

    Strides are in elements; the item stride is 0 if one matrix serves all items. Matrices with
    contiguous rows, and stacks of them with one leading axis, are not copied.
    """
    X, stride, item = _items_of(X, batch)
    return X, np.int64(stride), np.int64(item)


def _items_of(X, batch):
    shape, steps, size = X.shape, X.strides, X.itemsize
    if len(shape) == 2 and steps == (shape[1] * size, size):
        return X, shape[1], 0
    cp, single = cuda_devices.cupy(), math.prod(shape[:-2]) == 1
    if not single and shape[:-2] != tuple(batch):
        X = cp.broadcast_to(X, (*batch, *shape[-2:]))
    steps = X.strides
    if (
        len(steps) > 3
        or steps[-1] != size
        or steps[-2] < shape[-1] * size
        or steps[-2] % size
        or steps[0] % size
        or steps[0] < 0
    ):
        X = cp.ascontiguousarray(X)
    return X, X.strides[-2] // size, 0 if single else X.strides[-3] // size


def summed_to(bar, X):
    """Sum over the leading axes that were broadcast from X."""
    extra = bar.ndim - X.ndim
    axes = tuple(i for i in range(bar.ndim - 2) if i < extra or X.shape[i - extra] != bar.shape[i])
    return bar.sum(axis=axes, keepdims=True).reshape(X.shape) if axes else bar.reshape(X.shape)


def _tiles(n):
    return -(-n // TILE)


def _lengths(which, high, wide, deep):
    """Return the lengths of sums in tiles of k, and their numbers of tiles, in the order of tiles.

    As ``place_of`` in ``tiled.cu``.
    """
    if which in (BETWEEN, UP_TO_COLUMN, UP_TO_ROW, ROWS_UP_TO_ROW):
        found = [(high - a, a + 1) for a in range(high)]
        if which == UP_TO_ROW:
            found = [(high - a, high - a) for a in range(high)]
    elif which in (FROM_ROW, ROWS_FROM_ROW):
        found = [(deep - a, a + 1) for a in range(high)]
    else:
        found = [(deep, high * (high + 1) // 2 if which == WHOLE else high * wide)]
    if which in (ROWS_UP_TO_ROW, ROWS_FROM_ROW):
        found = [(length, wide) for length, _ in found]
    return found


def sums_of(batch, n):
    """Allocate the outputs of ``DEVIATION`` and ``INNER``: (items, lower tiles, 4) float64."""
    return cuda_devices.cupy().empty(
        (math.prod(batch), _tiles(n) * (_tiles(n) + 1) // 2, 4), np.float64
    )


@functools.lru_cache(1024)
def _plan(multiprocessors, size, mode, strides):
    """Return ``(tiles, slices, plan)``: tiles per item, most slices per tile, kernel arguments.

    size : (items, rows, columns, depth)
    mode, strides : the fields of ``Mode`` and ``Strides`` as tuples, because a call that finds its
        plan does not need the names
    """
    (items, rows, columns, depth), mode = size, Mode(*mode)
    high, wide, deep = _tiles(rows), _tiles(columns), _tiles(depth)
    chunks, segments = TILE // DEPTH, mode.segments
    lengths = [
        (min(length * chunks, -(-depth // DEPTH)) * segments, items * number)
        for length, number in _lengths(mode.range, high, wide, deep)
    ]
    tiles = high * wide if mode.range >= ROWS_UP_TO_ROW else high * (high + 1) // 2
    slice_, slices = LEAST, 1
    if items * tiles * depth:
        total = sum(length * number for length, number in lengths)
        slice_ = max(LEAST, -(-total // (BLOCKS_EACH * multiprocessors)))
        slices = -(-lengths[0][0] // slice_)
    ints = mode._asdict() | {"rows": rows, "columns": columns, "depth": depth, "slice": slice_}
    plan = np.empty((), PLAN)
    plan[()] = (*strides, *(ints[name] for name in INTS))
    return tiles, slices, plan[()]


def multiply(product, target, *, batch=(), base=None, scale=PLAIN, epilogue=STORED):
    """Compute ``out = base + factor sizes left right`` for each item of the batch.

    Parameters
    ----------
    product : Gemm
    target : Target
    base : as the operands, and may be ``target.out``; if both are given, they have the same strides
    scale : Scale
    epilogue : Epilogue
    """
    form, left, right, left_kind, right_kind, both = product
    out, dtype, shape = target.out, left.dtype, left.shape
    depth, rows = shape[-2:] if form == TN else shape[:-3:-1]
    columns, items = right.shape[-2 if form == NT else -1], math.prod(batch)
    place, out_stride, out_item = (None, columns, 0) if out is None else _items_of(out, batch)
    base_item = 0
    if base is out:
        base, base_item = place, out_item
    elif base is not None:
        base, stride, base_item = _items_of(base, batch)
        if stride != out_stride:
            base = cuda_devices.cupy().ascontiguousarray(base)
            base_item = rows * columns if base_item else 0
    left, left_stride, left_item = _items_of(left, batch)
    right, right_stride, right_item = _items_of(right, batch)
    tiles, slices, plan = _plan(
        cuda_devices.multiprocessors(),
        (items, rows, columns, depth),
        (
            form,
            left_kind,
            right_kind,
            target.which,
            2 if both else 1,
            epilogue.kind,
            target.upper,
            scale.idle,
        ),
        (left_stride, left_item, right_stride, right_item, base_item, out_stride, out_item),
    )
    if not (items and tiles and depth):
        out[...] = 0 if base is None else base
        return
    parts = arrived = None
    if slices > 1:
        kept = scratch.of_stream()
        parts = kept.parts_of(items * tiles * slices * TILE * TILE, dtype)
        arrived = kept.counters(CUT_UP_TO * cuda_devices.multiprocessors())
    sizes, factor = scale.sizes, np.float64(scale.factor)
    arguments = plan, left, right, base, sizes, factor, place, epilogue.sums, parts, arrived
    loader.launch(
        "tiled",
        "multiply",
        dtype,
        (items * tiles, slices + (slices > 1)),  # as in `slice_of` there
        (BLOCK,),
        arguments,
        BUFFERED * dtype.itemsize,
    )
