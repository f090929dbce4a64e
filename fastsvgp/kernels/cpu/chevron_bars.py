"""Loops of ``chevron``: the places of C in u z', rows and lanes as in chevron_products; and both passes of ``gram_vjp``."""

import numpy as np
from numba import njit

from .chevron_products import FAST, SHORT, plus, rows_of_product
from .chevron_sums import columns_of_product
from .lanes import load, pointer, store, zeros

TILE = 1024  # rows


@njit(nogil=True, cache=True)
def _short_rows(start, stop, k, rows, listed, u, heads, bar):
    """bar[i k + j] = sum_r u[r, i] heads[r k + j] where row g has a column j, else 0: four rows by four columns."""
    (count, n), to = u.shape, bar
    u, heads, bar = pointer(u), pointer(heads), pointer(bar)
    for i in range(start, stop, 4):
        b, c, d = min(i + 1, stop - 1), min(i + 2, stop - 1), min(i + 3, stop - 1)  # the last one again, where there is no other
        for column in range(0, k, 4):
            j = min(column, k - 4)  # some columns again, where four do not divide k
            sa = sb = sc = sd = zeros(bar)
            for r in range(0, count - 1, 2):
                h, at = load(heads, r * k + j), r * n
                sa, sb, sc, sd = plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
                h, at = load(heads, r * k + k + j), at + n
                sa, sb, sc, sd = plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
            if count & 1:
                r = count - 1
                h, at = load(heads, r * k + j), r * n
                sa, sb, sc, sd = plus(u, at + i, at + b, at + c, at + d, h, sa, sb, sc, sd)
            store(bar, i * k + j, sa)
            store(bar, b * k + j, sb)
            store(bar, c * k + j, sc)
            store(bar, d * k + j, sd)
    if listed or start < k:
        for i in range(start, stop):
            for j in range((rows[i] if listed else i) + 1, k):
                to[i * k + j] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def _any_rows(start, stop, k, rows, listed, u, heads, bar):
    """The same, row by row."""
    for i in range(start, stop):
        width = min(k, (rows[i] if listed else i) + 1)
        row = bar[i * k : i * k + k]
        for j in range(width if u.shape[0] else 0, k):
            row[j] = 0
        for r in range(u.shape[0]):
            line, ui = heads[r * k : r * k + k], u[r, i]
            if r == 0:
                for j in range(width):
                    row[j] = ui * line[j]
            else:
                for j in range(width):
                    row[j] += ui * line[j]


@njit(nogil=True, cache=True)
def _dense_bar(start, stop, k, rows, listed, u, heads, bar):
    """With few columns, lanes; long rows, or fewer than four columns, one by one."""
    if 4 <= k < SHORT:
        _short_rows(start, stop, k, rows, listed, u, heads, bar)
    else:
        _any_rows(start, stop, k, rows, listed, u, heads, bar)


@njit(nogil=True, cache=True, fastmath=FAST)
def _pairs(start, stop, u, v, to):
    """to[i - start] = sum_r u[r, i] v[r, i]"""
    for t in range(to.size):
        to[t] = 0
    for r in range(u.shape[0]):
        a, b = u[r, start:stop], v[r, start:stop]
        for t in range(to.size):
            to[t] += a[t] * b[t]


@njit(nogil=True, cache=True, fastmath=FAST)
def outer(start, stop, k, skip, rows, listed, u, heads, rest, dense_bar, diagonal_bar):
    """The places of C in sum_r u_r z_r', line by line; those of the diagonal from line ``skip`` on."""
    _dense_bar(start, stop, k, rows, listed, u, heads, dense_bar)
    first = min(max(start, skip), stop)
    _pairs(first, stop, u, rest, diagonal_bar[first - skip : stop - skip])
    for i in range(start, stop if listed else start):
        if rows[i] < k:
            diagonal_bar[i - skip] = 0


@njit(nogil=True, cache=True)
def gram_heads(start, stop, flat, stride, k, diagonal, rows, x, y, both):
    """What these rows add to the first k entries of C' x_r, then C' y_r; and ``both``, x and then y, for the second pass."""
    count = x.shape[0]
    totals = np.zeros((2 * count, k))
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        for r in range(count):
            from_x, from_y = x[r, begin:end], y[r, begin:end]
            to_x, to_y = both[r, begin:end], both[count + r, begin:end]
            for t in range(end - begin):
                to_x[t], to_y[t] = from_x[t], from_y[t]
        totals += columns_of_product(begin, end, flat, stride, k, diagonal, rows, False, both, both[:0])
    return totals


@njit(nogil=True, cache=True, fastmath=FAST)
def gram_bars(start, stop, flat, stride, k, diagonal, rows, both, head, weights, heads, dense_bar, diagonal_bar, x_bar):
    """The second pass of ``gram_vjp``: one read of a row for x_bar and one write of its cotangent, while the vectors are at hand.

    With p = C' x and q = C' y, whose entries beyond the first k are d x and d y:
        dense_bar[i, j] = y[i] p[j] + x[i] q[j]
        diagonal_bar = y (d x) + x (d y) = 2 d x y
        x_bar = C q: the row's product with the head of q, and d (d y) = d^2 y.
    ``head`` is that of q, ``weights`` the same by lanes, ``heads`` those of q, then of p.
    """
    count, y = len(x_bar), both[len(x_bar) :]
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        rows_of_product(begin, end, flat, stride, k, diagonal, True, rows, False, head, weights, y, x_bar)
        _dense_bar(begin, end, k, rows, False, both, heads, dense_bar)
        first = min(max(begin, k), end)
        to, entries = diagonal_bar[first - k : end - k], diagonal[first - k : end - k]
        _pairs(first, end, both[:count], y, to)
        for t in range(to.size):
            to[t] *= 2 * entries[t]
