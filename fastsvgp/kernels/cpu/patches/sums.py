"""sum_p A_mp k(z_m, x_n[p]) and its backward pass: Z against the patches of each image."""

import numpy as np

from ..common.compiled import kernel
from ..pairwise.tiles import LOOP
from .blocks import Found, Stationary, Weights, finish, pull_pairs, sum_pairs, tile_of
from .gather import Side, Windows, merged, normalise, put, room, spread, take


@kernel("i i", Stationary, Side, "R1 R2 R2", Windows, "R2", **LOOP)
def sums(start, stop, k, Z, mean, X, A, windows, out):
    """Compute out[:, n] of images start..stop; Z is a side about ``mean``, A (M, P) or (1, P)."""
    M, P = len(Z.rows), windows.span[1] - windows.span[0]
    y, tile = room(P, mean.size, False, X), tile_of(M, P, X)
    near, values = np.empty(P, np.int64), np.empty(M, X.dtype)
    for n in range(start, stop):
        count = take(X[n], windows.geometry, windows.span, True, y.rows, y.group)
        largest = normalise(y.rows[:count], mean, k.scale, y.norms)
        weights = Weights(merged(A, Z.group, y.group, len(A), count), False)
        sum_pairs(k, Z, y, M, count, largest, weights, tile, near, values)
        out[:, n] = values


@kernel("i i", Stationary, Side, "R1 R2 R2 R2", Windows, "b R2", **LOOP)
def sums_vjp(start, stop, k, Z, mean, X, A, K_bar, windows, contract, X_bar):
    """Contract the cotangents of images start..stop.

    Returns the cotangents of scaled Z and of A, sum E (x - z)^2 of near pairs and of all others,
    sum E r^2 of these others, and sum K_bar A k. Without ``contract``, Z_bar and the second are
    not computed. X_bar receives the cotangents of its images unless it is empty.
    """
    (M, d), P, both = Z.rows.shape, windows.span[1] - windows.span[0], len(X_bar) > 0
    y, tile, near = room(P, d, both, X), tile_of(M, P, X), np.empty(P, np.int64)
    zeros = np.zeros((2, M, d), X.dtype)
    x = Side(Z.rows, Z.norms, Z.group, zeros[0], zeros[1])
    e, A_bar, squares = np.zeros(M), np.zeros(A.shape), np.zeros((2, d))
    values, c, bar = np.empty(M), np.empty(P, X.dtype), np.empty(A.shape, X.dtype)
    found, moment, total, share = Found(values, e, c, bar, squares), 0.0, 0.0, 1 if both else 2
    for n in range(start, stop):
        count = take(X[n], windows.geometry, windows.span, not both, y.rows, y.group)
        largest = normalise(y.rows[:count], mean, k.scale, y.norms)
        weights = Weights(merged(A, Z.group, y.group, len(A), count), False)
        values[:], c[:], bar[:], y.bar[:], y.near[:] = 0, 0, 0, 0, 0
        factors = np.ascontiguousarray(K_bar[:, n])
        moment += pull_pairs(
            k, x, y, M, count, largest, weights, factors, contract, tile, near, found
        )
        for m in range(M):
            total += factors[m] * values[m]
        spread(bar, Z.group, y.group, A_bar)
        if contract:
            finish(y, count, c, share, squares[1])
        if both:
            put(y.bar, k.scale, windows.geometry, windows.span, X_bar[n])
    if contract:
        finish(x, M, e, share, squares[1])
    return x.bar, A_bar, squares, moment, total
