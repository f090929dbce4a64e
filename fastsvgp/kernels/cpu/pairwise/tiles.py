"""Compiled functions that both forms of ``pairwise`` share, and the form with a matrix product.

The family is an integer branch outside the inner loops, so each kernel compiles once per dtype.
Every inner loop runs over contiguous j and is vectorised by LLVM.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ..common.blocked import mirror_rows
from ..common.compiled import FAST, kernel, njit
from ..common.elementwise import power_of_half

RBF, MATERN12, MATERN32, MATERN52, SQUARED = range(5)
ROWS = 16  # of a block
# Matern functions are 0 from this r^2 on, and infinity would make their polynomials NaN
FAR = 1e6
LOG2E = 1 / math.log(2)
# fraction of the norms below which r^2 from norms and a product is replaced by the direct sum
CANCELS = 0.5
NEAR = 0.125  # and below which a pair is contracted by differences, which takes longer per pair

LOOP = {"fastmath": FAST, "error_model": "numpy"}
jit = njit(**LOOP)
inlined = njit(**LOOP, forceinline=True)


class Pairs(NamedTuple):
    """Rows of both inputs with the squared norms of their scaled forms; 1 / lengthscales (D,)."""

    form = "R2 R1 R2 R1 R1"
    X1: Any
    norms1: Any
    X2: Any
    norms2: Any
    scale: Any


@jit
def _squared_distance(x, z, scale):
    total = x.dtype.type(0)
    for d in range(x.size):
        e = (z[d] - x[d]) * scale[d]
        total += e * e
    return total


@jit
def _capped(r2):
    """Return r2 clipped to FAR; NaN is kept."""
    far = type(r2)(FAR)
    return far if r2 > far else r2


@jit
def profile(family, variance, r2, k):
    """Set k to k(r) from r^2, as a power of 1/2: exp(-t) = 2^(-t / ln 2); to r^2 if SQUARED."""
    f = k.dtype.type
    if family == RBF:
        factor = f(LOG2E / 2)
        for j in range(k.size):
            k[j] = variance * power_of_half(factor * r2[j])
    elif family == MATERN12:
        factor = f(LOG2E)
        for j in range(k.size):
            k[j] = variance * power_of_half(factor * math.sqrt(r2[j]))
    elif family == MATERN32:
        factor, one, three = f(LOG2E), f(1), f(3)
        for j in range(k.size):
            t = math.sqrt(three * _capped(r2[j]))
            k[j] = variance * (one + t) * power_of_half(factor * t)
    elif family == SQUARED:
        for j in range(k.size):
            k[j] = r2[j]
    else:
        factor, one, five, third = f(LOG2E), f(1), f(5), f(1 / 3)
        for j in range(k.size):
            t = math.sqrt(five * _capped(r2[j]))
            k[j] = variance * (one + t + third * t * t) * power_of_half(factor * t)


@jit
def weights(family, variance, r2, k_bar, w):
    """Set w = k_bar q with q = -2 dk / d(r^2); return sum(k_bar k).

    RBF        k = s exp(-r^2/2)                    q = k
    Matern12   k = s exp(-r)                        q = s exp(-r) / r, taken as 0 at r = 0
    Matern32   k = s (1 + t) exp(-t), t^2 = 3 r^2   q = 3 s exp(-t)
    Matern52   k = s (1 + t + t^2/3) exp(-t), t^2 = 5 r^2
               q = (5/3) s (1 + t) exp(-t)

    q is computed from r^2, not from k: the exponential takes no longer than a division by the
    polynomial, and k is not read.
    """
    f = w.dtype.type
    total, one = f(0), f(1)
    if family == RBF:
        factor = f(LOG2E / 2)
        for j in range(w.size):
            w[j] = k_bar[j] * variance * power_of_half(factor * r2[j])
            total += w[j]
    elif family == MATERN12:
        factor, zero = f(LOG2E), f(0)
        for j in range(w.size):
            r = math.sqrt(_capped(r2[j]))
            v = k_bar[j] * variance * power_of_half(factor * r)
            total += v
            w[j] = zero if r2[j] == zero else v / r
    elif family == MATERN32:
        factor, three = f(LOG2E), f(3)
        for j in range(w.size):
            t = math.sqrt(three * _capped(r2[j]))
            v = k_bar[j] * variance * power_of_half(factor * t)
            total += (one + t) * v
            w[j] = three * v
    else:
        factor, five, third, outer = f(LOG2E), f(5), f(1 / 3), f(5 / 3)
        for j in range(w.size):
            t = math.sqrt(five * _capped(r2[j]))
            v = k_bar[j] * variance * power_of_half(factor * t)
            total += (one + t + third * t * t) * v
            w[j] = outer * ((one + t) * v)
    return total


@jit
def weights_by_value(k, k_bar, w):
    """Do the same for an RBF with given k: w = k_bar k."""
    total = w.dtype.type(0)
    for j in range(w.size):
        v = k_bar[j] * k[j]
        w[j] = v
        total += v
    return total


@jit
def fold(u, blocks, symmetric):
    """Return block rows of a triangle in the order first, last, second, last but one, ...

    Equal ranges then hold equal work.
    """
    if not symmetric:
        return u
    return u // 2 if u % 2 == 0 else blocks - 1 - u // 2


@kernel("i i R2", **LOOP)
def mirror(start, stop, K):
    """Copy the lower triangle of a square K to the upper one, for blocks of ROWS rows."""
    blocks = (K.shape[0] + ROWS - 1) // ROWS
    for u in range(start, stop):
        i0 = fold(u, blocks, True) * ROWS
        mirror_rows(K, i0, min(i0 + ROWS, K.shape[0]))


@kernel("i i R2 R1 R1 R2 R1", **LOOP)
def centre(start, stop, X, c, scale, A, norms):
    """Set A = (X - c) scale and norms to its squared row norms.

    Sums and stores are in separate loops: in one loop the order of the sum would depend on the
    distance between the arrays in memory.
    """
    for i in range(start, stop):
        for d in range(X.shape[1]):
            A[i, d] = (X[i, d] - c[d]) * scale[d]
        total = X.dtype.type(0)
        for d in range(X.shape[1]):
            total += A[i, d] * A[i, d]
        norms[i] = total


@jit
def _from_products(x, X2, scale, norm1, norms2, products, r2, near):
    """Compute r^2 from -2 a . b; if that cancels, by the direct sum.

    Returns how many pairs are near, with their j in ``near``.
    """
    cancels, share = r2.dtype.type(CANCELS), r2.dtype.type(NEAR)
    low = 0
    for j in range(r2.size):
        norm = norm1 + norms2[j]
        r2[j] = products[j] + norm
        low += 0 if r2[j] > cancels * norm else 1  # also counts infinite and NaN norms
    if low == 0:
        return 0
    low = 0
    for j in range(r2.size):
        norm = norm1 + norms2[j]
        if not r2[j] > cancels * norm:
            r2[j] = _squared_distance(x, X2[j], scale)
            if not r2[j] > share * norm:
                near[low] = j
                low += 1
    return low


@jit
def _near_by_value(k, variance, bound1, bounds2, near):
    """Find the near pairs of an RBF row from its values.

    r^2 < c (n1 + n2) where k > s exp(-c n1 / 2) exp(-c n2 / 2).
    """
    low = 0
    for j in range(k.size):
        low += 1 if k[j] > variance * bound1 * bounds2[j] else 0
    if low == 0:
        return 0
    low = 0
    for j in range(k.size):
        if k[j] > variance * bound1 * bounds2[j]:
            near[low] = j
            low += 1
    return low


@kernel("i i i r", Pairs, "b R2", **LOOP)
def finish(start, stop, family, variance, pairs, symmetric, K):
    """Replace K = -2 A B' by k in place, for block rows start..stop.

    ``symmetric``: compute the lower triangle and mirror it.
    """
    X1, norms1, X2, norms2, scale = pairs
    N1, N2 = K.shape
    blocks = (N1 + ROWS - 1) // ROWS
    near, r2s = np.empty(N2, np.int64), np.empty(N2, K.dtype)
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1):
            row = K[i, : i + 1 if symmetric else N2]
            r2 = r2s[: row.size]
            _from_products(X1[i], X2, scale, norms1[i], norms2, row, r2, near)
            profile(family, variance, r2, row)
        if symmetric:
            mirror_rows(K, i0, i1)


@jit
def _longer(ii, jj, ww, count, size):
    """Return copies of the first ``count`` entries of three arrays, with room for ``size``."""
    more_i, more_j, more_w = (
        np.empty(size, np.int64),
        np.empty(size, np.int64),
        np.empty(size, ww.dtype),
    )
    more_i[:count], more_j[:count], more_w[:count] = ii[:count], jj[:count], ww[:count]
    return more_i, more_j, more_w


@kernel("i i i r", Pairs, "R2 R2 R2 R1", **LOOP)
def weigh(start, stop, family, variance, pairs, K_bar, K, W, row_sums):
    """Replace W = -2 A B' by K_bar q, row by row, and compute its row sums.

    An RBF with non-empty K needs no distances: W is uninitialised, and the norms n are passed as
    exp(-NEAR n / 2). Near pairs are removed from W (their differences would cancel in W B) and
    returned as a list: indices i, j and weights. Returns the sum of K_bar K, and the list, without
    pairs at distance 0 or of weight 0.
    """
    X1, norms1, X2, norms2, scale = pairs
    N2 = W.shape[1]
    dtype = W.dtype
    near = np.empty(N2, np.int64)
    r2 = np.ones(N2, dtype)
    by_value = family == RBF and K.size > 0
    ii, jj, ww = np.empty(16, np.int64), np.empty(16, np.int64), np.empty(16, dtype)
    count = 0
    total = 0.0
    for i in range(start, stop):
        w = W[i]
        if by_value:
            low = _near_by_value(K[i], variance, norms1[i], norms2, near)
            total += weights_by_value(K[i], K_bar[i], w)
        else:
            low = _from_products(X1[i], X2, scale, norms1[i], norms2, w, r2, near)
            total += weights(family, variance, r2, K_bar[i], w)
        if count + low > ii.size:
            ii, jj, ww = _longer(ii, jj, ww, count, 2 * (count + low))
        for p in range(low):
            j = near[p]
            if r2[j] != 0 and w[j] != 0:
                ii[count], jj[count], ww[count] = i, j, w[j]
                count += 1
            w[j] = 0
        sum_w = 0.0
        for j in range(N2):
            sum_w += w[j]
        row_sums[i] = sum_w
    return total, ii[:count], jj[:count], ww[:count]


@kernel("I1 I1 R1 R2 R2 R1 R2 R2 X1", **LOOP)
def add_pairs(ii, jj, ww, X1, X2, scale, X1_bar, X2_bar, squares):
    """Add the contribution of the listed pairs, by differences, in scaled units.

    An empty X2_bar is not written.
    """
    both = X2_bar.size > 0
    for p in range(ww.size):
        i, j, w = ii[p], jj[p], ww[p]
        for d in range(scale.size):
            e = (X2[j, d] - X1[i, d]) * scale[d]
            X1_bar[i, d] += w * e
            squares[d] += w * e * e
            if both:
                X2_bar[j, d] -= w * e
