"""Covariance matrices by differences and their backward pass: compiled, for few features.

A tile of X2, with features as rows (``Bt`` (D, N2)), is packed so that it stays in the caches and
every vector starts at a cache line; two or four rows of X1 then share each load from it. Both
matter: with one row, or with vectors that straddle two lines, loading takes longer than the
arithmetic. Views of rows are created in separate small functions, and inner loops use pointers: the
reference count of a view that lives across a branch is incremented and decremented, which was 5 to
17 % of the time of the backward pass.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common.blocked import mirror_rows
from ..common.compiled import kernel, njit
from ..common.simd import (
    add,
    line_zeros,
    load_line,
    load_one,
    multiply,
    multiply_add,
    pointer,
    prefetch,
    shifted,
    splat_line,
    store,
    subtract,
    total,
    zero,
)
from .tiles import LOOP, ROWS, fold, inlined, jit, profile, squared_distances, weights

TILE = 1 << 14  # bytes of X2 at a time: half of the L1 cache
# bytes of a feature of X2 at a time in the backward pass: sums over the columns of a tile take some
# of the cache
WIDE = 1 << 11
LINES = 4  # processed together in a pass over the features: enough sums to hide their latency
# largest distance from the mean, in lengthscales, of inputs that are scaled before subtraction
REACH = 16


class Inputs(NamedTuple):
    """X1, and X2 with features as rows; 1 / lengthscales (D,); whether both are scaled."""

    form = "R2 R2 R1 b"
    X1: Any
    Bt: Any
    scale: Any
    is_scaled: bool


class Tile(NamedTuple):
    """Memory of the backward pass: a tile of X2 (D, cols); r^2 and weights of four rows."""

    columns: Any
    r2: Any
    w: Any


@kernel("R2 R2", **LOOP)
def transpose(X, Xt):
    """Transpose in 8 x 8 tiles, whose loops of fixed length become vector shuffles.

    Gathering columns takes twice as long.
    """
    N, D = X.shape
    for i0 in range(0, N, 8):
        tiled = D // 8 * 8 if i0 + 8 <= N else 0
        for d0 in range(0, tiled, 8):
            for d in range(8):
                for i in range(8):
                    Xt[d0 + d, i0 + i] = X[i0 + i, d0 + d]
        for i in range(i0, min(i0 + 8, N)):
            for d in range(tiled, D):
                Xt[d, i] = X[i, d]


@jit
def _scale_row(row, c, s, reach):
    within = True
    for j in range(row.size):
        row[j] = (row[j] - c) * s
        within &= abs(row[j]) <= reach
    return within


@kernel("R2 R2 R1 R2 R2", **LOOP)
def scaled(X1, X2, scale, A, Bt):
    """Set A = (X1 - c) scale and Bt = ((X2 - c) scale)' about the mean c of X1.

    Returns whether all entries are within REACH. Then the error of each is less than REACH
    roundings of 1, and so, about, are the errors of differences and of k, also for near points,
    which share their rounding. NaN and infinity are not within REACH.
    """
    N1, D = X1.shape
    c, reach = np.zeros(D, A.dtype), A.dtype.type(REACH)
    for d in range(D):
        mean = 0.0
        for i in range(N1):
            mean += X1[i, d]
        c[d] = mean / N1
    within = True
    for i in range(N1):
        for d in range(D):
            a = (X1[i, d] - c[d]) * scale[d]
            A[i, d] = a
            within &= abs(a) <= reach
    transpose(X2, Bt)
    for d in range(D):
        within &= _scale_row(Bt[d], c[d], scale[d], reach)
    return within


@jit
def on_lines(size, like):
    """Return zeros of the dtype of ``like``, starting at a cache line."""
    block = np.zeros(size + 64 // like.itemsize, like.dtype)
    first = -block.ctypes.data % 64 // like.itemsize
    return block[first : first + size]


@jit
def _pack(Bt, j0, n, tile):
    for d in range(tile.shape[0]):
        b, t = Bt[d, j0 : j0 + n], tile[d, :n]
        for j in range(n):
            t[j] = b[j]


@njit(forceinline=True)
def _plus_squares(b0, b1, b2, b3, x, s0, s1, s2, s3):
    e0, e1, e2, e3 = subtract(b0, x), subtract(b1, x), subtract(b2, x), subtract(b3, x)
    return (
        multiply_add(e0, e0, s0),
        multiply_add(e1, e1, s1),
        multiply_add(e2, e2, s2),
        multiply_add(e3, e3, s3),
    )


@jit
def _squared_differences(a, b, D, columns, cols, n, lanes, sums):
    """Set sums[j] = sum_d (columns[d, j] - a[d])^2 and sums[cols + j] to the same with b.

    For j < n and up to LINES further lines.
    """
    for j in range(0, n, LINES * lanes):
        s0, s1, s2, s3 = line_zeros(a), line_zeros(a), line_zeros(a), line_zeros(a)
        t0, t1, t2, t3 = s0, s1, s2, s3
        place = j
        for d in range(D):
            b0, b1 = load_line(columns, place), load_line(columns, place + lanes)
            b2, b3 = load_line(columns, place + 2 * lanes), load_line(columns, place + 3 * lanes)
            s0, s1, s2, s3 = _plus_squares(b0, b1, b2, b3, splat_line(a, d), s0, s1, s2, s3)
            t0, t1, t2, t3 = _plus_squares(b0, b1, b2, b3, splat_line(b, d), t0, t1, t2, t3)
            place += cols
        store(sums, j, s0)
        store(sums, j + lanes, s1)
        store(sums, j + 2 * lanes, s2)
        store(sums, j + 3 * lanes, s3)
        place = cols + j
        store(sums, place, t0)
        store(sums, place + lanes, t1)
        store(sums, place + 2 * lanes, t2)
        store(sums, place + 3 * lanes, t3)


@jit
def _exactly(X, i, tile, scale, n, r2, q):
    squared_distances(X[i], tile, scale, 0, r2[q, :n])


@jit
def _write(family, variance, r2, q, K, i, j0, n):
    row = K[i, j0 : j0 + n]
    for ahead in range(0, n * row.itemsize, 64):
        prefetch(pointer(row), 0, ahead)  # so that the last entries written are in the cache
    profile(family, variance, r2[q, :n], row)


@kernel("i i i r", Inputs, "b R2", **LOOP)
def direct(start, stop, family, variance, inputs, symmetric, K):
    """Compute K[i, j] = k(x_i, x_j) for block rows start..stop.

    ``symmetric``: compute the lower triangle and mirror it.
    """
    A, Bt, scale, is_scaled = inputs
    (N1, D), N2 = A.shape, Bt.shape[1]
    blocks, lanes = (N1 + ROWS - 1) // ROWS, 64 // A.itemsize
    cols = LINES * lanes * max(2, TILE // (D * 64 * LINES))
    tile, r2 = on_lines(D * cols, A).reshape((D, cols)), on_lines(2 * cols, A).reshape((2, cols))
    rows, columns, sums = pointer(A.ravel()), pointer(tile.ravel()), pointer(r2.ravel())
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        end = i1 if symmetric else N2
        for j0 in range(0, end, cols):
            n = min(cols, end - j0)
            _pack(Bt, j0, n, tile)
            for i in range(i0, i1, 2):
                other = min(i + 1, i1 - 1)
                if is_scaled:
                    a, b = shifted(rows, i * D), shifted(rows, other * D)
                    _squared_differences(a, b, D, columns, cols, n, lanes, sums)
                else:
                    _exactly(A, i, tile, scale, n, r2, 0)
                    _exactly(A, other, tile, scale, n, r2, 1)
                for q in range(other - i + 1):
                    width = min(n, i + q + 1 - j0) if symmetric else n
                    _write(family, variance, r2, q, K, i + q, j0, width)
        if symmetric:
            mirror_rows(K, i0, i1)


@jit
def _weigh_by_value(k, k_bar, n, lanes, w):
    """Set w[:n] = k_bar k, the weights of an RBF; return the sum."""
    full = n // lanes * lanes
    whole, rest = line_zeros(w), zero(w)
    for j in range(0, full, lanes):
        v = multiply(load_line(k_bar, j), load_line(k, j))
        store(w, j, v)
        whole = add(whole, v)
    for j in range(full, n):
        v = multiply(load_one(k_bar, j), load_one(k, j))
        store(w, j, v)
        rest = add(rest, v)
    return total(whole) + total(rest)


@jit
def _weigh(family, variance, r2, K_bar, i, j0, n, w, q):
    """Set w[q, :n] = K_bar q(r) of row i; return the row's part of sum(K_bar K)."""
    return weights(family, variance, r2[q, :n], K_bar[i, j0 : j0 + n], w[q, :n])


