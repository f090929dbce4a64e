"""The compiled half of ``pairwise``: loops over row tiles, one kernel per job for all families of stationary functions.

The family is an integer branch outside the inner loops, so that each kernel compiles once per dtype. Features are rows of
``Bt`` (D, N2), so that every inner loop runs over contiguous j and LLVM turns it into vector code. Differences x - x' are
taken before anything is scaled: they are exact for near points, wherever the origin is.
"""

import math

import numpy as np
from numba import njit

from .blocked import mirror_rows
from .lanes import pointer, prefetch
from .vmath import power_of_half

RBF, MATERN12, MATERN32, MATERN52 = range(4)
ROWS, COLS = 16, 256  # a tile of Bt for D = 8 is 16 KB: half of the first-level cache
FAR = 1e6  # Matern functions are 0 from this r^2 on, and infinity would turn their polynomials into NaN
LOG2E = 1 / math.log(2)
NEAR = 0.125  # r^2 from norms and a product is replaced by the direct sum where it lies below this fraction of the norms

jit = njit(nogil=True, cache=True, fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")


@jit
def _squared_distances(x, Bt, scale, j0, row):
    """row[j] = sum_d ((Bt[d, j0 + j] - x[d]) scale[d])^2, four features a pass."""
    n, D = row.size, x.size
    for j in range(n):
        row[j] = 0
    d = 0
    while d + 4 <= D:
        b0, b1, b2, b3 = Bt[d, j0 : j0 + n], Bt[d + 1, j0 : j0 + n], Bt[d + 2, j0 : j0 + n], Bt[d + 3, j0 : j0 + n]
        x0, x1, x2, x3 = x[d], x[d + 1], x[d + 2], x[d + 3]
        s0, s1, s2, s3 = scale[d], scale[d + 1], scale[d + 2], scale[d + 3]
        for j in range(n):
            e0, e1, e2, e3 = (b0[j] - x0) * s0, (b1[j] - x1) * s1, (b2[j] - x2) * s2, (b3[j] - x3) * s3
            row[j] += (e0 * e0 + e1 * e1) + (e2 * e2 + e3 * e3)
        d += 4
    while d < D:
        b0, x0, s0 = Bt[d, j0 : j0 + n], x[d], scale[d]
        for j in range(n):
            e0 = (b0[j] - x0) * s0
            row[j] += e0 * e0
        d += 1


@jit
def _squared_distance(x, z, scale):
    total = x.dtype.type(0)
    for d in range(x.size):
        e = (z[d] - x[d]) * scale[d]
        total += e * e
    return total


@jit
def _capped(r2):
    """At most FAR; NaN stays."""
    far = type(r2)(FAR)
    return far if r2 > far else r2


@jit
def _profile(family, variance, r2, k):
    """k := k(r) from r^2, as a power of 1/2: exp(-t) = 2^(-t / ln 2)."""
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
    else:
        factor, one, five, third = f(LOG2E), f(1), f(5), f(1 / 3)
        for j in range(k.size):
            t = math.sqrt(five * _capped(r2[j]))
            k[j] = variance * (one + t + third * t * t) * power_of_half(factor * t)


@jit
def _weights(family, r2, k, k_bar, w):
    """w = k_bar q with q = -2 dk / d(r^2), written with k in place of the exponential; returns sum(k_bar k).

    RBF        k = s exp(-r^2/2)                    q = k
    Matern12   k = s exp(-r)                        q = s exp(-r) / r = k / r, taken as 0 at r = 0
    Matern32   k = s (1 + t) exp(-t), t^2 = 3 r^2   q = 3 s exp(-t) = 3 k / (1 + t)
    Matern52   k = s (1 + t + t^2/3) exp(-t), t^2 = 5 r^2
               q = (5/3) s (1 + t) exp(-t) = (5/3) k (1 + t) / (1 + t + t^2/3)
    """
    f = w.dtype.type
    total = f(0)
    for j in range(w.size):
        w[j] = k_bar[j] * k[j]
        total += w[j]
    if family == MATERN12:
        zero = f(0)
        for j in range(w.size):
            w[j] = zero if r2[j] == zero else w[j] / math.sqrt(_capped(r2[j]))
    elif family == MATERN32:
        one, three = f(1), f(3)
        for j in range(w.size):
            w[j] = three * w[j] / (one + math.sqrt(three * _capped(r2[j])))
    elif family == MATERN52:
        one, five, third, factor = f(1), f(5), f(1 / 3), f(5 / 3)
        for j in range(w.size):
            t = math.sqrt(five * _capped(r2[j]))
            w[j] = factor * w[j] * (one + t) / (one + t + third * t * t)
    return total


@jit
def _fold(u, blocks, symmetric):
    """Block rows of a triangle in the order first, last, second, last but one...: equal ranges hold equal work."""
    if not symmetric:
        return u
    return u // 2 if u % 2 == 0 else blocks - 1 - u // 2


@jit
def mirror(start, stop, K):
    """The lower triangle of a square K onto the upper one, blocks of ROWS rows."""
    blocks = (K.shape[0] + ROWS - 1) // ROWS
    for u in range(start, stop):
        i0 = _fold(u, blocks, True) * ROWS
        mirror_rows(K, i0, min(i0 + ROWS, K.shape[0]))


@jit
def direct(start, stop, family, X1, Bt, scale, variance, symmetric, K):
    """K[i, j] = k(x_i, x_j) for block rows start..stop; ``symmetric``: from the lower triangle."""
    N1, N2 = K.shape
    blocks = (N1 + ROWS - 1) // ROWS
    r2s = np.empty(COLS, K.dtype)
    for u in range(start, stop):
        i0 = _fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for j0 in range(0, i1 if symmetric else N2, COLS):
            for i in range(i0, i1):
                row = K[i, j0 : min(j0 + COLS, i + 1 if symmetric else N2)]
                r2 = r2s[: row.size]
                for ahead in range(0, row.size * row.itemsize, 64):
                    prefetch(pointer(row), 0, ahead)  # what is written last has its memory by then
                _squared_distances(X1[i], Bt, scale, j0, r2)
                _profile(family, variance, r2, row)
        if symmetric:
            mirror_rows(K, i0, i1)


@jit
def _pull(w, b, x, first):
    """For four rows i: first[i] = sum_j w_ij e_ij with e_ij = b_j - x_i; returns sum_ij w_ij e_ij^2."""
    w0, w1, w2, w3 = w[0, : b.size], w[1, : b.size], w[2, : b.size], w[3, : b.size]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    zero = w.dtype.type(0)
    t0, t1, t2, t3, squares = zero, zero, zero, zero, zero
    for j in range(b.size):
        e0, e1, e2, e3 = b[j] - x0, b[j] - x1, b[j] - x2, b[j] - x3
        f0, f1, f2, f3 = w0[j] * e0, w1[j] * e1, w2[j] * e2, w3[j] * e3
        t0 += f0
        t1 += f1
        t2 += f2
        t3 += f3
        squares += (f0 * e0 + f1 * e1) + (f2 * e2 + f3 * e3)
    first[0], first[1], first[2], first[3] = t0, t1, t2, t3
    return squares


@jit
def _pull_both(w, b, x, first, c):
    """The same, and c_j -= sum_i w_ij e_ij."""
    w0, w1, w2, w3 = w[0, : b.size], w[1, : b.size], w[2, : b.size], w[3, : b.size]
    x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
    zero = w.dtype.type(0)
    t0, t1, t2, t3, squares = zero, zero, zero, zero, zero
    for j in range(b.size):
        e0, e1, e2, e3 = b[j] - x0, b[j] - x1, b[j] - x2, b[j] - x3
        f0, f1, f2, f3 = w0[j] * e0, w1[j] * e1, w2[j] * e2, w3[j] * e3
        t0 += f0
        t1 += f1
        t2 += f2
        t3 += f3
        squares += (f0 * e0 + f1 * e1) + (f2 * e2 + f3 * e3)
        c[j] -= (f0 + f1) + (f2 + f3)
    first[0], first[1], first[2], first[3] = t0, t1, t2, t3
    return squares


@jit
def direct_vjp(start, stop, family, X1, Bt, scale, variance, symmetric, sides, K_bar, K, X1_bar):
    """Sum of K_bar K, sum of w e^2 (D,) and -sum_i w e (D, N2), e = x_j - x_i, over block rows; X1_bar[i] += sum_j w e.

    ``symmetric``: over j < i only, and half of the diagonal. ``sides``: 2 all of it, 1 without the (D, N2) part, 0 only the first
    sum. An empty K is recomputed a tile at a time. Four rows share the passes over a tile's features; weights that do not belong
    there are 0.
    """
    N1, D = X1.shape
    N2 = Bt.shape[1]
    dtype = X1.dtype
    known = K.size > 0
    blocks = (N1 + ROWS - 1) // ROWS
    X2_bar = np.zeros((D, N2 if sides == 2 else 0), dtype)
    squares = np.zeros(D)
    total = 0.0
    r2s, ks, w = np.empty(COLS, dtype), np.empty(COLS, dtype), np.empty((4, COLS), dtype)
    x, first = np.empty(4, dtype), np.empty(4, dtype)
    for u in range(start, stop):
        i0 = _fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1 if symmetric else i0):
            total += 0.5 * K_bar[i, i] * variance
        for j0 in range(0, i1 if symmetric else N2, COLS):
            for i in range(i0, i1, 4):
                last = min(i + 4, i1) - 1
                j1 = max(j0, min(j0 + COLS, last if symmetric else N2))
                for q in range(4):
                    row = i + q
                    n = j1 - j0 if not symmetric else max(min(j1, row) - j0, 0)
                    if row > last:
                        n = 0
                    w[q, n : j1 - j0] = 0
                    if n == 0:
                        continue
                    r2, k = r2s[:n], ks[:n]
                    if family != RBF or not known:
                        _squared_distances(X1[row], Bt, scale, j0, r2)
                    if known:
                        k = K[row, j0 : j0 + n]
                    else:
                        _profile(family, variance, r2, k)
                    total += _weights(family, r2, k, K_bar[row, j0 : j0 + n], w[q, :n])
                for d in range(D if sides > 0 else 0):
                    for q in range(4):
                        x[q] = X1[min(i + q, last), d]
                    if sides == 2:
                        squares[d] += _pull_both(w, Bt[d, j0:j1], x, first, X2_bar[d, j0:j1])
                    else:
                        squares[d] += _pull(w, Bt[d, j0:j1], x, first)
                    for q in range(last + 1 - i):
                        X1_bar[i + q, d] += first[q]
    return total, squares, X2_bar


