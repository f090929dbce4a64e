"""Loops of ``chevron``: C' x, four rows at a time in the order of ``rows``.

Products are added up in the dtype for FLUSH rows, and those sums in float64. With columns as lanes
up to seven numbers that follow a row are added up too, in places that are never read.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common.compiled import kernel, njit
from ..common.simd import (
    add,
    load,
    load_eight,
    multiply,
    multiply_add,
    pointer,
    prefetch,
    shifted,
    splat,
    splat_eight,
    store,
    transposed,
    zeros,
)
from .rows import (
    FAST,
    SHORT,
    Chevron,
    Order,
    Panel,
    four_entries,
    four_rows,
    from_lines,
    in_fours,
    row_of,
    sides_as_lanes,
    steps,
    to_lines,
)

FLUSH = 32  # rows
AHEAD = 4096  # bytes to prefetch


class Sums(NamedTuple):
    """Sums over rows, for x and then for y."""

    totals: Any  # (sides, k), float64
    wide: Any  # float64, in the order of the lanes
    short: Any  # the same in the dtype, of the last rows
    pitch: Any  # numbers per side, if columns are the lanes
    half: Any  # numbers of x


@njit(fastmath=FAST)
def _any_rows(start, stop, C, x, y, rest, totals):
    """Any rows, one by one."""
    count = len(x)
    for i in range(start, stop):
        g = row_of(C, i)
        row = C.dense[g * C.stride : g * C.stride + min(C.k, g + 1)]
        for r in range(len(totals)):
            xi, sums = x[r, i] if r < count else y[r - count, i], totals[r]
            for j in range(row.size):
                sums[j] += row[j] * xi
        if rest.size:
            for r in range(count):
                rest[r, i] = C.diagonal[g - C.k] * x[r, i] if g >= C.k else 0


@njit(forceinline=True)
def _add_products(sums, j, before, rows, x):
    """Add four products in one step: the next four rows wait for it."""
    first = multiply_add(rows[0], x[0], multiply(rows[1], x[1]))
    store(sums, j, add(before, add(first, multiply_add(rows[2], x[2], multiply(rows[3], x[3])))))


@njit(forceinline=True)
def _one_side(panel, x, sums):
    """Add four rows times numbers of one side: columns are the lanes."""
    at, part, (a, b, c, d) = panel.dense, panel.part, panel.places
    four = (
        splat_eight(x, 0),
        splat_eight(x, part),
        splat_eight(x, 2 * part),
        splat_eight(x, 3 * part),
    )
    for j in range(0, panel.k, 8):
        prefetch(at, a + 4 * j, panel.ahead)
        prefetch(at, a + 4 * j + 16, panel.ahead)
        rows = (
            load_eight(at, a + j),
            load_eight(at, b + j),
            load_eight(at, c + j),
            load_eight(at, d + j),
        )
        _add_products(sums, j, load_eight(sums, j), rows, four)


@njit(forceinline=True)
def _column(panel, j, four, sums):
    at, (a, b, c, d) = panel.dense, panel.places
    rows = splat(at, a + j), splat(at, b + j), splat(at, c + j), splat(at, d + j)
    _add_products(sums, 4 * j, load(sums, 4 * j), rows, four)


@njit(forceinline=True)
def _four_sides(panel, x, n, count, sums):
    """Add four rows times numbers of four sides or fewer, ``n`` apart: sides are the lanes."""
    p, q, r, s = load(x, 0), zeros(x), zeros(x), zeros(x)
    if count > 1:
        q = load(x, n)
    if count > 2:
        r = load(x, 2 * n)
    if count > 3:
        s = load(x, 3 * n)
    four, k = transposed(p, q, r, s), panel.k
    for j in range(0, k - 1, 2):
        prefetch(panel.dense, panel.places[0] + 4 * j, panel.ahead)
        _column(panel, j, four, sums)
        _column(panel, j + 1, four, sums)
    if k & 1:
        _column(panel, k - 1, four, sums)


@njit(forceinline=True)
def _add_rows(panel, by_sides, x, n, count, sums, pitch):
    """Add four rows times their numbers, from ``x`` on."""
    if by_sides:
        for r in range(0, count, 4):
            _four_sides(panel, shifted(x, r * n), n, count - r, shifted(sums, r * panel.k))
    else:
        for r in range(count):
            _one_side(panel, shifted(x, r * n), shifted(sums, r * pitch))


@njit(forceinline=True)
def _fours(first, last, C, order, x, y, rest, sums):
    (count, n), (step, part, ahead) = x.shape, steps(order, first, last, AHEAD)
    fours = (last - first) // 4
    at, of_x, of_y, of_rest = pointer(C.dense), pointer(x), pointer(y), pointer(rest)
    short, pitch, wanted, paired = pointer(sums.short), sums.pitch, rest.size > 0, len(y) > 0
    other, end = shifted(short, sums.half), C.dense.size - pitch
    for begin in range(0, fours, FLUSH // 4):
        for t in range(begin, min(begin + FLUSH // 4, fours)):
            i = first + t * step
            rows = a, b, c, d = four_rows(C, order, i, part, last)
            if order.listed:
                beyond = max(max(a, b), max(c, d)) * C.stride > end
                if beyond or min(min(a, b), min(c, d)) < C.k:
                    _any_rows(i, i + 4, C, x, y, rest, sums.totals)
                    continue
            if wanted:
                entries = four_entries(C, order, rows)
                for r in range(0, count * n, n):
                    own = multiply(entries, from_lines(order, of_x, r + i, part))
                    to_lines(order, of_rest, r + i, part, own)
            places = a * C.stride, b * C.stride, c * C.stride, d * C.stride
            panel = Panel(at, places, part, C.k, ahead)
            _add_rows(panel, order.sides, shifted(of_x, i), n, count, short, pitch)
            if paired:
                _add_rows(panel, order.sides, shifted(of_y, i), n, count, other, pitch)
        for j in range(sums.short.size):
            sums.wide[j] += sums.short[j]
            sums.short[j] = 0


@kernel("i i (R1 i i R1 I1) R2 R2 R2")
def columns_of_product(start, stop, chevron, x, y, rest):
    """What these rows add to the first k entries of C' x_r, then C' y_r, in float64.

    ``y`` has as many lines as ``x``, or none. rest[r, i] = C_gg x_r[i], 0 for g < k, if not empty.
    """
    C, count, sides = Chevron(*chevron), len(x), len(x) + len(y)
    if count == 0:
        return np.zeros((0, C.k))
    k, lanes, pitch = C.k, sides_as_lanes(C, count), (C.k + 7) // 8 * 8
    half = (count + 3) // 4 * 4 * k if lanes else count * pitch
    numbers = sides // count * half
    sums = Sums(np.zeros((sides, k)), np.zeros(numbers), np.zeros(numbers, x.dtype), pitch, half)
    first, last = in_fours(start, stop, C)
    while C.rows.size == 0 and first < last and (last - 1) * C.stride + pitch > C.dense.size:
        last -= 4  # too little follows the last row
    _any_rows(start, first, C, x, y, rest, sums.totals)
    _any_rows(last, stop, C, x, y, rest, sums.totals)
    if C.rows.size:
        _fours(first, last, C, Order(True, False, lanes), x, y, rest, sums)
    elif k >= SHORT and not lanes:
        _fours(first, last, C, Order(False, True, False), x, y, rest, sums)
    else:
        _fours(first, last, C, Order(False, False, lanes), x, y, rest, sums)
    for r in range(sides):
        q, of_side = r % count, sums.wide[r // count * half :]
        for j in range(k):
            sums.totals[r, j] += of_side[q // 4 * 4 * k + 4 * j + q % 4 if lanes else q * pitch + j]
    return sums.totals
