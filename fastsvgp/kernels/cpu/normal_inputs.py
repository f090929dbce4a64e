"""CPU twin of ``normal_inputs``: one row of inputs at a time, whose pairs stay in the caches.

The exponent of a pair is a row, a column and a product of rank D: no table over pairs, D
multiply-adds each. Two rows i, i + 1 of the lower triangle share the loads of e; the last row of an
odd M is done twice, and counted once. Loops over j are functions of their own, so that LLVM
vectorises them. Threads take rows of the inputs; sums over these are added in their order.
"""

import numpy as np

from .common.compiled import FAST, kernel, njit
from .common.elementwise import exp, expm1
from .common.thread_pool import over_rows

LOOP = {"fastmath": FAST, "error_model": "numpy"}
EXACT = {"fastmath": {"contract"}, "error_model": "numpy"}
LARGEST = 300.0  # exponents up to which expm1 is multiplied: exp overflows at 709


@njit(**LOOP)
def _apart(mean, Zt, turn, E):
    """E (D, M) := mean - Z, turned if there is a turn (D, D)."""
    D, M = Zt.shape
    for d in range(D):
        row = E[d]
        if turn.size == 0:
            for j in range(M):
                row[j] = mean[d] - Zt[d, j]
        else:
            row[:] = 0.0
            for c in range(D):
                factor, m, z = turn[c, d], mean[c], Zt[c]
                for j in range(M):
                    row[j] += factor * (m - z[j])


@njit(**LOOP)
def _add_squares(factor, e, h):
    for j in range(h.size):
        h[j] -= factor * e[j] * e[j]


@njit(**EXACT)
def _exps(x, n):
    for j in range(n):
        x[j] = exp(x[j])


@njit(**EXACT)
def _expm1s(x, n):
    for j in range(n):
        x[j] = expm1(x[j])


@kernel("i i X2- X2- X2- X1- X3- X2", **LOOP)
def _bumps(start, stop, mean, Zt, precision, logs, turns, out):
    D, M = Zt.shape
    E, none = np.empty((D, M)), np.empty((0, 0))
    for n in range(start, stop):
        _apart(mean[n], Zt, turns[n] if len(turns) else none, E)
        row = out[n]
        row[:] = logs[n]
        for d in range(D):
            _add_squares(0.5 * precision[n, d], E[d], row)
        _exps(row, M)


def normal_bumps(mean, Z, precision, logs, turn=None):
    out = np.empty((len(mean), len(Z)))
    arguments = *_plain(mean, Z.T, precision, logs), _turns(turn), out
    over_rows(_bumps, len(mean), out.size * (8.0 + 3 * Z.shape[1]), *arguments)
    return out


@njit(**LOOP)
def _column(w, z, m, p, Z_bar):
    first, second = 0.0, 0.0
    for j in range(w.size):
        e = m - z[j]
        b = w[j] * e
        first += b
        second += b * e
        Z_bar[j] += p * b
    return first, second


@kernel("i i X2- X2- X2- X2- X2 X2", **LOOP)
def _bumps_vjp(start, stop, log_bar, mean, Zt, precision, mean_bar, precision_bar):
    """Return Z_bar transposed, of these rows."""
    Z_bar = np.zeros(Zt.shape)
    for n in range(start, stop):
        for d in range(len(Zt)):
            p = precision[n, d]
            first, second = _column(log_bar[n], Zt[d], mean[n, d], p, Z_bar[d])
            mean_bar[n, d], precision_bar[n, d] = -p * first, -0.5 * second
    return Z_bar


def normal_bumps_vjp(log_bar, mean, Z, precision):
    log_bar, mean, Zt, precision = _plain(log_bar, mean, Z.T, precision)
    mean_bar, precision_bar = np.empty(mean.shape), np.empty(mean.shape)
    arguments = log_bar, mean, Zt, precision, mean_bar, precision_bar
    work = 5.0 * log_bar.size * len(Zt)
    parts = over_rows(_bumps_vjp, len(mean), work, *arguments, chunks=1)
    return mean_bar, _total(parts).T.copy(), precision_bar


@njit(**LOOP)
def _largest_square(e):
    most = 0.0
    for j in range(e.size):
        most = max(most, e[j] * e[j])
    return most


