"""Loops of ``chevron``: C z, four rows at a time in the order of ``rows``."""

from typing import Any, NamedTuple

import numpy as np

from ..common.compiled import kernel, njit
from ..common.simd import (
    add,
    eight_zeros,
    gather,
    halves,
    load,
    load_eight,
    multiply,
    multiply_add,
    pointer,
    prefetch,
    shifted,
    splat,
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

AHEAD = 12288  # bytes to prefetch


class Sides(NamedTuple):
    """Right-hand sides z_r, head[r, j] = z_r[j] and rest[r, i] = z_r[g], and products."""

    head: Any
    weights: Any  # ``head``, by lanes if they are
    rest: Any
    out: Any


@njit(fastmath=FAST)
def _any_rows(start, stop, C, sides):
    """Any rows, one by one."""
    for i in range(start, stop):
        g = row_of(C, i)
        row = C.dense[g * C.stride : g * C.stride + min(C.k, g + 1)]
        for r in range(sides.head.shape[0]):
            weights = sides.head[r, : C.k]
            total = C.dense.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            if g >= C.k:
                total += C.diagonal[g - C.k] * sides.rest[r, i]
            sides.out[r, i] = total


@njit
def _by_lanes(head, k):
    """Entry r k + 4 j + lane is of column j and side r + lane, 4 | r; 0 if there is no side."""
    count = len(head)
    weights = np.zeros((count + 3) // 4 * 4 * k, head.dtype)
    for r in range(count):
        for j in range(k):
            weights[r // 4 * 4 * k + 4 * j + r % 4] = head[r, j]
    return weights


@njit(forceinline=True)
def _plus(rows, h, sums):
    """``sums``, one for each of four rows, plus ``rows`` times ``h``."""
    return (
        multiply_add(rows[0], h, sums[0]),
        multiply_add(rows[1], h, sums[1]),
        multiply_add(rows[2], h, sums[2]),
        multiply_add(rows[3], h, sums[3]),
    )


@njit(forceinline=True)
def _one_side(panel, head, total):
    """``total`` plus products of four rows, with one side: columns are the lanes."""
    at, k, (a, b, c, d) = panel.dense, panel.k, panel.places
    zero = eight_zeros(at)
    sums = zero, zero, zero, zero
    for j in range(0, k - 7, 8):
        prefetch(at, a + 4 * j, panel.ahead)
        prefetch(at, a + 4 * j + 16, panel.ahead)
        rows = (
            load_eight(at, a + j),
            load_eight(at, b + j),
            load_eight(at, c + j),
            load_eight(at, d + j),
        )
        sums = _plus(rows, load_eight(head, j), sums)
    fours = halves(sums[0]), halves(sums[1]), halves(sums[2]), halves(sums[3])
    if k & 4:
        j = k & ~7
        rows = load(at, a + j), load(at, b + j), load(at, c + j), load(at, d + j)
        fours = _plus(rows, load(head, j), fours)
    p, q, r, s = transposed(fours[0], fours[1], fours[2], fours[3])
    total = add(total, add(add(p, q), add(r, s)))
    for j in range(k & ~3, k):
        total = multiply_add(gather(at, a + j, b + j, c + j, d + j), splat(head, j), total)
    return total


@njit(forceinline=True)
def _column(panel, j, weights, sums):
    at, (a, b, c, d) = panel.dense, panel.places
    rows = splat(at, a + j), splat(at, b + j), splat(at, c + j), splat(at, d + j)
    return _plus(rows, load(weights, 4 * j), sums)


@njit(forceinline=True)
def _four_sides(panel, weights):
    """Products of four rows with four sides, which are the lanes until rows take their place."""
    zero, k = zeros(panel.dense), panel.k
    sums = zero, zero, zero, zero
    for j in range(0, k - 1, 2):
        prefetch(panel.dense, panel.places[0] + 4 * j, panel.ahead)
        sums = _column(panel, j, weights, sums)
        sums = _column(panel, j + 1, weights, sums)
    if k & 1:
        sums = _column(panel, k - 1, weights, sums)
    return transposed(sums[0], sums[1], sums[2], sums[3])


@njit(forceinline=True)
def _fours(first, last, C, order, sides):
    (count, n), k, (step, part, ahead) = sides.out.shape, C.k, steps(order, first, last, AHEAD)
    at, head = pointer(C.dense), pointer(sides.weights)
    rest, out = pointer(sides.rest), pointer(sides.out)
    for i in range(first, first + (last - first) // 4 * step, step):
        rows = a, b, c, d = four_rows(C, order, i, part, last)
        if order.listed and min(min(a, b), min(c, d)) < k:
            _any_rows(i, i + 4, C, sides)
            continue
        entries = four_entries(C, order, rows)
        places = a * C.stride, b * C.stride, c * C.stride, d * C.stride
        panel = Panel(at, places, part, k, ahead)
        if order.sides:
            for r in range(0, count, 4):
                p = r * n + i
                sums = _four_sides(panel, shifted(head, r * k))
                store(out, p, multiply_add(entries, load(rest, p), sums[0]))
                if r + 1 < count:
                    store(out, p + n, multiply_add(entries, load(rest, p + n), sums[1]))
                if r + 2 < count:
                    store(out, p + 2 * n, multiply_add(entries, load(rest, p + 2 * n), sums[2]))
                if r + 3 < count:
                    store(out, p + 3 * n, multiply_add(entries, load(rest, p + 3 * n), sums[3]))
        else:
            for r in range(count):
                own = multiply(entries, from_lines(order, rest, r * n + i, part))
                own = _one_side(panel, shifted(head, r * k), own)
                to_lines(order, out, r * n + i, part, own)


@kernel("i i (R1 i i R1 I1) R2 R2 R2")
def rows_of_product(start, stop, chevron, head, rest, out):
    """out[r, i] = row g of C z_r, where head[r, j] = z_r[j] and rest[r, i] = z_r[g].

    ``rest`` can be ``out``, and is overwritten then.
    """
    C, count = Chevron(*chevron), len(out)
    if count == 0:
        return
    first, last = in_fours(start, stop, C)
    lanes = sides_as_lanes(C, count)
    weights = _by_lanes(head, C.k) if lanes else head.reshape(-1)
    sides = Sides(head, weights, rest, out)
    _any_rows(start, first, C, sides)
    _any_rows(last, stop, C, sides)
    if C.rows.size:
        _fours(first, last, C, Order(True, False, lanes), sides)
    elif C.k >= SHORT and not lanes:
        _fours(first, last, C, Order(False, True, False), sides)
    else:
        _fours(first, last, C, Order(False, False, lanes), sides)
