"""CPU twin of ``fourier``: each thread draws frequencies in panels that stay in its cache, and each panel meets all points.

Threads share out the frequencies, so each is drawn once and drawing needs no hand-over of its own;
what the shares add up to is then summed in a fixed order. With many points they come in passes, so
that the sums of all shares stay small.
"""

import math

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
    over_rows(
        draws.draw,
        len(indices),
        6.0 * omega.size,
        np.uint64(seed),
        indices,
        draws.DEGREES[family],
        omega,
    )
    return omega


def _pass(
    X, W, v, U, u, family, seed, indices, lengthscales, scale, total, back, cosines, X_bar, kept
):
    """Fill ``total (N, R + S)``, ``back (R, 2 n)``, ``cosines (S, n)`` and ``X_bar (N, D)``, float64: see ``fourier_rows.sweep``.

    What is of size 0 is not wanted.
    """
    (N, D), n, dtype = X.shape, len(indices), X.dtype
    back[...] = 0
    if N == 0 or n == 0:
        total[...], X_bar[...] = 0, 0
        return
    most = SHARES * get_num_threads()
    panels, width = _even(
        n, min(PANEL, rows.GROUP * max(2, -(-n // (most * rows.GROUP)))), rows.GROUP
    )
    # some of them again, with weights 0
    shares, drawn = min(panels, most), np.resize(indices, panels * width)
    turns = np.divide(1 / (2 * np.pi), lengthscales, out=np.empty(D, dtype), casting="same_kind")
    features, forward, slopes = -(-D // 4) * 4, total.size > 0, X_bar.size > 0
    tile = (ROW if D <= rows.LOOPS else ROW // 2) // dtype.itemsize
    numbers = features + shares * (total.shape[1] * forward + features * slopes)  # for each point
    step = max(1, SCRATCH // (numbers * tile)) * tile
    for first in range(0, N, step):
        here = slice(first, min(N, first + step))
        count = here.stop - first
        tiles, points = _even(count, tile, LANES)
        phases, filled = _phases(
            kept if N <= step else None, D, (panels, tiles, width, points), dtype
        )
        x = scratch.empty((tiles, features, points), dtype)
        over_rows(rows.turn, tiles, float(x.size), np.ascontiguousarray(X[here]), turns, x)
        sides = W, v, _tiles(U[:, here], tiles, points), _tiles(u[:, here], tiles, points)
        sums = scratch.empty((shares, tiles if forward else 0, total.shape[1], points), np.float64)
        bars = scratch.empty((shares, tiles if slopes else 0, features, points), np.float64)
        spectrum = np.uint64(seed), drawn, draws.DEGREES[family], width
        found = sums, back, cosines, bars, phases, filled
        over_rows(rows.sweep, shares, 2.0 * count * n, *spectrum, x, *sides, scale, *found)
        if forward:
            over_rows(rows.finish, tiles, float(sums.size), sums, total[here])
        if slopes:
            over_rows(rows.finish, tiles, float(bars.size), bars, X_bar[here])


def _phases(kept, D, shape, dtype):
    """``(phases, whether they are there)``: those that ``kept`` holds, or memory for them, which it then holds, or none."""
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
    """The sum of U * (W Phi') is what changes, with U = out_bar and W = w, or the other way round with ``transpose``."""
    U, W = (_lines(w), _lines(out_bar)) if transpose else (_lines(out_bar), _lines(w))
    asked = {*need, "out" if transpose else "W"} if {"w", "variance"} & {*need} else need
    model = family, seed, indices, num, variance, lengthscales
    out, _, W_bar, _, X_bar, variance_bar, lengthscales_bar = fourier_sweep(
        X, W, None, U, None, *model, asked, None
    )
    w_bar = out if transpose else W_bar
    return X_bar, w_bar.reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar


def fourier_sweep(X, W, v, U, u, family, seed, indices, num, variance, lengthscales, need, kept):
    dtype, scale, indices = X.dtype, math.sqrt(variance / num), _checked(indices, num)
    (N, D), n, need = X.shape, len(indices), {*need}
    forward, slopes = bool({"out", "squares"} & need), bool({"X", "lengthscales"} & need)
    backward, both = (
        bool({"W", "v"} & need) or "variance" in need and not forward,
        slopes or "variance" in need,
    )
    W, U = _pair(W, U, 2 * n, N, dtype, both)
    v, u = _pair(
        None if v is None else v[None], None if u is None else u[None], 2 * n, N, dtype, both
    )
    R = len(W)
    total = scratch.empty((N, R + len(v) if forward else 0), np.float64)
    W_bar, cosines = (
        scratch.empty((len(U) if backward else 0, 2 * n), np.float64),
        np.zeros((len(u) if backward else 0, n)),
    )
    X_bar = scratch.empty((N if slopes else 0, D), np.float64)
    _pass(
        X,
        W,
        v,
        U,
        u,
        family,
        seed,
        indices,
        lengthscales,
        scale,
        total,
        W_bar,
        cosines,
        X_bar,
        kept,
    )
    total *= scale
    out, squares = (
        total.T[:R],
        total.T[R:] + scale**2 * v[:, 1::2].sum(axis=1, keepdims=True, dtype=np.float64),
    )
    v_bar = np.empty((len(cosines), 2 * n))
    v_bar[:, ::2] = cosines
    v_bar[:, 1::2] = scale**2 * u.sum(axis=1, keepdims=True, dtype=np.float64) - cosines
    variance_bar = lengthscales_bar = None
    if "variance" in need:  # either way: <U, W Phi'> is <W, U Phi>
        linear, quadratic = (U * out, u * squares) if forward else (W * W_bar, v * v_bar)
        variance_bar = dtype.type((0.5 * linear.sum() + quadratic.sum()) / float(variance))
    if slopes:
        X_bar *= scale / np.asarray(lengthscales, float)
    if "lengthscales" in need:
        lengthscales_bar = -(X_bar * X).sum(0) / lengthscales
        lengthscales_bar = (
            dtype.type(lengthscales_bar.sum())
            if np.ndim(lengthscales) == 0
            else lengthscales_bar.astype(dtype)
        )
    parts = {"out": out, "squares": squares, "W": W_bar, "v": v_bar, "X": X_bar}
    out, squares, W_bar, v_bar, X_bar = (
        part.astype(dtype, order="C", copy=False) if name in need else None
        for name, part in parts.items()
    )
    squares, v_bar = (None if part is None else part[0] for part in (squares, v_bar))
    return out, squares, W_bar, v_bar, X_bar, variance_bar, lengthscales_bar


def _pair(weights, bars, columns, points, dtype, both):
    """Contiguous (R, columns) and (R, points); what is not there has no rows, or zeros where both are wanted."""
    R = max(0 if a is None else len(a) for a in (weights, bars)) if both else 0
    return [
        np.zeros((R, size), dtype) if a is None else np.ascontiguousarray(a)
        for a, size in ((weights, columns), (bars, points))
    ]