@jit
def _clear(w, start, stop):
    for j in range(start, stop):
        store(w, j, zero(w))


@jit
def _pull(w, cols, n, lanes, b, rows, d, ahead, both, c):
    """With e_ij = b_j - x_i[d] for four rows i: return their sums of w e, and that of all w e^2.

    ``both``: also c_j -= sum_i w_ij e_ij.

    ``ahead`` is the memory needed next, prefetched one line per line of b: otherwise the processor
    would wait for it later.
    """
    x0, x1, x2, x3 = rows
    a0, a1, a2, a3 = splat_line(x0, d), splat_line(x1, d), splat_line(x2, d), splat_line(x3, d)
    t0, t1, t2, t3 = line_zeros(w), line_zeros(w), line_zeros(w), line_zeros(w)
    q0, q1, q2, q3 = t0, t1, t2, t3
    for j in range(0, n, lanes):
        prefetch(ahead, j, 0)
        line = load_line(b, j)
        e0, e1, e2, e3 = (
            subtract(line, a0),
            subtract(line, a1),
            subtract(line, a2),
            subtract(line, a3),
        )
        f0, f1 = multiply(load_line(w, j), e0), multiply(load_line(w, cols + j), e1)
        f2, f3 = multiply(load_line(w, 2 * cols + j), e2), multiply(load_line(w, 3 * cols + j), e3)
        t0, t1, t2, t3 = add(t0, f0), add(t1, f1), add(t2, f2), add(t3, f3)
        q0, q1, q2, q3 = (
            multiply_add(f0, e0, q0),
            multiply_add(f1, e1, q1),
            multiply_add(f2, e2, q2),
            multiply_add(f3, e3, q3),
        )
        if both:
            store(c, j, subtract(load_line(c, j), add(add(f0, f1), add(f2, f3))))
    return (total(t0), total(t1), total(t2), total(t3)), total(add(add(q0, q1), add(q2, q3)))


