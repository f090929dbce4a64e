"""sum_p A_mp k(x_m, y_p) over two sides of rows, and its backward pass, by tiles of products.

With scaled rows x and y, E_mp = f_m A_mp q, q = -2 dk / d(r^2), and its sums e_m and c_p over
columns and rows,

    x_bar_m = (E Y)_m - e_m x_m        y_bar_p = (E' X)_p - c_p y_p
    sum E (x_m - y_p)^2 = sum_m x_m (e_m x_m - (E Y)_m) + sum_p y_p (c_p y_p - (E' X)_p)

The last is elementwise in the features; without E' X, twice (E Y)_m stands for both.

Distances are computed from norms and a product of centred rows, with an error of eps times the
norms; the error of k is q / 2 times that, and so is that of the contractions. Pairs whose q is too
large for the norms are near: they are computed and contracted by differences, and leave the tile.
Then k is as accurate as in ``pairwise``.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..common import blas
from ..common.blas import N, T
from ..common.elementwise import power_of_half
from ..pairwise.tiles import FAR, LOG2E, MATERN12, MATERN32, MATERN52, RBF, inlined, jit

TILE = 1 << 18  # bytes: with rows and buffers it stays in the L2 cache
LIMIT = 32  # of q (|x|^2 + |y|^2) / variance: up to here the error of k is at most 16 eps


class Stationary(NamedTuple):
    """A stationary function: its family, its variance, and 1 / lengthscales (d,)."""

    form = "i r R1"
    family: int
    variance: Any
    scale: Any


class Weights(NamedTuple):
    """Merged weights (M, P), or (1, P) of all rows. ``triangle``: only pairs p < m exist."""

    A: Any
    triangle: bool


class Found(NamedTuple):
    """Sums that a backward pass adds to.

    values : (M,), sum_p A k;  e : (M,);  c : (P,)
    bar : (M, P), the cotangent of A, or (1, P) summed over the rows
    squares : (2, d), sum E (x - y)^2 of near pairs, and of all others
    """

    values: Any
    e: Any
    c: Any
    bar: Any
    squares: Any


@jit
def tile_of(rows, columns, like):
    """Return the memory of a tile, and how many of these rows it holds."""
    size = min(rows, max(8, TILE // (like.itemsize * max(1, columns))))
    return np.empty(size * columns, like.dtype), size


@jit
def near_below(family, norms):
    """Return the r^2 below which q norms can exceed LIMIT (q of unit variance)."""
    x = norms / LIMIT
    if family == RBF:  # q = exp(-r^2/2)
        return 2 * math.log(x) if x > 1 else 0.0
    if family == MATERN12:  # q = exp(-r) / r
        r = max(1.0, math.log(x)) if x > 1 else x
        return r * r
    if family == MATERN32:  # q = 3 exp(-t)
        t = math.log(3 * x) if 3 * x > 1 else 0.0
        return t * t / 3
    # q = (5/3) (1 + t) exp(-t) < 2.03 exp(-t/2)
    t = 2 * math.log(2.03 * x) if 2.03 * x > 1 else 0.0
    return t * t / 5


@jit
def find_near(family, w, norm, norms, largest, near):
    """Return how many pairs of a row of products are near, with their j in ``near``."""
    limit, count = near_below(family, norm + largest), 0
    if limit > 0:
        for j in range(w.size):
            count += 1 if w[j] + (norm + norms[j]) < limit else 0
    if count == 0:
        return 0
    count = 0
    for j in range(w.size):
        if w[j] + (norm + norms[j]) < limit:
            near[count] = j
            count += 1
    return count


@jit
def squared_distance(x, y):
    total = x.dtype.type(0)
    for d in range(x.size):
        e = y[d] - x[d]
        total += e * e
    return total


@inlined
def value_and_slope(family, variance, r2):
    """Return k and q from one exponential; see ``pairwise.tiles.weights``."""
    f = type(r2)
    if family == RBF:
        v = variance * power_of_half(f(LOG2E / 2) * r2)
        return v, v
    r = math.sqrt(f(FAR) if r2 > f(FAR) else r2)
    if family == MATERN12:
        v = variance * power_of_half(f(LOG2E) * r)
        return v, f(0) if r2 == f(0) else v / r
    if family == MATERN32:
        t = f(math.sqrt(3)) * r
        v = variance * power_of_half(f(LOG2E) * t)
        return (f(1) + t) * v, f(3) * v
    t = f(math.sqrt(5)) * r
    v = variance * power_of_half(f(LOG2E) * t)
    return (f(1) + t + f(1 / 3) * t * t) * v, f(5 / 3) * ((f(1) + t) * v)


@inlined
def _dot(family, variance, a, w, norm, norms):
    zero = w.dtype.type(0)
    total = zero
    for j in range(w.size):
        r2 = w[j] + (norm + norms[j])
        total += a[j] * value_and_slope(family, variance, zero if r2 < zero else r2)[0]
    return total


@jit
def dot(family, variance, *row):
    """Return sum_j a k of a row (a, products, norm, norms)."""
    if family == RBF:  # one loop for each family, without a branch
        return _dot(RBF, variance, *row)
    if family == MATERN12:
        return _dot(MATERN12, variance, *row)
    if family == MATERN32:
        return _dot(MATERN32, variance, *row)
    return _dot(MATERN52, variance, *row)


@inlined
def _weigh(family, variance, a, w, norm, norms, factor, c, bar):
    zero = w.dtype.type(0)
    total, moment, value = zero, zero, zero
    for j in range(w.size):
        r2 = w[j] + (norm + norms[j])
        r2 = zero if r2 < zero else r2
        k, q = value_and_slope(family, variance, r2)
        e = factor * a[j] * q
        w[j] = e
        total += e
        moment += e * r2
        value += a[j] * k
        c[j] += e
        bar[j] += factor * k
    return total, moment, value


@jit
def weigh(family, variance, *row):
    """Replace the products of a row (a, products, norm, norms, factor, c, bar) by E.

    Adds E to the column sums c, and factor k to the cotangent of a. Returns the sums of E, E r^2
    and a k.
    """
    if family == RBF:
        return _weigh(RBF, variance, *row)
    if family == MATERN12:
        return _weigh(MATERN12, variance, *row)
    if family == MATERN32:
        return _weigh(MATERN32, variance, *row)
    return _weigh(MATERN52, variance, *row)


@jit
def sum_pairs(k, x, y, count, other, largest, weights, tile, near, values):
    """Set values[m] = sum_p A_mp k of the first ``count`` and ``other`` rows of both sides.

    ``largest`` is the largest norm of y.
    """
    A, triangle = weights
    memory, size = tile
    for m0 in range(0, count, size):
        m1 = min(m0 + size, count)
        columns = m1 if triangle else other
        w = memory[: (m1 - m0) * columns].reshape(m1 - m0, columns)
        blas.gemm(x.rows[m0:m1], y.rows[:columns], w, N, T, -2.0, 0.0)
        for m in range(m0, m1):
            row, norm = w[m - m0, : m if triangle else columns], x.norms[m]
            a, value = A[m if len(A) > 1 else 0], values.dtype.type(0)
            for i in range(find_near(k.family, row, norm, y.norms, largest, near)):
                j = near[i]
                r2 = squared_distance(x.rows[m], y.rows[j])
                value += a[j] * value_and_slope(k.family, k.variance, r2)[0]
                row[j] = FAR
            values[m] = value + dot(k.family, k.variance, a, row, norm, y.norms)


@jit
def pull_pairs(k, x, y, count, other, largest, weights, factors, contract, tile, near, found):
    """Add to ``found``, and E Y and E' X to the cotangents of the sides that have them.

    Only with ``contract`` those of x are needed. Returns sum E r^2 of pairs that are not near.
    """
    A, triangle = weights
    memory, size = tile
    both, moment = len(y.bar) > 0, 0.0
    for m0 in range(0, count, size):
        m1 = min(m0 + size, count)
        columns = m1 if triangle else other
        w = memory[: (m1 - m0) * columns].reshape(m1 - m0, columns)
        blas.gemm(x.rows[m0:m1], y.rows[:columns], w, N, T, -2.0, 0.0)
        for m in range(m0, m1):
            row, norm = w[m - m0, : m if triangle else columns], x.norms[m]
            a, bar = A[m if len(A) > 1 else 0], found.bar[m if len(found.bar) > 1 else 0]
            for i in range(find_near(k.family, row, norm, y.norms, largest, near)):
                _pull_near(k, m, near[i], factors[m], a, x, y, bar, found)
                row[near[i]] = FAR
            total, more, value = weigh(
                k.family, k.variance, a, row, norm, y.norms, factors[m], found.c, bar
            )
            found.e[m] += total
            found.values[m] += value
            moment += more
            w[m - m0, row.size :] = 0
        if contract:
            blas.gemm(w, y.rows[:columns], x.bar[m0:m1], N, N, 1.0, 1.0)
        if both:
            blas.gemm(w, x.rows[m0:m1], y.bar[:columns], T, N, 1.0, 1.0)
    return moment


@jit
def _pull_near(k, m, j, factor, a, x, y, bar, found):
    """Contract a near pair by differences."""
    r2 = squared_distance(x.rows[m], y.rows[j])
    value, q = value_and_slope(k.family, k.variance, r2)
    found.values[m] += a[j] * value
    bar[j] += factor * value
    w = factor * a[j] * q
    if w != 0:
        for d in range(k.scale.size):
            e = y.rows[j, d] - x.rows[m, d]
            found.squares[0, d] += w * e * e
            if len(x.near) > 0:
                x.near[m, d] += w * e
            if len(y.near) > 0:
                y.near[j, d] -= w * e


@jit
def finish(side, count, sums, share, squares):
    """Add the terms of a side to sum E (x - y)^2; complete its cotangents.

    ``share``: 2 if (E Y)_m stands for both products, else 1.
    """
    for i in range(count):
        for d in range(squares.size):
            x = side.rows[i, d]
            if len(side.bar) > 0:
                squares[d] += x * (sums[i] * x - share * side.bar[i, d])
                side.bar[i, d] += side.near[i, d] - sums[i] * x
            else:
                squares[d] += sums[i] * x * x
