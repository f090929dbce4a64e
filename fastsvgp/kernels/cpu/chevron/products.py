"""Loops of ``chevron``: C z, row by row or four rows at a time.

Line i of a product stands for row g of C: g = rows[i], or g = i where the rows are not ``listed``.
The dense columns come as one flat array and the distance from row to row, so that rows are
contiguous also where they are padded; vectors are (count, n) and contiguous.

Four rows at once share the loads of what they are multiplied with, and their lanes are added up
together. Long rows come from four places a quarter of the lines apart: each is one stream, which
the processor fetches ahead. Four rows side by side would be streams that end after every row: 15 ms
against 8 ms for (300000, 100) in float64.

With few columns a row is over before a loop over right-hand sides gets going, and its index
arithmetic costs more than the products: short rows, side by side, keep everything in registers, and
ask for what comes AHEAD, one line for about every line they read. With one right-hand side columns
are the lanes; with more of them right-hand sides are, four at a time, so that a number of C is read
once for four products. Their numbers are ordered ``by_lanes``: entry r k + 4 j + lane belongs to
column j and side r + lane, for r a multiple of 4, and is 0 beyond count.
"""

import numpy as np
from numba import njit

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
    scatter,
    shifted,
    splat,
    store,
    transposed,
    zeros,
)

FAST = {"contract", "reassoc", "nsz", "arcp"}
SHORT = 32  # columns
AHEAD = 4096  # bytes
SOON = 16  # rows, where they are listed

# ``forceinline`` where a call would hand its registers over in memory: a quarter of the time of
# short rows.


