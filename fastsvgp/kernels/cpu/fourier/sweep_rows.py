"""The loops of random Fourier features: panels of frequencies meet all points in the cache.

A panel is drawn once; points come in tiles.

Phases theta, counted in turns, cosines and sines are rows over the points of a tile, so every loop
runs over contiguous memory. Rows of four frequencies meet in one loop where they add to the same
row, which then is read and written once for the four.

Products with the features of the inputs are BLAS's, in blocks so small (2^18 multiply-adds) that
OpenBLAS does them in the calling thread: on blocks in the cache it reaches the rate of a large
product, and never wakes its own threads, which would spin against ours.

``forceinline`` where arrays come in records: LLVM then sees that they are distinct, and references
are counted less often (a tenth of the time with 8 features).
"""

from typing import Any, NamedTuple

import numpy as np

from ..common import blas
from ..common.compiled import kernel, njit
from ..common.elementwise import cos_sin
from .fours import (
    FAST,
    GROUP,
    add_backward,
    add_forward,
    add_slopes_of_squares,
    add_squares,
    add_squares_back,
    set_slopes,
)
from .philox import draw

BLOCK = 32  # frequencies of a product that makes phases
LOOPS = 8  # features; beyond them the matrix product is the faster one
SERIAL, SIDE = 1 << 18, 64  # multiply-adds of a product, and their cube root
MANY = 16  # right-hand sides: from here on matrix products are faster


@kernel("i i R2 R1 R3", fastmath=FAST)
def turn(start, stop, X, turns, x):
    """x (tiles, D or more, points) = columns of X (N, D) times ``turns`` (D,), padded by zeros."""
    points = x.shape[2]
    for tile in range(start, stop):
        first = tile * points
        for d in range(x.shape[1]):
            row, count = x[tile, d], min(points, X.shape[0] - first) if d < X.shape[1] else 0
            for i in range(count):
                row[i] = turns[d] * X[first + i, d]
            for i in range(count, points):
                row[i] = 0


@njit(fastmath=FAST)
def phases_of(omega, x, theta):
    """theta (P, n) = omega' x, for omega (D, P) and x (D, n); D is a multiple of four."""
    if x.shape[0] > LOOPS:
        step = SERIAL // theta.size
        for d in range(0, x.shape[0], step):
            blas.gemm(
                omega[d : d + step], x[d : d + step], theta, blas.T, blas.N, 1.0, 1.0 if d else 0.0
            )
        return
    for p in range(theta.shape[0]):
        t, w0, w1, w2, w3 = theta[p], omega[0, p], omega[1, p], omega[2, p], omega[3, p]
        x0, x1, x2, x3 = x[0], x[1], x[2], x[3]
        if x.shape[0] == 4:
            for i in range(t.size):
                t[i] = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
        else:
            w4, w5, w6, w7 = omega[4, p], omega[5, p], omega[6, p], omega[7, p]
            x4, x5, x6, x7 = x[4], x[5], x[6], x[7]
            for i in range(t.size):
                t[i] = ((w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])) + (
                    (w4 * x4[i] + w5 * x5[i]) + (w6 * x6[i] + w7 * x7[i])
                )


@kernel("R2 R2 R2", fastmath=FAST)
def waves(theta, c, s):
    """Cosines and sines of phases in turns.

    Two arrays: in one, LLVM could not tell their rows apart.
    """
    for p in range(theta.shape[0]):
        t, cosine, sine = theta[p], c[p], s[p]
        for i in range(t.size):
            cosine[i], sine[i] = cos_sin(t[i])


# --- any number of frequencies ----------------------------------------------------------------


@njit(fastmath=FAST)
def turned(of_s, of_c, c, s, g):
    """g = of_c cos - of_s sin, and of_s = of_c = 0."""
    for q in range(g.shape[0]):
        cosine, sine, A, B, target = c[q], s[q], of_s[q], of_c[q], g[q]
        for i in range(target.size):
            target[i] = B[i] * cosine[i] - A[i] * sine[i]
        A[:] = 0
        B[:] = 0


