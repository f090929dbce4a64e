"""Likelihoods by definition, one datum at a time; expectations by numerical integration.

Integration is adaptive or by brute force: slow, obvious.
"""

from decimal import Decimal, localcontext
from math import exp, lgamma, log, log10, pi, sqrt

import numpy as np
from scipy.integrate import quad
from scipy.special import log_expit, log_ndtr, ndtr


def gaussian(y, f, variance):
    return -0.5 * log(2 * pi * variance) - (y - f) ** 2 / (2 * variance)


def probit(y, f):
    return log_ndtr(f if y == 1 else -f)


def logit(y, f):
    return log_expit(f if y == 1 else -f)


def poisson(y, f, exposure):
    return y * (f + log(exposure)) - exposure * exp(f) - lgamma(y + 1)


def laplace(y, f, scale):
    return -log(2 * scale) - abs(y - f) / scale


def student_t(y, f, scale, df):
    constant = lgamma((df + 1) / 2) - lgamma(df / 2) - 0.5 * log(df * pi) - log(scale)
    return constant - (df + 1) / 2 * log(1 + ((y - f) / scale) ** 2 / df)


def decimal_log_gamma(x, log_2pi):
    """log Gamma(x) of a Decimal to 30 digits after the point, by Stirling's series from 60 on.

    Computes in the precision of the context.
    """
    shift = Decimal(0)
    while x < 60:
        shift, x = shift + x.ln(), x + 1
    bernoulli = [
        (1, 6),
        (-1, 30),
        (1, 42),
        (-1, 30),
        (5, 66),
        (-691, 2730),
        (7, 6),
        (-3617, 510),
        (43867, 798),
        (-174611, 330),
    ]
    series = sum(
        Decimal(p) / q / (2 * k * (2 * k - 1) * x ** (2 * k - 1))
        for k, (p, q) in enumerate(bernoulli, 1)
    )
    return (x - Decimal("0.5")) * x.ln() - x + log_2pi / 2 + series - shift


def student_t_constant(scale, df):
    """Log density of ``scale`` t at 0 in long double, with as many digits as ``df`` needs."""
    with localcontext() as context:
        context.prec = 60 + 2 * max(0, int(log10(df)))
        a, pi60 = (
            Decimal(df) / 2,
            Decimal("3.14159265358979323846264338327950288419716939937510582097494459"),
        )
        gammas = [decimal_log_gamma(x, (2 * pi60).ln()) for x in (a + Decimal("0.5"), a)]
        value = gammas[0] - gammas[1] - (Decimal(df) * pi60).ln() / 2 - Decimal(scale).ln()
        return np.longdouble(str(value.quantize(Decimal("1e-30"))))


def student_t_wide(y, f, scale, df):
    """``student_t`` in long double, for any df and arrays f."""
    scale, df = np.longdouble(scale), np.longdouble(df)
    return student_t_constant(float(scale), float(df)) - (df + 1) / 2 * np.log1p(
        ((y - f) / scale) ** 2 / df
    )


def poisson_wide(y, f, exposure):
    """``poisson`` for long double arrays f."""
    log_rate = f + np.log(np.longdouble(exposure))
    return y * log_rate - np.exp(log_rate) - lgamma(y + 1)


def logit_wide(y, f):
    """``logit`` for long double arrays f."""
    return -np.logaddexp(0, f if y == 0 else -f)


def mode(slope, low, high):
    """Where a decreasing function between two points is zero, in long double."""
    low, high = np.longdouble(low), np.longdouble(high)
    with np.errstate(over="ignore"):
        for _ in range(200):
            middle = (low + high) / 2
            low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2


def log_density_by_sinh(log_density, mean, var, centre, width, num=20001):
    """log E exp(log_density(f)) in long double: trapezoidal rule in t, f = centre + width sinh(t).

    The nodes cover all of the mass, with small steps where the integrand is narrow.
    """
    mean, var, width = np.longdouble(mean), np.longdouble(var), np.longdouble(width)
    end = np.arcsinh((abs(centre - mean) + 60 * np.sqrt(var)) / width)
    t = np.linspace(-end, end, num)
    f = centre + width * np.sinh(t)
    logs = log_density(f) - (f - mean) ** 2 / (2 * var)
    top = logs.max()
    mass = (np.exp(logs - top) * np.cosh(t)).sum() * (t[1] - t[0]) * width
    return top + np.log(mass) - np.log(2 * np.longdouble(pi) * var) / 2


def expectation(g, mean, var, at=()):
    """E g(f), f ~ N(mean, var), by adaptive quadrature on 12 standard deviations to each side.

    at : kinks
    """
    sd = sqrt(var)
    edges = [mean + sd * t for t in (-12, -6, -3, -1, 0, 1, 3, 6, 12)]
    edges = sorted(edges + [a for a in at if edges[0] < a < edges[-1]])
    total = 0.0
    for a, b in zip(edges, edges[1:], strict=False):
        total += quad(
            lambda f: g(f) * exp(gaussian(f, mean, var)),
            a,
            b,
            epsabs=1e-13,
            epsrel=1e-12,
            limit=200,
        )[0]
    return total


def expected_log_prob(log_density, y, mean, var):
    return expectation(lambda f: log_density(y, f), mean, var, at=[y])


def log_density(log_density, y, mean, var):
    """log E p(y | f), scaled to the largest value of the integrand to avoid underflow."""
    sd = np.sqrt(var)
    edges = np.unique(
        np.concatenate([mean + 12 * sd * np.linspace(-1, 1, 49), np.linspace(mean - 12 * sd, y, 9)])
    )
    logs = [log_density(y, f) + gaussian(f, mean, var) for f in edges]
    top = max(logs)

    def integrand(f):
        return exp(log_density(y, f) + gaussian(f, mean, var) - top)

    pieces = zip(edges, edges[1:], strict=False)
    return top + np.log(
        sum(quad(integrand, a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for a, b in pieces)
    )


def largest(mean, var):
    """P(class c is the largest) for every c, by adaptive quadrature over f_c."""
    sd = np.sqrt(var)

    def one(c):
        return lambda f: np.prod([ndtr((f - mean[j]) / sd[j]) for j in range(len(mean)) if j != c])

    return np.array([expectation(one(c), mean[c], var[c]) for c in range(len(mean))])


def softmax(mean, var, num=60):
    """E log-sum-exp and E softmax for three classes: a product Gauss-Hermite rule of 60^3 nodes."""
    z, w = np.polynomial.hermite_e.hermegauss(num)
    w = w / w.sum()
    nodes = np.stack(np.meshgrid(z, z, z, indexing="ij"))
    weights = np.einsum("i,j,k->ijk", w, w, w)
    f = np.asarray(mean)[:, None, None, None] + np.sqrt(var)[:, None, None, None] * nodes
    top = f.max(axis=0)
    e = np.exp(f - top)
    return (weights * (top + np.log(e.sum(axis=0)))).sum(), (weights * e / e.sum(axis=0)).sum(
        axis=(1, 2, 3)
    )
