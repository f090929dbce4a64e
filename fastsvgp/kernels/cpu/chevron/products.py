"""Loops of ``chevron``: C z and C' x.

Line i of a product belongs to row g of C: g = rows[i], or g = i without ``rows``. A chevron is the
tuple ``(dense, stride, k, diagonal, rows)``: the dense columns are one flat array, and row g starts
at g ``stride``. Vectors are (count, n) and contiguous.

Rows are taken four at a time, which share the loads of what they are multiplied with: by columns in
plain loops, or by right-hand sides (see ``sides``), for which listed rows are copied, one after the
other. Row by row go the first k rows, which are incomplete, up to three last ones, and listed rows
that are not taken by sides.
"""

import numpy as np

from ..common.compiled import kernel, njit
from .sides import FLUSH, product_by_sides, sums_by_sides

FAST = {"contract", "reassoc", "nsz", "arcp"}
SHORT = 32  # columns
CACHED = 1 << 22  # numbers
TILE, LISTED = 8192, 1024  # lines at a time


@njit
def _by_sides(chevron, count):
    """Columns are faster for one side, and for long rows of float32 that a cache holds."""
    dense, _, k, _, _ = chevron
    cached = k >= SHORT and dense.itemsize == 4 and dense.size <= CACHED
    return count > 1 and not cached


@njit
def _complete(begin, end, chevron, by_sides):
    """``(first, last)``: the lines that are taken four at a time."""
    _, _, k, _, rows = chevron
    first = (begin if by_sides else end) if rows.size else min(max(begin, k), end)
    return first, end - (end - first) % 4


@njit
def _panel(first, last, chevron):
    """``(dense, stride, k, entries)`` of lines from ``first`` on, as if all were complete."""
    dense, stride, k, diagonal, rows = chevron
    if rows.size == 0:
        return dense[first * stride :], stride, k, diagonal[first - k : last - k]
    copied, entries = np.zeros((last - first) * k, dense.dtype), np.zeros(last - first, dense.dtype)
    for t in range(last - first):
        g = rows[first + t]
        row, to = dense[g * stride : g * stride + min(k, g + 1)], copied[t * k :]
        for j in range(row.size):
            to[j] = row[j]
        if g >= k:
            entries[t] = diagonal[g - k]
    return copied, k, k, entries


@njit(forceinline=True)
def _four(t, fours, k):
    """Four lines of a panel.

    Long rows are a quarter of the lines apart: four streams, which the hardware prefetches. Four
    neighbours would be streams that end after every row. Lines, and all that is computed of them,
    are unsigned, because Numba checks signed indices for negative values.
    """
    a, part = (t, fours) if k >= SHORT else (4 * t, 1)
    return np.uint64(a), np.uint64(a + part), np.uint64(a + 2 * part), np.uint64(a + 3 * part)


@njit(fastmath=FAST)
def _product_of_any(start, stop, chevron, head, rest, out):
    dense, stride, k, diagonal, rows = chevron
    for i in range(start, stop):
        g = rows[i] if rows.size else i
        row = dense[g * stride : g * stride + min(k, g + 1)]
        for r in range(len(out)):
            weights, total = head[r], dense.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            out[r, i] = total + diagonal[g - k] * rest[r, i] if g >= k else total


@njit(fastmath=FAST)
def _product_by_columns(first, last, panel, head, rest, out):
    (dense, stride, k, entries), fours = panel, (last - first) // 4
    first, stride = np.uint64(first), np.uint64(stride)
    for four in range(fours):
        a, b, c, d = _four(four, fours, k)
        e, f, g, h = a * stride, b * stride, c * stride, d * stride
        for r in range(len(out)):
            weights, x, y = head[r], rest[r], out[r]
            p = q = s = t = dense.dtype.type(0)
            for j in range(np.uint64(k)):
                w = weights[j]
                p += dense[e + j] * w
                q += dense[f + j] * w
                s += dense[g + j] * w
                t += dense[h + j] * w
            y[first + a] = p + entries[a] * x[first + a]
            y[first + b] = q + entries[b] * x[first + b]
            y[first + c] = s + entries[c] * x[first + c]
            y[first + d] = t + entries[d] * x[first + d]


