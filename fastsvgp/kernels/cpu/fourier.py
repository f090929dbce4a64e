"""CPU twin of ``fourier``: each thread draws frequencies in panels that stay in its cache, and each panel meets all points.

Threads share out the frequencies, so each is drawn once and drawing needs no hand-over of its own; what the shares add up to is
then summed in a fixed order. With many points they come in passes, so that the sums of all shares stay small.
"""

import math

import numpy as np

from ..num_threads import get_num_threads
from . import fourier_rows as rows
from . import frequencies as draws
from . import scratch
from .threads import over_rows

PANEL = 256  # frequencies at most
ROW = 2048  # bytes of the points of a tile; half of that where there are many features, which then stay in the second-level cache
SHARES = 4  # of the frequencies for each thread: whoever is free takes the next one
SCRATCH = 1 << 22  # numbers that a pass over the points keeps: inputs, and sums for each share
LANES = 16  # tiles are whole vectors


def _checked(indices, num):
    indices = np.ascontiguousarray(indices, dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= num):
        wrong = indices[(indices < 0) | (indices >= num)][0]
        raise IndexError(f"`indices` holds {wrong}, but there are {num} frequencies (0 to {num - 1})")
    return indices


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _even(total, most, multiple):
    """(count, size) of the fewest pieces of equal size, a multiple of ``multiple``, that hold ``total`` with ``most`` in each."""
    count = -(-total // most)
    return count, -(-total // (count * multiple)) * multiple


def _tiles(U, tiles, points):
    """U (R, N) as (tiles, R, points), with zeros for the last points."""
    padded = np.zeros((len(U), tiles * points), U.dtype)
    padded[:, : U.shape[1]] = U
    return np.ascontiguousarray(padded.reshape(len(U), tiles, points).transpose(1, 0, 2))


def _draw(family, seed, indices, D, dtype):
    omega = np.empty((-(-D // 4) * 4, len(indices)), dtype)
    over_rows(draws.draw, len(indices), 6.0 * omega.size, np.uint64(seed), indices, draws.DEGREES[family], omega)
    return omega


def _pass(X, U, W, family, seed, indices, lengthscales, forward, backward, slopes):
    """``(total, back, X_bar)`` in float64: W Phi' (R, N), U Phi (R, 2 n), sum_p g omega_p (N, D), each where it is asked for;
    features are not scaled. See ``fourier_rows.sweep``.
    """
    (N, D), n, dtype = X.shape, len(indices), X.dtype
    total, X_bar = scratch.empty((N if forward else 0, len(W)), np.float64), scratch.empty((N if slopes else 0, D), np.float64)
    if N == 0 or n == 0 or max(len(U), len(W)) == 0:
        total[...], X_bar[...] = 0, 0
        return total.T, np.zeros((len(U), 2 * n if backward else 0)), X_bar
    most = SHARES * get_num_threads()
    panels, width = _even(n, min(PANEL, rows.GROUP * max(2, -(-n // (most * rows.GROUP)))), rows.GROUP)
    shares, drawn = min(panels, most), np.resize(indices, panels * width)  # some of them again, with weights 0
    weights = np.zeros((len(W), 2 * drawn.size), dtype)
    weights[:, : 2 * n] = W
    back = np.zeros((len(U), weights.shape[1] if backward else 0))
    turns = np.divide(1 / (2 * np.pi), lengthscales, out=np.empty(D, dtype), casting="same_kind")
    features = -(-D // 4) * 4
    tile = (ROW if D <= rows.LOOPS else ROW // 2) // dtype.itemsize
    kept = features + shares * (len(W) * forward + features * slopes)  # for each point
    step = max(1, SCRATCH // (kept * tile)) * tile
    for first in range(0, N, step):
        here = slice(first, min(N, first + step))
        count = here.stop - first
        tiles, points = _even(count, tile, LANES)
        x, u = scratch.empty((tiles, features, points), dtype), _tiles(U[:, here], tiles, points)
        over_rows(rows.turn, tiles, float(x.size), np.ascontiguousarray(X[here]), turns, x)
        sums = scratch.empty((shares, tiles if forward else 0, len(W), points), np.float64)
        bars = scratch.empty((shares, tiles if slopes else 0, features, points), np.float64)
        spectrum = np.uint64(seed), drawn, draws.DEGREES[family], width
        over_rows(rows.sweep, shares, 2.0 * count * n, *spectrum, x, u, weights, sums, bars, back)
        if forward:
            over_rows(rows.finish, tiles, float(sums.size), sums, total[here])
        if slopes:
            over_rows(rows.finish, tiles, float(bars.size), bars, X_bar[here])
    return total.T, back[:, : 2 * n], X_bar


def frequencies(family, seed, indices, D, dtype):
    omega = _draw(family, seed, _checked(indices, 1 << 63), D, np.dtype(dtype))
    return np.ascontiguousarray(omega[:D].T)


def multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    dtype, scale, lines = X.dtype, math.sqrt(variance / num), _lines(w)
    indices = _checked(indices, num)
    spectrum = family, seed, indices, lengthscales
    if transpose:
        _, out, _ = _pass(X, lines, np.zeros((0, 2 * len(indices)), dtype), *spectrum, False, True, False)
    else:
        out, _, _ = _pass(X, np.zeros((0, len(X)), dtype), lines, *spectrum, True, False, False)
    return (scale * out).astype(dtype, order="C").reshape(*w.shape[:-1], out.shape[1])


def multiply_vjp(out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need):
    """The sum of U * (W Phi') is what changes, with U = out_bar and W = w, or the other way round with ``transpose``."""
    dtype, scale = X.dtype, math.sqrt(variance / num)
    U, W = (_lines(w), _lines(out_bar)) if transpose else (_lines(out_bar), _lines(w))
    linear, slopes = bool({"w", "variance"} & {*need}), bool({"X", "lengthscales"} & {*need})
    flags = transpose and linear, not transpose and linear, slopes
    total, back, turned = _pass(X, U, W, family, seed, _checked(indices, num), lengthscales, *flags)
    X_bar = w_bar = variance_bar = lengthscales_bar = None
    if linear:
        w_bar = scale * (total if transpose else back)
    if slopes:
        turned *= scale / np.asarray(lengthscales, float)
    if "lengthscales" in need:
        lengthscales_bar = -(turned * X).sum(0) / lengthscales
        lengthscales_bar = dtype.type(lengthscales_bar.sum()) if np.ndim(lengthscales) == 0 else lengthscales_bar.astype(dtype)
    if "X" in need:
        X_bar = turned.astype(dtype)
    if "variance" in need:
        variance_bar = dtype.type((w_bar * (U if transpose else W)).sum() / (2 * float(variance)))
    return X_bar, w_bar.astype(dtype, order="C").reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar
