"""Sums over the patches of each image, and their backward passes.

sum_p A_mp k(z_m, x_n[p]): Z against a window range. sum_pq B_pq k(x_n[p], y_n[q]): two ranges; one
range gives a triangle of pairs, whose weights stand for both halves.
"""

from typing import NamedTuple

import numpy as np

from ..common.compiled import kernel
from ..pairwise.tiles import LOOP, jit
from .blocks import Found, Stationary, Weights, finish, pull_pairs, sum_pairs, tile_of
from .gather import Side, Windows, mean_of, merged, normalise, put, room, spread, take


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


class Pairs(NamedTuple):
    """Two ranges (start, stop) of windows of an image.

    ``symmetric``: they are one range, and only pairs of a triangle are computed.
    """

    form = "(i i i i i i) (i i) (i i) b"
    geometry: tuple
    first: tuple
    second: tuple
    symmetric: bool


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


@jit
def _sides(windows, d, both, X):
    """Return both sides; ``both``: the second has cotangents, too, in a triangle those of all."""
    (first, last), (start, stop) = windows.first, windows.second
    x = room(last - first, d, True, X)
    if not windows.symmetric:
        return x, room(stop - start, d, both, X)
    return x, x if both else Side(x.rows, x.norms, x.group, x.bar[:0], x.near[:0])


@kernel("i i", Stationary, "R2 R2 b", Pairs, "R1", **LOOP)
def pair_sums(start, stop, k, X, B, of_pairs, windows, out):
    """Compute out[n] of images start..stop.

    B is (P, Q) with ``of_pairs``, else (1, P) for weights b b' of a triangle.
    """
    x, y = _sides(windows, k.scale.size, False, X)
    P, Q, one = len(x.rows), len(y.rows), np.zeros(1, np.int64)
    tile, near, values = tile_of(P, Q, X), np.empty(Q, np.int64), np.empty(P, X.dtype)
    mean = np.empty(k.scale.size, X.dtype)
    for n in range(start, stop):
        count, other, largest = _both(X[n], k.scale, windows, True, x, y, mean)
        rows, size = (x.group, count) if of_pairs else (one, 1)
        A = merged(B, rows, y.group, size, other)
        weights = Weights(A, windows.symmetric)
        sum_pairs(k, x, y, count, other, largest, weights, tile, near, values)
        total = 0.0
        for i in range(count):
            total += values[i] if of_pairs else A[0, i] * values[i]
        if windows.symmetric:
            total *= 2
            for i in range(count):
                total += k.variance * (A[i, i] if of_pairs else A[0, i] * A[0, i])
        out[n] = total


@kernel("i i", Stationary, "R2 R2 b R1", Pairs, "b b R2", **LOOP)
def pair_sums_vjp(start, stop, k, X, B, of_pairs, k_bar, windows, contract, need_B, X_bar):
    """Contract the cotangents of images start..stop.

    Returns that of B, sum E (x - y)^2 of near pairs and of all others, sum E r^2 of these others,
    and sum k_bar B k. Without ``contract`` the second of these is not computed; without ``need_B``
    the first one is 0. X_bar receives the cotangents of its images unless it is empty.
    """
    d, dtype, both, symmetric = k.scale.size, X.dtype, len(X_bar) > 0, windows.symmetric
    x, y = _sides(windows, d, both, X)
    P, Q, one = len(x.rows), len(y.rows), np.zeros(1, np.int64)
    tile, near, mean = tile_of(P, Q, X), np.empty(Q, np.int64), np.empty(d, dtype)
    values, e, c, factors = np.empty(P), np.empty(P), np.empty(Q, dtype), np.empty(P, dtype)
    bar, B_bar = np.empty((P if of_pairs and need_B else 1, Q), dtype), np.zeros(B.shape)
    squares, moment, total, share = np.zeros((2, d)), 0.0, 0.0, 1 if both else 2
    found = Found(values, e, c, bar, squares)
    for n in range(start, stop):
        count, other, largest = _both(X[n], k.scale, windows, not both, x, y, mean)
        rows, size = (x.group, count) if of_pairs else (one, 1)
        A = merged(B, rows, y.group, size, other)
        for i in range(count):
            factors[i] = k_bar[n] * (2 if symmetric else 1) * (1 if of_pairs else A[0, i])
        values[:], e[:], c[:], bar[:] = 0, 0, 0, 0
        x.bar[:], x.near[:], y.bar[:], y.near[:] = 0, 0, 0, 0
        moment += pull_pairs(
            k, x, y, count, other, largest, Weights(A, symmetric), factors, contract, tile, near,
            found,
        )  # fmt: skip
        for i in range(count):
            total += factors[i] * values[i]
        if symmetric:
            total += k_bar[n] * _mirror(k.variance, k_bar[n], A, of_pairs, count, found)
        if need_B:
            spread(bar, rows, y.group, B_bar)
        if contract:
            finish(x, count, e, share, squares[1])
        if contract and not symmetric:
            finish(y, other, c, share, squares[1])
        if both:
            put(x.bar, k.scale, windows.geometry, windows.first, X_bar[n])
            if not symmetric:
                put(y.bar, k.scale, windows.geometry, windows.second, X_bar[n])
    return B_bar, squares, moment, total


@jit
def _mirror(variance, k_bar, A, of_pairs, count, found):
    """Add the other half of a triangle, and pairs of equal rows; return the sum of B k of these."""
    total = 0.0
    for i in range(count):
        found.e[i] += found.c[i]
        if of_pairs:
            total += A[i, i] * variance
        else:
            total += A[0, i] * A[0, i] * variance
            found.bar[0, i] += 2 * k_bar * (found.values[i] + A[0, i] * variance)
    if of_pairs and len(found.bar) == found.values.size:
        for i in range(count):
            for j in range(i):
                found.bar[i, j] *= 0.5
                found.bar[j, i] = found.bar[i, j]
            found.bar[i, i] = k_bar * variance
    return total