@jit
def centre(start, stop, X, c, scale, A, norms):
    """A = (X - c) scale and its squared row norms."""
    for i in range(start, stop):
        total = X.dtype.type(0)
        for d in range(X.shape[1]):
            a = (X[i, d] - c[d]) * scale[d]
            A[i, d] = a
            total += a * a
        norms[i] = total


@jit
def _from_products(x, X2, scale, norm1, norms2, products, r2, near):
    """r^2 from -2 a . b; where that cancels, the direct sum. Returns how many, their j in ``near``."""
    share = r2.dtype.type(NEAR)
    low = 0
    for j in range(r2.size):
        norm = norm1 + norms2[j]
        r2[j] = products[j] + norm
        low += 0 if r2[j] > share * norm else 1  # also where the norms are infinite, or NaN
    if low == 0:
        return 0
    low = 0
    for j in range(r2.size):
        if not r2[j] > share * (norm1 + norms2[j]):
            r2[j] = _squared_distance(x, X2[j], scale)
            near[low] = j
            low += 1
    return low


@jit
def _near_by_value(k, variance, bound1, bounds2, near):
    """The near pairs of an RBF row from its values: r^2 < c (n1 + n2) where k > s exp(-c n1 / 2) exp(-c n2 / 2)."""
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


@jit
def finish(start, stop, family, X1, X2, scale, norms1, norms2, variance, symmetric, K):
    """K := k from K = -2 A B', in place, for block rows start..stop; ``symmetric``: from the lower triangle."""
    N1, N2 = K.shape
    blocks = (N1 + ROWS - 1) // ROWS
    near, r2s = np.empty(N2, np.int64), np.empty(N2, K.dtype)
    for u in range(start, stop):
        i0 = _fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1):
            row = K[i, : i + 1 if symmetric else N2]
            r2 = r2s[: row.size]
            _from_products(X1[i], X2, scale, norms1[i], norms2, row, r2, near)
            _profile(family, variance, r2, row)
        if symmetric:
            mirror_rows(K, i0, i1)


