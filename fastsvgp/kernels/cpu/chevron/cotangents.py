"""Loops of ``chevron``: the places of C in u z', rows and lanes as in chevron_products; and the second pass of ``gram_vjp``."""

import numpy as np
from numba import njit

from ..common.simd import (
    add,
    eight_zeros,
    load_eight,
    multiply,
    multiply_add,
    pointer,
    shifted,
    splat_eight,
    store,
)
from .products import FAST, rows_of_product

TILE = 1024  # rows


@njit(nogil=True, cache=True)
def _rows(start, stop, k, rows, listed, u, v, heads, bar):
    """Rows of ``bar``, which starts with ``start``: sum_r u[r, i] heads[r] + v[r, i] heads[len(u) + r], or u alone.

    And 0 where row g has no column j. The columns go eight at a time: up to seven more numbers are
    read from ``heads``, and written to ``bar``, where the next row comes to lie.
    """
    (count, n), paired = u.shape, len(v) > 0
    to, first, second, weights = pointer(bar), pointer(u), pointer(v), pointer(heads)
    for i in range(start, stop):
        for r in range(count):
            x, h = splat_eight(first, r * n + i), shifted(weights, r * k)
            if paired:
                y, g = splat_eight(second, r * n + i), shifted(weights, (count + r) * k)
                for j in range(0, k, 8):
                    total = multiply_add(y, load_eight(g, j), multiply(x, load_eight(h, j)))
                    store(to, j, add(total, load_eight(to, j)) if r else total)
            else:
                for j in range(0, k, 8):
                    total = multiply_add(
                        x, load_eight(h, j), load_eight(to, j) if r else eight_zeros(to)
                    )
                    store(to, j, total)
        for j in range((rows[i] if listed else i) + 1 if count else 0, k):
            bar[(i - start) * k + j] = 0
        to = shifted(to, k)


@njit(nogil=True, cache=True)
def _dense_bar(start, stop, k, rows, listed, u, v, heads, bar):
    """Rows ``start`` to ``stop`` of all rows in ``bar``; the last ones, behind which others may write, on a spare place."""
    more = np.zeros(heads.size + 7, heads.dtype)
    for j in range(heads.size):
        more[j] = heads[j]
    last = max(start, stop - 7 // max(k, 1) - 1)
    _rows(start, last, k, rows, listed, u, v, more, bar[start * k : last * k])
    spare = np.empty((stop - last) * k + 7, bar.dtype)
    _rows(last, stop, k, rows, listed, u, v, more, spare)
    for j in range((stop - last) * k):
        bar[last * k + j] = spare[j]


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
    _dense_bar(start, stop, k, rows, listed, u, u[:0], heads, dense_bar)
    first = min(max(start, skip), stop)
    _pairs(first, stop, u, rest, diagonal_bar[first - skip : stop - skip])
    for i in range(start, stop if listed else start):
        if rows[i] < k:
            diagonal_bar[i - skip] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def gram_bars(
    start,
    stop,
    flat,
    stride,
    k,
    diagonal,
    rows,
    x,
    y,
    head,
    weights,
    heads,
    dense_bar,
    diagonal_bar,
    x_bar,
):
    """One read of a row for x_bar and one write of its cotangent, while the vectors are at hand.

    With p = C' x and q = C' y, whose entries beyond the first k are d x and d y:
        dense_bar[i, j] = x[i] q[j] + y[i] p[j]
        diagonal_bar = y (d x) + x (d y) = 2 d x y
        x_bar = C q: the row's product with the head of q, and d (d y) = d^2 y.
    ``head`` is that of q, ``weights`` the same by lanes, ``heads`` those of q, then of p.
    """
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        rows_of_product(
            begin, end, flat, stride, k, diagonal, True, rows, False, head, weights, y, x_bar
        )
        _dense_bar(begin, end, k, rows, False, x, y, heads, dense_bar)
        first = min(max(begin, k), end)
        to, entries = diagonal_bar[first - k : end - k], diagonal[first - k : end - k]
        _pairs(first, end, x, y, to)
        for t in range(to.size):
            to[t] *= 2 * entries[t]
