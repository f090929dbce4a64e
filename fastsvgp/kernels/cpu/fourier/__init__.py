"""CPU twin of ``fourier``: threads draw frequencies in panels that stay in their caches.

Threads of a sweep share the frequencies, so that each is drawn once, with no hand-over for drawing.
Each panel meets all points. The sums of the shares are then added in a fixed order. Many points
come in passes, so that the sums of all shares stay small. Functions with frequencies or points of
their own are shared as tiles of points, each with all frequencies.
"""

import math

import numpy as np

from ....runtime.num_threads import get_num_threads
from ..common import scratch
from ..common.batching import plain
from ..common.thread_pool import over_rows
from . import philox as draws, sweep as loops

PANEL, TILE = 1536, 32  # bytes of the frequencies of a panel; points of a task of many functions
MANY = 64  # features: beyond them at most 256 frequencies, for products of 32 features
SHARES = 4  # of the frequencies for each thread: whoever is free takes the next one
SCRATCH = 1 << 22  # numbers that a pass over the points keeps: inputs, and sums for each share
KEPT, FEW = 1 << 23, 8  # phases that a sweep may leave to the next one; features that need none
RUN = 3 << 18  # numbers of a run of functions and points: inputs, cotangents, sums


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


def _scale(variance, num):
    """s of features."""
    return math.sqrt(variance / num)


def _turns(X, lengthscales):
    """Inputs whose phases count turns, contiguous."""
    turns = (1 / (2 * np.pi) / np.asarray(lengthscales, float)).astype(X.dtype)
    return np.multiply(X, turns, order="C")


def _zeros(shape):
    sums = scratch.empty(shape, np.float64)
    sums[...] = 0
    return sums