@jit
def weigh(start, stop, family, X1, X2, scale, norms1, norms2, variance, K_bar, K, W, row_sums):
    """W := K_bar q from W = -2 A B', row by row, and its row sums; an empty K is recomputed.

    An RBF whose K is given needs no distances: W holds nothing before, and the norms n come as exp(-NEAR n / 2). Pairs near
    each other leave W (their differences would cancel in W B) and come back as a list: indices i, j and weights. Returns the
    sum of K_bar K, and the list, without pairs at distance 0 or of weight 0.
    """
    N2 = W.shape[1]
    dtype = W.dtype
    near = np.empty(N2, np.int64)
    r2, k = np.ones(N2, dtype), np.empty(N2, dtype)
    by_value = family == RBF and K.size > 0
    ii, jj, ww = np.empty(16, np.int64), np.empty(16, np.int64), np.empty(16, dtype)
    count = 0
    total = 0.0
    for i in range(start, stop):
        w = W[i]
        if by_value:
            low = _near_by_value(K[i], variance, norms1[i], norms2, near)
        else:
            low = _from_products(X1[i], X2, scale, norms1[i], norms2, w, r2, near)
        if K.size > 0:
            total += _weights(family, r2, K[i], K_bar[i], w)
        else:
            _profile(family, variance, r2, k)
            total += _weights(family, r2, k, K_bar[i], w)
        if count + low > ii.size:
            size = 2 * (count + low)
            more_i, more_j, more_w = np.empty(size, np.int64), np.empty(size, np.int64), np.empty(size, dtype)
            more_i[:count], more_j[:count], more_w[:count] = ii[:count], jj[:count], ww[:count]
            ii, jj, ww = more_i, more_j, more_w
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


@jit
def add_pairs(ii, jj, ww, X1, X2, scale, X1_bar, X2_bar, squares):
    """The listed pairs' share, by differences, in scaled units; an empty X2_bar is left alone."""
    both = X2_bar.size > 0
    for p in range(ww.size):
        i, j, w = ii[p], jj[p], ww[p]
        for d in range(scale.size):
            e = (X2[j, d] - X1[i, d]) * scale[d]
            X1_bar[i, d] += w * e
            squares[d] += w * e * e
            if both:
                X2_bar[j, d] -= w * e
