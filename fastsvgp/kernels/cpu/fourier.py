"""CPU twin of ``fourier``: frequencies are drawn in runs that stay in the cache, and each run meets all points at once.

Threads share out the frequencies, so each is drawn once. With few features the loops make the phases; with many, a matrix product
does for a tile that stays in the cache (and the same for the contraction with the frequencies in the reverse rule).
"""

import math

import numpy as np
from scipy.linalg import blas

from . import fourier_rows as rows
from . import frequencies as draws
from . import scratch
from .threads import over_rows

LOOPS_BELOW = 20  # features; from here on the matrix product is the faster one
RUN, POINTS = 4096, 1 << 16  # frequencies and points of a run with few features
TILE, TILE_POINTS = 1 << 18, 2048  # phases of a tile with many features, and points
_none = {np.dtype(t): np.empty((0, 0), t) for t in (np.float64, np.float32)}


def _checked(indices, num):
    indices = np.ascontiguousarray(indices, dtype=np.int64)
    if indices.size and (indices.min() < 0 or indices.max() >= num):
        wrong = indices[(indices < 0) | (indices >= num)][0]
        raise IndexError(f"`indices` holds {wrong}, but there are {num} frequencies (0 to {num - 1})")
    return indices


def _lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return np.ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def _whole_groups(indices, weights, scale):
    """Indices and scaled weights with up to three more of weight 0: loops take whole groups."""
    n = -(-len(indices) // rows.GROUP) * rows.GROUP
    padded = np.zeros((len(weights), 2 * n), weights.dtype)
    np.multiply(weights, scale, out=padded[:, : weights.shape[1]], casting="same_kind")
    return np.resize(indices, n), padded


def _draw(family, seed, indices, D, dtype):
    omega = np.empty((-(-D // 4) * 4, len(indices)), dtype)
    work = 6.0 * omega.size
    over_rows(draws.draw, len(indices), work, np.uint64(seed), indices, draws.DEGREES[family], omega)
    return omega


def _pass(X, U, W, family, seed, indices, lengthscales, forward, backward, slopes):
    """``(total, back, X_bar)`` in float64: W Phi' (R, N), U Phi (R, 2 n), sum_p omega_p g (D, N), each where it is asked for;
    features are not scaled. See ``fourier_rows.sweep``.
    """
    (N, D), n, dtype = X.shape, len(indices), X.dtype
    total, back = np.zeros((len(W), N if forward else 0)), np.zeros((len(U), 2 * n if backward else 0))
    X_bar = np.zeros((D, N if slopes else 0))
    turns = np.divide(1 / (2 * np.pi), lengthscales, out=np.empty(D, dtype), casting="same_kind")[:, None]
    tiled, gemm = D >= LOOPS_BELOW, blas.dgemm if dtype == np.float64 else blas.sgemm
    for first in range(0, N, TILE_POINTS if tiled else POINTS):
        points = slice(first, min(N, first + (TILE_POINTS if tiled else POINTS)))
        x, u = np.multiply(X[points].T, turns, order="C"), np.ascontiguousarray(U[:, points])
        run = max(rows.GROUP, TILE // x.shape[1] // rows.GROUP * rows.GROUP) if tiled else RUN
        for start in range(0, n, run):
            here = slice(start, min(n, start + run))
            both = slice(2 * here.start, 2 * here.stop)
            omega, theta = _draw(family, seed, indices[here], D, dtype), _none[dtype]
            if tiled:
                theta = scratch.empty((omega.shape[1], x.shape[1]), dtype)
                gemm(1, x.T, omega[:D].T, trans_b=1, c=theta.T, overwrite_c=1)
            sums = np.zeros((len(back), 2 * omega.shape[1]))
            flags = forward, backward, slopes
            arguments = omega, x, theta, u, np.ascontiguousarray(W[:, both]), *flags, sums
            work = theta.size if tiled else omega.shape[1] * x.shape[1]
            parts = over_rows(rows.sweep, omega.shape[1] // rows.GROUP, 2.0 * work, *arguments)
            if backward:
                back[:, both] += sums
            if forward:
                total[:, points] += sum(part[0] for part in parts)
            if slopes and tiled:
                X_bar[:, points] += gemm(1, theta.T, omega[:D].T).T
            elif slopes:
                X_bar[:, points] += sum(part[1] for part in parts)
    return total, back, X_bar


def frequencies(family, seed, indices, D, dtype):
    omega = _draw(family, seed, np.ascontiguousarray(indices, dtype=np.int64), D, np.dtype(dtype))
    return np.ascontiguousarray(omega[:D].T)


def multiply(X, w, family, seed, indices, num, variance, lengthscales, transpose):
    dtype, scale, lines = X.dtype, math.sqrt(variance / num), _lines(w)
    indices = _checked(indices, num)
    if transpose:
        n = 2 * len(indices)
        groups, weights = _whole_groups(indices, np.zeros((0, n), dtype), scale)
        _, out, _ = _pass(X, lines, weights, family, seed, groups, lengthscales, False, True, False)
        out = scale * out[:, :n]
    else:
        groups, weights = _whole_groups(indices, lines, scale)
        unused = np.zeros((0, len(X)), dtype)
        out, _, _ = _pass(X, unused, weights, family, seed, groups, lengthscales, True, False, False)
    return out.astype(dtype).reshape(*w.shape[:-1], out.shape[1])


def multiply_vjp(out_bar, X, w, family, seed, indices, num, variance, lengthscales, transpose, need):
    """The sum of U * (W Phi') is what changes, with U = out_bar and W = w, or the other way round with ``transpose``."""
    dtype, scale = X.dtype, math.sqrt(variance / num)
    U, W = (_lines(w), _lines(out_bar)) if transpose else (_lines(out_bar), _lines(w))
    n, (groups, weights) = W.shape[1], _whole_groups(_checked(indices, num), W, scale)
    linear, slopes = bool({"w", "variance"} & {*need}), bool({"X", "lengthscales"} & {*need})
    flags = transpose and linear, not transpose and linear, slopes
    total, back, turned = _pass(X, U, weights, family, seed, groups, lengthscales, *flags)
    X_bar = w_bar = variance_bar = lengthscales_bar = None
    if linear:
        w_bar = total if transpose else scale * back[:, :n]
    if slopes:
        turned /= np.asarray(lengthscales, float)[..., None]
    if "lengthscales" in need:
        lengthscales_bar = -(turned * X.T).sum(1) / lengthscales
        lengthscales_bar = dtype.type(lengthscales_bar.sum()) if np.ndim(lengthscales) == 0 else lengthscales_bar.astype(dtype)
    if "X" in need:
        X_bar = turned.T.astype(dtype, order="C")
    if "variance" in need:
        variance_bar = dtype.type((w_bar * (U if transpose else W)).sum() / (2 * float(variance)))
    return X_bar, w_bar.astype(dtype).reshape(w.shape) if "w" in need else None, variance_bar, lengthscales_bar
