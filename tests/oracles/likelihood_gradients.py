"""Expected log densities and derivatives in plain NumPy, in the dtype of the marginals.

Each function takes targets and marginals ``mean``, ``var`` ((N,) or (P, N); (C, N) for classes) and
returns the sum over the data of E log p(y | f), its derivatives in mean and variance, and a
dictionary of those in the likelihood's own parameters. Quadrature rules and sample points are those
of the definition under test: the float64 result is the exact derivative of the same rule.
"""

import numpy as np
from scipy.special import erf, expit, gammaln, log_expit, log_ndtr, ndtr


def nodes(num, dtype):
    z, w = np.polynomial.hermite_e.hermegauss(num)
    return z.astype(dtype), (w / np.sqrt(2 * np.pi)).astype(dtype)


def by_quadrature(log_density, slope, mean, var, num, origin, unit, feature):
    """sum_k w_k log_density(f_k), f_k = mean + sd z_k, its derivatives, and an average.

    All functions take (num, ...) arrays. Without ``num`` there are 20 nodes, but nodes are fixed
    where sd is large beside the ``feature`` (centre, width) of ``log_density`` as a function of
    (f - origin) / unit.
    """
    z, w = (a.reshape(-1, *[1] * mean.ndim) for a in nodes(num or 20, mean.dtype))
    sd = np.sqrt(var)
    F = mean + sd * z
    s = slope(F)
    found = (w * log_density(F)).sum(0), (w * s).sum(0), (w * s * z).sum(0) / (2 * sd)
    centre, width = feature
    t = (0.08 * np.arange(-256.0, 257)).reshape(-1, *[1] * mean.ndim)
    x = (origin + unit * (centre + 2**0.5 * width * np.sinh(t))).astype(mean.dtype)
    z = (x - mean) / sd
    e = np.exp(-(z**2) / 2) * (abs(z) <= 8.4) * np.cosh(t).astype(mean.dtype)
    off = abs(mean - origin - unit * centre)
    wide = (num is None) & (sd > 0.37 * width * abs(unit)) & (off <= 6.5 * sd)
    e = e / np.where(wide, e.sum(0), 1)
    g = log_density(x)
    value = (e * g).sum(0)
    rest = e * (g - value)
    fixed = value, (rest * z).sum(0) / sd, (rest * z**2).sum(0) / (2 * var)
    value, d_mean, d_var = (np.where(wide, *pair) for pair in zip(fixed, found, strict=True))

    def average(function):
        return np.where(wide, (e * function(x)).sum(0), (w * function(F)).sum(0))

    return value.sum(), d_mean, d_var, average


def gaussian(Y, mean, var, variance):
    square, n = ((Y - mean) ** 2 + var).sum(), mean.dtype.type(mean.size)
    value = -n / 2 * np.log(2 * mean.dtype.type(np.pi) * variance) - square / (2 * variance)
    own = {"variance": square / (2 * variance**2) - n / (2 * variance)}
    return value, (Y - mean) / variance, np.full_like(mean, -1 / (2 * variance)), own


def bernoulliprobit(Y, mean, var, num_nodes):
    sign = (2 * Y - 1).astype(mean.dtype)

    def slope(F):
        return sign * np.exp(-(F**2) / 2 - log_ndtr(sign * F)) / np.sqrt(2 * np.pi).astype(F.dtype)

    rule = num_nodes, 0, sign, (1.92, 2.82)
    return *by_quadrature(lambda F: log_ndtr(sign * F), slope, mean, var, *rule)[:3], {}


def bernoullilogit(Y, mean, var, num_nodes):
    sign = (2 * Y - 1).astype(mean.dtype)
    rule = num_nodes, 0, sign, (0, np.pi)
    return (
        *by_quadrature(
            lambda F: log_expit(sign * F), lambda F: sign * expit(-sign * F), mean, var, *rule
        )[:3],
        {},
    )


def poisson(Y, mean, var, exposure, num_nodes):
    Y = Y.astype(mean.dtype)
    rate = exposure * np.exp(mean + var / 2)
    return (Y * (mean + np.log(exposure)) - rate - gammaln(Y + 1)).sum(), Y - rate, -rate / 2, {}