@njit(**LOOP)
def _begin(values, kappa, nu, shift, E, h, signs):
    """Set h, without exponents of values; return whether exponents may exceed ``LARGEST``."""
    D, M = E.shape
    h[:] = 0.5 * shift
    top = shift
    for d in range(D):
        _add_squares(0.5 * nu[d], E[d], h)
        top += kappa[d] * _largest_square(E[d])
    far = top > LARGEST
    if far:
        for j in range(M):
            signs[j] = -1.0 if values[j] < 0 else 1.0
            h[j] += np.log(abs(values[j])) if values[j] != 0 else -1e6
    return far


@njit(**LOOP)
def _exponents(i, k, n, E, kappa, h, x, y):
    """x[j], y[j] := the exponents of the pairs (i, j) and (k, j), j < n."""
    D, d, c, c1 = len(E), 0, h[i], h[k]
    if D % 2:
        a = E[0]
        ka, kb = kappa[0] * a[i], kappa[0] * a[k]
        for j in range(n):
            x[j] = h[j] + c + ka * a[j]
            y[j] = h[j] + c1 + kb * a[j]
        d = 1
    else:
        for j in range(n):
            x[j] = h[j] + c
            y[j] = h[j] + c1
    while d + 4 <= D:
        a, b, e, f = E[d], E[d + 1], E[d + 2], E[d + 3]
        ka, kb = kappa[d] * a[i], kappa[d + 1] * b[i]
        ke, kf = kappa[d + 2] * e[i], kappa[d + 3] * f[i]
        la, lb = kappa[d] * a[k], kappa[d + 1] * b[k]
        le, lf = kappa[d + 2] * e[k], kappa[d + 3] * f[k]
        for j in range(n):
            x[j] += ka * a[j] + kb * b[j] + ke * e[j] + kf * f[j]
            y[j] += la * a[j] + lb * b[j] + le * e[j] + lf * f[j]
        d += 4
    if d + 2 <= D:
        a, b = E[d], E[d + 1]
        ka, kb, la, lb = kappa[d] * a[i], kappa[d + 1] * b[i], kappa[d] * a[k], kappa[d + 1] * b[k]
        for j in range(n):
            x[j] += ka * a[j] + kb * b[j]
            y[j] += la * a[j] + lb * b[j]


@njit(**LOOP)
def _times(x, y, v, a, b, n):
    for j in range(n):
        x[j] *= a * v[j]
        y[j] *= b * v[j]


@njit(**LOOP)
def _plus(x, y, v, a, b, n):
    for j in range(n):
        x[j] += a * v[j]
        y[j] += b * v[j]


@njit(**LOOP)
def _rises(i, k, far, E, kappa, h, signs, v, x, y):
    """Set x, y to the rows i, k = i + 1 of R, up to the column k."""
    n = k + 1
    _exponents(i, k, n, E, kappa, h, x, y)
    if far:
        _exps(x, n)
        _exps(y, n)
        _times(x, y, signs, signs[i], signs[k], n)
        _plus(x, y, v, -v[i], -v[k], n)
    else:
        _expm1s(x, n)
        _expm1s(y, n)
        _times(x, y, v, v[i], v[k], n)


@njit(**LOOP)
def _dot(x, g, n):
    total = 0.0
    for j in range(n):
        total += x[j] * g[j]
    return total


@njit(**LOOP)
def _form(i, k, x, y, G):
    """Return what the rows i and k add to the form of a symmetric G."""
    total = 2 * _dot(x, G[i], i) + x[i] * G[i, i]
    if k > i:
        total += 2 * _dot(y, G[k], k) + y[k] * G[k, k]
    return total


@njit(**LOOP)
def _add_scaled(r, x, y, n):
    for j in range(n):
        y[j] += r * x[j]


@kernel("i i X2- X2- X2- X2- X2- X1- X3- X3- X2", **LOOP)
def _forms(start, stop, mean, Zt, values, kappa, nu, shift, turns, G, out):
    D, M = Zt.shape
    E, none = np.empty((D, M)), np.empty((0, 0))
    h, signs, x, y = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    for n in range(start, stop):
        _apart(mean[n], Zt, turns[n] if len(turns) else none, E)
        far = _begin(values[n], kappa[n], nu[n], shift[n], E, h, signs)
        out[n, :] = 0.0
        for i in range(0, M, 2):
            k = min(i + 1, M - 1)
            _rises(i, k, far, E, kappa[n], h, signs, values[n], x, y)
            for p in range(len(G)):
                out[n, p] += _form(i, k, x, y, G[p])


