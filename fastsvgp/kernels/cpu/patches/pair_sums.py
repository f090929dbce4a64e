"""sum_pq B_pq k(x_n[p], y_n[q]) over two window ranges of each image, and its backward pass.

One range gives a triangle of pairs. With scaled patches x and y, E_pq = k_bar B_pq q (doubled if a
triangle stands for both), and its sums e_p over q and c_q over p:

    x_bar_p = (E Y)_p - e_p x_p        y_bar_q = (E' X)_q - c_q y_q
    sum E (x_p - y_q)^2 = sum_p e_p x_p^2 - 2 x_p (E Y)_p + sum_q c_q y_q^2

The last is elementwise in the features.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common import blas
from ..common.blas import N, T
from ..common.compiled import kernel
from ..pairwise.tiles import LOOP, jit, profile
from .gather import (
    Patches,
    Stationary,
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
    room_for_patches,
    squared,
    take,
    value_and_slope,
    weigh,
)
from .sums import tile_rows


class Pairs(NamedTuple):
    """Two ranges (start, stop) of windows of an image.

    ``symmetric``: they are one range, and only pairs of a triangle are computed.
    """

    form = "(i i i i i i) (i i) (i i) b"
    geometry: tuple
    first: tuple
    second: tuple
    symmetric: bool


class Weights(NamedTuple):
    """B (P, Q), or ``b`` (P,) for b b'; the other one is empty."""

    form = "R1 R2"
    b: Any
    B: Any


class Image(NamedTuple):
    """One image.

    count, other : rows of the two ranges; largest : norm of the second
    a, of_rows : (count,) and (count, other), the weights of rows; only one of them is used
    factor : k_bar, doubled for a triangle
    """

    count: int  # type: ignore[assignment]
    other: int
    largest: Any
    a: Any
    of_rows: Any
    factor: Any


class Needs(NamedTuple):
    """Flags of what to compute.

    both : cotangents of images
    contract : sums of E (x - y)^2, or cotangents of images
    pairs : B is given, not b
    B_bar : cotangent of B
    """

    both: bool
    contract: bool
    pairs: bool
    B_bar: bool
    symmetric: bool


class Side(NamedTuple):
    """Patches of one range, their cotangents (P, d), and the part of near pairs.

    Cotangents that are not requested are empty.
    """

    patches: Patches
    bar: Any
    near_bar: Any


class Workspace(NamedTuple):
    """Memory for one image in the backward pass.

    tile, EY : a tile of products, then of E; E times the patches of the second range
    e, b_rows, weights : (P,), sums of E and of k_bar b k over rows
    row : (6, Q): r^2, k, q of one row, then sums over rows: of E, of k_bar k, and of k_bar k of
    lean rows
    """

    x: Side
    y: Side
    tile: Any
    EY: Any
    e: Any
    b_rows: Any
    weights: Any
    near: Any
    row: Any
    mean: Any


class Sums(NamedTuple):
    """Results of the backward pass.

    ``totals`` is (sum E r^2 of pairs that are not near, sum k_bar B k).
    """

    b_bar: Any
    B_bar: Any
    k_all: Any
    squares: Any
    near_squares: Any
    totals: Any


@jit
def _merged_pairs(B, rows, columns, count, others):
    """Return the sums of B over the windows of each pair of rows.

    B itself if each window has its own row.
    """
    if count == rows.size and others == columns.size:
        return B
    out = np.zeros((count, others), B.dtype)
    for p in range(rows.size):
        for q in range(columns.size):
            out[rows[p], columns[q]] += B[p, q]
    return out


@jit
def _both(image, scale, windows, merge, x, y, mean):
    """Gather scaled patches of both ranges, centred at the mean of the first.

    Returns how many there are, and the largest norm of the second range.
    """
    geometry = windows.geometry
    count = take(image, geometry, windows.first, merge, x.rows, x.group)
    mean_of(x.rows[:count], mean)
    largest = normalise(x.rows[:count], mean, scale, x.norms)
    if windows.symmetric:
        return count, count, largest
    other = take(image, geometry, windows.second, merge, y.rows, y.group)
    return count, other, normalise(y.rows[:other], mean, scale, y.norms)


