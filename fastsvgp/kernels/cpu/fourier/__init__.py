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
from . import philox as draws, sweep_functions as own, sweep_rows as rows

PANEL = 256  # frequencies at most
# bytes of the points of a tile; half of that where there are many features, which then stay in the
# second-level cache
ROW = 2048
SHARES = 4  # of the frequencies for each thread: whoever is free takes the next one
SCRATCH = 1 << 22  # numbers that a pass over the points keeps: inputs, and sums for each share
KEPT = 1 << 23  # phases that a sweep may leave to the next one
RUN = 3 << 18  # numbers of a run of functions and points: inputs, cotangents, sums
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


def _tiles(U, tiles, points, lines=None):
    """U (..., R, N) as (..., tiles, R, points), with zeros for the last points.

    With ``lines``, a number above R, there are more rows of zeros.
    """
    *lead, R, N = U.shape
    lines = R if lines is None else lines
    padded = np.zeros((*lead, lines, tiles * points), U.dtype)
    padded[..., :R, :N] = U
    return np.ascontiguousarray(padded.reshape(*lead, lines, tiles, points).swapaxes(-3, -2))


def _joined(tiled, N):
    """Undo ``_tiles``: (..., tiles, R, points) as (..., R, N)."""
    *lead, tiles, R, points = tiled.shape
    return tiled.swapaxes(-3, -2).reshape(*lead, R, tiles * points)[..., :N]


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
    turns = _turns(spectrum.lengthscales, D, dtype)
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


def _turns(lengthscales, D, dtype):
    """Factors (D,) of inputs whose phases count turns."""
    turns = np.empty(D, dtype)
    return np.divide(1 / (2 * np.pi), lengthscales, out=turns, casting="same_kind")


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
    needed = {*need, "out" if transpose else "W"} if {"w", "variance"} & {*need} else need
    model = family, seed, indices, num, variance, lengthscales
    out, _, W_bar, _, X_bar, variance_bar, lengthscales_bar = fourier_sweep(
        X, W, None, U, None, *model, needed, None
    )
    w_bar = out if transpose else W_bar
    return X_bar, w_bar.reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar


def fourier_sweep(X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept):
    indices = _checked(indices, num)
    spectrum = Spectrum(family, seed, indices, num, variance, lengthscales)
    return _sweep(X, (W, v, U, u), spectrum, {*need}, kept)


def fourier_multiply_rows(X, w, family, seeds, num, variance, lengthscales, factors):
    functions = _Functions(X, w, family, seeds, num, lengthscales, factors)
    out = np.empty((*functions.w.shape[:2], X.shape[-2]), X.dtype)
    for some, here in functions.runs():
        total, _ = functions.sweep(some, here, None)
        total *= np.sqrt(float(variance) / num)
        out[some, :, here] = total
    return out.reshape(*w.shape[:2], X.shape[-2])


def fourier_multiply_rows_vjp(out_bar, X, w, family, seeds, num, variance, lengthscales, factors):
    functions = _Functions(X, w, family, seeds, num, lengthscales, factors)
    U = out_bar.reshape(*functions.w.shape[:2], X.shape[-2])
    scale, together = np.sqrt(float(variance) / num), len(functions.X) < len(functions.w)
    X_bar = np.zeros(functions.X.shape, float if together else X.dtype)
    for some, here in functions.runs():
        _, slopes = functions.sweep(some, here, U[some, :, here])
        slopes *= scale / np.asarray(lengthscales, float)
        if together:
            X_bar[0, here] += slopes.sum(0)
        else:
            X_bar[some, here] = slopes
    return X_bar.reshape(X.shape).astype(X.dtype, copy=False)


class _Functions:
    """Functions with right-hand sides of their own: inputs (1 or F, N, D), w (F, R, 2 num).

    Functions that share inputs and frequencies become right-hand sides of one.
    """

    def __init__(self, X, w, family, seeds, num, lengthscales, factors):
        if X.ndim == 2 and np.ndim(seeds) == 0 and (factors is None or np.ndim(factors) == 1):
            w = w.reshape(1, math.prod(w.shape[:2]), w.shape[2])
        self.X, self.w = X if X.ndim == 3 else X[None], np.ascontiguousarray(w)
        D, dtype = X.shape[-1], X.dtype
        panels, width = _even(num, PANEL, rows.GROUP)
        indices = np.resize(np.arange(num), panels * width)
        factors = np.empty((0, num), dtype) if factors is None else np.atleast_2d(factors)
        seeds = np.atleast_1d(np.asarray(seeds, np.uint64))
        factors = np.ascontiguousarray(factors[:, indices], dtype)
        degrees = draws.DEGREES[family]
        self._spectra = own.Spectra(seeds, indices, degrees, width, factors)
        self._turns, self._features = _turns(lengthscales, D, dtype), -(-D // 4) * 4
        self._most = own.TILE[D > rows.LOOPS or self.w.shape[1] >= rows.MANY]

    def runs(self):
        """Slices of functions and of points; the memory of each pair is bounded."""
        (F, R, _), N = self.w.shape, self.X.shape[1]
        if F == 0 or R == 0 or N == 0:
            return
        most = max(1, RUN // (2 * (self._features + R) * self._most)) * self._most
        _, step = _even(N, most, self._most)  # runs of one size reuse their memory
        _, together = _even(F, max(1, most // N), 1)
        for f in range(0, F, together):
            for start in range(0, N, step):
                yield slice(f, f + together), slice(start, start + step)

    def sweep(self, some, here, U):
        """Products (F, R, N) over s or, with cotangents, slopes (F, N, D) over s / lengthscales."""
        inputs = self.X[slice(0, 1) if len(self.X) == 1 else some, here]
        w, (_, N, D) = self.w[some], inputs.shape
        (F, R, n), dtype, n = w.shape, inputs.dtype, w.shape[2] // 2
        tiles, points = _even(N, self._most, 1)
        x = _tiles((inputs * self._turns).swapaxes(1, 2), tiles, points, self._features)
        spectra = self._spectra
        if len(spectra.seeds) > 1:
            spectra = spectra._replace(seeds=spectra.seeds[some])
        if len(spectra.factors) > 1:
            spectra = spectra._replace(factors=spectra.factors[some])
        lines, features = (R, 0) if U is None else (0, self._features)
        U = np.empty((F, tiles, 0, points), dtype) if U is None else _tiles(U, tiles, points)
        total = scratch.empty((F, tiles, lines, points), np.float64)
        X_bar = scratch.empty((F, tiles, features, points), np.float64)
        given = tuple(spectra), x, N, w, U, total, X_bar
        over_rows(own.sweep_functions, F * tiles, 2.0 * F * N * n, *given)
        return _joined(total, N), _joined(X_bar, N)[:, :D].swapaxes(1, 2)


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
