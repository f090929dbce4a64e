"""sum_pq B_pq k(x_n[p], y_n[q]) over two ranges of windows of each image, or one triangle of one range, and its reverse rule.

With scaled patches x and y, E_pq = k_bar B_pq q (twice that where a triangle stands for both), and
its sums e_p over q and c_q over p:

    x_bar_p = (E Y)_p - e_p x_p        y_bar_q = (E' X)_q - c_q y_q
    sum E (x_p - y_q)^2 = sum_p e_p x_p^2 - 2 x_p (E Y)_p + sum_q c_q y_q^2             (elementwise in the features)
"""

import numpy as np

from ..common import blas
from ..common.blas import N, T
from ..pairwise.tiles import jit, profile
from .gather import (
    contract_near,
    dot,
    is_lean,
    lean_value,
    lean_weigh,
    mean_of,
    merged,
    near_below,
    normalise,
    put,
    squared,
    take,
    value_and_slope,
    weigh,
)
from .sums import tile_rows


@jit
def _merged_pairs(B, rows, columns, count, others):
    """The sums of B over the windows of each pair of rows; B itself where each window has a row of its own."""
    if count == rows.size and others == columns.size:
        return B
    out = np.zeros((count, others), B.dtype)
    for p in range(rows.size):
        for q in range(columns.size):
            out[rows[p], columns[q]] += B[p, q]
    return out


@jit
def _both(
    image,
    scale,
    geometry,
    windows,
    others,
    merge,
    symmetric,
    x,
    x_norms,
    x_group,
    y,
    y_norms,
    y_group,
    mean,
):
    """Scaled patches of both ranges about the mean of the first: how many there are, and the largest norm of the second."""
    count = take(image, geometry, windows, merge, x, x_group)
    mean_of(x[:count], mean)
    if symmetric:
        return count, count, normalise(x[:count], mean, scale, x_norms)
    normalise(x[:count], mean, scale, x_norms)
    other = take(image, geometry, others, merge, y, y_group)
    return count, other, normalise(y[:other], mean, scale, y_norms)


@jit
def pair_sums(
    start, stop, family, X, b, B, variance, scale, geometry, windows, others, symmetric, out
):
    """out[n] of images start..stop; ``b`` (P,) for b b', or empty where there is B."""
    P, Q, d, dtype = windows[1] - windows[0], others[1] - others[0], scale.size, X.dtype
    x, x_norms, x_group = np.empty((P, d), dtype), np.empty(P, dtype), np.empty(P, np.int64)
    y, y_norms, y_group = x, x_norms, x_group
    if not symmetric:
        y, y_norms, y_group = np.empty((Q, d), dtype), np.empty(Q, dtype), np.empty(Q, np.int64)
    near, r2s, ks = np.empty(Q, np.int64), np.empty(Q, dtype), np.empty(Q, dtype)
    weights, mean = np.empty(P, dtype), np.empty(d, dtype)
    size = min(P, tile_rows(Q, X.itemsize))
    tile = np.empty(size * Q, dtype)
    for n in range(start, stop):
        count, other, largest = _both(
            X[n],
            scale,
            geometry,
            windows,
            others,
            True,
            symmetric,
            x,
            x_norms,
            x_group,
            y,
            y_norms,
            y_group,
            mean,
        )
        of_pairs = b.size == 0
        a = b if of_pairs else merged(b, x_group, weights[:count])
        of_rows = _merged_pairs(B, x_group, y_group, count, other) if of_pairs else B
        total, diagonal = 0.0, 0.0
        for i0 in range(0, count, size):
            i1 = min(i0 + size, count)
            columns = i1 if symmetric else other
            products = tile[: (i1 - i0) * columns].reshape(i1 - i0, columns)
            blas.gemm(x[i0:i1], y[:columns], products, N, T, -2.0, 0.0)
            for i in range(i0, i1):
                end = i if symmetric else other
                product, norm, limit, row = (
                    products[i - i0, :end],
                    x_norms[i],
                    near_below(family, x_norms[i] + largest),
                    a[:end],
                )
                if of_pairs:
                    row = of_rows[i, :end]
                if is_lean(family, product, norm, y_norms, limit):
                    value = lean_value(product, norm, y_norms, variance, row)
                else:
                    squared(product, x[i], norm, y, y_norms, limit, r2s[:end], near)
                    profile(family, variance, r2s[:end], ks[:end])
                    value = dot(row, ks[:end])
                total += value if of_pairs else a[i] * value
                if symmetric:
                    diagonal += of_rows[i, i] if of_pairs else a[i] * a[i]
        out[n] = 2 * total + variance * diagonal if symmetric else total


