"""Products with random Fourier features of many functions, each with right-hand sides of its own.

Functions can have few points each, which would not fill vectors. So the loops run over the
frequencies of a panel, for one point after the other.

A task is a tile of points of one function. Panels are the outer loop, so that the tasks of a thread
share the draw of a panel if their frequencies are the same. The sums of a point do not depend on
the division of tasks among threads.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common import blas
from ..common.compiled import kernel, njit
from .fours import FAST
from .philox import draw
from .sweep_rows import LOOPS, MANY, SERIAL, gather, move, phases_of, product, turned, waves

TILE = 16, 32  # the most points of a tile: without products of matrices, and with them


class Spectra(NamedTuple):
    """Frequencies of all functions, or of each: see ``philox.draw``."""

    seeds: Any  # (1,) or (F,)
    indices: Any  # (panels width,), some of them again at the end
    degrees: Any
    width: Any  # frequencies of a panel
    factors: Any  # (0, ...), (1, ...) or (F, panels width): of the frequencies


class _Memory(NamedTuple):
    """A panel of P frequencies, and arrays of a tile of B points."""

    omega: Any  # (D, P)
    a: Any  # (R, P) weights of cosines
    b: Any  # (R, P) weights of sines
    none: Any  # (P,) weights of squares
    theta: Any  # (B, P) phases, then derivatives in them
    c: Any  # (B, P)
    s: Any  # (B, P)
    of_c: Any  # (B, P) weighted cotangents of cosines, with many right-hand sides
    of_s: Any  # (B, P)
    sums: Any  # (R, B)
    part: Any  # (D, B)


@njit(forceinline=True)
def _memory(D, width, R, points, like):
    dtype, many = like.dtype, R >= MANY
    return _Memory(
        np.empty((D, width), dtype),
        np.empty((R, width), dtype),
        np.empty((R, width), dtype),
        np.empty(width, dtype),
        np.empty((points, width), dtype),
        np.empty((points, width), dtype),
        np.empty((points, width), dtype),
        np.zeros((points if many else 0, width), dtype),
        np.zeros((points if many else 0, width), dtype),
        np.zeros((R if many else 0, points), dtype),
        np.empty((D, points), dtype),
    )


@njit(fastmath=FAST)
def _stretch(omega, factors):
    """omega (D, P) *= factors (P,)."""
    for d in range(omega.shape[0]):
        row = omega[d]
        for p in range(row.size):
            row[p] *= factors[p]


@njit(fastmath=FAST)
def _sum(a, b, c, s):
    """The sum of a cos + b sin."""
    total = c.dtype.type(0)
    for p in range(c.size):
        total += a[p] * c[p] + b[p] * s[p]
    return total


@njit(fastmath=FAST)
def _slopes(U, i, a, b, c, s, g):
    """g = sum_r U[r, i] (b[r] cos - a[r] sin) of point i."""
    g[:] = 0
    for r in range(U.shape[0]):
        u, ar, br = U[r, i], a[r], b[r]
        for p in range(g.size):
            g[p] += u * (br[p] * c[p] - ar[p] * s[p])


@njit(fastmath=FAST)
def _contract(omega, g, part, X_bar):
    """X_bar (D, B) += omega (D, P) g' for g (n, P), n at most B; the sums are in float64."""
    if omega.shape[0] > LOOPS:
        step = SERIAL // g.size
        for d in range(0, omega.shape[0], step):
            blas.gemm(omega[d : d + step], g, part[d : d + step], blas.N, blas.T, 1.0, 0.0)
        move(part, X_bar)
        return
    for i in range(g.shape[0]):
        row = g[i]
        for d in range(0, omega.shape[0], 4):
            w0, w1, w2, w3 = omega[d], omega[d + 1], omega[d + 2], omega[d + 3]
            t0 = t1 = t2 = t3 = g.dtype.type(0)
            for p in range(row.size):
                t0 += w0[p] * row[p]
                t1 += w1[p] * row[p]
                t2 += w2[p] * row[p]
                t3 += w3[p] * row[p]
            X_bar[d, i] += t0
            X_bar[d + 1, i] += t1
            X_bar[d + 2, i] += t2
            X_bar[d + 3, i] += t3


@njit(fastmath=FAST, forceinline=True)
def _meet(x, count, U, panel, total, X_bar):
    """A panel of frequencies at the points x (D, B) of a tile; the last ones can be padding."""
    many, slopes = len(panel.sums) > 0, X_bar.size > 0
    n = x.shape[1] if many or x.shape[0] > LOOPS else count  # products take whole tiles
    theta, c, s = panel.theta[:n], panel.c[:n], panel.s[:n]
    phases_of(x, panel.omega, theta)
    waves(theta, c, s)
    if many:
        if total.size:
            product(panel.a, c, panel.sums, blas.N, blas.T)
            product(panel.b, s, panel.sums, blas.N, blas.T)
            move(panel.sums, total)
        if slopes:
            product(U, panel.a, panel.of_s, blas.T, blas.N)
            product(U, panel.b, panel.of_c, blas.T, blas.N)
            turned(panel.of_s, panel.of_c, c, s, theta)
    else:
        for i in range(n):
            for r in range(len(total)):
                total[r, i] += _sum(panel.a[r], panel.b[r], c[i], s[i])
            if slopes:
                _slopes(U, i, panel.a, panel.b, c[i], s[i], theta[i])
    if slopes:
        _contract(panel.omega, theta, panel.part, X_bar)


@kernel("i i (U1 I1 i i R2) R4 i R3 R4 X4 X4", fastmath=FAST)
def sweep_functions(start, stop, spectra, x, count, W, U, total, X_bar):
    """Tasks start ... stop: task f tiles + t is tile t of function f.

    Parameters
    ----------
    spectra : fields of ``Spectra``
    x : (1 or F, tiles, D, points)
        Inputs in turns, padded at the end; D is a multiple of four.
    count : int
        Points of each function.
    W : (F, R, 2 n)
    U : (F, tiles, R, points)
        Cotangents; R = 0 if no slopes are wanted.
    total : (F, tiles, R, points), or R = 0
        Overwritten by W Phi' / s, in float64.
    X_bar : (F, tiles, D, points), or D = 0
        Overwritten by sum_p omega_p g_p / s, in float64.
    """
    spectra, (_, tiles, D, points) = Spectra(*spectra), x.shape
    width, seeds, factors = spectra.width, spectra.seeds, spectra.factors
    panel, no_v = _memory(D, width, W.shape[1], points, x), np.empty((0, W.shape[2]), x.dtype)
    for task in range(start, stop):
        total[task // tiles, task % tiles] = 0
        X_bar[task // tiles, task % tiles] = 0
    for first in range(0, spectra.indices.size, width):
        indices, last = spectra.indices[first : first + width], -1
        for task in range(start, stop):
            f, tile = task // tiles, task % tiles
            if last < 0 or f != last and max(seeds.size, len(factors)) > 1:
                draw(0, width, seeds[f % seeds.size], indices, spectra.degrees, panel.omega)
                if factors.size:
                    _stretch(panel.omega, factors[f % len(factors), first : first + width])
            if f != last:
                gather(W[f], no_v, 1.0, first, panel.a, panel.b, panel.none)
            last, here = f, min(points, count - tile * points)
            _meet(x[f % len(x), tile], here, U[f, tile], panel, total[f, tile], X_bar[f, tile])
