"""CPU twin of ``near_rows``: a Gram matrix by tiles of registers, one row at a time.

Forward. U'U = A, where row j of U follows from those above; with r as one more column it becomes
w = U^-T r, and s = R_jj - w'w, U a = w. U' is the factor.

Reverse. With j the row itself, a = A^-1 r, s = R_jj - r'A^-1 r and phi = lam_j - Lam_N' a:

    phi:  lam_j gains phi_bar, Lam_N gains -a phi_bar', and a_bar becomes a~ = a_bar - Lam_N phi_bar
    a:    da = A^-1 (dr - dA a)           r gains w = A^-1 a~, A gains -w a', half of it each way
    s:    ds = dR_jj - 2 a'dr + a'dA a    R_jj gains s_bar, r gains -2 s_bar a, A gains s_bar a a'
    R:    dR = dK - dLam Lam' - Lam dLam'     K gains R_bar, Lam_P gains -2 R_bar Lam_P

so that R_bar_NN = s_bar a a' - (w a' + a w') / 2, which is A_bar, and R_bar_Nj = w / 2 - s_bar a on
each side. a = w = 0 at absent rows, and R_bar with them. Rows of Lam belong to several rows of the
batch: threads take columns of Lam_bar, and add to these in the order of the batch.
"""

import numpy as np

from ...runtime.num_threads import get_num_threads
from .common import scratch
from .common.compiled import FAST, kernel, njit
from .common.thread_pool import over_rows

LOOP = {"fastmath": FAST, "error_model": "numpy"}
COLUMNS, MOST = 64, 256  # of Lam_bar at a time; MOST take 0.65 to 0.95 of the time


@njit(**LOOP)
def _gathered(Lam, places, first, last, B):
    """B := Lam[places, first:last], and zeros at absent rows."""
    for j in range(places.size):
        if places[j] >= 0:
            for t in range(last - first):
                B[j, t] = Lam[places[j], first + t]
        else:
            for t in range(last - first):
                B[j, t] = 0.0


@njit(**LOOP)
def _gram(B, G):
    """G := the upper triangle of B B', by tiles of 4 x 4 products."""
    for a in range(0, len(B), 4):
        x0, x1, x2, x3 = B[a], B[a + 1], B[a + 2], B[a + 3]
        for b in range(a, len(B), 4):
            y0, y1, y2, y3 = B[b], B[b + 1], B[b + 2], B[b + 3]
            s00 = s01 = s02 = s03 = s10 = s11 = s12 = s13 = 0.0
            s20 = s21 = s22 = s23 = s30 = s31 = s32 = s33 = 0.0
            for t in range(B.shape[1]):
                p0, p1, p2, p3 = x0[t], x1[t], x2[t], x3[t]
                q0, q1, q2, q3 = y0[t], y1[t], y2[t], y3[t]
                s00, s01, s02, s03 = s00 + p0 * q0, s01 + p0 * q1, s02 + p0 * q2, s03 + p0 * q3
                s10, s11, s12, s13 = s10 + p1 * q0, s11 + p1 * q1, s12 + p1 * q2, s13 + p1 * q3
                s20, s21, s22, s23 = s20 + p2 * q0, s21 + p2 * q1, s22 + p2 * q2, s23 + p2 * q3
                s30, s31, s32, s33 = s30 + p3 * q0, s31 + p3 * q1, s32 + p3 * q2, s33 + p3 * q3
            G[a, b], G[a, b + 1], G[a, b + 2], G[a, b + 3] = s00, s01, s02, s03
            G[a + 1, b], G[a + 1, b + 1], G[a + 1, b + 2], G[a + 1, b + 3] = s10, s11, s12, s13
            G[a + 2, b], G[a + 2, b + 1], G[a + 2, b + 2], G[a + 2, b + 3] = s20, s21, s22, s23
            G[a + 3, b], G[a + 3, b + 1], G[a + 3, b + 2], G[a + 3, b + 3] = s30, s31, s32, s33


@njit(**LOOP)
def _residual(K, places, noise, U):
    """U := [A r; 0 R_jj] from the products in its upper triangle."""
    k = noise.size
    for a in range(k + 1):
        for b in range(a + 1):
            if places[a] >= 0 and places[b] >= 0:
                U[b, a] = K[a, b] - U[b, a]
            else:
                U[b, a] = 1.0 if a == b else 0.0
        if a < k and places[a] >= 0:
            U[a, a] += noise[a]