def fourier_frequencies(family, seed, indices, D, dtype):
    indices = _checked(indices, 1 << 63)
    omega = np.empty((-(-D // 4) * 4, len(indices)), np.dtype(dtype))
    given = np.uint64(seed), indices, draws.DEGREES[family], omega
    over_rows(draws.draw, len(indices), 6.0 * omega.size, *given)
    return np.ascontiguousarray(omega[:D].T)


def fourier_multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    W, U, need = (None, _lines(w), "W") if transpose else (_lines(w), None, "out")
    model = family, seed, indices, num, variance, lengthscales
    found = fourier_sweep(X, *model, W, None, U, None, (need,), None)
    out = found[2 if transpose else 0]
    return out.reshape(*w.shape[:-1], out.shape[1])


# --- one function -----------------------------------------------------------------------------


def fourier_sweep(X, family, seed, indices, num, variance, lengthscales, W, v, U, u, need, kept):
    indices, need, scale = _checked(indices, num), {*need}, _scale(variance, num)
    (N, D), n, dtype = X.shape, len(indices), X.dtype
    forward, slopes = bool({"out", "squares"} & need), bool({"X", "lengthscales"} & need)
    backward = bool({"W", "v"} & need) or "variance" in need and not forward
    W, v, U, u = sides = _sides(X, W, v, U, u, n, slopes or "variance" in need)
    frequencies = (
        np.array([seed], np.uint64),
        indices,
        draws.DEGREES[family],
        np.empty((0, n), dtype),
    )
    d = (scale**2 * (v[:, ::2] - v[:, 1::2])).astype(dtype, copy=False)
    total = np.empty((len(W) + len(v) if forward else 0, N))
    X_bar = np.empty((N if slopes else 0, D))
    back = _zeros((len(U) if backward else 0, 2 * n)), _zeros((len(u) if backward else 0, n))
    most = SHARES * get_num_threads()
    widest = min(PANEL // dtype.itemsize, 256 if D > MANY else PANEL)
    width = min(widest, max(1, -(-n // (16 * most))) * 16)
    shares = max(1, min(-(-n // width), most))
    step = max(1, SCRATCH // (D + shares * (len(total) + D * slopes)))
    for first in range(0, N, step):
        here = slice(first, min(N, first + step))
        phases = _phases(kept if N <= step else None, D, n * N, dtype)
        given = W[None], d, np.ascontiguousarray(U[None, :, here]), u[:, here], scale
        x, sums = _turns(X[here], lengthscales)[None], (shares, len(total), *back, slopes)
        parts = _swept(x, frequencies, given, sums, width, here.stop - here.start, phases)
        np.sum(parts[0][:, 0], axis=0, out=total[:, here])
        if slopes:
            np.sum(parts[1][:, 0], axis=0, out=X_bar[here])
    model = variance, lengthscales, scale
    return _results(X, sides, model, need, forward, (total, *back, X_bar))


def _swept(x, frequencies, sides, sums, width, tile, phases):
    """Total (shares, F, lines, N) and slopes (shares, F, N or 0, D) of a sweep."""
    (shares, lines, *back, slopes), (_, N, D), F = sums, x.shape, len(sides[0])
    total, X_bar = _zeros((shares, F, lines, N)), _zeros((shares, F, N if slopes else 0, D))
    tasks, work = shares * F * -(-N // tile), 2.0 * F * N * len(frequencies[1])
    found, plan = (total, *back, X_bar), (width, tile, phases[1])
    sides = *(np.ascontiguousarray(a) for a in sides[:4]), sides[4]
    over_rows(loops.sweep, tasks, work, frequencies, x, sides, found, plan, phases[0])
    return total, X_bar


def _phases(kept, D, size, dtype):
    """``(phases, whether they are computed)``: of ``kept``, or new memory, kept there, or none."""
    if kept is None or D <= FEW or size > KEPT:
        return np.empty(0, dtype), False
    filled = len(kept) > 0 and kept[0].shape == (size,)
    if not filled:
        kept[:] = [scratch.empty((size,), dtype)]
    return kept[0], filled


def _sides(X, W, v, U, u, n, both):
    """The right-hand sides, with a first axis; zeros for missing ones if ``both`` are needed."""
    v, u = (None if a is None else a[None] for a in (v, u))
    (W, U), (v, u) = (_pair(*pair, 2 * n, X, both) for pair in ((W, U), (v, u)))
    return W, v, U, u


def _pair(weights, bars, columns, X, both):
    """Contiguous (R, columns) and (R, N); a missing one has no rows, or zeros if ``both``."""
    R = max(0 if a is None else len(a) for a in (weights, bars)) if both else 0
    return [
        np.zeros((R, size), X.dtype) if a is None else np.ascontiguousarray(a)
        for a, size in ((weights, columns), (bars, len(X)))
    ]


def _results(X, sides, model, need, forward, found):
    """The results of ``fourier_sweep``, of what a pass found."""
    (W, v, U, u), (total, W_bar, cosines, X_bar) = sides, found
    dtype, R, (variance, lengthscales, scale) = X.dtype, len(W), model
    out = total[:R]
    squares = total[R:] + scale**2 * v[:, 1::2].sum(axis=1, keepdims=True, dtype=np.float64)
    v_bar = np.empty((len(cosines), 2 * cosines.shape[1]))
    v_bar[:, ::2] = scale**2 * cosines
    v_bar[:, 1::2] = scale**2 * (u.sum(axis=1, keepdims=True, dtype=np.float64) - cosines)
    variance_bar = lengthscales_bar = None
    if "variance" in need:  # either way: <U, W Phi'> is <W, U Phi>
        linear, quadratic = (U * out, u * squares) if forward else (W * W_bar, v * v_bar)
        variance_bar = dtype.type((0.5 * linear.sum() + quadratic.sum()) / float(variance))
    if X_bar.size:
        X_bar /= np.asarray(lengthscales, float)
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


# --- many functions ---------------------------------------------------------------------------


def fourier_multiply_rows(X, w, family, seeds, num, variance, lengthscales, factors):
    functions = _Functions(X, w, family, seeds, num, variance, lengthscales, factors)
    out = np.empty((*functions.w.shape[:2], X.shape[-2]), X.dtype)
    for some, here in functions.runs():
        out[some, :, here] = functions.sweep(some, here, None)[0]
    return out.reshape(*w.shape[:2], X.shape[-2])


def fourier_multiply_rows_vjp(out_bar, X, w, family, seeds, num, variance, lengthscales, factors):
    functions = _Functions(X, w, family, seeds, num, variance, lengthscales, factors)
    U = out_bar.reshape(*functions.w.shape[:2], X.shape[-2])
    together = len(functions.X) < len(functions.w)
    X_bar = np.zeros(functions.X.shape, float if together else X.dtype)
    for some, here in functions.runs():
        slopes = functions.sweep(some, here, U[some, :, here])[1]
        slopes /= np.asarray(lengthscales, float)
        if together:
            X_bar[0, here] += slopes.sum(0)
        else:
            X_bar[some, here] = slopes
    return X_bar.reshape(X.shape).astype(X.dtype, copy=False)


class _Functions:
    """Functions with right-hand sides of their own: inputs (1 or F, N, D), w (F, R, 2 num).

    Functions that share inputs and frequencies become right-hand sides of one.
    """

    def __init__(self, X, w, family, seeds, num, variance, lengthscales, factors):
        if X.ndim == 2 and np.ndim(seeds) == 0 and (factors is None or np.ndim(factors) == 1):
            w = w.reshape(1, math.prod(w.shape[:2]), w.shape[2])
        self.X, self.w = X if X.ndim == 3 else X[None], np.ascontiguousarray(w)
        self._lengthscales, self._scale = lengthscales, _scale(variance, num)
        self._family, self._seeds = family, np.array(seeds, np.uint64, ndmin=1)
        factors = np.empty((0, num)) if factors is None else np.atleast_2d(factors)
        self._factors = plain(np.asarray(factors, X.dtype))

    def runs(self):
        """Slices of functions and of points; the memory of each pair is bounded."""
        (F, R, _), (N, D) = self.w.shape, self.X.shape[1:]
        if F == 0 or R == 0 or N == 0:
            return
        most = max(1, RUN // (2 * (D + R) * TILE)) * TILE
        step = -(-N // -(-N // most))  # runs of one size reuse their memory
        together = max(1, most // N)
        for f in range(0, F, together):
            for start in range(0, N, step):
                yield slice(f, f + together), slice(start, min(N, start + step))

    def sweep(self, some, here, U):
        """Products (F, R, N) or, with cotangents, slopes (F, N, D) over 1 / lengthscales."""
        own = [a[some] if len(a) > 1 else a for a in (self.X, self._seeds, self._factors)]
        x, w = _turns(own[0][:, here], self._lengthscales), self.w[some]
        F, R, n = len(w), w.shape[1], w.shape[2] // 2
        none = np.empty((0, n), x.dtype), np.empty((0, x.shape[1]), x.dtype)
        frequencies = own[1], np.arange(n), draws.DEGREES[self._family], own[2]
        U_ = np.empty((F, 0, x.shape[1]), x.dtype) if U is None else U
        back = np.empty((0, 2 * n)), np.empty((0, n))
        sums = 1, R if U is None else 0, *back, U is not None
        phases = np.empty(0, x.dtype), False
        sides = w, none[0], U_, none[1], self._scale
        tile = min(TILE, x.shape[1])
        width = PANEL // x.itemsize * max(1, min(8, TILE // (tile * R)))
        total, X_bar = _swept(x, frequencies, sides, sums, width, tile, phases)
        return total[0], X_bar[0]