@jit
def _memory(D, cols, by_value, like):
    """Return a ``Tile`` of zeros; without r^2 if weights come from given values."""
    return Tile(
        on_lines(D * cols, like).reshape((D, cols)),
        on_lines(0 if by_value else 4 * cols, like).reshape((4, -1)),
        on_lines(4 * cols, like).reshape((4, cols)),
    )


@inlined
def _needed_next(i, j0, i0, i1, d, N2, cols, even, odd, cached):
    """Return what rows i + 4 to i + 7 of block i0..i1, or else its next tile, need for feature d.

    It is in ``even`` or ``odd``, (N1, N2), by the parity of d; from the ninth feature on all of it
    is cached: then return ``cached``.
    """
    if d >= 8:
        return cached
    row, first = i + 4 + d // 2, j0
    if row >= i1:
        row, first = i0 + d // 2, j0 + cols
    return shifted(odd if d % 2 == 1 else even, row * N2 + first)


@kernel("i i i r", Inputs, "b i R2 R2 R2", **LOOP)
def direct_vjp(start, stop, family, variance, inputs, symmetric, sides, K_bar, K, X1_bar):
    """Sum over block rows: K_bar K, w e^2 (D,) and -sum_i w e (D, N2), with e = x_j - x_i.

    X1_bar[i] += sum_j w e. ``symmetric``: only j < i, and half of the diagonal. ``sides``: 2
    computes everything, 1 omits the (D, N2) part, 0 computes only the first sum. K is that of an
    RBF, or empty. Four rows share the passes over a tile's features.
    """
    X1, Bt = inputs.X1, inputs.Bt
    (N1, D), N2 = X1.shape, Bt.shape[1]
    blocks, lanes = (N1 + ROWS - 1) // ROWS, 64 // X1.itemsize
    cols = min(
        WIDE // X1.itemsize, max(1, (N2 + LINES * lanes - 1) // (LINES * lanes)) * LINES * lanes
    )
    stride = (N2 + lanes - 1) // lanes * lanes if sides == 2 else 0
    X2_bar, squares = on_lines(D * stride, X1).reshape((D, stride)), np.zeros(D)
    by_value, sum_of_all = K.size > 0, 0.0
    tile = _memory(D, cols, by_value, X1)
    rows, columns, distances = (
        pointer(X1.ravel()),
        pointer(tile.columns.ravel()),
        pointer(tile.r2.ravel()),
    )
    weighted, others = pointer(tile.w.ravel()), pointer(X2_bar.ravel())
    bars, values = pointer(K_bar.ravel()), pointer(K.ravel())
    odd = values if by_value else bars
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1 if symmetric else i0):
            sum_of_all += 0.5 * K_bar[i, i] * variance
        for j0 in range(0, i1 if symmetric else N2, cols):
            _pack(Bt, j0, min(cols, N2 - j0), tile.columns)
            for i in range(i0, i1, 4):
                last = min(i + 4, i1) - 1
                n = max(0, min(cols, (last if symmetric else N2) - j0))
                covered = (n + lanes - 1) // lanes * lanes
                x0, x1 = shifted(rows, i * D), shifted(rows, min(i + 1, last) * D)
                x2, x3 = shifted(rows, min(i + 2, last) * D), shifted(rows, last * D)
                if inputs.is_scaled:
                    beyond = shifted(distances, 2 * cols)
                    _squared_differences(x0, x1, D, columns, cols, n, lanes, distances)
                    _squared_differences(x2, x3, D, columns, cols, n, lanes, beyond)
                for q in range(4):
                    row, out = i + q, shifted(weighted, q * cols)
                    m = 0 if row > last else n if not symmetric else max(0, min(n, row - j0))
                    if m > 0 and by_value:
                        k, k_bar = shifted(values, row * N2 + j0), shifted(bars, row * N2 + j0)
                        sum_of_all += _weigh_by_value(k, k_bar, m, lanes, out)
                    elif m > 0:
                        if not inputs.is_scaled:
                            _exactly(X1, row, tile.columns, inputs.scale, m, tile.r2, q)
                        sum_of_all += _weigh(
                            family, variance, tile.r2, K_bar, row, j0, m, tile.w, q
                        )
                    _clear(out, m, covered)
                for d in range(D if sides > 0 else 0):
                    ahead = _needed_next(i, j0, i0, i1, d, N2, cols, bars, odd, weighted)
                    b, c = shifted(columns, d * cols), shifted(others, d * stride + j0)
                    pulled, square = _pull(
                        weighted, cols, covered, lanes, b, (x0, x1, x2, x3), d, ahead, sides == 2, c
                    )
                    squares[d] += square
                    for q in range(last + 1 - i):
                        X1_bar[i + q, d] += pulled[q]
    return sum_of_all, squares, X2_bar[:, :N2]
