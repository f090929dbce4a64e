"""sum_p A_mp k(z_m, x_n[p]) and its backward pass, by tiles of products of Z and patches.

Images are processed one by one. With scaled rows z and patches x, E_mp = K_bar_mn A_mp q, its sums
e_m and c_p over columns and rows, and sums over all images:

    Z_bar_m = sum E (x_p - z_m) = (E X)_m - e_m z_m             X_bar_p = (E' Z)_p - c_p x_p
    sum E (x_p - z_m)^2 = sum_m e_m z_m^2 - 2 z_m (E X)_m + sum_p c_p x_p^2

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
    Windows,
    contract_near,
    dot,
    is_lean,
    lean_value,
    lean_weigh,
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

TILE = 1 << 18  # bytes: with patches and buffers it stays in the L2 cache


class Centred(NamedTuple):
    """Scaled rows (M, d) about their mean (d,), and their squared norms (M,)."""

    form = "R2 R1 R1"
    rows: Any
    norms: Any
    mean: Any


class Image(NamedTuple):
    """One image: its number, the rows of its patches, the largest norm, and the weights.

    ``a`` is A of all rows of Z (or of the last one).
    """

    n: int
    count: int  # type: ignore[assignment]
    largest: Any
    a: Any


class Workspace(NamedTuple):
    """Memory for one image in the backward pass.

    bar, near_bar : (P, d), or empty: cotangents of patches; the part of near pairs
    tile : a tile of products, then of E
    near, weights : (P,)
    row : (6, P): r^2, k, q of one row, then sums over rows: of E, of K_bar k, and of K_bar k of
    lean rows
    """

    patches: Patches
    bar: Any
    near_bar: Any
    tile: Any
    near: Any
    weights: Any
    row: Any


class Sums(NamedTuple):
    """Results of the backward pass.

    ``totals`` is (sum E r^2 of pairs that are not near, sum K_bar A k).
    """

    EX: Any
    e: Any
    Z_near: Any
    A_bar: Any
    squares: Any
    near_squares: Any
    totals: Any


@jit
def tile_rows(columns, itemsize):
    return max(8, TILE // (itemsize * max(1, columns)))


@kernel("i i", Stationary, Centred, "R2 R2", Windows, "R2", **LOOP)
def sums(start, stop, k, Z, X, A, windows, out):
    """Compute out[:, n] of images start..stop; Z is ``Centred``, A (M, P) or (1, P)."""
    family, variance, scale = k
    rows, z_norms, mean = Z
    (M, d), P, shared, dtype = rows.shape, windows.span[1] - windows.span[0], len(A) == 1, X.dtype
    patches, norms, group = room_for_patches(P, d, X)
    near, r2s, ks = np.empty(P, np.int64), np.empty(P, dtype), np.empty(P, dtype)
    weights = np.empty(P, dtype)
    size = min(M, tile_rows(P, X.itemsize))
    tile = np.empty(size * P, dtype)
    for n in range(start, stop):
        count = take(X[n], windows.geometry, windows.span, True, patches, group)
        b = patches[:count]
        largest = normalise(b, mean, scale, norms)
        r2, values, a = r2s[:count], ks[:count], merged(A[0], group, weights[:count])
        for m0 in range(0, M, size):
            m1 = min(m0 + size, M)
            products = tile[: (m1 - m0) * count].reshape(m1 - m0, count)
            blas.gemm(rows[m0:m1], b, products, N, T, -2.0, 0.0)
            for m in range(m0, m1):
                product, norm = products[m - m0], z_norms[m]
                limit = near_below(family, norm + largest)
                if not shared:
                    a = merged(A[m], group, weights[:count])
                if is_lean(family, product, norm, norms, limit):
                    out[m, n] = lean_value(product, norm, norms, variance, a)
                else:
                    squared(product, rows[m], norm, b, norms, limit, r2, near)
                    profile(family, variance, r2, values)
                    out[m, n] = dot(a, values)


@kernel("i i", Stationary, Centred, "R2 R2 R2", Windows, "b R2", **LOOP)
def sums_vjp(start, stop, k, Z, X, A, K_bar, windows, contract, X_bar):
    """Contract the cotangents of images start..stop.

    Returns E X, e, the part of near pairs in Z_bar, A_bar, sum c x^2, sum E (x - z)^2 of near
    pairs, sum E r^2 of all others, and sum K_bar A k.

    ``contract`` says whether any but e, A_bar and the last two are needed: only then are near pairs
    treated separately. X_bar receives the cotangents of its images unless it is empty.
    """
    (M, d), P = Z.rows.shape, windows.span[1] - windows.span[0]
    geometry, span, both = windows.geometry, windows.span, len(X_bar) > 0
    size = min(M, tile_rows(P, X.itemsize))
    work = _workspace(P, d, size, both, X)
    found = Sums(
        np.zeros((M, d), X.dtype),
        np.zeros(M),
        np.zeros((M, d), X.dtype),
        np.zeros(A.shape),
        np.zeros(d),
        np.zeros(d),
        np.zeros(2),
    )
    for n in range(start, stop):
        count = take(X[n], geometry, span, not both, work.patches.rows, work.patches.group)
        b = work.patches.rows[:count]
        largest = normalise(b, Z.mean, k.scale, work.patches.norms)
        work.row[3:, :count] = 0
        work.bar[:] = 0
        work.near_bar[:] = 0
        image = Image(n, count, largest, merged(A[0], work.patches.group, work.weights[:count]))
        for m0 in range(0, M, size):
            m1 = min(m0 + size, M)
            w = work.tile[: (m1 - m0) * count].reshape(m1 - m0, count)
            blas.gemm(Z.rows[m0:m1], b, w, N, T, -2.0, 0.0)
            _weigh_rows(m0, k, Z, image, A, K_bar, contract, work, found)
            if contract:
                blas.gemm(w, b, found.EX[m0:m1], N, N, 1.0, 1.0)
            if both:
                blas.gemm(w, Z.rows[m0:m1], work.bar, T, N, 1.0, 1.0)
        _finish_image(image, len(A) == 1, contract, work, found)
        if both:
            put(work.bar, k.scale, geometry, span, X_bar[n])
    return (
        found.EX,
        found.e,
        found.Z_near,
        found.A_bar,
        found.squares,
        found.near_squares,
        found.totals[0],
        found.totals[1],
    )


@jit
def _workspace(P, d, size, both, like):
    dtype, rows = like.dtype, P if both else 0
    return Workspace(
        room_for_patches(P, d, like),
        np.zeros((rows, d), dtype),
        np.zeros((rows, d), dtype),
        np.empty(size * P, dtype),
        np.empty(P, np.int64),
        np.empty(P, dtype),
        np.empty((6, P), dtype),
    )


@jit
def _weigh_rows(m0, k, Z, image, A, K_bar, contract, work, found):
    """Replace a tile of products, of the rows of Z from m0 on with all patches, by E."""
    family, variance, _ = k
    rows, z_norms, _ = Z
    n, count, largest, a = image
    (patches, norms, group), _, patches_near, tile, near, weights, row = work
    _, e, Z_near, A_bar, _, near_squares, totals = found
    shared, P, b = len(A) == 1, group.size, patches[:count]
    r2, values, q = row[0, :count], row[1, :count], row[2, :count]
    columns, k_sums, lean = row[3, :count], row[4, :count], row[5, :count]
    m1 = min(m0 + tile.size // P, len(rows))
    w = tile[: (m1 - m0) * count].reshape(m1 - m0, count)
    for m in range(m0, m1):
        factor, i, norm = K_bar[m, n], m - m0, z_norms[m]
        limit = near_below(family, norm + largest)
        if shared and is_lean(family, w[i], norm, norms, limit):
            more, value = lean_weigh(w[i], norm, norms, variance, factor, a, lean)
            total = factor * value
        else:
            low = squared(w[i], rows[m], norm, b, norms, limit, r2, near)
            value_and_slope(family, variance, r2, values, q)
            if not shared:
                a = merged(A[m], group, weights[:count])
                k_sums[:] = 0
            if contract:
                contract_near(
                    factor, a, q, near, low, rows[m], b, Z_near[m], patches_near, near_squares
                )
            total, more, value = weigh(factor, a, values, q, r2, w[i], columns, k_sums)
            if not shared:
                for p in range(P):
                    A_bar[m, p] += k_sums[group[p]]
        e[m] += total
        totals[0] += more
        totals[1] += factor * value


@jit
def _finish_image(image, shared, contract, work, found):
    """Finish an image after all rows of Z: a shared A_bar, sum c x^2, cotangents of patches."""
    (patches, _, group), bar, near_bar, _, _, _, row = work
    count, a, A_bar, squares = image.count, image.a, found.A_bar, found.squares
    columns, k_sums, lean = row[3, :count], row[4, :count], row[5, :count]
    if shared:
        for p in range(count):
            k_sums[p] += lean[p]
            columns[p] += a[p] * lean[p]
        for p in range(group.size):
            A_bar[0, p] += k_sums[group[p]]
    if contract:
        for p in range(count):
            for i in range(squares.size):
                squares[i] += columns[p] * patches[p, i] * patches[p, i]
    for p in range(len(bar)):
        for i in range(squares.size):
            bar[p, i] += near_bar[p, i] - columns[p] * patches[p, i]
