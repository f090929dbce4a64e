"""Loops of ``chevron``: the places of C in u z', and the second pass of ``gram_vjp``."""

from ..common.compiled import kernel, njit
from .products import FAST, own_places, rows_of_product

TILE = 1024  # rows


@njit(fastmath=FAST)
def _dense_bar(start, stop, k, rows, u, heads, bar):
    """bar[i] = sum_r u[r, i] heads[r], and 0 where row g has no column j."""
    for i in range(start, stop):
        to, own = bar[i], min(k, (rows[i] if rows.size else i) + 1) if len(u) else 0
        for r in range(len(u)):
            x, weights = u[r, i], heads[r]
            if r == 0:
                for j in range(own):
                    to[j] = x * weights[j]
            else:
                for j in range(own):
                    to[j] += x * weights[j]
        for j in range(own, k):
            to[j] = 0


@njit(fastmath=FAST)
def _diagonal_bar(start, stop, u, v, to):
    """to[i - start] = sum_r u[r, i] v[r, i]"""
    to[:] = 0
    for r in range(len(u)):
        a, b = u[r, start:stop], v[r, start:stop]
        for t in range(to.size):
            to[t] += a[t] * b[t]


@kernel("i i i i I1 R2 R2 R2 R2 R1")
def outer(start, stop, k, skip, rows, u, heads, rest, dense_bar, diagonal_bar):
    """The places of C in sum_r u_r z_r', line by line; the diagonal's from line ``skip`` on."""
    _dense_bar(start, stop, k, rows, u, heads, dense_bar)
    first = min(max(start, skip), stop)
    _diagonal_bar(first, stop, u, rest, diagonal_bar[first - skip : stop - skip])
    for i in range(start, stop if rows.size else start):
        if rows[i] < k:
            diagonal_bar[i - skip] = 0


@kernel("i i (R1 i i R1 I1) R2 R2 R2 R1 R2", fastmath=FAST)
def gram_bars(start, stop, chevron, both, heads, dense_bar, diagonal_bar, x_bar):
    """One read of a row for x_bar and one write of its cotangent, while the vectors are at hand.

    With p = C' x and q = C' y, whose entries beyond the first k are d x and d y:
        dense_bar[i, j] = x[i] q[j] + y[i] p[j]
        diagonal_bar = y (d x) + x (d y) = 2 d x y
        x_bar = C q: the row's product with the head of q, and d (d y), whose factor comes first.
    ``both`` are x, then y, and ``heads`` those of q, then of p.
    """
    _, _, k, diagonal, rows = chevron
    count = len(x_bar)
    x, y = both[:count], both[count:]
    for begin in range(start, stop, TILE):
        end = min(begin + TILE, stop)
        first = min(max(begin, k), end)
        entries, to = diagonal[first - k : end - k], diagonal_bar[first - k : end - k]
        own_places(begin, end, chevron, y, x_bar)
        rows_of_product(begin, end, chevron, heads[:count], x_bar, x_bar)
        _dense_bar(begin, end, k, rows, both, heads, dense_bar)
        _diagonal_bar(first, end, x, y, to)
        for t in range(to.size):
            to[t] *= 2 * entries[t]
