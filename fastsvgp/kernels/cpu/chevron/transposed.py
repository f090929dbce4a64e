"""Loops of ``chevron``: C' x, rows and lanes as in chevron_products.

Products are added up in the dtype for FLUSH rows, and those sums in float64. Where columns are the
lanes, up to seven numbers that follow a row are added up as well, in places that nobody reads.
"""

import numpy as np
from numba import njit

from ..common.simd import (
    add,
    gather,
    load,
    load_eight,
    multiply,
    multiply_add,
    pointer,
    prefetch,
    scatter,
    shifted,
    splat,
    splat_eight,
    store,
    transposed,
    zeros,
)
from .products import AHEAD, FAST, SHORT, SOON, fetch

FLUSH = 32  # rows
# bytes: with more, and several right-hand sides, rows side by side are faster (0.8 of the time)
CACHED = 1 << 24


@njit(nogil=True, cache=True, fastmath=FAST)
def _any_rows(start, stop, flat, stride, k, diagonal, rows, listed, x, y, rest, totals):
    """Any rows, one by one."""
    count = len(x)
    for i in range(start, stop):
        g = rows[i] if listed else i
        if listed and i + SOON < stop:
            fetch(pointer(flat), stride, k, k * flat.itemsize, pointer(diagonal), rows[i + SOON])
        row = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(len(totals)):
            xi, sums = x[r, i] if r < count else y[r - count, i], totals[r]
            for j in range(row.size):
                sums[j] += row[j] * xi
        if rest.size:
            for r in range(count):
                rest[r, i] = diagonal[g - k] * x[r, i] if g >= k else 0


@njit(nogil=True, cache=True, forceinline=True)
def _add_four(sums, j, s, a, b, c, d, xa, xb, xc, xd):
    """``s + a xa + b xb + c xc + d xd`` to place j of ``sums``."""
    store(
        sums,
        j,
        add(multiply_add(b, xb, multiply_add(a, xa, s)), multiply_add(d, xd, multiply(c, xc))),
    )


# --- rows from four places -------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, forceinline=True)
def _one_side(flat, a, b, c, d, x, first, part, sums, k):
    """Four rows times entries of one right-hand side, a ``part`` apart from each other."""
    xa, xb = splat_eight(x, first), splat_eight(x, first + part)
    xc, xd = splat_eight(x, first + 2 * part), splat_eight(x, first + 3 * part)
    for j in range(0, k, 8):
        ta, tb, tc, td = (
            load_eight(flat, a + j),
            load_eight(flat, b + j),
            load_eight(flat, c + j),
            load_eight(flat, d + j),
        )
        _add_four(sums, j, load_eight(sums, j), ta, tb, tc, td, xa, xb, xc, xd)


@njit(nogil=True, cache=True, forceinline=True)
def _four_sides(flat, a, b, c, d, x, n, first, part, sums, pitch, k):
    """The same with four, n numbers apart in ``x`` and ``pitch`` numbers apart in ``sums``."""
    second, third, fourth = first + part, first + 2 * part, first + 3 * part
    y, z, w = shifted(x, n), shifted(x, 2 * n), shifted(x, 3 * n)
    p, q, r = shifted(sums, pitch), shifted(sums, 2 * pitch), shifted(sums, 3 * pitch)
    xa, xb, xc, xd = (
        splat_eight(x, first),
        splat_eight(x, second),
        splat_eight(x, third),
        splat_eight(x, fourth),
    )
    ya, yb, yc, yd = (
        splat_eight(y, first),
        splat_eight(y, second),
        splat_eight(y, third),
        splat_eight(y, fourth),
    )
    za, zb, zc, zd = (
        splat_eight(z, first),
        splat_eight(z, second),
        splat_eight(z, third),
        splat_eight(z, fourth),
    )
    wa, wb, wc, wd = (
        splat_eight(w, first),
        splat_eight(w, second),
        splat_eight(w, third),
        splat_eight(w, fourth),
    )
    for j in range(0, k, 8):
        ta, tb, tc, td = (
            load_eight(flat, a + j),
            load_eight(flat, b + j),
            load_eight(flat, c + j),
            load_eight(flat, d + j),
        )
        _add_four(sums, j, load_eight(sums, j), ta, tb, tc, td, xa, xb, xc, xd)
        _add_four(p, j, load_eight(p, j), ta, tb, tc, td, ya, yb, yc, yd)
        _add_four(q, j, load_eight(q, j), ta, tb, tc, td, za, zb, zc, zd)
        _add_four(r, j, load_eight(r, j), ta, tb, tc, td, wa, wb, wc, wd)


