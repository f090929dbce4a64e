"""CPU twin of ``fourier``: threads draw frequencies in panels that stay in their caches.

Threads share the frequencies, so that each is drawn once, with no hand-over for drawing. Each panel
meets all points. The sums of the shares are then added in a fixed order. Many points come in
passes, so that the sums of all shares stay small.
"""

import math
from typing import Any, NamedTuple

import numpy as np

from ....runtime.num_threads import get_num_threads
from ..common import scratch
from ..common.thread_pool import over_rows
from . import philox as draws, sweep_rows as rows

PANEL = 256  # frequencies at most
# bytes of the points of a tile; half of that where there are many features, which then stay in the
# second-level cache
ROW = 2048
SHARES = 4  # of the frequencies for each thread: whoever is free takes the next one
SCRATCH = 1 << 22  # numbers that a pass over the points keeps: inputs, and sums for each share
KEPT = 1 << 23  # phases that a sweep may leave to the next one
LANES = 16  # tiles are whole vectors


def _checked(indices, num):
    indices = np.ascontiguousarray(indices, dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= num):
        wrong = indices[(indices < 0) | (indices >= num)][0]
        raise IndexError(
            f"`indices` holds {wrong}, but there are {num} frequencies (0 to {num - 1})"
        )
    return indices


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _even(total, most, multiple):
    """(count, size) of the fewest equal pieces that hold ``total``, ``most`` or fewer in each.

    The size is rounded up to a multiple of ``multiple``.
    """
    count = -(-total // most)
    return count, -(-total // (count * multiple)) * multiple


def _tiles(U, tiles, points):
    """U (R, N) as (tiles, R, points), with zeros for the last points."""
    padded = np.zeros((len(U), tiles * points), U.dtype)
    padded[:, : U.shape[1]] = U
    return np.ascontiguousarray(padded.reshape(len(U), tiles, points).transpose(1, 0, 2))


class Spectrum(NamedTuple):
    """Frequencies of a model, and its covariance."""

    family: str
    seed: int
    indices: Any
    num: int
    variance: Any
    lengthscales: Any

    def scale(self):
        """s of features."""
        return math.sqrt(self.variance / self.num)


def _draw(family, seed, indices, D, dtype):
    omega = np.empty((-(-D // 4) * 4, len(indices)), dtype)
    given = np.uint64(seed), indices, draws.DEGREES[family], omega
    over_rows(draws.draw, len(indices), 6.0 * omega.size, *given)
    return omega


def _pass(X, sides, spectrum, found, kept):
    """Fill ``found``: total (N, R + S), back (R, 2 n), squares_back (S, n) and X_bar (N, D).

    See ``sweep_rows.Found``: those of size 0 are not wanted. ``sides`` are those of all points.
    """
    (N, D), n, dtype = X.shape, len(spectrum.indices), X.dtype
    found.back[...] = 0
    if N == 0 or n == 0:
        found.total[...], found.X_bar[...] = 0, 0
        return
    most = SHARES * get_num_threads()
    panels, width = _even(
        n, min(PANEL, rows.GROUP * max(2, -(-n // (most * rows.GROUP)))), rows.GROUP
    )
    # some of them again, with weights 0
    shares, drawn = min(panels, most), np.resize(spectrum.indices, panels * width)
    degrees = draws.DEGREES[spectrum.family]
    frequencies = rows.Frequencies(np.uint64(spectrum.seed), drawn, degrees, width)
    turns = np.empty(D, dtype)
    np.divide(1 / (2 * np.pi), spectrum.lengthscales, out=turns, casting="same_kind")
    features, lines = -(-D // 4) * 4, found.total.shape[1]
    forward, slopes = found.total.size > 0, found.X_bar.size > 0
    tile = (ROW if D <= rows.LOOPS else ROW // 2) // dtype.itemsize
    numbers = features + shares * (lines * forward + features * slopes)  # per point
    step = max(1, SCRATCH // (numbers * tile)) * tile
    for first in range(0, N, step):
        here = slice(first, min(N, first + step))
        count = here.stop - first
        tiles, points = _even(count, tile, LANES)
        phases = _phases(kept if N <= step else None, D, (panels, tiles, width, points), dtype)
        x = scratch.empty((tiles, features, points), dtype)
        over_rows(rows.turn, tiles, float(x.size), np.ascontiguousarray(X[here]), turns, x)
        bars = (_tiles(bar[:, here], tiles, points) for bar in (sides.U, sides.u))
        tiled = rows.Sides(sides.W, sides.v, *bars, sides.scale)
        sums = scratch.empty((shares, tiles if forward else 0, lines, points), np.float64)
        slope = scratch.empty((shares, tiles if slopes else 0, features, points), np.float64)
        parts = rows.Found(sums, found.back, found.squares_back, slope)
        given = tuple(frequencies), x, tuple(tiled), tuple(parts)
        over_rows(rows.sweep, shares, 2.0 * count * n, *given, *phases)
        if forward:
            over_rows(rows.finish, tiles, float(sums.size), sums, found.total[here])
        if slopes:
            over_rows(rows.finish, tiles, float(slope.size), slope, found.X_bar[here])


def _phases(kept, D, shape, dtype):
    """``(phases, whether they are computed)``: of ``kept``, or new memory, kept there, or none."""
    if kept is None or D <= rows.LOOPS or math.prod(shape) > KEPT:
        return np.empty((0, 0, 0, 0), dtype), False
    filled = len(kept) > 0 and kept[0].shape == shape
    if not filled:
        kept[:] = [scratch.empty(shape, dtype)]
    return kept[0], filled


def fourier_frequencies(family, seed, indices, D, dtype):
    omega = _draw(family, seed, _checked(indices, 1 << 63), D, np.dtype(dtype))
    return np.ascontiguousarray(omega[:D].T)


def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    W, U, need = (None, _lines(w), "W") if transpose else (_lines(w), None, "out")
    found = fourier_sweep(
        X, W, None, U, None, family, seed, indices, num, variance, lengthscales, (need,), None
    )
    out = found[2 if transpose else 0]
    return out.reshape(*w.shape[:-1], out.shape[1])


def fourier_multiply_vjp(
    out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need
):
    """Cotangents of sum(U * (W Phi')): U = out_bar, W = w, or with ``transpose`` the reverse."""
    U, W = (_lines(w), _lines(out_bar)) if transpose else (_lines(out_bar), _lines(w))
    asked = {*need, "out" if transpose else "W"} if {"w", "variance"} & {*need} else need
    model = family, seed, indices, num, variance, lengthscales
    out, _, W_bar, _, X_bar, variance_bar, lengthscales_bar = fourier_sweep(
        X, W, None, U, None, *model, asked, None
    )
    w_bar = out if transpose else W_bar
    return X_bar, w_bar.reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar


def fourier_sweep(X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept):
    indices = _checked(indices, num)
    spectrum = Spectrum(family, seed, indices, num, variance, lengthscales)
    return _sweep(X, (W, v, U, u), spectrum, {*need}, kept)


def _sweep(X, given, spectrum, need, kept):
    (N, D), n, scale = X.shape, len(spectrum.indices), spectrum.scale()
    forward, slopes = bool({"out", "squares"} & need), bool({"X", "lengthscales"} & need)
    backward = bool({"W", "v"} & need) or "variance" in need and not forward
    sides = _sides(X, given, n, scale, slopes or "variance" in need)
    (R, S), lines = (len(sides.W), len(sides.v)), len(sides.U) if backward else 0
    found = rows.Found(
        scratch.empty((N, R + S if forward else 0), np.float64),
        scratch.empty((lines, 2 * n), np.float64),
        np.zeros((len(sides.u) if backward else 0, n)),
        scratch.empty((N if slopes else 0, D), np.float64),
    )
    _pass(X, sides, spectrum, found, kept)
    return _results(X, sides, spectrum, need, forward, found)


def _sides(X, given, n, scale, both):
    """The right-hand sides of ``fourier_sweep``; zeros for missing ones if ``both`` are needed."""
    W, v, U, u = given
    v, u = (None if a is None else a[None] for a in (v, u))
    W, U = _pair(W, U, 2 * n, len(X), X.dtype, both)
    v, u = _pair(v, u, 2 * n, len(X), X.dtype, both)
    return rows.Sides(W, v, U, u, scale)


def _results(X, sides, spectrum, need, forward, found):
    """The results of ``fourier_sweep``, of what a pass found."""
    (W, v, U, u, scale), (total, W_bar, cosines, X_bar) = sides, found
    dtype, variance, lengthscales, R = X.dtype, spectrum.variance, spectrum.lengthscales, len(W)
    total *= scale
    out, squares = (
        total.T[:R],
        total.T[R:] + scale**2 * v[:, 1::2].sum(axis=1, keepdims=True, dtype=np.float64),
    )
    v_bar = np.empty((len(cosines), 2 * cosines.shape[1]))
    v_bar[:, ::2] = cosines
    v_bar[:, 1::2] = scale**2 * u.sum(axis=1, keepdims=True, dtype=np.float64) - cosines
    variance_bar = lengthscales_bar = None
    if "variance" in need:  # either way: <U, W Phi'> is <W, U Phi>
        linear, quadratic = (U * out, u * squares) if forward else (W * W_bar, v * v_bar)
        variance_bar = dtype.type((0.5 * linear.sum() + quadratic.sum()) / float(variance))
    if X_bar.size:
        X_bar *= scale / np.asarray(lengthscales, float)
    if "lengthscales" in need:
        bar = -(X_bar * X).sum(0) / lengthscales
        alike = np.ndim(lengthscales) == 0
        lengthscales_bar = dtype.type(bar.sum()) if alike else bar.astype(dtype)
    parts = {"out": out, "squares": squares, "W": W_bar, "v": v_bar, "X": X_bar}
    out, squares, W_bar, v_bar, X_bar = (
        part.astype(dtype, order="C", copy=False) if name in need else None
        for name, part in parts.items()
    )
    squares, v_bar = (None if part is None else part[0] for part in (squares, v_bar))
    return out, squares, W_bar, v_bar, X_bar, variance_bar, lengthscales_bar


def _pair(weights, bars, columns, points, dtype, both):
    """Contiguous (R, columns) and (R, points); a missing one has no rows, or zeros if ``both``."""
    R = max(0 if a is None else len(a) for a in (weights, bars)) if both else 0
    return [
        np.zeros((R, size), dtype) if a is None else np.ascontiguousarray(a)
        for a, size in ((weights, columns), (bars, points))
    ]
