"""sum_p A_mp k(z_m, x_n[p]) and its reverse rule, image by image: tiles of products of rows of Z and patches, compiled.

With scaled rows z and patches x, E_mp = K_bar_mn A_mp q, its sums e_m and c_p over columns and
rows, and sums over all images:

    Z_bar_m = sum E (x_p - z_m) = (E X)_m - e_m z_m             X_bar_p = (E' Z)_p - c_p x_p
    sum E (x_p - z_m)^2 = sum_m e_m z_m^2 - 2 z_m (E X)_m + sum_p c_p x_p^2        (elementwise in the features)
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
    merged,
    near_below,
    normalise,
    put,
    squared,
    take,
    value_and_slope,
    weigh,
)

TILE = 1 << 18  # bytes: with patches and buffers it stays in a second-level cache


@jit
def tile_rows(columns, itemsize):
    return max(8, TILE // (itemsize * max(1, columns)))


@jit
def sums(start, stop, family, Z, z_norms, X, A, variance, mean, scale, geometry, windows, out):
    """out[:, n] of images start..stop; Z is scaled about the mean, A (M, P) or (1, P)."""
    (M, d), P, shared, dtype = Z.shape, windows[1] - windows[0], len(A) == 1, X.dtype
    patches, norms, group = np.empty((P, d), dtype), np.empty(P, dtype), np.empty(P, np.int64)
    near, r2s, ks, weights = (
        np.empty(P, np.int64),
        np.empty(P, dtype),
        np.empty(P, dtype),
        np.empty(P, dtype),
    )
    size = min(M, tile_rows(P, X.itemsize))
    tile = np.empty(size * P, dtype)
    for n in range(start, stop):
        count = take(X[n], geometry, windows, True, patches, group)
        b = patches[:count]
        largest = normalise(b, mean, scale, norms)
        r2, k, a = r2s[:count], ks[:count], merged(A[0], group, weights[:count])
        for m0 in range(0, M, size):
            m1 = min(m0 + size, M)
            products = tile[: (m1 - m0) * count].reshape(m1 - m0, count)
            blas.gemm(Z[m0:m1], b, products, N, T, -2.0, 0.0)
            for m in range(m0, m1):
                product, norm, limit = (
                    products[m - m0],
                    z_norms[m],
                    near_below(family, z_norms[m] + largest),
                )
                if not shared:
                    a = merged(A[m], group, weights[:count])
                if is_lean(family, product, norm, norms, limit):
                    out[m, n] = lean_value(product, norm, norms, variance, a)
                else:
                    squared(product, Z[m], norm, b, norms, limit, r2, near)
                    profile(family, variance, r2, k)
                    out[m, n] = dot(a, k)


@jit
def sums_vjp(
    start,
    stop,
    family,
    Z,
    z_norms,
    X,
    A,
    K_bar,
    variance,
    mean,
    scale,
    geometry,
    windows,
    contract,
    X_bar,
):
    """Of images start..stop: E X, e, what near pairs add to Z_bar, A_bar, sum c x^2, sum E (x - z)^2 of near pairs, sum E r^2 of
    all others, sum K_bar A k.

    ``contract`` says whether any but e, A_bar and the last two are needed: near pairs are set apart
    then alone. X_bar receives the cotangents of its images where it is not empty.
    """
    (M, d), P, shared, dtype = Z.shape, windows[1] - windows[0], len(A) == 1, X.dtype
    both = len(X_bar) > 0
    patches, norms, group = np.empty((P, d), dtype), np.empty(P, dtype), np.empty(P, np.int64)
    near, weights, row = np.empty(P, np.int64), np.empty(P, dtype), np.empty((6, P), dtype)
    size = min(M, tile_rows(P, X.itemsize))
    tile = np.empty(size * P, dtype)
    EX, e, Z_near = np.zeros((M, d), dtype), np.zeros(M), np.zeros((M, d), dtype)
    patches_bar, patches_near = (
        np.zeros((P if both else 0, d), dtype),
        np.zeros((P if both else 0, d), dtype),
    )
    A_bar, squares, near_squares, moment, values = (
        np.zeros(A.shape),
        np.zeros(d),
        np.zeros(d),
        0.0,
        0.0,
    )
    for n in range(start, stop):
        count = take(X[n], geometry, windows, not both, patches, group)
        b = patches[:count]
        largest = normalise(b, mean, scale, norms)
        r2, k, q = row[0, :count], row[1, :count], row[2, :count]
        columns, k_sums, lean = row[3, :count], row[4, :count], row[5, :count]
        columns[:], k_sums[:], lean[:], patches_bar[:], patches_near[:] = 0, 0, 0, 0, 0
        a = merged(A[0], group, weights[:count])
        for m0 in range(0, M, size):
            m1 = min(m0 + size, M)
            w = tile[: (m1 - m0) * count].reshape(m1 - m0, count)
            blas.gemm(Z[m0:m1], b, w, N, T, -2.0, 0.0)
            for m in range(m0, m1):
                factor, i, norm, limit = (
                    K_bar[m, n],
                    m - m0,
                    z_norms[m],
                    near_below(family, z_norms[m] + largest),
                )
                if shared and is_lean(family, w[i], norm, norms, limit):
                    more, value = lean_weigh(w[i], norm, norms, variance, factor, a, lean)
                    e[m] += factor * value
                    moment += more
                    values += factor * value
                    continue
                low = squared(w[i], Z[m], norm, b, norms, limit, r2, near)
                value_and_slope(family, variance, r2, k, q)
                if not shared:
                    a = merged(A[m], group, weights[:count])
                    k_sums[:] = 0
                if contract:
                    contract_near(
                        factor, a, q, near, low, Z[m], b, Z_near[m], patches_near, near_squares
                    )
                total, more, value = weigh(factor, a, k, q, r2, w[i], columns, k_sums)
                e[m] += total
                moment += more
                values += factor * value
                if not shared:
                    for p in range(P):
                        A_bar[m, p] += k_sums[group[p]]
            if contract:
                blas.gemm(w, b, EX[m0:m1], N, N, 1.0, 1.0)
            if both:
                blas.gemm(w, Z[m0:m1], patches_bar, T, N, 1.0, 1.0)
        if shared:
            for p in range(count):
                k_sums[p] += lean[p]
                columns[p] += a[p] * lean[p]
            for p in range(P):
                A_bar[0, p] += k_sums[group[p]]
        if contract:
            for p in range(count):
                for i in range(d):
                    squares[i] += columns[p] * b[p, i] * b[p, i]
        if both:
            for p in range(P):
                for i in range(d):
                    patches_bar[p, i] += patches_near[p, i] - columns[p] * b[p, i]
            put(patches_bar, scale, geometry, windows, X_bar[n])
    return EX, e, Z_near, A_bar, squares, near_squares, moment, values