@kernel("i i", Stationary, "R2", Weights, Pairs, "R1", **LOOP)
def pair_sums(start, stop, k, X, weights, windows, out):
    """Compute out[n] of images start..stop."""
    family, variance, scale = k
    b, B = weights
    _, first, second, symmetric = windows
    P, Q, d, dtype = first[1] - first[0], second[1] - second[0], scale.size, X.dtype
    x_patches = room_for_patches(P, d, X)
    y_patches = x_patches if symmetric else room_for_patches(Q, d, X)
    x, x_norms, x_group = x_patches
    y, y_norms, y_group = y_patches
    near, r2s, ks = np.empty(Q, np.int64), np.empty(Q, dtype), np.empty(Q, dtype)
    room, mean = np.empty(P, dtype), np.empty(d, dtype)
    size, of_pairs = min(P, tile_rows(Q, X.itemsize)), b.size == 0
    tile = np.empty(size * Q, dtype)
    for n in range(start, stop):
        count, other, largest = _both(X[n], scale, windows, True, x_patches, y_patches, mean)
        a = b if of_pairs else merged(b, x_group, room[:count])
        of_rows = _merged_pairs(B, x_group, y_group, count, other) if of_pairs else B
        total, diagonal = 0.0, 0.0
        for i0 in range(0, count, size):
            i1 = min(i0 + size, count)
            columns = i1 if symmetric else other
            products = tile[: (i1 - i0) * columns].reshape(i1 - i0, columns)
            blas.gemm(x[i0:i1], y[:columns], products, N, T, -2.0, 0.0)
            for i in range(i0, i1):
                end = i if symmetric else other
                product, norm = products[i - i0, :end], x_norms[i]
                limit, row = near_below(family, norm + largest), a[:end]
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


@kernel("i i", Stationary, "R2", Weights, "R1", Pairs, "b b R2", **LOOP)
def pair_sums_vjp(start, stop, k, X, weights, k_bar, windows, contract, need_B, X_bar):
    """Contract the cotangents of images start..stop.

    Returns b_bar (P,), B_bar (P, Q), elementwise sums of E (x - y)^2, separately those of near
    pairs, the total sum of E r^2 of all others, and the sum of k_bar B k.

    ``contract`` as in ``patches.sums``. Cotangents that do not exist or are not requested
    (``need_B``) are empty.
    """
    b, B = weights
    needs = Needs(len(X_bar) > 0, contract, b.size == 0, need_B, windows.symmetric)
    d, shape = k.scale.size, B.shape if need_B else (0, 0)
    work = _workspace(windows, d, needs.both, X)
    found = Sums(
        np.zeros(b.size),
        np.zeros(shape),
        np.empty(shape, X.dtype),
        np.zeros(d),
        np.zeros(d),
        np.zeros(2),
    )
    x, y, size = work.x.patches, work.y.patches, len(work.EY)
    twice = X.dtype.type(2 if windows.symmetric else 1)
    for n in range(start, stop):
        count, other, largest = _both(X[n], k.scale, windows, not needs.both, x, y, work.mean)
        _clear(work)
        a = b if needs.pairs else merged(b, x.group, work.weights[:count])
        of_rows = _merged_pairs(B, x.group, y.group, count, other) if needs.pairs else B
        image = Image(count, other, largest, a, of_rows, twice * k_bar[n])
        for i0 in range(0, count, size):
            i1 = min(i0 + size, count)
            width = i1 if windows.symmetric else other
            w = work.tile[: (i1 - i0) * width].reshape(i1 - i0, width)
            blas.gemm(x.rows[i0:i1], y.rows[:width], w, N, T, -2.0, 0.0)
            _weigh_rows(i0, i1, w, k, image, k_bar[n], needs, work, found)
            if contract:
                _contract_rows(i0, i1, w, needs.both, work, found)
            if needs.both:
                blas.gemm(w, x.rows[i0:i1], work.y.bar[:width], T, N, 1.0, 1.0)
        _finish_image(image, k, k_bar[n], needs, work, found)
        if needs.both:
            put(work.x.bar, k.scale, windows.geometry, windows.first, X_bar[n])
            if not windows.symmetric:
                put(work.y.bar, k.scale, windows.geometry, windows.second, X_bar[n])
    return (
        found.b_bar,
        found.B_bar,
        found.squares,
        found.near_squares,
        found.totals[0],
        found.totals[1],
    )


@jit
def _workspace(windows, d, both, like):
    P, Q = windows.first[1] - windows.first[0], windows.second[1] - windows.second[0]
    size, dtype = min(P, tile_rows(Q, like.itemsize)), like.dtype
    x_bar, x_near = np.zeros((P if both else 0, d), dtype), np.zeros((P, d), dtype)
    x = Side(room_for_patches(P, d, like), x_bar, x_near)
    if windows.symmetric:
        y = Side(x.patches, x_bar, x_near if both else x_bar)
    else:
        rows = Q if both else 0
        y_bar, y_near = np.zeros((rows, d), dtype), np.zeros((rows, d), dtype)
        y = Side(room_for_patches(Q, d, like), y_bar, y_near)
    return Workspace(
        x,
        y,
        np.empty(size * Q, dtype),
        np.empty((size, d), dtype),
        np.empty(P, dtype),
        np.empty(P, dtype),
        np.empty(P, dtype),
        np.empty(Q, np.int64),
        np.empty((6, Q), dtype),
        np.empty(d, dtype),
    )