@jit
def pair_sums_vjp(
    start,
    stop,
    family,
    X,
    b,
    B,
    k_bar,
    variance,
    scale,
    geometry,
    windows,
    others,
    symmetric,
    contract,
    need_B,
    X_bar,
):
    """Of images start..stop: b_bar (P,), B_bar (P, Q), elementwise sums of E (x - y)^2, those of near pairs apart, the total one
    of E r^2 of all others, and the sum of k_bar B k.

    ``contract`` as in ``patches_sums``; of what is not there, or needed (``need_B``), cotangents
    are empty.
    """
    P, Q, d, dtype, both = (
        windows[1] - windows[0],
        others[1] - others[0],
        scale.size,
        X.dtype,
        len(X_bar) > 0,
    )
    x, x_norms, x_group = np.empty((P, d), dtype), np.empty(P, dtype), np.empty(P, np.int64)
    y, y_norms, y_group = x, x_norms, x_group
    x_bar, x_near = np.zeros((P if both else 0, d), dtype), np.zeros((P, d), dtype)
    y_bar, y_near = x_bar, x_near if both else x_bar
    if not symmetric:
        y, y_norms, y_group = np.empty((Q, d), dtype), np.empty(Q, dtype), np.empty(Q, np.int64)
        y_bar, y_near = (
            np.zeros((Q if both else 0, d), dtype),
            np.zeros((Q if both else 0, d), dtype),
        )
    near, weights, mean = np.empty(Q, np.int64), np.empty(P, dtype), np.empty(d, dtype)
    r2s, ks, qs = np.empty(Q, dtype), np.empty(Q, dtype), np.empty(Q, dtype)
    columns, k_sums, lean = np.empty(Q, dtype), np.empty(Q, dtype), np.empty(Q, dtype)
    e, b_rows = np.empty(P, dtype), np.empty(P, dtype)
    size, of_pairs = min(P, tile_rows(Q, X.itemsize)), b.size == 0
    tile, EY = np.empty(size * Q, dtype), np.empty((size, d), dtype)
    shape = B.shape if need_B else (0, 0)
    b_bar, B_bar, k_all = np.zeros(b.size), np.zeros(shape), np.empty(shape, dtype)
    squares, near_squares, moment, values, twice = (
        np.zeros(d),
        np.zeros(d),
        0.0,
        0.0,
        dtype.type(2 if symmetric else 1),
    )
    for n in range(start, stop):
        count, other, largest = _both(
            X[n],
            scale,
            geometry,
            windows,
            others,
            not both,
            symmetric,
            x,
            x_norms,
            x_group,
            y,
            y_norms,
            y_group,
            mean,
        )
        columns[:], k_sums[:], lean[:] = 0, 0, 0
        x_bar[:], x_near[:], y_bar[:], y_near[:] = 0, 0, 0, 0
        a = b if of_pairs else merged(b, x_group, weights[:count])
        of_rows = _merged_pairs(B, x_group, y_group, count, other) if of_pairs else B
        for i0 in range(0, count, size):
            i1 = min(i0 + size, count)
            width = i1 if symmetric else other
            w = tile[: (i1 - i0) * width].reshape(i1 - i0, width)
            blas.gemm(x[i0:i1], y[:width], w, N, T, -2.0, 0.0)
            for i in range(i0, i1):
                end, norm, limit = (
                    i if symmetric else other,
                    x_norms[i],
                    near_below(family, x_norms[i] + largest),
                )
                line, row, factor = (
                    w[i - i0, :end],
                    of_rows[i, :end] if of_pairs else a[:end],
                    twice * k_bar[n],
                )
                share = factor if of_pairs else factor * a[i]
                if not of_pairs and is_lean(family, line, norm, y_norms, limit):
                    more, value = lean_weigh(line, norm, y_norms, variance, share, row, lean)
                    total = share * value
                else:
                    r2, k, q = r2s[:end], ks[:end], qs[:end]
                    low = squared(line, x[i], norm, y, y_norms, limit, r2, near)
                    value_and_slope(family, variance, r2, k, q)
                    if contract:
                        contract_near(
                            share, row, q, near, low, x[i], y, x_near[i], y_near, near_squares
                        )
                    total, more, value = weigh(share, row, k, q, r2, line, columns, k_sums)
                    if need_B:
                        k_all[i, :end] = k
                for j in range(end, width):
                    w[i - i0, j] = 0
                e[i] = total
                moment += more
                values += share * value
                b_rows[i] = factor * value
                if symmetric:
                    weight = of_rows[i, i] if of_pairs else a[i] * a[i]
                    values += k_bar[n] * weight * variance
            if contract:
                blas.gemm(w, y[:width], EY[: i1 - i0], N, N, 1.0, 0.0)
                for i in range(i0, i1):
                    for t in range(d):
                        squares[t] -= 2 * x[i, t] * EY[i - i0, t]
                        if both:
                            x_bar[i, t] += EY[i - i0, t]
            if both:
                blas.gemm(w, x[i0:i1], y_bar[:width], T, N, 1.0, 1.0)
        if not of_pairs:
            for i in range(count):
                k_sums[i] += lean[i]
                columns[i] += a[i] * lean[i]
                b_rows[i] += k_sums[i] + 2 * k_bar[n] * a[i] * variance
            for p in range(P):
                b_bar[p] += b_rows[x_group[p]]
        if need_B:
            _add_pairs(k_bar[n], k_all, variance, symmetric, x_group, y_group, B_bar)
        if symmetric:
            e[:count] += columns[:count]
        if contract:
            _finish(e[:count], x, x_near, squares, x_bar)
            if not symmetric:
                _finish(columns[:other], y, y_near, squares, y_bar)
        if both:
            put(x_bar, scale, geometry, windows, X_bar[n])
            if not symmetric:
                put(y_bar, scale, geometry, others, X_bar[n])
    return b_bar, B_bar, squares, near_squares, moment, values


@jit
def _add_pairs(factor, k, variance, symmetric, rows, columns, B_bar):
    for p in range(rows.size):
        for q in range(columns.size):
            i, j = rows[p], columns[q]
            if not symmetric:
                B_bar[p, q] += factor * k[i, j]
            elif i == j:
                B_bar[p, q] += factor * variance
            else:
                B_bar[p, q] += factor * k[max(i, j), min(i, j)]


@jit
def _finish(sums, x, x_near, squares, x_bar):
    """What the sums of E over the other side add, and, where they are asked for, what near pairs do."""
    for i in range(sums.size):
        for t in range(squares.size):
            squares[t] += sums[i] * x[i, t] * x[i, t]
            if len(x_bar) > 0:
                x_bar[i, t] += x_near[i, t] - sums[i] * x[i, t]
