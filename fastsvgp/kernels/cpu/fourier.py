"""CPU twin of ``fourier``: each thread draws frequencies in panels that stay in its cache, and each panel meets all points.

Threads share out the frequencies, so each is drawn once, and a call is one hand-over to them; what they add up over their shares
of the frequencies is then summed in a fixed order.
"""

import math

import numpy as np

from . import fourier_rows as rows
from . import frequencies as draws
from . import scratch
from .threads import get_num_threads, over_rows

PANEL, POINTS = 256, 256  # at most: frequencies of a panel, points of a tile
PASS = 1 << 20  # inputs (points times features) of a pass: each share of the frequencies has sums of that size
SHARES = 4  # for each thread: whoever is free takes the next one
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


def _tiles(lines, factors, height, tiles, points):
    """``factors * lines`` (R, N) as (tiles, height, points): tile after tile, with zeros behind the lines and the last points."""
    out = np.zeros((tiles, height, points), lines.dtype)
    for t in range(tiles):
        part = lines[:, t * points : (t + 1) * points]
        np.multiply(part, factors, out=out[t, : part.shape[0], : part.shape[1]])
    return out


def _sum(shares):
    """The sum of ``shares`` (shares, tiles, rows, points)."""
    out = scratch.empty(shares.shape[1:], np.float64)
    lines, points = math.prod(out.shape[:-1]), out.shape[-1]
    over_rows(rows.add_shares, lines, float(shares.size), shares.reshape(len(shares), lines, points), out.reshape(lines, points))
    return out


def _draw(family, seed, indices, D, dtype):
    omega = np.empty((-(-D // 4) * 4, len(indices)), dtype)
    over_rows(draws.draw, len(indices), 6.0 * omega.size, np.uint64(seed), indices, draws.DEGREES[family], omega)
    return omega


def _pass(X, U, W, family, seed, indices, lengthscales, forward, backward, slopes):
    """``(total, back, X_bar)`` in float64: W Phi' (R, N), U Phi (R, 2 n), sum_p g omega_p (N, D), each where it is asked for;
    features are not scaled. See ``fourier_rows.sweep``.
    """
    (N, D), n, dtype = X.shape, len(indices), X.dtype
    total, X_bar = np.zeros((len(W), N if forward else 0)), np.zeros((N if slopes else 0, D))
    if N == 0 or n == 0 or max(len(U), len(W)) == 0:
        return total, np.zeros((len(U), 2 * n if backward else 0)), X_bar
    most = SHARES * get_num_threads()
    panels, width = _even(n, int(np.clip(n // most // rows.GROUP, 2, PANEL // rows.GROUP)) * rows.GROUP, rows.GROUP)
    shares, drawn = min(panels, most), np.resize(indices, panels * width)  # some of them again, with weights 0
    weights = np.zeros((len(W), 2 * drawn.size), dtype)
    weights[:, : 2 * n] = W
    back = np.zeros((len(U), weights.shape[1] if backward else 0))
    turns = np.divide(1 / (2 * np.pi), lengthscales, out=np.empty(D, dtype), casting="same_kind")[:, None]
    features, step = -(-D // 4) * 4, max(1, PASS // D // POINTS) * POINTS
    for first in range(0, N, step):
        here = slice(first, min(N, first + step))
        count = here.stop - first
        tiles, points = _even(count, POINTS, LANES)
        x, u = _tiles(X[here].T, turns, features, tiles, points), _tiles(U[:, here], dtype.type(1), len(U), tiles, points)
        sums = scratch.empty((shares, tiles if forward else 0, len(W), points), np.float64)
        bars = scratch.empty((shares, tiles if slopes else 0, features, points), np.float64)
        spectrum = np.uint64(seed), drawn, draws.DEGREES[family], width
        over_rows(rows.sweep, shares, 2.0 * count * n, *spectrum, x, u, weights, sums, bars, back)
        if forward:
            total[:, here] = _sum(sums).transpose(1, 0, 2).reshape(len(W), -1)[:, :count]
        if slopes:
            X_bar[here] = _sum(bars).transpose(0, 2, 1).reshape(-1, features)[:count, :D]
    return total, back[:, : 2 * n], X_bar


def frequencies(family, seed, indices, D, dtype):
    omega = _draw(family, seed, np.ascontiguousarray(indices, dtype=np.int64), D, np.dtype(dtype))
    return np.ascontiguousarray(omega[:D].T)


def multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    dtype, scale, lines = X.dtype, math.sqrt(variance / num), _lines(w)
    indices = _checked(indices, num)
    spectrum = family, seed, indices, lengthscales
    if transpose:
        _, out, _ = _pass(X, lines, np.zeros((0, 2 * len(indices)), dtype), *spectrum, False, True, False)
    else:
        out, _, _ = _pass(X, np.zeros((0, len(X)), dtype), lines, *spectrum, True, False, False)
    return (scale * out).astype(dtype).reshape(*w.shape[:-1], out.shape[1])


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
    return X_bar, w_bar.astype(dtype).reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar
