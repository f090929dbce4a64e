"""CPU twin of ``quadrature``: the front door documents the operations.

Everything is computed in float64 whatever the dtype, and cast at the end: a rule is a sum of some
twenty terms with possible cancellation, and its derivative in the variance divides by the standard
deviation. The fused kernels work on blocks of data that stay in the L1 cache, with the nodes in the
outer loop and the data in the inner one, so every inner loop is a contiguous row.
"""

import math

import numpy as np

from ..common.quadrature_rules import ENDS, NO_SCALE, points as points_of, raised, rule, seed_of
from .common import normal_cdf
from .common.batching import plain
from .common.compiled import kernel, njit
from .common.elementwise import exp
from .common.thread_pool import over_rows

FUNCTIONS = {"log_ndtr": 0, "log_sigmoid": 1, "log1p_square": 2}
f8 = np.float64
LOG_2PI = math.log(2 * math.pi)
LOOPS = {
    "fastmath": {"contract", "nsz", "arcp"},
    "error_model": "numpy",
}
SUMS = LOOPS | {"fastmath": {"contract", "nsz", "arcp", "reassoc"}}  # several partial sums


def gauss_hermite_nodes(mean, var, num):
    return mean + np.multiply.outer(rule(num)[0], np.sqrt(raised(mean, var)))


def gauss_hermite(G):
    w = rule(len(G))[1]
    out = w[0] * G[0]
    for k in range(1, len(G)):
        out += w[k] * G[k]
    return out


def log_gauss_hermite(log_G):
    top = log_G.max(axis=0)
    top = np.where(np.isfinite(top), top, 0)  # every g can be 0
    with np.errstate(divide="ignore"):
        return top + np.log(gauss_hermite(np.exp(log_G - top)))


def gauss_hermite_vjp(e_bar, G_prime, mean, var):
    z, w = rule(len(G_prime))
    mean_bar, slope = w[0] * G_prime[0], (w[0] * z[0]) * G_prime[0]
    for k in range(1, len(z)):
        mean_bar += w[k] * G_prime[k]
        slope += (w[k] * z[k]) * G_prime[k]
    slope /= 2 * np.sqrt(raised(mean, var))
    return (e_bar * mean_bar).astype(mean.dtype, copy=False), (e_bar * slope).astype(
        mean.dtype, copy=False
    )


def _rows(*arrays):
    """Convert arrays to the float64 arrays that kernels take."""
    return [plain(np.asarray(a, np.float64)) for a in arrays]


def expectation(function, mean, var, num, need):
    m, v = _rows(np.ravel(mean), np.ravel(var))
    z, w = map(np.copy, rule(num))  # kernels declare writable arrays
    out = np.empty((3, m.size))
    at = raised(m, v, NO_SCALE) if function == "log1p_square" else raised(m, v)
    over_rows(_expectation, m.size, 4.0 * num * m.size, FUNCTIONS[function], m, v, at, z, w, out)
    value, d_mean, d_var = (x.reshape(mean.shape).astype(mean.dtype, copy=False) for x in out)
    return (value, d_mean, d_var) if need else (value, None, None)


@kernel("i i i X1 X1 X1 X1 X1 X2", **LOOPS)
def _expectation(start, stop, function, mean, var, at, z, w, out):
    block = 256
    x, g, slope, root = np.empty(block), np.empty(block), np.empty(block), np.empty(block)
    for i in range(start, stop, block):
        n = min(block, stop - i)
        m, value, d_mean, d_var = (
            mean[i : i + n],
            out[0, i : i + n],
            out[1, i : i + n],
            out[2, i : i + n],
        )
        x, g, slope, root = x[:n], g[:n], slope[:n], root[:n]
        for j in range(n):
            value[j] = d_mean[j] = d_var[j] = f8(0.0)
            root[j] = np.sqrt(at[i + j])
        for k in range(z.size):
            for j in range(n):
                x[j] = m[j] + root[j] * z[k]
            if function == 0:
                normal_cdf.log_ndtr(x, g, slope)
            elif function == 1:
                normal_cdf.log_sigmoid(x, g, slope)
            else:
                normal_cdf.log1p_square(x, g, slope)
            wz = w[k] * z[k]
            for j in range(n):
                value[j] += w[k] * g[j]
                d_mean[j] += w[k] * slope[j]
                d_var[j] += wz * slope[j]
        for j in range(n):
            d_var[j] /= f8(2.0) * root[j]
            # the linear continuation below the floor; 0 above it
            value[j] += (var[i + j] - at[i + j]) * d_var[j]