@njit(nogil=True, cache=True, forceinline=True)
def _all_sides(flat, a, b, c, d, x, count, n, first, part, sums, pitch, k):
    """The same with all of them."""
    for r in range(0, count - 3, 4):
        _four_sides(
            flat, a, b, c, d, shifted(x, r * n), n, first, part, shifted(sums, r * pitch), pitch, k
        )
    for r in range(count & ~3, count):
        _one_side(flat, a, b, c, d, shifted(x, r * n), first, part, shifted(sums, r * pitch), k)


@njit(nogil=True, cache=True)
def _distant_rows(
    start, stop, part, flat, stride, k, diagonal, rows, listed, x, y, rest, sums, pitch, totals
):
    """Lines ``start`` to ``stop``, and those 1, 2 and 3 times ``part`` beyond; where they are not listed, beyond the first k."""
    (count, n), size, paired = x.shape, k * flat.itemsize, len(y) > 0
    dense, entries, to, of_x, of_y = (
        pointer(flat),
        pointer(diagonal),
        pointer(rest),
        pointer(x),
        pointer(y),
    )
    sums_x, sums_y = pointer(sums), shifted(pointer(sums), sums.shape[1])
    for first in range(start, stop):
        second, third, fourth = first + part, first + 2 * part, first + 3 * part
        a, b, c, d = first, second, third, fourth
        if listed:
            if fourth + SOON // 4 < n:
                fetch(dense, stride, k, size, entries, rows[first + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[second + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[third + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[fourth + SOON // 4])
            a, b, c, d = rows[first], rows[second], rows[third], rows[fourth]
            beyond = max(max(a, b), max(c, d)) * stride + pitch
            if min(min(a, b), min(c, d)) < k or beyond > flat.size:  # nothing follows the last row
                for line in (first, second, third, fourth):
                    _any_rows(
                        line, line + 1, flat, stride, k, diagonal, rows, listed, x, y, rest, totals
                    )
                continue
        if rest.size:
            entry = gather(entries, a - k, b - k, c - k, d - k)
            for r in range(count):
                p, q, s, t = r * n + first, r * n + second, r * n + third, r * n + fourth
                scatter(to, p, q, s, t, multiply(entry, gather(of_x, p, q, s, t)))
        a, b, c, d = a * stride, b * stride, c * stride, d * stride
        _all_sides(dense, a, b, c, d, of_x, count, n, first, part, sums_x, pitch, k)
        if paired:
            _all_sides(dense, a, b, c, d, of_y, count, n, first, part, sums_y, pitch, k)


# --- short rows ------------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, forceinline=True)
def _four_products(a, b, c, d, xa, xb, xc, xd):
    """``a xa + b xb + c xc + d xd``: what is added to a sum in one step, for which the next four rows wait."""
    return add(multiply_add(a, xa, multiply(b, xb)), multiply_add(c, xc, multiply(d, xd)))


@njit(nogil=True, cache=True, forceinline=True)
def _add_column(flat, a, b, c, d, xa, xb, xc, xd, sums, s):
    """sums[s : s + 4] += flat[a] xa + flat[b] xb + flat[c] xc + flat[d] xd"""
    total = _four_products(
        splat(flat, a), splat(flat, b), splat(flat, c), splat(flat, d), xa, xb, xc, xd
    )
    store(sums, s, add(load(sums, s), total))


@njit(nogil=True, cache=True)
def _short_rows(start, stop, flat, stride, k, diagonal, x, count, n, rest, sums):
    """Rows ``start`` to ``stop``, beyond the first k and a multiple of four of them, for sums by lanes."""
    wanted = rest.size > 0
    flat, diagonal, x, rest, sums = (
        pointer(flat),
        pointer(diagonal),
        pointer(x),
        pointer(rest),
        pointer(sums),
    )
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        for r in range(0, count, 4):
            at, s = r * n + i, r * k
            xa, xb, xc, xd = load(x, at), zeros(x), zeros(x), zeros(x)
            if r + 1 < count:
                xb = load(x, at + n)
            if r + 2 < count:
                xc = load(x, at + 2 * n)
            if r + 3 < count:
                xd = load(x, at + 3 * n)
            if wanted:
                entries = load(diagonal, i - k)
                store(rest, at, multiply(entries, xa))
                if r + 1 < count:
                    store(rest, at + n, multiply(entries, xb))
                if r + 2 < count:
                    store(rest, at + 2 * n, multiply(entries, xc))
                if r + 3 < count:
                    store(rest, at + 3 * n, multiply(entries, xd))
            xa, xb, xc, xd = transposed(xa, xb, xc, xd)
            for j in range(0, k - 1, 2):
                prefetch(flat, a + 4 * j, AHEAD)
                _add_column(flat, a + j, b + j, c + j, d + j, xa, xb, xc, xd, sums, s + 4 * j)
                _add_column(
                    flat,
                    a + j + 1,
                    b + j + 1,
                    c + j + 1,
                    d + j + 1,
                    xa,
                    xb,
                    xc,
                    xd,
                    sums,
                    s + 4 * j + 4,
                )
            if k & 1:
                j = k - 1
                _add_column(flat, a + j, b + j, c + j, d + j, xa, xb, xc, xd, sums, s + 4 * j)


@njit(nogil=True, cache=True)
def _short_rows_of_one(start, stop, flat, stride, k, diagonal, x, y, rest, sums):
    """The same for one right-hand side, or one of ``x`` and one of ``y``, where columns are the lanes."""
    wanted, paired = rest.size > 0, len(y) > 0
    sums_y = shifted(pointer(sums), sums.shape[1])
    flat, diagonal, rest, sums = pointer(flat), pointer(diagonal), pointer(rest), pointer(sums)
    of_x, of_y = pointer(x), pointer(y)
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        if wanted:
            store(rest, i, multiply(load(diagonal, i - k), load(of_x, i)))
        xa, xb, xc, xd = splat(of_x, i), splat(of_x, i + 1), splat(of_x, i + 2), splat(of_x, i + 3)
        ya, yb, yc, yd = xa, xb, xc, xd
        if paired:
            ya, yb, yc, yd = (
                splat(of_y, i),
                splat(of_y, i + 1),
                splat(of_y, i + 2),
                splat(of_y, i + 3),
            )
        for j in range(0, k, 4):
            prefetch(flat, a + 4 * j, AHEAD)
            ta, tb, tc, td = (
                load(flat, a + j),
                load(flat, b + j),
                load(flat, c + j),
                load(flat, d + j),
            )
            store(sums, j, add(load(sums, j), _four_products(ta, tb, tc, td, xa, xb, xc, xd)))
            if paired:
                store(
                    sums_y, j, add(load(sums_y, j), _four_products(ta, tb, tc, td, ya, yb, yc, yd))
                )


# --- all of them -----------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def columns_of_product(start, stop, flat, stride, k, diagonal, rows, listed, x, y, rest):
    """What these rows add to the first k entries of C' x_r, then C' y_r, in float64.

    ``y`` has as many lines as ``x``, or none. rest[r, i] = C_gg x_r[i], 0 for g < k, if not empty.
    """
    count, n = x.shape
    if count == 0:
        return np.zeros((0, k))
    sides = 2 if len(y) else 1
    few = count == 1 or flat.size * flat.itemsize <= CACHED
    distant, pitch = listed or k >= SHORT and few, (k + 7) // 8 * 8
    # from here on rows are complete, or listed
    first = min(stop, start if listed else max(start, k))
    last = stop - (stop - first) % 4
    if not listed and first < last and (last - 1) * stride + pitch > flat.size:
        last -= 4  # nothing follows the last row
    args = flat, stride, k, diagonal
    # the order of the sums, else right-hand side by right-hand side
    by_lanes = count > 1 and not distant
    size = ((count + 3) // 4 * 4 if by_lanes else count) * pitch
    totals, sums, wide = (
        np.zeros((sides * count, k)),
        np.zeros((sides, size), flat.dtype),
        np.zeros((sides, size)),
    )
    _any_rows(start, first, *args, rows, listed, x, y, rest, totals)
    _any_rows(last, stop, *args, rows, listed, x, y, rest, totals)
    part = (last - first) // 4
    for begin in range(0, part, FLUSH // 4):
        end = min(begin + FLUSH // 4, part)
        if distant:
            _distant_rows(
                first + begin,
                first + end,
                part,
                *args,
                rows,
                listed,
                x,
                y,
                rest,
                sums,
                pitch,
                totals,
            )
        elif by_lanes:
            _short_rows(first + 4 * begin, first + 4 * end, *args, x, count, n, rest, sums[0])
            if sides > 1:
                _short_rows(
                    first + 4 * begin, first + 4 * end, *args, y, count, n, rest[:0], sums[1]
                )
        else:
            _short_rows_of_one(first + 4 * begin, first + 4 * end, *args, x, y, rest, sums)
        for side in range(sides):
            short, long = sums[side], wide[side]
            for j in range(size):
                long[j] += short[j]
                short[j] = 0
    for side in range(sides):
        for r in range(count):
            for j in range(k):
                totals[side * count + r, j] += wide[
                    side, r // 4 * 4 * k + 4 * j + r % 4 if by_lanes else r * pitch + j
                ]
    return totals
