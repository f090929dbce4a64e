"""Likelihoods by definition: densities from scipy.stats, expectations by adaptive or brute-force integration. Slow, obvious."""

import numpy as np
from scipy import stats
from scipy.integrate import quad
from scipy.special import expit, log_expit, log_ndtr, ndtr


def gaussian(y, f, variance):
    return stats.norm.logpdf(y, f, np.sqrt(variance))


def probit(y, f):
    return log_ndtr(f if y == 1 else -f)


def logit(y, f):
    return log_expit(f if y == 1 else -f)


def poisson(y, f, exposure):
    return stats.poisson.logpmf(y, exposure * np.exp(f))


def laplace(y, f, scale):
    return stats.laplace.logpdf(y, f, scale)


def student_t(y, f, scale, df):
    return stats.t.logpdf(y, df, f, scale)


def expectation(g, mean, var, at=()):
    """E g(f), f ~ N(mean, var), by adaptive quadrature on pieces of 12 standard deviations to each side; ``at``: kinks."""
    sd = np.sqrt(var)
    edges = [mean + sd * t for t in (-12, -6, -3, -1, 0, 1, 3, 6, 12)]
    edges = sorted(edges + [a for a in at if edges[0] < a < edges[-1]])
    total = 0.0
    for a, b in zip(edges, edges[1:], strict=False):
        total += quad(lambda f: g(f) * stats.norm.pdf(f, mean, sd), a, b, epsabs=1e-13, epsrel=1e-12, limit=200)[0]
    return total


def expected_log_prob(log_density, y, mean, var):
    return expectation(lambda f: log_density(y, f), mean, var, at=[y])


def log_density(log_density, y, mean, var):
    """log E p(y | f)."""
    return np.log(expectation(lambda f: np.exp(log_density(y, f)), mean, var, at=[y, mean + (y - mean) * 0.99]))


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


def sigmoid_mean(mean, var):
    return expectation(expit, mean, var)