@njit
def _even(size, most):
    """The size of the fewest equal parts that are no larger than ``most``."""
    return -(-size // -(-size // most))


@njit
def product(A, B, C, trans_a, trans_b):
    """C += op(A) op(B), in parts of SERIAL multiply-adds at most."""
    if C.size == 0:
        return
    m, n = C.shape
    k = A.shape[0] if trans_a == blas.T else A.shape[1]
    rows, columns = _even(m, SIDE), _even(n, SIDE)
    depth = _even(k, SERIAL // (rows * columns))
    for i in range(0, m, rows):
        for t in range(0, k, depth):
            a = (
                A[t : t + depth, i : i + rows]
                if trans_a == blas.T
                else A[i : i + rows, t : t + depth]
            )
            for j in range(0, n, columns):
                b = (
                    B[j : j + columns, t : t + depth]
                    if trans_b == blas.T
                    else B[t : t + depth, j : j + columns]
                )
                blas.gemm(a, b, C[i : i + rows, j : j + columns], trans_a, trans_b, 1.0, 1.0)


@njit(fastmath=FAST)
def _contract(omega, g, part):
    """part (D, n) = omega g, for omega (D, P) and g (P, n)."""
    step = SERIAL // g.size
    for d in range(0, omega.shape[0], step):
        blas.gemm(omega[d : d + step], g, part[d : d + step], blas.N, blas.N, 1.0, 0.0)


@njit(fastmath=FAST)
def move(part, total):
    """total += part, in float64, for sums of a few hundred terms in their own dtype; part = 0."""
    for r in range(part.shape[0]):
        row, target = part[r], total[r]
        for i in range(row.size):
            target[i] += row[i]
            row[i] = 0


@njit(fastmath=FAST)
def gather(W, v, scale, first, a, b, d):
    """Weights of the frequencies from ``first`` on, zeros beyond the last one.

    a, b are those of cosines and of sines, d = scale (v of cosines - v of sines).
    """
    count = min(d.size, W.shape[1] // 2 - first)
    for r in range(W.shape[0]):
        w = W[r, 2 * first :]
        for q in range(count):
            a[r, q], b[r, q] = w[2 * q], w[2 * q + 1]
        a[r, count:] = 0
        b[r, count:] = 0
    d[:] = 0
    for r in range(v.shape[0]):
        w = v[r, 2 * first :]
        for q in range(count):
            d[q] = scale * (w[2 * q] - w[2 * q + 1])


@njit(fastmath=FAST)
def _scatter(of_c, of_s, squares, scale, first, back, squares_back):
    """Add the sums of a panel, of frequencies that exist, and set them to 0."""
    for r in range(back.shape[0]):
        row, count = back[r, 2 * first :], min(of_c.shape[1], back.shape[1] // 2 - first)
        for q in range(count):
            row[2 * q] += scale * of_c[r, q]
            row[2 * q + 1] += scale * of_s[r, q]
    for r in range(squares_back.shape[0]):
        row = squares_back[r, first:]
        for q in range(min(squares.shape[1], row.size)):
            row[q] += scale * scale * squares[r, q]
    of_c[:] = 0
    of_s[:] = 0
    squares[:] = 0


class Frequencies(NamedTuple):
    """Frequencies that a sweep draws: see ``philox.draw``."""

    seed: Any
    indices: Any
    degrees: Any
    width: Any  # frequencies of a panel, a multiple of four that divides their number


class Sides(NamedTuple):
    """Right-hand sides: of products R, of squares S = 0 or 1."""

    W: Any  # (R, 2 n) weights of n frequencies; those of ``indices`` beyond them count 0
    v: Any  # (S, 2 n) weights of squares
    U: Any  # (tiles, R, points) cotangents; R is that of W if slopes are wanted
    u: Any  # (tiles, S, points) cotangents of squares
    scale: Any  # s, of features


class Found(NamedTuple):
    """Results in float64; those of size 0 are not wanted.

    ``total`` and ``X_bar`` are overwritten, per share of the frequencies; the others are added to.
    """

    total: Any  # (shares, tiles, R + S, points) W Phi' / s, and s sum_p (v_2p - v_2p+1) cos^2
    back: Any  # (R, 2 n) U Phi
    squares_back: Any  # (S, n) s^2 u cos^2
    X_bar: Any  # (shares, tiles, D, points) sum_p omega_p g_p / s


class _Panel(NamedTuple):
    """Frequencies: weights as of ``gather``, derivatives g in phases, sums over points."""

    omega: Any
    a: Any
    b: Any
    d: Any
    g: Any
    of_c: Any
    of_s: Any
    of_squares: Any


class _Block(NamedTuple):
    """Arrays of a block of frequencies at the points of a tile."""

    theta: Any
    c: Any
    s: Any
    of_c: Any  # weighted cotangents of cosines, with many right-hand sides
    of_s: Any
    product: Any


class _Sums(NamedTuple):
    """Sums over a few hundred frequencies, in their own dtype."""

    total: Any
    X_bar: Any


@njit(forceinline=True)
def _workspace(frequencies, x, sides, found, many):
    """``(panel, block, sums)``: memory of a thread."""
    (_, D, points), R, width, dtype = x.shape, sides.W.shape[0], frequencies.width, x.dtype
    block = 2 * BLOCK if many else BLOCK if D > LOOPS else GROUP
    wave, lines = block if many else GROUP, found.back.shape[0]
    panel = _Panel(
        np.empty((D, width), dtype),
        np.empty((R, width), dtype),
        np.empty((R, width), dtype),
        np.empty(width, dtype),
        np.empty((width if found.X_bar.size else 0, points), dtype),
        np.zeros((lines, width)),
        np.zeros((lines, width)),
        np.zeros((found.squares_back.shape[0], width)),
    )
    memory = _Block(
        np.empty((block, points), dtype),
        np.empty((wave, points), dtype),
        np.empty((wave, points), dtype),
        np.zeros((block, points), dtype),
        np.zeros((block, points), dtype),
        np.zeros((lines, block), dtype),
    )
    sums = _Sums(
        np.zeros((found.total.shape[2], points), dtype),
        np.empty((found.X_bar.shape[2], points), dtype),
    )
    return panel, memory, sums


@njit(fastmath=FAST, forceinline=True)
def _by_products(at, here, U, panel, block, total):
    """A block of frequencies from ``at`` on with many right-hand sides, without the squares."""
    n, R = len(here), len(panel.a)
    end, cosines, sines = at + n, block.c[:n], block.s[:n]
    waves(here, cosines, sines)
    if total.size:
        product(panel.a[:, at:end], cosines, total[:R], blas.N, blas.N)
        product(panel.b[:, at:end], sines, total[:R], blas.N, blas.N)
    if panel.of_c.size:
        product(U, cosines, block.product[:, :n], blas.N, blas.T)
        move(block.product[:, :n], panel.of_c[:, at:end])
        product(U, sines, block.product[:, :n], blas.N, blas.T)
        move(block.product[:, :n], panel.of_s[:, at:end])
    if panel.g.size:
        product(panel.a[:, at:end], U, block.of_s[:n], blas.T, blas.N)
        product(panel.b[:, at:end], U, block.of_c[:n], blas.T, blas.N)
        turned(block.of_s[:n], block.of_c[:n], cosines, sines, panel.g[at:end])


@njit(fastmath=FAST, forceinline=True)
def _by_loops(four, U, a, b, g, of_c, of_s, cosines, sines, total):
    """The same for four frequencies and few right-hand sides, whose waves are there."""
    if total.size:
        add_forward(a[:, four], b[:, four], cosines, sines, total)
    if of_c.size:
        add_backward(U, cosines, sines, of_c[:, four], of_s[:, four])
    if g.size:
        set_slopes(U, a[:, four], b[:, four], cosines, sines, g[four])


@njit(fastmath=FAST, forceinline=True)
def _of_squares(four, u, d, g, of_squares, cosines, sines, total, R):
    """The part of the squares, u (S, points), of four frequencies: line R of ``total``."""
    if len(total) > R and total.size:
        add_squares(d[four], cosines, total[R])
    if of_squares.size:
        add_squares_back(u[0], cosines, of_squares[0, four])
    if g.size and len(u):
        add_slopes_of_squares(u[0], d[four], cosines, sines, g[four])


@njit(fastmath=FAST, forceinline=True)
def _tile(x, U, u, panel, block, sums, total, phases, kept):
    """A panel of frequencies at the points of a tile; sums of products are moved to ``total``."""
    omega, a, b, d, g, of_c, of_s, of_squares = panel
    theta, c, s, partial = block.theta, block.c, block.s, sums.total
    width, most, many, R = len(d), len(theta), len(c) > GROUP, len(a)
    for at in range(0, width, most):
        end = min(width, at + most)
        here = phases[at:end] if phases.size else theta[: end - at]
        if not kept:
            phases_of(omega[:, at:end], x, here)
        if many:
            _by_products(at, here, U, panel, block, partial)
        for p in range(at, end, GROUP):
            four, wave = slice(p, p + GROUP), p - at if many else 0
            cosines, sines = c[wave : wave + GROUP], s[wave : wave + GROUP]
            if not many:
                waves(here[p - at : p - at + GROUP], cosines, sines)
                _by_loops(four, U, a, b, g, of_c, of_s, cosines, sines, partial)
            _of_squares(four, u, d, g, of_squares, cosines, sines, partial, R)
        if partial.size and (end == width or not many and end % BLOCK == 0):
            move(partial, total)


@kernel("i i (u I1 i i) R3 (R2 R2 R3 R3 x) (X4 X2 X2 X4) R4 b", fastmath=FAST)
def sweep(start, stop, frequencies, x, sides, found, phases, kept):
    """Shares start ... stop of the frequencies, drawn here, with all points.

    Parameters
    ----------
    frequencies, sides, found : fields of ``Frequencies``, ``Sides``, ``Found``
        Numba takes a plain tuple faster than a record (1 us per argument).
    x : (tiles, D, points)
        Inputs in turns; D is a multiple of four.
    phases : (panels, tiles, width, points)
        Of all frequencies with all points: kept, or overwritten.
    kept : bool
        Whether ``phases`` are there.
    """
    frequencies, sides, found = Frequencies(*frequencies), Sides(*sides), Found(*found)
    width, shares = frequencies.width, found.total.shape[0]
    panels, slopes = frequencies.indices.size // width, found.X_bar.size > 0
    many = max(sides.W.shape[0], sides.U.shape[1]) >= MANY
    panel, block, sums = _workspace(frequencies, x, sides, found, many)
    backward = found.back.size + found.squares_back.size > 0
    no_phases, no_total = np.empty((0, 0), x.dtype), np.empty((0, 0))
    for share in range(start, stop):
        found.total[share] = 0
        found.X_bar[share] = 0
        for number in range(panels * share // shares, panels * (share + 1) // shares):
            first = number * width
            if not kept or slopes:
                indices = frequencies.indices[first : first + width]
                draw(0, width, frequencies.seed, indices, frequencies.degrees, panel.omega)
            gather(sides.W, sides.v, sides.scale, first, panel.a, panel.b, panel.d)
            for tile in range(x.shape[0]):
                theta = phases[number, tile] if phases.size else no_phases
                total = found.total[share, tile] if found.total.size else no_total
                _tile(x[tile], sides.U[tile], sides.u[tile], panel, block, sums, total, theta, kept)
                if slopes:
                    _contract(panel.omega, panel.g, sums.X_bar)
                    move(sums.X_bar, found.X_bar[share, tile])
            if backward:
                bars = found.back, found.squares_back
                _scatter(panel.of_c, panel.of_s, panel.of_squares, sides.scale, first, *bars)


@kernel("i i X4 X2", fastmath=FAST)
def finish(start, stop, shares, out):
    """out (N, D) = the sum of ``shares`` (shares, tiles, D or more, points), for some tiles."""
    points = shares.shape[3]
    sums = np.empty(points)
    for tile in range(start, stop):
        first = tile * points
        for d in range(out.shape[1]):
            for i in range(points):
                sums[i] = 0
            for share in range(shares.shape[0]):
                row = shares[share, tile, d]
                for i in range(points):
                    sums[i] += row[i]
            for i in range(min(points, out.shape[0] - first)):
                out[first + i, d] = sums[i]
