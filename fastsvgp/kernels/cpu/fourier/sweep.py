"""The loop of random Fourier features: panels of frequencies meet blocks of points in the cache.

A block of points is a matrix of phases theta, counted in turns, with the frequencies of the panel
along its rows. Its cosines and sines are one matrix, [cos | sin]. Phases, sums forward and back,
and slopes are products of such small matrices, at most 2^18 multiply-adds each: OpenBLAS does them
in the calling thread, and never wakes its own threads, which would spin against ours. With few
points or right-hand sides these products still take less time than loops, except for slopes.

Sums over a panel or a block are in the dtype of the inputs, sums of them in float64.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common import blas
from ..common.compiled import FAST, kernel, njit
from ..common.elementwise import cos_sin
from .philox import draw

BLOCK = 32  # points
SERIAL = 1 << 18  # multiply-adds of a product
FEW = 4  # right-hand sides: below, slopes take less time without a product


class Frequencies(NamedTuple):
    """Frequencies of F functions: see ``philox.draw``."""

    seeds: Any  # (1,), or (F,)
    indices: Any  # (n,)
    degrees: Any
    factors: Any  # (0, n), (1, n) or (F, n): of the frequencies


class Sides(NamedTuple):
    """Right-hand sides: of products R, of squares S = 0 or 1; no rows if they are not needed."""

    W: Any  # (F, R, 2 n) weights
    d: Any  # (S, n) s^2 times the weights of squared cosines minus those of squared sines
    U: Any  # (F, R, N) cotangents
    u: Any  # (S, N) cotangents of squares
    scale: Any  # s, of features


class Found(NamedTuple):
    """Sums in float64 to which a sweep adds; those of size 0 are not wanted.

    ``total`` and ``X_bar`` are those of each share of the frequencies.
    """

    total: Any  # (shares, F, R + S, N) W Phi', and sum_p d_p cos^2
    back: Any  # (R, 2 n) U Phi
    squares_back: Any  # (S, n) u cos^2
    X_bar: Any  # (shares, F, N, D) sum_p omega_p g_p, g the derivative in the phase


class Plan(NamedTuple):
    """Sizes of a sweep."""

    width: Any  # frequencies of a panel
    tile: Any  # points of a task
    known: Any  # whether the phases are there


@njit(fastmath=FAST)
def waves(theta, c, s):
    """Cosines and sines of phases in turns."""
    for p in range(theta.size):
        c[p], s[p] = cos_sin(theta[p])


@njit(fastmath=FAST)
def _frequencies(frequencies, f, first, omega):
    """omega (D, n) = the frequencies of function f from ``first`` on."""
    (seeds, indices, degrees, factors), n = frequencies, omega.shape[1]
    draw(0, n, seeds[f % seeds.size], indices[first : first + n], degrees, omega)
    if factors.size:
        factor = factors[f % len(factors), first:]
        for d in range(len(omega)):
            row = omega[d]
            for p in range(n):
                row[p] *= factor[p]


@njit(fastmath=FAST)
def _weights(W, first, ab):
    """ab (R, 2 n) = the weights of n cosines, then of n sines, from ``first`` on."""
    n = ab.shape[1] // 2
    for r in range(len(W)):
        w, a, b = W[r, 2 * first :], ab[r], ab[r, n:]
        for p in range(n):
            a[p], b[p] = w[2 * p], w[2 * p + 1]


@njit
def _lines(A):
    """How many lines a product with A may have: 8, or a multiple of 16, which gemm prefers."""
    return max(8, SERIAL // A.size // 16 * 16)


@njit(fastmath=FAST)
def _phases(x, omega, theta):
    """theta (m, n) = x (m, D) omega (D or more, n)."""
    D, lines = x.shape[1], _lines(theta)
    for d in range(0, D, lines):
        part = omega[d : min(D, d + lines)]
        blas.gemm(x[:, d : d + lines], part, theta, blas.N, blas.N, 1.0, 1.0 if d else 0.0)


@njit(fastmath=FAST)
def _forward(ab, cs, d, scale, part, total, i):
    """total (R + S, N) += s [a | b] [cos | sin]' and d cos^2, from point i on."""
    R, m, lines = len(ab), len(cs), _lines(cs)
    for r in range(0, R, lines):
        blas.gemm(ab[r : r + lines], cs, part[r : r + lines, :m], blas.N, blas.T, scale, 0.0)
    for r in range(R):
        row, more = total[r, i:], part[r]
        for k in range(m):
            row[k] += more[k]
    if len(total) > R:
        for k in range(m):
            total[R, i + k] += _square(d, cs[k])