def tabulated_average(G, nodes, weights, table, mean, var, need):
    m, v = _rows(np.ravel(mean), np.ravel(var))
    G, nodes, weights = _rows(G, nodes, weights)
    which = np.ascontiguousarray(np.ravel(table), np.int64)
    at = np.flatnonzero(which >= 0)
    out = np.zeros((3 if need else 1, G.shape[1], m.size))
    rows, tables = (at, which, m, v), (nodes, weights, G)
    over_rows(_tabulated_average, at.size, 256.0 * at.size, *rows, *tables, ENDS, out)
    value, *bars = (x.reshape(G.shape[1], *mean.shape) for x in out)
    return (value, *bars) if need else (value, None, None)


@kernel("i i I1 I1 X1 X1 X2 X2 X3 x X3", **LOOPS)
def _tabulated_average(start, stop, at, table, mean, var, nodes, weights, G, ends, out):
    all_z, all_e = np.empty(nodes.shape[1]), np.empty(nodes.shape[1])
    for j in range(start, stop):
        i = at[j]
        m, sd = mean[i], np.sqrt(var[i])
        low = np.searchsorted(nodes[table[i]], m - ends * sd)
        end = np.searchsorted(nodes[table[i]], m + ends * sd)
        x, w, z, e = (
            nodes[table[i], low:end],
            weights[table[i], low:end],
            all_z[low:end],
            all_e[low:end],
        )
        inverse = f8(1.0) / sd
        for k in range(x.size):
            z[k] = (x[k] - m) * inverse
            e[k] = w[k] * exp(f8(-0.5) * z[k] * z[k])
        for t in range(G.shape[1]):
            g = G[table[i], t, low:end]
            mass, value = _mass(e, g)
            value /= mass
            out[0, t, i] = value
            if out.shape[0] > 1:
                first, second = _moments(e, z, g, value)
                out[1, t, i] = first * inverse / mass
                out[2, t, i] = f8(0.5) * second / (mass * var[i])


@njit(**SUMS)
def _mass(e, g):
    mass = value = f8(0.0)
    for k in range(g.size):
        mass += e[k]
        value += e[k] * g[k]
    return mass, value


@njit(**SUMS)
def _moments(e, z, g, value):
    first = second = f8(0.0)
    for k in range(g.size):
        d = e[k] * (g[k] - value)
        first += d * z[k]
        second += d * z[k] * z[k]
    return first, second


def largest(Y, mean, var, num, need):
    m, v = _rows(mean, var)
    Y = np.ascontiguousarray(Y, np.int64)
    # only differences matter, and rounding errors grow with the size of the means
    m = m - np.take_along_axis(m, Y[None], axis=0)
    at = raised(m, v)
    z, w = map(np.copy, rule(num))  # kernels declare writable arrays
    C, N = m.shape
    p, d_mean, d_var = np.empty(N), np.zeros((C if need else 0, N)), np.zeros((C if need else 0, N))
    over_rows(_largest, N, 8.0 * num * C * N, Y, m, at, z, w, p, d_mean, d_var)
    if not need:
        return p.astype(mean.dtype, copy=False), None, None
    d_var[v < at] = 0
    return tuple(x.astype(mean.dtype, copy=False) for x in (p, d_mean, d_var))


