"""Rows of a chevron C in the order that products and sums read them: four at a time.

Line i of a product belongs to row g of C: g = rows[i], or g = i without ``rows``. The dense columns
are one flat array and the distance from row to row, so that padded rows are contiguous too; vectors
are (count, n) and contiguous.

Four rows share the loads of what they are multiplied with. They are

* listed: rows can be anywhere, and each is prefetched SOON lines before its turn;
* apart: with long rows and columns as lanes, four streams a quarter of the lines apart, which the
  hardware prefetches. Four neighbours would be streams that end after every row: 15 ms, not 8 ms,
  for (300000, 100) in float64;
* neighbours else: one stream, prefetched some bytes ahead.

The lanes are eight columns, or four right-hand sides: then one load of a number of C serves four
products. ``forceinline`` keeps lanes in registers, where a call would pass them through memory (a
quarter of the time of short rows), and makes one loop of each ``Order``.
"""

from typing import Any, NamedTuple

from ..common.compiled import njit
from ..common.simd import gather, load, pointer, prefetch, scatter, store

FAST = {"contract", "reassoc", "nsz", "arcp"}
SHORT = 32  # columns
CACHED = 1 << 22  # numbers
SOON = 16  # lines


class Chevron(NamedTuple):
    """C, and which of its rows: all of them if ``rows`` is empty."""

    dense: Any  # flat
    stride: Any  # numbers from row to row
    k: Any
    diagonal: Any
    rows: Any


class Order(NamedTuple):
    """The order of four rows, and whether right-hand sides are the lanes: constants of a loop."""

    listed: bool
    apart: bool
    sides: bool


class Panel(NamedTuple):
    """Four rows: the start of the dense columns, the places of the rows, bytes to prefetch."""

    dense: Any  # pointers, not arrays: see ``simd``
    places: Any
    part: Any  # lines from row to row
    k: Any
    ahead: Any  # bytes


@njit
def sides_as_lanes(C, count):
    """Eight columns are faster for one side, and for long rows of float32 that a cache holds."""
    cached = C.k >= SHORT and C.dense.itemsize == 4 and C.dense.size <= CACHED
    return count > 1 and not cached


@njit(forceinline=True)
def row_of(C, i):
    return C.rows[i] if C.rows.size else i


@njit
def pivot(C, i):
    """The diagonal entry of line i."""
    g = row_of(C, i)
    return C.diagonal[g - C.k] if g >= C.k else C.dense[g * C.stride + g]


@njit
def in_fours(start, stop, C):
    """``(first, last)``: the lines whose rows are complete, or listed; a multiple of four."""
    first = min(stop, start if C.rows.size else max(start, C.k))
    return first, stop - (stop - first) % 4


@njit(forceinline=True)
def steps(order, first, last, ahead):
    """``(step, part, ahead)``: lines from panel to panel, and in it; bytes to prefetch."""
    if order.apart:
        return 1, (last - first) // 4, 0
    return 4, 1, 0 if order.listed else ahead


@njit(forceinline=True)
def four_rows(C, order, i, part, last):
    """The rows of lines i, i + part, i + 2 part, i + 3 part."""
    if not order.listed:
        return i, i + part, i + 2 * part, i + 3 * part
    dense, size = pointer(C.dense), C.k * C.dense.itemsize
    for line in range(i + SOON, min(i + SOON + 4, last)):
        g = C.rows[line]
        for ahead in range(0, size, 64):
            prefetch(dense, g * C.stride, ahead)
        prefetch(dense, g * C.stride, size - 1)
        prefetch(pointer(C.diagonal), g - C.k, 0)
    return C.rows[i], C.rows[i + 1], C.rows[i + 2], C.rows[i + 3]


@njit(forceinline=True)
def four_entries(C, order, rows):
    """Their diagonal entries, beyond the first k."""
    a, b, c, d = rows
    entries = pointer(C.diagonal)
    if order.listed or order.apart:
        return gather(entries, a - C.k, b - C.k, c - C.k, d - C.k)
    return load(entries, a - C.k)


@njit(forceinline=True)
def from_lines(order, x, i, part):
    """Elements i, i + part, i + 2 part, i + 3 part."""
    return gather(x, i, i + part, i + 2 * part, i + 3 * part) if order.apart else load(x, i)


@njit(forceinline=True)
def to_lines(order, x, i, part, four):
    """These elements become ``four``."""
    if order.apart:
        scatter(x, i, i + part, i + 2 * part, i + 3 * part, four)
    else:
        store(x, i, four)