@njit(nogil=True, cache=True)
def by_lanes(head, k):
    """(count, k) in the order of right-hand sides as lanes."""
    count = head.shape[0]
    weights = np.zeros((count + 3) // 4 * 4 * k, head.dtype)
    for r in range(count):
        for j in range(k):
            weights[r // 4 * 4 * k + 4 * j + r % 4] = head[r, j]
    return weights


@njit(nogil=True, cache=True, forceinline=True)
def fetch(flat, stride, k, size, diagonal, g):
    """Ask for a row of ``size`` bytes that may be anywhere, and for its diagonal entry."""
    for ahead in range(0, size, 64):
        prefetch(flat, g * stride, ahead)
    prefetch(flat, g * stride, size - 1)
    prefetch(diagonal, g - k, 0)


@njit(nogil=True, cache=True, fastmath=FAST)
def _any_rows(start, stop, flat, stride, k, diagonal, squared, rows, listed, head, rest, out):
    """Any rows, one by one."""
    for i in range(start, stop):
        g = rows[i] if listed else i
        if listed and i + SOON < stop:
            fetch(pointer(flat), stride, k, k * flat.itemsize, pointer(diagonal), rows[i + SOON])
        row = flat[g * stride : g * stride + min(k, g + 1)]
        for r in range(head.shape[0]):
            weights = head[r, :k]
            total = flat.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            if g >= k:
                entry = diagonal[g - k]
                total += (entry * entry if squared else entry) * rest[r, i]
            out[r, i] = total


# --- rows from four places ----------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, forceinline=True)
def _plus(a, b, c, d, h, pa, pb, pc, pd):
    """``pa + a h`` and the like for b, c, d."""
    return (
        multiply_add(a, h, pa),
        multiply_add(b, h, pb),
        multiply_add(c, h, pc),
        multiply_add(d, h, pd),
    )


@njit(nogil=True, cache=True, forceinline=True)
def _last_columns(flat, a, b, c, d, head, k, pa, pb, pc, pd, total):
    """``total`` plus the lanes of these sums, of four rows, plus products of the columns that eight do not divide."""
    pa, pb, pc, pd = halves(pa), halves(pb), halves(pc), halves(pd)
    if k & 4:
        j = k & ~7
        xa, xb, xc, xd = load(flat, a + j), load(flat, b + j), load(flat, c + j), load(flat, d + j)
        pa, pb, pc, pd = _plus(xa, xb, xc, xd, load(head, j), pa, pb, pc, pd)
    pa, pb, pc, pd = transposed(pa, pb, pc, pd)
    total = add(total, add(add(pa, pb), add(pc, pd)))
    for j in range(k & ~3, k):
        total = multiply_add(gather(flat, a + j, b + j, c + j, d + j), splat(head, j), total)
    return total


@njit(nogil=True, cache=True, forceinline=True)
def _one_side(flat, a, b, c, d, head, k, total):
    """``total`` plus products of four rows with one right-hand side."""
    pa = pb = pc = pd = eight_zeros(flat)
    for j in range(0, k - 7, 8):
        xa, xb, xc, xd = (
            load_eight(flat, a + j),
            load_eight(flat, b + j),
            load_eight(flat, c + j),
            load_eight(flat, d + j),
        )
        pa, pb, pc, pd = _plus(xa, xb, xc, xd, load_eight(head, j), pa, pb, pc, pd)
    return _last_columns(flat, a, b, c, d, head, k, pa, pb, pc, pd, total)


@njit(nogil=True, cache=True, forceinline=True)
def _four_sides(flat, a, b, c, d, head, k, tp, tq, tr, ts):
    """The same with four, k numbers apart in ``head``."""
    pa = pb = pc = pd = qa = qb = qc = qd = ra = rb = rc = rd = sa = sb = sc = sd = eight_zeros(
        flat
    )
    q, r, s = shifted(head, k), shifted(head, 2 * k), shifted(head, 3 * k)
    for j in range(0, k - 7, 8):
        xa, xb, xc, xd = (
            load_eight(flat, a + j),
            load_eight(flat, b + j),
            load_eight(flat, c + j),
            load_eight(flat, d + j),
        )
        pa, pb, pc, pd = _plus(xa, xb, xc, xd, load_eight(head, j), pa, pb, pc, pd)
        qa, qb, qc, qd = _plus(xa, xb, xc, xd, load_eight(q, j), qa, qb, qc, qd)
        ra, rb, rc, rd = _plus(xa, xb, xc, xd, load_eight(r, j), ra, rb, rc, rd)
        sa, sb, sc, sd = _plus(xa, xb, xc, xd, load_eight(s, j), sa, sb, sc, sd)
    tp = _last_columns(flat, a, b, c, d, head, k, pa, pb, pc, pd, tp)
    tq = _last_columns(flat, a, b, c, d, q, k, qa, qb, qc, qd, tq)
    tr = _last_columns(flat, a, b, c, d, r, k, ra, rb, rc, rd, tr)
    return tp, tq, tr, _last_columns(flat, a, b, c, d, s, k, sa, sb, sc, sd, ts)


@njit(nogil=True, cache=True)
def _distant_rows(start, stop, flat, stride, k, diagonal, squared, rows, listed, head, rest, out):
    """Lines ``start`` to ``stop``, a multiple of four of them; where they are not listed, beyond the first k."""
    (count, n), size, part = rest.shape, k * flat.itemsize, (stop - start) // 4
    dense, entries, weights, to, z = (
        pointer(flat),
        pointer(diagonal),
        pointer(head),
        pointer(out),
        pointer(rest),
    )
    for first in range(start, start + part):
        second, third, fourth = first + part, first + 2 * part, first + 3 * part
        a, b, c, d = first, second, third, fourth
        if listed:
            if first + SOON // 4 < start + part:
                fetch(dense, stride, k, size, entries, rows[first + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[second + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[third + SOON // 4])
                fetch(dense, stride, k, size, entries, rows[fourth + SOON // 4])
            a, b, c, d = rows[first], rows[second], rows[third], rows[fourth]
            if min(min(a, b), min(c, d)) < k:
                for line in (first, second, third, fourth):
                    _any_rows(
                        line,
                        line + 1,
                        flat,
                        stride,
                        k,
                        diagonal,
                        squared,
                        rows,
                        listed,
                        head,
                        rest,
                        out,
                    )
                continue
        entry = gather(entries, a - k, b - k, c - k, d - k)
        if squared:
            entry = multiply(entry, entry)
        a, b, c, d = a * stride, b * stride, c * stride, d * stride
        for r in range(0, count - 3, 4):
            p, q, s, t = r * n, r * n + n, r * n + 2 * n, r * n + 3 * n
            tp = multiply(entry, gather(z, p + first, p + second, p + third, p + fourth))
            tq = multiply(entry, gather(z, q + first, q + second, q + third, q + fourth))
            ts = multiply(entry, gather(z, s + first, s + second, s + third, s + fourth))
            tt = multiply(entry, gather(z, t + first, t + second, t + third, t + fourth))
            tp, tq, ts, tt = _four_sides(
                dense, a, b, c, d, shifted(weights, r * k), k, tp, tq, ts, tt
            )
            scatter(to, p + first, p + second, p + third, p + fourth, tp)
            scatter(to, q + first, q + second, q + third, q + fourth, tq)
            scatter(to, s + first, s + second, s + third, s + fourth, ts)
            scatter(to, t + first, t + second, t + third, t + fourth, tt)
        for r in range(count & ~3, count):
            p = r * n
            total = multiply(entry, gather(z, p + first, p + second, p + third, p + fourth))
            total = _one_side(dense, a, b, c, d, shifted(weights, r * k), k, total)
            scatter(to, p + first, p + second, p + third, p + fourth, total)


# --- short rows ------------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True, forceinline=True)
def plus(at, a, b, c, d, h, pa, pb, pc, pd):
    """``pa + at[a] h`` and the like for b, c, d."""
    pa, pb = multiply_add(splat(at, a), h, pa), multiply_add(splat(at, b), h, pb)
    return pa, pb, multiply_add(splat(at, c), h, pc), multiply_add(splat(at, d), h, pd)


@njit(nogil=True, cache=True)
def _short_rows(start, stop, flat, stride, k, diagonal, squared, weights, count, n, rest, out):
    """Rows ``start`` to ``stop``, beyond the first k and a multiple of four of them; ``squared``: with the diagonal squared."""
    dense, diagonal, weights = pointer(flat), pointer(diagonal), pointer(weights)
    rest, out = pointer(rest), pointer(out)
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        entries = load(diagonal, i - k)
        if squared:
            entries = multiply(entries, entries)
        for r in range(0, count, 4):
            sa = sb = sc = sd = zeros(dense)
            for j in range(k):
                prefetch(dense, a + 4 * j, AHEAD)
                sa, sb, sc, sd = plus(
                    dense, a + j, b + j, c + j, d + j, load(weights, r * k + 4 * j), sa, sb, sc, sd
                )
            sa, sb, sc, sd = transposed(sa, sb, sc, sd)
            at = r * n + i
            store(out, at, multiply_add(entries, load(rest, at), sa))
            if r + 1 < count:
                store(out, at + n, multiply_add(entries, load(rest, at + n), sb))
            if r + 2 < count:
                store(out, at + 2 * n, multiply_add(entries, load(rest, at + 2 * n), sc))
            if r + 3 < count:
                store(out, at + 3 * n, multiply_add(entries, load(rest, at + 3 * n), sd))


@njit(nogil=True, cache=True, forceinline=True)
def _four_products(flat, a, b, c, d, weights, k, total, ahead, step):
    """``total`` plus products of four rows of few columns with one right-hand side: columns are the lanes."""
    pa = pb = pc = pd = zeros(flat)
    for j in range(0, k - 3, 4):
        prefetch(flat, a + step * j, ahead)
        h = load(weights, j)
        pa = multiply_add(load(flat, a + j), h, pa)
        pb = multiply_add(load(flat, b + j), h, pb)
        pc = multiply_add(load(flat, c + j), h, pc)
        pd = multiply_add(load(flat, d + j), h, pd)
    pa, pb, pc, pd = transposed(pa, pb, pc, pd)
    total = add(total, add(add(pa, pb), add(pc, pd)))
    for j in range(k & ~3, k):
        total = multiply_add(gather(flat, a + j, b + j, c + j, d + j), splat(weights, j), total)
    return total


@njit(nogil=True, cache=True)
def _short_rows_of_one(start, stop, flat, stride, k, diagonal, squared, weights, rest, out):
    """The same for one right-hand side."""
    flat, diagonal, weights, rest, out = (
        pointer(flat),
        pointer(diagonal),
        pointer(weights),
        pointer(rest),
        pointer(out),
    )
    for i in range(start, stop, 4):
        a = i * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        entries = load(diagonal, i - k)
        if squared:
            entries = multiply(entries, entries)
        total = multiply(entries, load(rest, i))
        store(out, i, _four_products(flat, a, b, c, d, weights, k, total, AHEAD, 4))


@njit(nogil=True, cache=True)
def _listed_short_rows_of_one(start, stop, flat, stride, k, diagonal, rows, head, rest, out):
    """The same for rows that are listed: a tenth faster than ``_distant_rows``."""
    dense, entries, weights, line, to = (
        pointer(flat),
        pointer(diagonal),
        pointer(head),
        pointer(rest),
        pointer(out),
    )
    size = k * flat.itemsize
    for i in range(start, stop, 4):
        for soon in range(i + SOON, min(i + SOON + 4, stop)):
            fetch(dense, stride, k, size, entries, rows[soon])
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        if min(min(a, b), min(c, d)) < k:
            _any_rows(i, i + 4, flat, stride, k, diagonal, False, rows, True, head, rest, out)
        else:
            total = multiply(gather(entries, a - k, b - k, c - k, d - k), load(line, i))
            a, b, c, d = a * stride, b * stride, c * stride, d * stride
            # fetched already
            store(to, i, _four_products(dense, a, b, c, d, weights, k, total, 0, 0))


# --- all of them -----------------------------------------------------------------------------------------------------------


@njit(nogil=True, cache=True)
def rows_of_product(
    start, stop, flat, stride, k, diagonal, squared, rows, listed, head, weights, rest, out
):
    """out[r, i] = row g of C z_r, where head[r, j] = z_r[j], in ``weights`` too, by lanes, and rest[r, i] = z_r[g].

    ``squared``: with the diagonal entries beyond the first k squared.
    """
    count, n = out.shape
    if count == 0:
        return
    # from here on rows are complete, or listed
    first = min(stop, start if listed else max(start, k))
    last = stop - (stop - first) % 4
    args = flat, stride, k, diagonal, squared
    _any_rows(start, first, *args, rows, listed, head, rest, out)
    if k >= SHORT or listed and count > 1:
        _distant_rows(first, last, *args, rows, listed, head, rest, out)
    elif count > 1:
        _short_rows(first, last, *args, weights, count, n, rest, out)
    elif listed:
        _listed_short_rows_of_one(first, last, flat, stride, k, diagonal, rows, head, rest, out)
    else:
        _short_rows_of_one(first, last, *args, head, rest, out)
    _any_rows(last, stop, *args, rows, listed, head, rest, out)
