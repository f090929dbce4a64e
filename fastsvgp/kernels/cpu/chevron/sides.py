"""Four rows of a chevron times four right-hand sides, which are the lanes of a register.

A number of C is loaded once for four products: short rows take half the time of loops over their
columns. Sides that a group of four lacks are the last one once more, so the same numbers are
written twice. Lane r % 4 of entry r // 4 k + j is of side r and column j.
"""

import numpy as np

from ..common.compiled import njit
from .lanes import add, load, multiply, prefetch, splat, store, transposed

FLUSH = 32  # rows whose products are added up in the dtype; sums of those are in float64
PRODUCT_AHEAD, SUMS_AHEAD = 12288, 4096  # bytes to prefetch


@njit(forceinline=True)
def _starts(r, count, n, i):
    """The places of line i of sides r to r + 3."""
    last = count - 1
    q, s, t = min(r + 1, last), min(r + 2, last), min(r + 3, last)
    return r * n + i, q * n + i, s * n + i, t * n + i


@njit
def product_by_sides(first, last, panel, head, rest, out):
    """Lines ``first`` to ``last`` of ``rows_of_product``, whose rows are those of the panel."""
    dense, stride, k, entries = panel
    (count, n), x, y = out.shape, rest.reshape(-1), out.reshape(-1)
    weights, zero = np.empty((count + 3) // 4 * 4 * k, head.dtype), np.zeros(1, dense.dtype)
    for r in range((count + 3) // 4 * 4):
        for j in range(k):
            weights[(r // 4 * k + j) * 4 + r % 4] = head[min(r, count - 1), j]
    for i in range(first, last, 4):
        own, a = load(entries, i - first), (i - first) * stride
        b, c, d = a + stride, a + 2 * stride, a + 3 * stride
        for r in range(0, count, 4):
            p = q = s = t = splat(zero, 0)
            for j in range(k):
                prefetch(dense, a + 4 * j, PRODUCT_AHEAD)
                w = load(weights, r * k + 4 * j)
                p = add(multiply(splat(dense, a + j), w), p)
                q = add(multiply(splat(dense, b + j), w), q)
                s = add(multiply(splat(dense, c + j), w), s)
                t = add(multiply(splat(dense, d + j), w), t)
            p, q, s, t = transposed(p, q, s, t)
            e, f, g, h = _starts(r, count, n, i)
            # all loads come first: ``rest`` can be ``out``
            p, q = add(multiply(own, load(x, e)), p), add(multiply(own, load(x, f)), q)
            s, t = add(multiply(own, load(x, g)), s), add(multiply(own, load(x, h)), t)
            store(y, e, p)
            store(y, f, q)
            store(y, g, s)
            store(y, h, t)


@njit
def sums_by_sides(first, last, panel, x, totals):
    """Add what these lines give to ``totals`` (count, k), in float64."""
    dense, stride, k, _ = panel
    (count, n), numbers = x.shape, x.reshape(-1)
    sums = np.zeros((count + 3) // 4 * 4 * k, dense.dtype)
    wide = np.zeros(sums.size)
    for begin in range(first, last, FLUSH):
        for i in range(begin, min(begin + FLUSH, last), 4):
            a = (i - first) * stride
            b, c, d = a + stride, a + 2 * stride, a + 3 * stride
            for r in range(0, count, 4):
                e, f, g, h = _starts(r, count, n, i)
                p, q, s, t = transposed(
                    load(numbers, e), load(numbers, f), load(numbers, g), load(numbers, h)
                )
                for j in range(k):
                    prefetch(dense, a + 4 * j, SUMS_AHEAD)
                    # added in one step, which the next four rows wait for
                    at = r * k + 4 * j
                    u = add(multiply(splat(dense, a + j), p), multiply(splat(dense, b + j), q))
                    v = add(multiply(splat(dense, c + j), s), multiply(splat(dense, d + j), t))
                    store(sums, at, add(add(u, v), load(sums, at)))
        for j in range(sums.size):
            wide[j] += sums[j]
            sums[j] = 0
    for r in range(count):
        for j in range(k):
            totals[r, j] += wide[(r // 4 * k + j) * 4 + r % 4]
