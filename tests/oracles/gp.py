"""Gaussian processes by definition: dense, slow, obvious.

Imports nothing of the package under test.

``k`` is a function (X1, X2) -> matrix; ``Kuu`` includes any jitter. All functions work in the dtype
of their arguments and are analytic in them: in extended precision, and by complex steps, they give
the reference values of gradients.
"""

import numpy as np
from oracles.linear_algebra import cholesky, solve, solve_lower

LOG_2PI = float(np.log(2 * np.pi))


# --- covariances --------------------------------------------------------------------------------


def distance(X1, X2, lengthscales):
    difference = (X1[:, None, :] - X2[None, :, :]) / lengthscales
    return np.sqrt((difference**2).sum(axis=-1))


def rbf(variance, lengthscales):
    return lambda X1, X2: variance * np.exp(-(distance(X1, X2, lengthscales) ** 2) / 2)


def matern12(variance, lengthscales):
    return lambda X1, X2: variance * np.exp(-distance(X1, X2, lengthscales))


def matern32(variance, lengthscales):
    def k(X1, X2):
        s = np.sqrt(X1.dtype.type(3)) * distance(X1, X2, lengthscales)
        return variance * (1 + s) * np.exp(-s)

    return k


def matern52(variance, lengthscales):
    def k(X1, X2):
        s = np.sqrt(X1.dtype.type(5)) * distance(X1, X2, lengthscales)
        return variance * (1 + s + s**2 / 3) * np.exp(-s)

    return k


def linear(variance):
    return lambda X1, X2: (X1 * variance) @ X2.T


def constant(variance):
    return lambda X1, X2: np.full((len(X1), len(X2)), variance, np.result_type(X1, variance))


def sum_of(*parts):
    return lambda X1, X2: sum(k(X1, X2) for k in parts)


def product_of(*parts):
    def k(X1, X2):
        K = np.ones((len(X1), len(X2)), dtype=X1.dtype)
        for part in parts:
            K = K * part(X1, X2)
        return K

    return k


def diagonal(k, X):
    return np.array([k(x[None], x[None])[0, 0] for x in X])


# --- Gaussians ----------------------------------------------------------------------------------


def log_normal(y, mean, cov):
    L = cholesky(cov)
    e = solve_lower(L, y - mean)
    return -0.5 * (e @ e + len(y) * LOG_2PI) - np.log(L.diagonal()).sum()


def kl_gaussians(m0, S0, m1, S1):
    """KL[N(m0, S0) || N(m1, S1)]."""
    L0, L1 = cholesky(S0), cholesky(S1)
    e, ratio = solve_lower(L1, m1 - m0), solve_lower(L1, L0)
    return 0.5 * ((ratio**2).sum() + e @ e - len(m0)) + np.log(L1.diagonal() / L0.diagonal()).sum()


# --- exact Gaussian process regression ----------------------------------------------------------


def exact_log_marginal(k, X, y, noise):
    return log_normal(y, np.zeros_like(y), k(X, X) + noise * np.eye(len(y)))


def exact_predict(k, X, y, noise, Xs):
    """Mean and covariance of f at Xs given y."""
    Kyy, Ksx = k(X, X) + noise * np.eye(len(y)), k(Xs, X)
    return Ksx @ solve(Kyy, y), k(Xs, Xs) - Ksx @ solve(Kyy, Ksx.T)


# --- sparse ones --------------------------------------------------------------------------------


def titsias_bound(Kuu, Kuf, kff, y, noise):
    """log N(y | 0, Qff + noise I) - tr(Kff - Qff) / (2 noise), Qff = Kfu Kuu^-1 Kuf."""
    Qff = Kuf.T @ solve(Kuu, Kuf)
    return log_normal(y, np.zeros_like(y), Qff + noise * np.eye(len(y))) - (
        kff.sum() - np.trace(Qff)
    ) / (2 * noise)


def optimal_q(Kuu, Kuf, y, noise):
    """Mean and covariance of the q(u) that attains Titsias' bound."""
    A = solve(Kuu + Kuf @ Kuf.T / noise, Kuu)
    S = Kuu @ A
    return A.T @ (Kuf @ y) / noise, (S + S.T) / 2


def unwhitened(Kuu, mean, scale_tril):
    """q(u) = N(m, S) from q(v) = N(mean, W W'), u = L v, L = chol(Kuu)."""
    L = cholesky(Kuu)
    LW = L @ scale_tril
    return L @ mean, LW @ LW.T


def marginals(Kuu, Kuf, kff, m, S):
    """Mean and variance of f at each point of the batch, under q(u) = N(m, S)."""
    A = solve(Kuu, Kuf)
    return A.T @ m, kff - (Kuf * A).sum(axis=0) + (A * (S @ A)).sum(axis=0)


def joint(Kuu, Kuf, Kff, m, S):
    """Mean and full covariance of f at the batch, under q(u) = N(m, S)."""
    A = solve(Kuu, Kuf)
    return A.T @ m, Kff - Kuf.T @ A + A.T @ S @ A


def gauss_hermite(log_density, mean, var, points):
    """Sum E log p(y | f), f ~ N(mean, var), over the data by the Gauss-Hermite rule.

    log_density(f) maps (N,) to (N,).
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(points)
    weights = weights / np.sqrt(2 * np.pi)
    return sum(
        w * log_density(mean + np.sqrt(var) * z).sum() for z, w in zip(nodes, weights, strict=True)
    )


def gaussian_expectation(y, noise, mean, var):
    return (-0.5 * (LOG_2PI + np.log(noise)) - ((y - mean) ** 2 + var) / (2 * noise)).sum()


def elbo(Kuu, Kuf, kff, m, S, expectation, scale=1.0):
    """scale * sum_n E_q log p(y_n | f_n) - KL[q(u) || p(u)]; ``expectation`` gives that sum."""
    data = expectation(*marginals(Kuu, Kuf, kff, m, S))
    return scale * data - kl_gaussians(m, S, np.zeros_like(m), Kuu)