def normal_rises(mean, Z, values, kappa, nu, shift, G, turn=None):
    out = np.empty((len(mean), len(G)))
    given = _plain(mean, Z.T, values, kappa, nu, shift)
    work = _pairs(values) * (10.0 + Z.shape[1] + len(G))
    over_rows(_forms, len(mean), work, *given, _turns(turn), *_plain(G), out)
    return out


@kernel("i i X2- X2- X2- X2- X2- X1- X2-", **LOOP)
def _sums(start, stop, mean, Zt, values, kappa, nu, shift, weights):
    """Return the lower triangles of the sums over these rows."""
    (D, M), P = Zt.shape, weights.shape[1]
    total, E, none = np.zeros((P, M, M)), np.empty((D, M)), np.empty((0, 0))
    h, signs, x, y = np.empty(M), np.empty(M), np.empty(M), np.empty(M)
    for n in range(start, stop):
        _apart(mean[n], Zt, none, E)
        far = _begin(values[n], kappa[n], nu[n], shift[n], E, h, signs)
        for i in range(0, M, 2):
            k = min(i + 1, M - 1)
            _rises(i, k, far, E, kappa[n], h, signs, values[n], x, y)
            for p in range(P):
                _add_scaled(weights[n, p], x, total[p, i], i + 1)
                if k > i:
                    _add_scaled(weights[n, p], y, total[p, k], k + 1)
    return total


def normal_rise_sums(mean, Z, values, kappa, nu, shift, weights):
    given = _plain(mean, Z.T, values, kappa, nu, shift, weights)
    work = _pairs(values) * (10.0 + Z.shape[1] + weights.shape[1])
    return _mirrored(_total(over_rows(_sums, len(mean), work, *given, chunks=1)))


@njit(**LOOP)
def _scaled_rows(r, G, i, k, f, g):
    """f, g := the rows i and k of sum_p r_p G_p, up to the column k."""
    n = k + 1
    for j in range(n):
        f[j] = r[0] * G[0, i, j]
        g[j] = r[0] * G[0, k, j]
    for p in range(1, r.size):
        _add_scaled(r[p], G[p, i], f, n)
        _add_scaled(r[p], G[p, k], g, n)


@njit(**LOOP)
def _row_sums(x, y, f, g, n, total):
    """x *= f, y *= g; add both to ``total`` (n,), and return their sums."""
    s, t = 0.0, 0.0
    for j in range(n):
        a, b = x[j] * f[j], y[j] * g[j]
        x[j] = a
        y[j] = b
        s += a
        t += b
        total[j] += a + b
    return s, t


@njit(**LOOP)
def _only_sums(x, y, f, g, n, total):
    """As ``_row_sums``, but leave x and y as they are."""
    s, t = 0.0, 0.0
    for j in range(n):
        a, b = x[j] * f[j], y[j] * g[j]
        s += a
        t += b
        total[j] += a + b
    return s, t


@njit(**LOOP)
def _products(x, y, E, i, k, F):
    """F_i += x e, F_k += y e, F_j += x_j e_i + y_j e_k for j < i, two columns at a time."""
    D, d = len(E), 0
    while d + 2 <= D:
        a, b, fa, fb = E[d], E[d + 1], F[d], F[d + 1]
        ai, bi, ak, bk = a[i], b[i], a[k], b[k]
        s, t, u, v = 0.0, 0.0, 0.0, 0.0
        for j in range(i):
            w, z, aj, bj = x[j], y[j], a[j], b[j]
            s += w * aj
            t += w * bj
            u += z * aj
            v += z * bj
            fa[j] += w * ai + z * ak
            fb[j] += w * bi + z * bk
        F[d, i] += s
        F[d + 1, i] += t
        F[d, k] += u
        F[d + 1, k] += v
        d += 2
    if d < D:
        a, fa, s, u = E[d], F[d], 0.0, 0.0
        ai, ak = a[i], a[k]
        for j in range(i):
            w, z = x[j], y[j]
            s += w * a[j]
            u += z * a[j]
            fa[j] += w * ai + z * ak
        F[d, i] += s
        F[d, k] += u


@njit(**LOOP)
def _add_block(i, k, x, y, f, g, total):
    """Add the block on the diagonal to row sums; return its entries ii, ki and kk."""
    ii = x[i] * f[i]
    total[i] += ii
    if k == i:
        return ii, 0.0, 0.0
    ki, kk = y[i] * g[i], y[k] * g[k]
    total[i] += ki
    total[k] += ki + kk
    return ii, ki, kk