@jit
def _clear(work):
    work.row[3:] = 0
    work.x.bar[:] = 0
    work.x.near_bar[:] = 0
    work.y.bar[:] = 0
    work.y.near_bar[:] = 0


@jit
def _weigh_rows(i0, i1, w, k, image, k_bar, needs, work, found):
    """Replace a tile of products, of rows i0..i1 with the columns of ``w``, by E."""
    family, variance, _ = k
    count, other, largest, a, of_rows, factor = image
    (x, x_norms, _), _, x_near = work.x
    (y, y_norms, _), _, y_near = work.y
    e, b_rows, near, row = work.e, work.b_rows, work.near, work.row
    columns, k_sums, lean = row[3], row[4], row[5]
    _, _, k_all, _, near_squares, totals = found
    for i in range(i0, i1):
        end, norm = i if needs.symmetric else other, x_norms[i]
        limit = near_below(family, norm + largest)
        line, share = w[i - i0, :end], factor if needs.pairs else factor * a[i]
        weights = of_rows[i, :end] if needs.pairs else a[:end]
        if not needs.pairs and is_lean(family, line, norm, y_norms, limit):
            more, value = lean_weigh(line, norm, y_norms, variance, share, weights, lean)
            total = share * value
        else:
            r2, values, q = row[0, :end], row[1, :end], row[2, :end]
            low = squared(line, x[i], norm, y, y_norms, limit, r2, near)
            value_and_slope(family, variance, r2, values, q)
            if needs.contract:
                contract_near(
                    share, weights, q, near, low, x[i], y, x_near[i], y_near, near_squares
                )
            total, more, value = weigh(share, weights, values, q, r2, line, columns, k_sums)
            if needs.B_bar:
                k_all[i, :end] = values
        for j in range(end, w.shape[1]):
            w[i - i0, j] = 0
        e[i] = total
        totals[0] += more
        totals[1] += share * value
        b_rows[i] = factor * value
        if needs.symmetric:
            weight = of_rows[i, i] if needs.pairs else a[i] * a[i]
            totals[1] += k_bar * weight * variance


@jit
def _contract_rows(i0, i1, w, both, work, found):
    """Compute E Y of a tile, and add its contribution to sum E (x - y)^2 and to x_bar."""
    x, x_bar, y = work.x.patches.rows, work.x.bar, work.y.patches.rows
    EY, squares = work.EY[: i1 - i0], found.squares
    blas.gemm(w, y[: w.shape[1]], EY, N, N, 1.0, 0.0)
    for i in range(i0, i1):
        for t in range(squares.size):
            squares[t] -= 2 * x[i, t] * EY[i - i0, t]
            if both:
                x_bar[i, t] += EY[i - i0, t]


@jit
def _finish_image(image, k, k_bar, needs, work, found):
    """Finish an image after all rows: b_bar or B_bar, and the terms in the sums of E."""
    count, other, a = image.count, image.other, image.a
    (x, _, x_group), x_bar, x_near = work.x
    (y, _, y_group), y_bar, y_near = work.y
    e, b_rows, row, squares = work.e, work.b_rows, work.row, found.squares
    columns, k_sums, lean = row[3], row[4], row[5]
    if not needs.pairs:
        for i in range(count):
            k_sums[i] += lean[i]
            columns[i] += a[i] * lean[i]
            b_rows[i] += k_sums[i] + 2 * k_bar * a[i] * k.variance
        for p in range(x_group.size):
            found.b_bar[p] += b_rows[x_group[p]]
    if needs.B_bar:
        _add_pairs(k_bar, found.k_all, k.variance, needs.symmetric, x_group, y_group, found.B_bar)
    if needs.symmetric:
        e[:count] += columns[:count]
    if needs.contract:
        _finish(e[:count], x, x_near, squares, x_bar)
        if not needs.symmetric:
            _finish(columns[:other], y, y_near, squares, y_bar)


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
    """Add the terms in the sums of E over the other side, and the part of near pairs."""
    for i in range(sums.size):
        for t in range(squares.size):
            squares[t] += sums[i] * x[i, t] * x[i, t]
            if len(x_bar) > 0:
                x_bar[i, t] += x_near[i, t] - sums[i] * x[i, t]
