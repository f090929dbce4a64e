"""Loops of ``chevron``: the places of C in u z', and the second pass of ``gram_vjp``."""

import numpy as np

from ..common.compiled import kernel, njit
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
from .products import rows_of_product
from .rows import FAST

TILE = 1024  # rows


@njit
def _rows(start, stop, k, rows, u, v, heads, bar):
    """Rows from ``start`` on: sum_r u[r, i] heads[r] + v[r, i] heads[len(u) + r], or only u.

    Zero where row g has no column j. The columns go eight at a time: up to seven more numbers are
    read from ``heads``, and written to ``bar`` in the place of the next row.
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
                    total = load_eight(to, j) if r else eight_zeros(to)
                    store(to, j, multiply_add(x, load_eight(h, j), total))
        for j in range((rows[i] if rows.size else i) + 1 if count else 0, k):
            bar[(i - start) * k + j] = 0
        to = shifted(to, k)


@njit
def _dense_bar(start, stop, k, rows, u, v, heads, bar):
    """Rows ``start`` to ``stop`` of all rows in ``bar``.

    The last ones go through memory of their own: other threads can write behind them.
    """
    more = np.zeros(heads.size + 7, heads.dtype)
    more[: heads.size] = heads
    last = max(start, stop - 7 // max(k, 1) - 1)
    _rows(start, last, k, rows, u, v, more, bar[start * k : last * k])
    spare = np.empty((stop - last) * k + 7, bar.dtype)
    _rows(last, stop, k, rows, u, v, more, spare)
    bar[last * k : stop * k] = spare[: (stop - last) * k]


@njit(fastmath=FAST)
def _pairs(start, stop, u, v, to):
    """to[i - start] = sum_r u[r, i] v[r, i]"""
    to[:] = 0
    for r in range(u.shape[0]):
        a, b = u[r, start:stop], v[r, start:stop]
        for t in range(to.size):
            to[t] += a[t] * b[t]


@kernel("i i i i I1 R2 R1 R2 R1 R1", fastmath=FAST)
def outer(start, stop, k, skip, rows, u, heads, rest, dense_bar, diagonal_bar):
    """The places of C in sum_r u_r z_r', line by line; the diagonal's from line ``skip`` on."""
    _dense_bar(start, stop, k, rows, u, u[:0], heads, dense_bar)
    first = min(max(start, skip), stop)
    _pairs(first, stop, u, rest, diagonal_bar[first - skip : stop - skip])
    if rows.size:
        for i in range(start, stop):
            if rows[i] < k:
                diagonal_bar[i - skip] = 0


@kernel("i i (R1 i i R1 I1) R2 R2 R2 R1 R1 R2", fastmath=FAST)
def gram_bars(start, stop, chevron, x, y, heads, dense_bar, diagonal_bar, x_bar):
    """One read of a row for x_bar and one write of its cotangent, while the vectors are at hand.

    With p = C' x and q = C' y, whose entries beyond the first k are d x and d y:
        dense_bar[i, j] = x[i] q[j] + y[i] p[j]
        diagonal_bar = y (d x) + x (d y) = 2 d x y
        x_bar = C q: the row's product with the head of q, and d (d y), whose factor comes first.
    ``heads`` are those of q, then of p.
    """
    _, _, k, diagonal, rows = chevron
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        first = min(max(begin, k), end)
        entries = diagonal[first - k : end - k]
        for r in range(len(y)):
            to, own = x_bar[r, first:end], y[r, first:end]
            for t in range(to.size):
                to[t] = entries[t] * own[t]
        rows_of_product(begin, end, chevron, heads[: len(x)], x_bar, x_bar)
        _dense_bar(begin, end, k, rows, x, y, heads.reshape(-1), dense_bar)
        to = diagonal_bar[first - k : end - k]
        _pairs(first, end, x, y, to)
        for t in range(to.size):
            to[t] *= 2 * entries[t]