@njit(**LOOP)
def _factor(U, k):
    """Factorise A in place, and solve with r: return -1, or the place of a failing pivot."""
    for j in range(k):
        row, fours = U[j], j // 4 * 4
        for t in range(0, fours, 4):
            u0, u1, u2, u3 = U[t], U[t + 1], U[t + 2], U[t + 3]
            c0, c1, c2, c3 = u0[j], u1[j], u2[j], u3[j]
            for c in range(j, k + 1):
                row[c] -= (c0 * u0[c] + c1 * u1[c]) + (c2 * u2[c] + c3 * u3[c])
        for t in range(fours, j):
            u0, c0 = U[t], U[t, j]
            for c in range(j, k + 1):
                row[c] -= c0 * u0[c]
        if not row[j] > 0:
            return j
        row[j] = np.sqrt(row[j])
        reciprocal = 1 / row[j]
        for c in range(j + 1, k + 1):
            row[c] *= reciprocal
    return -1


@kernel("i i X3- X2- I2- X2- X2 X1 X2 X3 I1", **LOOP)
def _forward(start, stop, K, Lam, rows, noise, a, s, phi, factor, failed):
    k, M = noise.shape[1], Lam.shape[1]
    width = k // 4 * 4 + 4
    B, U = np.zeros((width, M)), np.zeros((width, width))
    for i in range(start, stop):
        _gathered(Lam, rows[i], 0, M, B)
        _gram(B, U)
        _residual(K[i], rows[i], noise[i], U)
        failed[i] = _factor(U, k)
        if failed[i] >= 0:
            a[i, :], s[i], phi[i, :], factor[i, :, :] = np.nan, np.nan, np.nan, np.nan
            continue
        mine, rest, out = a[i], U[k, k], phi[i]
        for j in range(k - 1, -1, -1):
            row = U[j]
            dot = row[k]
            rest -= dot * dot
            for c in range(j + 1, k):
                dot -= row[c] * mine[c]
            mine[j] = dot / row[j]
        s[i] = rest
        for c in range(k):
            for j in range(c + 1):
                factor[i, c, j] = U[j, c]
            for j in range(c + 1, k):
                factor[i, c, j] = 0.0
        for t in range(M):
            out[t] = B[k, t]
        for j in range(0, k // 4 * 4, 4):
            b0, b1, b2, b3 = B[j], B[j + 1], B[j + 2], B[j + 3]
            c0, c1, c2, c3 = mine[j], mine[j + 1], mine[j + 2], mine[j + 3]
            for t in range(M):
                out[t] -= (c0 * b0[t] + c1 * b1[t]) + (c2 * b2[t] + c3 * b3[t])
        for j in range(k // 4 * 4, k):
            b0, c0 = B[j], mine[j]
            for t in range(M):
                out[t] -= c0 * b0[t]


def near_rows(K, Lam, rows, noise):
    K, rows, noise = _plain(K), _plain(rows, np.int64), _plain(noise)
    n, k = noise.shape
    phi, factor = scratch.empty((n, Lam.shape[1]), float), scratch.empty((n, k, k), float)
    a, s, failed = np.empty((n, k)), np.empty(n), np.empty(n, np.int64)
    arguments = K, _plain(Lam), rows, noise, a, s, phi, factor, failed
    over_rows(_forward, n, _work(rows, Lam), *arguments)
    return a, s, phi, factor, failed


@kernel("i i X2- I2- X2- X3- X2- X1- X2- X3 X2", **LOOP)
def _residual_bars(start, stop, Lam, rows, a, factor, a_bar, s_bar, phi_bar, K_bar, noise_bar):
    """K_bar and noise_bar of some rows."""
    k, M = a.shape[1], Lam.shape[1]
    w = np.empty(k)
    for i in range(start, stop):
        mine, L, R_bar, bar, scale = a[i], factor[i], K_bar[i], phi_bar[i], s_bar[i]
        for j in range(k):
            w[j] = 0.0
            if rows[i, j] >= 0:
                lam, dot, row = Lam[rows[i, j]], a_bar[i, j], L[j]
                for t in range(M):
                    dot -= lam[t] * bar[t]
                for c in range(j):
                    dot -= row[c] * w[c]
                w[j] = dot / row[j]
        for j in range(k - 1, -1, -1):
            row = L[j]
            w[j] /= row[j]
            x = w[j]
            for c in range(j):
                w[c] -= x * row[c]
        for j in range(k):
            x, y, out = scale * mine[j] - 0.5 * w[j], 0.5 * mine[j], R_bar[j]
            for c in range(j + 1):
                out[c] = x * mine[c] - y * w[c]
                R_bar[c, j] = out[c]
            noise_bar[i, j] = out[j]
            out[k] = R_bar[k, j] = 0.5 * w[j] - scale * mine[j]
        R_bar[k, k] = scale


@njit(**LOOP)
def _add_products(W, B, out):
    """out += W B, by tiles of 4 x 4 coefficients."""
    for a in range(0, len(W), 4):
        o0, o1, o2, o3 = out[a], out[a + 1], out[a + 2], out[a + 3]
        for b in range(0, len(B), 4):
            y0, y1, y2, y3 = B[b], B[b + 1], B[b + 2], B[b + 3]
            w0, w1, w2, w3 = W[a], W[a + 1], W[a + 2], W[a + 3]
            c00, c01, c02, c03 = w0[b], w0[b + 1], w0[b + 2], w0[b + 3]
            c10, c11, c12, c13 = w1[b], w1[b + 1], w1[b + 2], w1[b + 3]
            c20, c21, c22, c23 = w2[b], w2[b + 1], w2[b + 2], w2[b + 3]
            c30, c31, c32, c33 = w3[b], w3[b + 1], w3[b + 2], w3[b + 3]
            for t in range(B.shape[1]):
                q0, q1, q2, q3 = y0[t], y1[t], y2[t], y3[t]
                o0[t] += (c00 * q0 + c01 * q1) + (c02 * q2 + c03 * q3)
                o1[t] += (c10 * q0 + c11 * q1) + (c12 * q2 + c13 * q3)
                o2[t] += (c20 * q0 + c21 * q1) + (c22 * q2 + c23 * q3)
                o3[t] += (c30 * q0 + c31 * q1) + (c32 * q2 + c33 * q3)


@kernel("i i i X2- I2- X2- X2- X3- X2", **LOOP)
def _lam_bars(start, stop, columns, Lam, rows, a, phi_bar, K_bar, Lam_bar):
    """Lam_bar, for some blocks of its columns."""
    n, q = rows.shape
    M, width = Lam.shape[1], (q + 3) // 4 * 4
    B, out = np.zeros((width, columns)), np.zeros((width, columns))
    W = np.zeros((width, width))
    for first in range(start * columns, min(stop * columns, M), columns):
        size = min(columns, M - first)
        for j in range(len(Lam_bar)):
            Lam_bar[j, first : first + size] = 0.0
        for i in range(n):
            places, bar = rows[i], phi_bar[i]
            _gathered(Lam, places, first, first + size, B)
            for j in range(q):
                factor = -a[i, j] if j < q - 1 else 1.0
                for t in range(size):
                    out[j, t] = factor * bar[first + t]
                for c in range(q):
                    W[j, c] = -2 * K_bar[i, j, c]
            _add_products(W, B, out)
            for j in range(q):
                if places[j] >= 0:
                    total = Lam_bar[places[j]]
                    for t in range(size):
                        total[first + t] += out[j, t]


def near_rows_vjp(Lam, rows, a, factor, a_bar, s_bar, phi_bar):
    (n, k), (u, M) = a.shape, Lam.shape
    Lam, rows, a = _plain(Lam), _plain(rows, np.int64), _plain(a)
    phi_bar = np.zeros((n, M)) if phi_bar is None else _plain(phi_bar)
    K_bar, Lam_bar = scratch.empty((n, k + 1, k + 1), float), scratch.empty((u, M), float)
    noise_bar, work = np.empty((n, k)), _work(rows, Lam)
    arguments = _plain(factor), _plain(a_bar), _plain(s_bar), phi_bar, K_bar, noise_bar
    over_rows(_residual_bars, n, work, Lam, rows, a, *arguments)
    # wide blocks, but one for each thread; at multiples of COLUMNS, so that a column has the same
    # place in vectors whatever the width
    each = M // COLUMNS // get_num_threads() * COLUMNS
    columns = max(COLUMNS, min(MOST, each))
    over_rows(_lam_bars, -(-M // columns), work, columns, Lam, rows, a, phi_bar, K_bar, Lam_bar)
    return K_bar, Lam_bar, noise_bar


def _plain(A, dtype=np.float64):
    return np.ascontiguousarray(A, dtype)


def _work(rows, Lam):
    return float(rows.size * rows.shape[1] * Lam.shape[1])