def laplace(Y, mean, var, scale):
    """E|f - y| is the mean of a folded normal."""
    d, sd, n = mean - Y, np.sqrt(var), mean.dtype.type(mean.size)
    peak = np.sqrt(2 / np.pi).astype(mean.dtype) * np.exp(-(d**2) / (2 * var))
    sign = erf(d / np.sqrt(2 * var))
    folded = (sd * peak + d * sign).sum()
    own = {"scale": folded / scale**2 - n / scale}
    return -n * np.log(2 * scale) - folded / scale, -sign / scale, -peak / (2 * sd * scale), own


def studentt(Y, mean, var, scale, df, num_nodes):
    normaliser = gammaln((df + 1) / 2) - gammaln(df / 2) - np.log(df * np.pi) / 2

    def log_density(F):
        return (
            normaliser.astype(F.dtype)
            - np.log(scale)
            - (df + 1) / 2 * np.log1p(((Y - F) / scale) ** 2 / df)
        )

    def slope(F):
        return (df + 1) * (Y - F) / (df * scale**2 + (Y - F) ** 2)

    rule = num_nodes, Y, scale * df**0.5, (0, 1)
    value, d_mean, d_var, average = by_quadrature(log_density, slope, mean, var, *rule)
    own = average(lambda F: slope(F) * (Y - F) - 1)
    return value, d_mean, d_var, {"scale": own.sum() / scale}


def heteroskedasticgaussian(Y, mean, var):
    """Rows of ``mean`` and ``var``: the means of all outputs, then the log variances of all."""
    (m, g), (v, u) = (a.reshape(2, *Y.shape) for a in (mean, var))
    r, s = Y - m, np.exp(u / 2 - g)
    q = (r**2 + v) * s
    value = -(np.log(2 * mean.dtype.type(np.pi)) + g + q).sum() / 2
    bars = (r * s, (q - 1) / 2), (-s / 2, -q / 4)
    return value, *(np.stack(bar).reshape(mean.shape) for bar in bars), {}


def robustmax(Y, mean, var, num_classes, epsilon, num_nodes):
    z, w = (a[:, None] for a in nodes(num_nodes, mean.dtype))
    sd, columns = np.sqrt(var), np.arange(len(Y))
    F = mean[Y, columns] + sd[Y, columns] * z  # (nodes, N)
    T = (F - mean[:, None]) / sd[:, None]  # (classes, nodes, N)
    factors, densities = ndtr(T), np.exp(-(T**2) / 2) / np.sqrt(2 * np.pi).astype(mean.dtype)
    factors[Y, :, columns] = 1
    densities[Y, :, columns] = 0
    low = np.log(epsilon / (num_classes - 1))
    gain = np.log(1 - epsilon) - low
    P = (w * factors.prod(axis=0)).sum(0)
    d_mean, d_var, own_slope = np.zeros_like(mean), np.zeros_like(var), np.zeros_like(F)
    for c in range(num_classes):  # dp/dT_c, zero for the class of the label
        slope = densities[c] * factors[np.arange(num_classes) != c].prod(axis=0)
        d_mean[c] = -(w * slope).sum(0) / sd[c]
        d_var[c] = -(w * slope * T[c]).sum(0) / (2 * var[c])
        own_slope += slope / sd[c]
    d_mean[Y, columns] = (w * own_slope).sum(0)
    d_var[Y, columns] = (w * own_slope * z).sum(0) / (2 * sd[Y, columns])
    gain = mean.dtype.type(gain)
    return len(Y) * mean.dtype.type(low) + gain * P.sum(), gain * d_mean, gain * d_var, {}


def softmax(Y, mean, var, num_classes, num_samples, points):
    """points (num_samples, classes): the same for every datum."""
    Z, sd, columns = points.T[:, :, None].astype(mean.dtype), np.sqrt(var), np.arange(len(Y))
    F = mean[:, None] + sd[:, None] * Z  # (classes, samples, N)
    top = F.max(axis=0)
    e = np.exp(F - top)
    p = e / e.sum(axis=0)
    value = mean[Y, columns].sum() - (top + np.log(e.sum(axis=0))).mean(axis=0).sum()
    d_mean = -p.mean(axis=1)
    d_mean[Y, columns] += 1
    return value, d_mean, -(p * Z).mean(axis=1) / (2 * sd), {}
