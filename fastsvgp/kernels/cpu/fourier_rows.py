"""The loops of random Fourier features: a panel of frequencies is drawn and meets all points, tile by tile, in a thread's cache.

Phases theta, counted in turns, cosines and sines are rows over the points of a tile, so every loop runs over contiguous memory.
Rows of four frequencies meet in one loop where they add to the same row, which then is read and written once for the four.

Products with the features of the inputs are BLAS's, in blocks so small (2^18 multiply-adds) that OpenBLAS does them in the thread
that asks: on blocks in the cache it reaches the rate of a large product, and its own threads are never woken, which would spin
against ours.
"""

import numpy as np
from numba import njit

from . import blas
from .frequencies import draw
from .vmath import cos_sin

FAST = {"contract", "reassoc", "nsz", "arcp"}
GROUP, BLOCK = 4, 32  # frequencies of a loop, and of a product that makes phases
LOOPS = 8  # features; beyond them the matrix product is the faster one
SERIAL = 1 << 18  # multiply-adds of a product


@njit(nogil=True, cache=True, fastmath=FAST)
def turn(start, stop, X, turns, x):
    """x (tiles, D or more, points) = the columns of X (N, D) times ``turns`` (D,), with zeros for what is not there."""
    points = x.shape[2]
    for tile in range(start, stop):
        first = tile * points
        for d in range(x.shape[1]):
            row, count = x[tile, d], min(points, X.shape[0] - first) if d < X.shape[1] else 0
            for i in range(count):
                row[i] = turns[d] * X[first + i, d]
            for i in range(count, points):
                row[i] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def _phases(omega, x, theta):
    """theta (P, n) = omega' x, for omega (D, P) and x (D, n); D is a multiple of four."""
    if x.shape[0] > LOOPS:
        step = SERIAL // theta.size
        for d in range(0, x.shape[0], step):
            blas.gemm(omega[d : d + step], x[d : d + step], theta, blas.T, blas.N, 1.0, 1.0 if d else 0.0)
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


@njit(nogil=True, cache=True, fastmath=FAST)
def waves(theta, c, s):
    """Cosines and sines of phases in turns."""
    for p in range(theta.shape[0]):
        t, cosine, sine = theta[p], c[p], s[p]
        for i in range(t.size):
            cosine[i], sine[i] = cos_sin(t[i])


@njit(nogil=True, cache=True, fastmath=FAST)
def _forward(W, c, s, total):
    """total[r] += sum of four frequencies' W[r, 2 q] cos + W[r, 2 q + 1] sin."""
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    for r in range(W.shape[0]):
        w, row = W[r], total[r]
        a0, b0, a1, b1, a2, b2, a3, b3 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
        for i in range(row.size):
            row[i] += ((a0 * c0[i] + b0 * s0[i]) + (a1 * c1[i] + b1 * s1[i])) + (
                (a2 * c2[i] + b2 * s2[i]) + (a3 * c3[i] + b3 * s3[i])
            )


@njit(nogil=True, cache=True, fastmath=FAST)
def _backward(U, c, s, back):
    """back[r, 2 q] += sum of U[r] cos, back[r, 2 q + 1] += sum of U[r] sin."""
    c0, c1, c2, c3 = c[0], c[1], c[2], c[3]
    s0, s1, s2, s3 = s[0], s[1], s[2], s[3]
    for r in range(U.shape[0]):
        u, place = U[r], back[r]
        a0 = b0 = a1 = b1 = a2 = b2 = a3 = b3 = U.dtype.type(0)
        for i in range(u.size):
            a0 += u[i] * c0[i]
            b0 += u[i] * s0[i]
            a1 += u[i] * c1[i]
            b1 += u[i] * s1[i]
            a2 += u[i] * c2[i]
            b2 += u[i] * s2[i]
            a3 += u[i] * c3[i]
            b3 += u[i] * s3[i]
        place[0] += a0
        place[1] += b0
        place[2] += a1
        place[3] += b1
        place[4] += a2
        place[5] += b2
        place[6] += a3
        place[7] += b3


