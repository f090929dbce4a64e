"""The loops of random Fourier features: four frequencies and a stretch of points at a time, in the first-level cache.

Phases t, counted in turns, cosines and sines are rows over points, so every loop runs over contiguous memory. Rows of four
frequencies meet in one loop where they add to the same row, which then is read and written once for the four.
"""

import numpy as np
from numba import njit

from .vmath import cos_sin

FAST = {"contract", "reassoc", "nsz", "arcp"}
GROUP = 4
STRETCH = 2048  # bytes of a row at a time


@njit(nogil=True, cache=True, fastmath=FAST)
def _phases(omega, p, X, first, t):
    """t = sum_d omega[d, p] X[d, first:]."""
    n, D = t.size, X.shape[0]
    if D >= 4:
        w0, w1, w2, w3 = omega[0, p], omega[1, p], omega[2, p], omega[3, p]
        x0, x1, x2, x3 = X[0, first : first + n], X[1, first : first + n], X[2, first : first + n], X[3, first : first + n]
        for i in range(n):
            t[i] = (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
        d = 4
    else:
        w0, x0 = omega[0, p], X[0, first : first + n]
        for i in range(n):
            t[i] = w0 * x0[i]
        d = 1
    while d + 4 <= D:
        w0, w1, w2, w3 = omega[d, p], omega[d + 1, p], omega[d + 2, p], omega[d + 3, p]
        x0, x1 = X[d, first : first + n], X[d + 1, first : first + n]
        x2, x3 = X[d + 2, first : first + n], X[d + 3, first : first + n]
        for i in range(n):
            t[i] += (w0 * x0[i] + w1 * x1[i]) + (w2 * x2[i] + w3 * x3[i])
        d += 4
    while d < D:
        w0, x0 = omega[d, p], X[d, first : first + n]
        for i in range(n):
            t[i] += w0 * x0[i]
        d += 1


@njit(nogil=True, cache=True, fastmath=FAST)
def _forward(W, p, c, s, n, total, first):
    """total[r] += sum of four frequencies' W[r, 2 p] cos + W[r, 2 p + 1] sin."""
    c0, c1, c2, c3 = c[0, :n], c[1, :n], c[2, :n], c[3, :n]
    s0, s1, s2, s3 = s[0, :n], s[1, :n], s[2, :n], s[3, :n]
    for r in range(W.shape[0]):
        w, row = W[r, 2 * p : 2 * p + 8], total[r, first : first + n]
        a0, b0, a1, b1, a2, b2, a3, b3 = w[0], w[1], w[2], w[3], w[4], w[5], w[6], w[7]
        for i in range(n):
            row[i] += ((a0 * c0[i] + b0 * s0[i]) + (a1 * c1[i] + b1 * s1[i])) + (
                (a2 * c2[i] + b2 * s2[i]) + (a3 * c3[i] + b3 * s3[i])
            )


@njit(nogil=True, cache=True, fastmath=FAST)
def _backward(U, p, c, s, n, back, first):
    """back[r, 2 p] += sum of U[r] cos, back[r, 2 p + 1] += sum of U[r] sin."""
    c0, c1, c2, c3 = c[0, :n], c[1, :n], c[2, :n], c[3, :n]
    s0, s1, s2, s3 = s[0, :n], s[1, :n], s[2, :n], s[3, :n]
    for r in range(U.shape[0]):
        u, place = U[r, first : first + n], back[r, 2 * p : 2 * p + 8]
        a0 = b0 = a1 = b1 = a2 = b2 = a3 = b3 = U.dtype.type(0)
        for i in range(n):
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
def _slopes(U, W, p, c, s, n, g, first):
    """g = sum_r U[r] (W[r, 2 p + 1] cos - W[r, 2 p] sin) of four frequencies: what sum U * (W Phi') changes by with the phase."""
    for q in range(GROUP):
        cosine, sine, target = c[q, :n], s[q, :n], g[q, :n]
        for r in range(U.shape[0]):
            u, a, b = U[r, first : first + n], W[r, 2 * (p + q)], W[r, 2 * (p + q) + 1]
            if r == 0:
                for i in range(n):
                    target[i] = u[i] * (b * cosine[i] - a * sine[i])
            else:
                for i in range(n):
                    target[i] += u[i] * (b * cosine[i] - a * sine[i])


@njit(nogil=True, cache=True, fastmath=FAST)
def _contract(omega, p, g, n, X_bar, first):
    """X_bar[d] += sum of four frequencies' omega[d] g."""
    g0, g1, g2, g3 = g[0, :n], g[1, :n], g[2, :n], g[3, :n]
    for d in range(X_bar.shape[0]):
        w0, w1, w2, w3, row = omega[d, p], omega[d, p + 1], omega[d, p + 2], omega[d, p + 3], X_bar[d, first : first + n]
        for i in range(n):
            row[i] += (w0 * g0[i] + w1 * g1[i]) + (w2 * g2[i] + w3 * g3[i])


@njit(nogil=True, cache=True, fastmath=FAST)
def sweep(start, stop, omega, X, theta, U, W, forward, backward, slopes, back):
    """One pass over frequencies 4 start ... 4 stop and all points.

    Parameters
    ----------
    omega : (D or more, n), X : (D, N), inputs in turns
    theta : (n, N) or empty
        The phases, where a matrix product made them; then with ``slopes`` it is overwritten by g.
    U : (R, N), W : (R, 2 n)
    forward, backward, slopes : which of the sums to form
    back : (R, 2 n) float64
        With ``backward``, U Phi is added to it.

    Returns
    -------
    total : (R, N) float64, W Phi' over these frequencies;  X_bar : (D, N) float64, sum_p omega g (0 where theta came in)
    """
    D, N = X.shape
    given = theta.size > 0
    total = np.zeros((W.shape[0], N if forward else 0))
    X_bar = np.zeros((D, N if slopes and not given else 0))
    points = STRETCH // X.itemsize
    c, s, g = np.empty((GROUP, points), X.dtype), np.empty((GROUP, points), X.dtype), np.empty((GROUP, points), X.dtype)
    phases = np.empty(points, X.dtype)
    for first in range(0, N, points):
        n = min(points, N - first)
        for group in range(start, stop):
            p = GROUP * group
            for q in range(GROUP):
                cosine, sine = c[q, :n], s[q, :n]
                if given:
                    t = theta[p + q, first : first + n]
                else:
                    t = phases[:n]
                    _phases(omega, p + q, X, first, t)
                for i in range(n):
                    cosine[i], sine[i] = cos_sin(t[i])
            if forward:
                _forward(W, p, c, s, n, total, first)
            if backward:
                _backward(U, p, c, s, n, back, first)
            if slopes:
                _slopes(U, W, p, c, s, n, g, first)
                if given:
                    for q in range(GROUP):
                        source, target = g[q, :n], theta[p + q, first : first + n]
                        for i in range(n):
                            target[i] = source[i]
                else:
                    _contract(omega, p, g, n, X_bar, first)
    return total, X_bar