@njit(fastmath=FAST)
def _square(d, c):
    """The sum of d cos^2."""
    total = d.dtype.type(0)
    for p in range(d.size):
        total += d[p] * (c[p] * c[p])
    return total


@njit(fastmath=FAST)
def _backward(U, cs, scale, part, back, first):
    """back (R, 2 N) += s U [cos | sin] from ``first`` on; cosine and sine become neighbours."""
    n, lines = cs.shape[1] // 2, _lines(cs)
    for r in range(0, len(U), lines):
        blas.gemm(U[r : r + lines], cs, part[r : r + lines], blas.N, blas.N, scale, 0.0)
    for r in range(len(U)):
        row, c, s = back[r, 2 * first :], part[r], part[r, n:]
        for p in range(n):
            row[2 * p] += c[p]
            row[2 * p + 1] += s[p]


@njit(fastmath=FAST)
def _add_square(u, c, sums):
    """sums += u cos^2."""
    for p in range(sums.size):
        sums[p] += u * (c[p] * c[p])


@njit(fastmath=FAST)
def _set_slope(u, a, b, c, s, g):
    """g = u (b cos - a sin)."""
    for p in range(g.size):
        g[p] = u * (b[p] * c[p] - a[p] * s[p])


@njit(fastmath=FAST)
def _add_slope(u, a, b, c, s, g):
    """g += u (b cos - a sin)."""
    for p in range(g.size):
        g[p] += u * (b[p] * c[p] - a[p] * s[p])


@njit(fastmath=FAST)
def _turn(b, c, s, g):
    """g = b cos - g sin."""
    for p in range(g.size):
        g[p] = b[p] * c[p] - g[p] * s[p]


@njit(fastmath=FAST)
def _add_slope_of_square(u, d, c, s, g):
    """g -= u d cos sin."""
    for p in range(g.size):
        g[p] -= u * (d[p] * (c[p] * s[p]))


