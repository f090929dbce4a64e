"""Likelihoods by definition, one datum at a time; expectations by adaptive or brute-force integration. Slow, obvious."""

from math import exp, lgamma, log, pi, sqrt

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


def expectation(g, mean, var, at=()):
    """E g(f), f ~ N(mean, var), by adaptive quadrature on pieces of 12 standard deviations to each side; ``at``: kinks."""
    sd = sqrt(var)
    edges = [mean + sd * t for t in (-12, -6, -3, -1, 0, 1, 3, 6, 12)]
    edges = sorted(edges + [a for a in at if edges[0] < a < edges[-1]])
    total = 0.0
    for a, b in zip(edges, edges[1:], strict=False):
        total += quad(lambda f: g(f) * exp(gaussian(f, mean, var)), a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
    return total


def expected_log_prob(log_density, y, mean, var):
    return expectation(lambda f: log_density(y, f), mean, var, at=[y])


def log_density(log_density, y, mean, var):
    """log E p(y | f); scaled to the largest value of the integrand, so that nothing is lost where all are tiny."""
    sd = np.sqrt(var)
    edges = np.unique(np.concatenate([mean + 12 * sd * np.linspace(-1, 1, 49), np.linspace(mean - 12 * sd, y, 9)]))
    logs = [log_density(y, f) + gaussian(f, mean, var) for f in edges]
    top = max(logs)

    def integrand(f):
        return exp(log_density(y, f) + gaussian(f, mean, var) - top)

    pieces = zip(edges, edges[1:], strict=False)
    return top + np.log(sum(quad(integrand, a, b, epsabs=1e-13, epsrel=1e-11, limit=200)[0] for a, b in pieces))


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
    return (weights * (top + np.log(e.sum(axis=0)))).sum(), (weights * e / e.sum(axis=0)).sum(axis=(1, 2, 3))
