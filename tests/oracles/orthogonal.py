"""SOLVE-GP by definition: independent Gaussians u = f(Z) and v, the residual of f(O).

Imports nothing of the package.

``K`` is the prior covariance of (Z, O), ``K_f`` (M + M2, N) that with the function; q(u) q(v) is
N(m_u, S_u) N(m_v, S_v), and v has the prior covariance of f(O) given u. Analytic in all of it.
"""

import numpy as np
from oracles.gp import kl_gaussians, log_normal
from oracles.linear_algebra import cholesky, solve


def rest(K, M):
    """C_vv, the prior covariance of v, and the weights of u in f(O)."""
    A = solve(K[:M, :M], K[:M, M:])
    return K[M:, M:] - K[M:, :M] @ A, A


def joint(K, K_f, Kff, m_u, S_u, m_v, S_v):
    """Mean (N,) and covariance (N, N) of the function."""
    M = len(m_u)
    C, A = rest(K, M)
    of_u, of_v = solve(K[:M, :M], K_f[:M]), solve(C, K_f[M:] - A.T @ K_f[:M])
    mean = of_u.T @ m_u + of_v.T @ m_v
    prior = Kff - of_u.T @ K[:M, :M] @ of_u - of_v.T @ C @ of_v
    return mean, prior + of_u.T @ S_u @ of_u + of_v.T @ S_v @ of_v


def kl(K, m_u, S_u, m_v, S_v):
    M = len(m_u)
    return kl_gaussians(m_u, S_u, np.zeros_like(m_u), K[:M, :M]) + kl_gaussians(
        m_v, S_v, np.zeros_like(m_v), rest(K, M)[0]
    )


def unwhitened(K, m_u, W_u, m_v, W_v):
    """``(m_u, S_u, m_v, S_v)`` from parameters whitened by the factors of the two priors."""
    L_u, L_v = cholesky(K[: len(m_u), : len(m_u)]), cholesky(rest(K, len(m_u))[0])
    return L_u @ m_u, L_u @ W_u @ W_u.T @ L_u.T, L_v @ m_v, L_v @ W_v @ W_v.T @ L_v.T


def from_weights(K, m_u, W_u, w):
    """``(m_u, S_u, m_v, S_v)`` from whitened parameters of u and the weights of v.

    v has the covariance of the prior.
    """
    L, C = cholesky(K[: len(m_u), : len(m_u)]), rest(K, len(m_u))[0]
    return L @ m_u, L @ W_u @ W_u.T @ L.T, C @ w, C


def stacked(K, m_u, S_u, m_v, S_v):
    """Mean and covariance of f(Z, O)."""
    M = len(m_u)
    A = rest(K, M)[1]
    cross = A.T @ S_u
    S = np.block([[S_u, cross.T], [cross, A.T @ S_u @ A + S_v]])
    return np.concatenate([m_u, A.T @ m_u + m_v]), S


def collapsed(K, K_f, kff, M, y, noise, m_v=None, S_v=None):
    """The bound at the optimal q(u).

    q(v) is given, or its mean is given and its covariance is the prior's, or q(v) is optimal too.
    """
    C, A = rest(K, M)
    of_v = solve(C, K_f[M:] - A.T @ K_f[:M])
    Q, of_both = K_f[:M].T @ solve(K[:M, :M], K_f[:M]), of_v.T @ C @ of_v
    I = np.eye(len(y))  # noqa: E741
    if m_v is None:
        m_v = C @ of_v @ solve(Q + of_both + noise * I, y)
        S_v = solve(solve(C, np.eye(len(C))) + of_v @ of_v.T / noise, np.eye(len(C)))
    S_v = C if S_v is None else S_v
    spread = kff - Q.diagonal() - of_both.diagonal() + (of_v.T @ S_v @ of_v).diagonal()
    fit = log_normal(y, of_v.T @ m_v, Q + noise * I)
    return fit - 0.5 / noise * spread.sum() - kl_gaussians(m_v, S_v, np.zeros_like(m_v), C)


def tighter(Kuu, Kuf, Kff, y, noise):
    """Equation 14 of Shi et al. 2020."""
    Q = Kuf.T @ solve(Kuu, Kuf)
    A = Q + noise * np.eye(len(y))
    return log_normal(y, np.zeros_like(y), A) - 0.5 * np.trace(solve(A, Kff - Q))