@njit(**LOOP)
def _column_bars(rho, e, f, kappa, nu, Z_bar):
    """Return the cotangents of mean, kappa and nu, of a column; add to that of Z."""
    first, second, third = 0.0, 0.0, 0.0
    for j in range(rho.size):
        b = 2 * (kappa * f[j] - nu * rho[j] * e[j])
        first += b
        second += e[j] * f[j]
        third -= rho[j] * e[j] * e[j]
        Z_bar[j] -= b
    return first, second, third


@kernel("i i X2- X2- X2- X2- X2- X1- X3- X2- b (X2 X2 X2 X2 X2 X1)", **LOOP)
def _vjp(start, stop, mean, Zt, values, kappa, nu, shift, G, weights, wants_sums, out):
    """Return the lower triangles of the sums, and Z_bar transposed, of these rows."""
    (D, M), P, none = Zt.shape, len(G), np.empty((0, 0))
    forms, log_bar, mean_bar, kappa_bar, nu_bar, shift_bar = out
    total, Z_bar = np.zeros((P, M, M) if wants_sums else (0, 0, 0)), np.zeros((D, M))
    E, F, rho = np.empty((D, M)), np.empty((D, M)), np.empty(M)
    h, signs, x, y, f, g = (
        np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M), np.empty(M),
    )  # fmt: skip
    for n in range(start, stop):
        _apart(mean[n], Zt, none, E)
        v, r, bar = values[n], weights[n], log_bar[n]
        far = _begin(v, kappa[n], nu[n], shift[n], E, h, signs)
        rho[:], F[:], bar[:], forms[n, :] = 0.0, 0.0, 0.0, 0.0
        for i in range(0, M, 2):
            k = min(i + 1, M - 1)
            _rises(i, k, far, E, kappa[n], h, signs, v, x, y)
            for p in range(P):
                forms[n, p] += _form(i, k, x, y, G[p])
                if wants_sums:
                    _add_scaled(r[p], x, total[p, i], i + 1)
                    if k > i:
                        _add_scaled(r[p], y, total[p, k], k + 1)
            _scaled_rows(r, G, i, k, f, g)
            if k == i:
                g[:] = 0.0  # the last row counts once
            s, t = _only_sums(x, y, f, g, i, bar)
            bar[i] += s
            bar[k] += t
            _add_block(i, k, x, y, f, g, bar)
            _plus(x, y, v, v[i], v[k], k + 1)
            s, t = _row_sums(x, y, f, g, i, rho)
            rho[i] += s
            rho[k] += t
            _products(x, y, E, i, k, F)
            ii, ki, kk = _add_block(i, k, x, y, f, g, rho)
            for d in range(D):
                F[d, i] += ii * E[d, i] + ki * E[d, k]
                F[d, k] += ki * E[d, i] + kk * E[d, k]
        shift_bar[n] = rho.sum()
        for j in range(M):
            bar[j] *= 2
        for d in range(D):
            mean_bar[n, d], kappa_bar[n, d], nu_bar[n, d] = _column_bars(
                rho, E[d], F[d], kappa[n, d], nu[n, d], Z_bar[d]
            )
    return total, Z_bar


def normal_rises_vjp(mean, Z, values, kappa, nu, shift, G, weights, sums=False):
    given = _plain(mean, Z.T, values, kappa, nu, shift, G, weights)
    shapes = weights.shape, values.shape, mean.shape, mean.shape, mean.shape, shift.shape
    out = tuple(np.empty(shape) for shape in shapes)
    work = _pairs(values) * (14.0 + 3 * Z.shape[1] + 2 * len(G))
    parts = over_rows(_vjp, len(mean), work, *given, sums, out, chunks=1)
    total, Z_bar = (_total([part[i] for part in parts]) for i in range(2))
    forms, *bars = out
    return forms, _mirrored(total) if sums else None, *bars, Z_bar.T.copy()


def _plain(*arrays):
    return [np.ascontiguousarray(A, np.float64) for A in arrays]


def _turns(turn):
    return np.empty((0, 0, 0)) if turn is None else np.ascontiguousarray(turn, np.float64)


def _pairs(values):
    """Return half the number of pairs."""
    return 0.5 * values.size * values.shape[1]


def _total(parts):
    return sum(parts[1:], parts[0])


def _mirrored(A):
    """Copy the lower triangles to the upper ones, in place."""
    rows, columns = np.triu_indices(A.shape[1], 1)
    A[:, rows, columns] = A[:, columns, rows]
    return A