@njit(nogil=True, cache=True, fastmath=FAST)
def _slopes(U, W, c, s, g):
    """g = sum_r U[r] (W[r, 2 q + 1] cos - W[r, 2 q] sin) of four frequencies: what sum U * (W Phi') changes by with the phase.

    Four right-hand sides at once are 17 flops in place of 24: cos sum_r U[r] W[r, 2 q + 1] - sin sum_r U[r] W[r, 2 q].
    """
    fours = U.shape[0] // 4 * 4
    for q in range(GROUP):
        cosine, sine, target = c[q], s[q], g[q]
        for r in range(0, fours, 4):
            u0, u1, u2, u3 = U[r], U[r + 1], U[r + 2], U[r + 3]
            a0, a1, a2, a3 = W[r, 2 * q], W[r + 1, 2 * q], W[r + 2, 2 * q], W[r + 3, 2 * q]
            b0, b1, b2, b3 = W[r, 2 * q + 1], W[r + 1, 2 * q + 1], W[r + 2, 2 * q + 1], W[r + 3, 2 * q + 1]
            if r == 0:
                for i in range(target.size):
                    a = (a0 * u0[i] + a1 * u1[i]) + (a2 * u2[i] + a3 * u3[i])
                    b = (b0 * u0[i] + b1 * u1[i]) + (b2 * u2[i] + b3 * u3[i])
                    target[i] = b * cosine[i] - a * sine[i]
            else:
                for i in range(target.size):
                    a = (a0 * u0[i] + a1 * u1[i]) + (a2 * u2[i] + a3 * u3[i])
                    b = (b0 * u0[i] + b1 * u1[i]) + (b2 * u2[i] + b3 * u3[i])
                    target[i] += b * cosine[i] - a * sine[i]
        for r in range(fours, U.shape[0]):
            u, a, b = U[r], W[r, 2 * q], W[r, 2 * q + 1]
            if r == 0:
                for i in range(target.size):
                    target[i] = u[i] * (b * cosine[i] - a * sine[i])
            else:
                for i in range(target.size):
                    target[i] += u[i] * (b * cosine[i] - a * sine[i])


@njit(nogil=True, cache=True, fastmath=FAST)
def _contract(omega, g, part):
    """part (D, n) = omega g, for omega (D, P) and g (P, n)."""
    step = SERIAL // g.size
    for d in range(0, omega.shape[0], step):
        blas.gemm(omega[d : d + step], g, part[d : d + step], blas.N, blas.N, 1.0, 0.0)


@njit(nogil=True, cache=True, fastmath=FAST)
def _move(part, total):
    """total += part, and part = 0: sums of a few hundred terms in their own dtype end here, in float64."""
    for r in range(part.shape[0]):
        row, target = part[r], total[r]
        for i in range(row.size):
            target[i] += row[i]
            row[i] = 0


@njit(nogil=True, cache=True, fastmath=FAST)
def sweep(start, stop, seed, indices, degrees, width, x, U, W, total, X_bar, back):
    """Shares start ... stop of the frequencies, drawn here, with all points. What is of size 0 is not wanted.

    Parameters
    ----------
    seed, indices, degrees : see ``frequencies.draw``
    width : frequencies of a panel, a multiple of four that divides their number n
    x : (tiles, D, points), inputs in turns; D is a multiple of four
    U : (tiles, R, points), W : (R, 2 n)
    total : (shares, tiles, R, points) float64
        Overwritten with W Phi', of each share of the frequencies on its own.
    X_bar : (shares, tiles, D, points) float64
        Overwritten with sum_p omega_p g_p, likewise.
    back : (R, 2 n) float64
        U Phi is added to it.
    """
    shares, panels, (tiles, D, points) = total.shape[0], indices.size // width, x.shape
    forward, backward, slopes = total.size > 0, back.size > 0, X_bar.size > 0
    omega, theta = np.empty((D, width), x.dtype), np.empty((width, points), x.dtype)
    c, s = np.empty((GROUP, points), x.dtype), np.empty((GROUP, points), x.dtype)
    sums, contracted = np.zeros((total.shape[2], points), x.dtype), np.empty((X_bar.shape[2], points), x.dtype)
    for share in range(start, stop):
        total[share] = 0
        X_bar[share] = 0
        for panel in range(panels * share // shares, panels * (share + 1) // shares):
            draw(0, width, seed, indices[panel * width : (panel + 1) * width], degrees, omega)
            for tile in range(tiles):
                for block in range(0, width, BLOCK):
                    end = min(width, block + BLOCK)
                    _phases(omega[:, block:end], x[tile], theta[block:end])
                    for p in range(block, end, GROUP):
                        here = theta[p : p + GROUP]
                        both = slice(2 * (panel * width + p), 2 * (panel * width + p + GROUP))
                        waves(here, c, s)
                        if forward:
                            _forward(W[:, both], c, s, sums)
                        if backward:
                            _backward(U[tile], c, s, back[:, both])
                        if slopes:
                            _slopes(U[tile], W[:, both], c, s, here)
                    if forward:
                        _move(sums, total[share, tile])
                if slopes:
                    _contract(omega, theta, contracted)
                    _move(contracted, X_bar[share, tile])


@njit(nogil=True, cache=True, fastmath=FAST)
def finish(start, stop, shares, out):
    """out (N, D) = the sum of ``shares`` (shares, tiles, D or more, points), for some of the tiles."""
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