@kernel("i i I1 X2 X2 X1 X1 X1 X2 X2", **LOOPS)
def _largest(start, stop, Y, mean, var, z, w, p, d_mean, d_var):
    # p = sum_k w_k prod_{c != y} Phi(t_c), t_c = (f_k - m_c) / s_c, f_k = m_y + s_y z_k. With D_c =
    # w_k phi(t_c) / s_c times the product of the *other* Phi (from products of those before c and
    # of those after c: no division, so a Phi that underflows does no harm):
    #   dp/dm_c = -D_c,   dp/dv_c = -D_c t_c / (2 s_c),
    #   dp/dm_y = sum_c D_c,   dp/dv_y = sum_c D_c z_k / (2 s_y)
    C = mean.shape[0]
    need = d_mean.shape[0] > 0
    block = min(256, max(16, 8192 // C))
    t, Phi, phi, inverse = (
        np.empty((C, block)),
        np.empty((C, block)),
        np.empty((C, block)),
        np.empty((C, block)),
    )
    x, before, after = np.empty(block), np.empty(block), np.empty(block)
    own, m_y, s_y = np.empty(block), np.empty(block), np.empty(block)
    for i in range(start, stop, block):
        n = min(block, stop - i)
        y = Y[i : i + n]
        for j in range(n):
            m_y[j], s_y[j] = mean[y[j], i + j], np.sqrt(var[y[j], i + j])
            p[i + j] = f8(0.0)
        for c in range(C):
            for j in range(n):
                inverse[c, j] = f8(1.0) / np.sqrt(var[c, i + j])
        for k in range(z.size):
            for j in range(n):
                x[j] = m_y[j] + s_y[j] * z[k]
                before[j], after[j], own[j] = w[k], f8(1.0), f8(0.0)
            for c in range(C):
                mc, tc, pc, dc, ic = (
                    mean[c, i : i + n],
                    t[c, :n],
                    Phi[c, :n],
                    phi[c, :n],
                    inverse[c],
                )
                for j in range(n):
                    tc[j] = (x[j] - mc[j]) * ic[j]
                normal_cdf.ndtr(tc, pc, dc)
                for j in range(n):
                    other = y[j] != c
                    pc[j] = pc[j] if other else f8(1.0)
                    dc[j] = (dc[j] if other else f8(0.0)) * before[j] * ic[j]
                    before[j] *= pc[j]
            for j in range(n):
                p[i + j] += before[j]
            if need:
                for c in range(C - 1, -1, -1):
                    tc, pc, dc, ic = t[c], Phi[c], phi[c], inverse[c]
                    d_mc, d_vc = d_mean[c, i : i + n], d_var[c, i : i + n]
                    for j in range(n):
                        d = dc[j] * after[j]
                        after[j] *= pc[j]
                        own[j] += d
                        d_mc[j] -= d
                        d_vc[j] -= f8(0.5) * d * tc[j] * ic[j]
                for j in range(n):
                    d_mean[y[j], i + j] += own[j]
                    d_var[y[j], i + j] += f8(0.5) * own[j] * z[k] / s_y[j]


def normal_points(dim, num, rng):
    return points_of(dim, num, seed_of(rng))


def expected_logsumexp(mean, var, points, need):
    m, v = _rows(mean, var)
    at = raised(m, v)
    root = np.sqrt(at)
    C, N = m.shape
    value, d_mean, d_var = np.empty(N), np.zeros((C, N)), np.zeros((C, N))
    over_rows(
        _expected_logsumexp,
        N,
        2.0 * len(points) * C * N,
        m,
        root,
        _rows(points)[0],
        value,
        d_mean,
        d_var,
    )
    d_var /= 2 * root
    value += ((v - at) * d_var).sum(axis=0)
    if not need:
        return value.astype(mean.dtype, copy=False), None, None
    return tuple(x.astype(mean.dtype, copy=False) for x in (value, d_mean, d_var))


@kernel("i i X2 X2 X2 X1 X2 X2", **LOOPS)
def _expected_logsumexp(start, stop, mean, root, points, value, d_mean, d_var):
    # d_mean: average softmax; d_var: average softmax_c * point_c, which the caller divides by 2
    # root
    C = mean.shape[0]
    block = min(256, max(16, 8192 // C))
    share = f8(1.0) / f8(points.shape[0])
    x, top, total = np.empty((C, block)), np.empty(block), np.empty(block)
    for i in range(start, stop, block):
        n = min(block, stop - i)
        sums = value[i : i + n]
        for j in range(n):
            sums[j] = f8(0.0)
        for s in range(points.shape[0]):
            for j in range(n):
                top[j], total[j] = f8(-np.inf), f8(0.0)
            for c in range(C):
                mc, rc, xc, point = mean[c, i : i + n], root[c, i : i + n], x[c], points[s, c]
                for j in range(n):
                    xc[j] = mc[j] + rc[j] * point
                    top[j] = max(top[j], xc[j])
            for c in range(C):
                xc = x[c]
                for j in range(n):
                    xc[j] = exp(xc[j] - top[j])
                    total[j] += xc[j]
            for j in range(n):
                sums[j] += top[j] + normal_cdf.log1p(total[j] - f8(1.0))
                total[j] = share / total[j]
            for c in range(C):
                xc, d_mc, d_vc, point = (
                    x[c],
                    d_mean[c, i : i + n],
                    d_var[c, i : i + n],
                    points[s, c],
                )
                for j in range(n):
                    average = xc[j] * total[j]
                    d_mc[j] += average
                    d_vc[j] += average * point
        for j in range(n):
            sums[j] *= share


# --- closed forms, in NumPy: their cost is far below a product's


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    # With r = y - mean and q = sum(r^2 + var):
    #   value = -1/2 (N log(2 pi s) + q / s),   d/dmean = r / s,   d/dvar = -1 / (2 s),
    #   d/ds = -1/2 (N / s - q / s^2)
    # Weights w multiply r^2 + var in q, and both derivatives; N is their sum.
    s, residual = float(variance), Y - mean
    square = residual * residual
    square += var
    if weights is not None:
        square *= weights
        residual *= weights
    q, count = _sum(square), residual.size if weights is None else _sum(weights)
    value = -0.5 * (count * (LOG_2PI + math.log(s)) + q / s)
    if not need:
        return value, None, None, None
    residual *= 1 / s
    if weights is None:
        square.fill(-0.5 / s)
    else:
        np.multiply(weights, -0.5 / s, out=square)
    with np.errstate(over="ignore"):
        return value, residual, square, residual.dtype.type(-0.5 * (count - q / s) / s)


def _sum(values):
    return float(np.add.reduce(values, axis=None, dtype=np.float64))