@kernel("i i (R1 i i R1 I1) R2 R2 R2")
def rows_of_product(start, stop, chevron, head, rest, out):
    """out[r, i] = row g of C z_r, where head[r, j] = z_r[j] and rest[r, i] = z_r[g].

    ``rest`` can be ``out``, and is overwritten then.
    """
    (_, _, k, _, rows), by_sides = chevron, _by_sides(chevron, len(out))
    tile = LISTED if rows.size else TILE
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        first, last = _complete(begin, end, chevron, by_sides)
        panel = _panel(first, last, chevron)
        _product_of_any(begin, first, chevron, head, rest, out)
        if by_sides:
            product_by_sides(first, last, panel, head, rest, out)
        else:
            _product_by_columns(first, last, panel, head, rest, out)
        _product_of_any(last, end, chevron, head, rest, out)
        for i in range(first, last if rows.size else first):
            if rows[i] < k:  # what ``rest`` holds there is not used
                _product_of_any(i, i + 1, chevron, head, rest, out)


@njit(fastmath=FAST)
def _sums_of_any(start, stop, chevron, x, totals):
    dense, stride, k, _, rows = chevron
    for i in range(start, stop):
        g = rows[i] if rows.size else i
        row = dense[g * stride : g * stride + min(k, g + 1)]
        for r in range(len(x)):
            y, sums = x[r, i], totals[r]
            for j in range(row.size):
                sums[j] += row[j] * y


@njit(fastmath={"contract"})  # in this order, which loses fewer digits
def _sums_by_columns(first, last, panel, x, totals):
    (dense, stride, k, _), fours = panel, (last - first) // 4
    first, stride = np.uint64(first), np.uint64(stride)
    sums = np.zeros(totals.shape, dense.dtype)
    for begin in range(0, fours, FLUSH // 4):
        for four in range(begin, min(begin + FLUSH // 4, fours)):
            a, b, c, d = _four(four, fours, k)
            e, f, g, h = a * stride, b * stride, c * stride, d * stride
            for r in range(len(x)):
                y, own = x[r], sums[r]
                p, q, s, t = y[first + a], y[first + b], y[first + c], y[first + d]
                for j in range(np.uint64(k)):
                    u = dense[e + j] * p + dense[f + j] * q
                    own[j] += u + (dense[g + j] * s + dense[h + j] * t)
        for r in range(len(x)):
            own, total = sums[r], totals[r]
            for j in range(k):
                total[j] += own[j]
                own[j] = 0


@njit(fastmath=FAST)
def own_places(start, stop, chevron, x, out):
    """out[r, i] = C_gg x[r, i], and 0 for g < k."""
    _, _, k, diagonal, rows = chevron
    first = start if rows.size else min(max(start, k), stop)
    for r in range(len(x)):
        out[r, start:first] = 0
        y, to = x[r, first:stop], out[r, first:stop]
        if rows.size:
            for t in range(to.size):
                to[t] = diagonal[rows[first + t] - k] * y[t] if rows[first + t] >= k else 0
        else:
            entries = diagonal[first - k : stop - k]
            for t in range(to.size):
                to[t] = entries[t] * y[t]


@kernel("i i (R1 i i R1 I1) R2 R2")
def columns_of_product(start, stop, chevron, x, rest):
    """What these rows add to the first k entries of C' x_r, in float64.

    ``rest``, if not empty, becomes what each row adds at its own place.
    """
    (_, _, k, _, rows), by_sides = chevron, _by_sides(chevron, len(x))
    totals, tile = np.zeros((len(x), k)), LISTED if rows.size else TILE
    for begin in range(start, stop, tile):
        end = min(begin + tile, stop)
        first, last = _complete(begin, end, chevron, by_sides)
        panel = _panel(first, last, chevron)
        _sums_of_any(begin, first, chevron, x, totals)
        if by_sides:
            sums_by_sides(first, last, panel, x, totals)
        else:
            _sums_by_columns(first, last, panel, x, totals)
        _sums_of_any(last, end, chevron, x, totals)
        if rest.size:
            own_places(begin, end, chevron, x, rest)
    return totals