@njit(fastmath=FAST)
def _slopes(ab, U, cs, scale, g):
    """g (m, n, and as many more) = s U' b cos - s U' a sin: the derivatives in the phases."""
    (m, n), R, lines = (len(cs), cs.shape[1] // 2), len(U), _lines(cs)
    if R == 0:
        g[:] = 0
    elif R < FEW:
        for k in range(m):
            c, s, row = cs[k], cs[k, n:], g[k, :n]
            _set_slope(scale * U[0, k], ab[0], ab[0, n:], c, s, row)
            for r in range(1, R):
                _add_slope(scale * U[r, k], ab[r], ab[r, n:], c, s, row)
    else:
        for r in range(0, R, lines):
            part = ab[r : r + lines]
            blas.gemm(U[r : r + lines], part, g, blas.T, blas.N, scale, 1.0 if r else 0.0)
        for k in range(m):
            _turn(g[k, n:], cs[k], cs[k, n:], g[k, :n])


@njit(fastmath=FAST)
def _contract(g, omega, part, X_bar):
    """X_bar (m, D) += g (m, n) omega' for omega (D or more, n)."""
    (m, D), lines = X_bar.shape, _lines(g)
    for d in range(0, D, lines):
        columns = part[:m, d : d + lines]
        blas.gemm(g, omega[d : min(D, d + lines)], columns, blas.N, blas.T, 1.0, 0.0)
    for k in range(m):
        row, more = X_bar[k], part[k]
        for d in range(D):
            row[d] += more[d]


class _Panel(NamedTuple):
    """A panel of n frequencies, and memory for a block of m points."""

    first: Any  # the number of the first frequency
    omega: Any  # (D or more, n)
    ab: Any  # (R, 2 n) weights [a | b] of cosines and of sines
    d: Any  # (n,) weights of squares
    cs: Any  # (m, 2 n) [cos | sin]
    g: Any  # (m, 2 n) weighted cotangents, then derivatives in the phases
    forward: Any  # (R + S, m) sums over the panel
    backward: Any  # (R, 2 n) sums over the block
    slopes: Any  # (m, D) sums over the panel


@njit
def _memory(first, n, R, m, D, found, dtype):
    total, back, _, _ = found
    return _Panel(
        first,
        np.empty((-(-D // 4) * 4, n), dtype),
        np.empty((R, 2 * n), dtype),
        np.zeros(n, dtype),
        np.empty((m, 2 * n), dtype),
        np.empty((m, 2 * n), dtype),
        np.empty((total.shape[2], m), dtype),
        np.empty((len(back), 2 * n), dtype),
        np.empty((m, D), dtype),
    )


@njit(fastmath=FAST)
def _meet(theta, i, panel, sides, found, share, f):
    """Add what a panel and its block of points, from point i on, have in common."""
    (m, n), (_, _, Us, us, scale), (total, back, squares_back, X_bar) = theta.shape, sides, found
    cs, g, U = panel.cs[:m], panel.g[:m], Us[f, :, i : i + m]
    for k in range(m):
        waves(theta[k], cs[k], cs[k, n:])
    if total.size:
        _forward(panel.ab, cs, panel.d, scale, panel.forward, total[share, f], i)
    if len(back):
        _backward(U, cs, scale, panel.backward, back, panel.first)
    if len(squares_back):
        sums, row = g[0, :n], squares_back[0, panel.first :]
        sums[:] = 0
        for k in range(m):
            _add_square(us[0, i + k], cs[k], sums)
        for p in range(n):
            row[p] += sums[p]
    if X_bar.size:
        _slopes(panel.ab, U, cs, theta.dtype.type(scale), g)
        for k in range(m if len(us) else 0):
            twice = us[0, i + k] + us[0, i + k]
            _add_slope_of_square(twice, panel.d, cs[k], cs[k, n:], g[k, :n])
        _contract(g[:, :n], panel.omega, panel.slopes, X_bar[share, f, i : i + m])


@kernel("i i (U1 I1 i R2) R3 (R3 R2 R3 R2 x) (X4 X2 X2 X4) (i i b) R1", fastmath=FAST)
def sweep(start, stop, frequencies, x, sides, found, plan, phases):
    """Tasks start ... stop, of shares, functions and tiles of points: the last runs fastest.

    Panels are the outer loop, so that the tasks of one call share the draw of a panel if their
    frequencies are the same. The sums of a point do not depend on the division of tasks.

    Parameters
    ----------
    frequencies, sides, found, plan : fields of ``Frequencies``, ``Sides``, ``Found``, ``Plan``
        Numba takes a plain tuple faster than a record (1 us per argument).
    x : (1 or F, N, D)
        Inputs in turns.
    phases : (n N,) or (0,)
        Of all frequencies with all points: known, or overwritten.
    """
    (seeds, indices, _, factors), (W, d, _, _, _) = frequencies, sides
    (shares, F, _, N), D, (width, tile, known) = found[0].shape, x.shape[2], plan
    own, wanted = max(len(seeds), len(factors)) > 1, found[3].size > 0 or not known
    panels, tiles, block = -(-indices.size // width), -(-N // tile), min(BLOCK, tile)
    here = np.empty(block * width, x.dtype)
    for number in range(panels):
        first, drawn = number * width, -1
        n = min(width, indices.size - first)
        panel = _memory(first, n, W.shape[1], block, D, found, x.dtype)
        for p in range(n if len(d) else 0):
            panel.d[p] = d[0, first + p]
        for task in range(start, stop):
            f, t = task // tiles % F, task % tiles
            if task // (F * tiles) != (shares * (number + 1) - 1) // panels:
                continue  # the panel is another share's
            if f != drawn:
                if wanted and (own or drawn < 0):
                    _frequencies(frequencies, f, first, panel.omega)
                _weights(W[f], first, panel.ab)
                drawn = f
            for i in range(t * tile, min(N, (t + 1) * tile), block):
                m = min(block, N - i, (t + 1) * tile - i)
                if phases.size:
                    at = first * N + i * n
                    theta = phases[at : at + m * n].reshape(m, n)
                else:
                    theta = here[: m * n].reshape(m, n)
                if not known:
                    _phases(x[f % len(x), i : i + m], panel.omega, theta)
                _meet(theta, i, panel, sides, found, task // (F * tiles), f)
