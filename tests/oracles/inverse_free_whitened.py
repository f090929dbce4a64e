"""The inverse-free whitened bound by its definition: dense, obvious.

Imports nothing of the package under test.
"""

import numpy as np
from oracles.linear_algebra import log_det


def implicit_step(K, R):
    """R after one unit natural-gradient step, as eq. (6) of the inverse-free paper is printed."""
    E = R.T @ K @ R
    return R - R @ (np.tril(E) - (np.eye(len(K)) + np.diag(np.diag(E))) / 2)


def q_of_u(K, T, m, S):
    """Mean and covariance of the q(u) behind the bound (appendix S4)."""
    KT = K @ T
    return KT @ m, K + KT @ (T.T @ K @ T - 2 * np.eye(len(K)) + S) @ KT.T


def marginals(K, T, m, S, Kuf, kff):
    """(mean, variance), section 2."""
    half = T.T @ Kuf
    inner = T.T @ K @ T - 2 * np.eye(len(K)) + S
    return half.T @ m, kff + (half * (inner @ half)).sum(axis=0)


def kl_bound(K, T, m, S):
    """The printed upper bound of KL[q(u) || p(u)], its last divergence bounded."""
    A = T.T @ K @ T
    M = len(K)
    d = np.sqrt(((A - np.eye(M)) ** 2).sum())
    return (
        m @ A @ m - log_det(S) + np.trace((S - 3 * np.eye(M) + A) @ A) + M - d - np.log(1 - d)
    ) / 2


def cotangents(K, R, m, W, Kuf, a, b, kappa):
    """Dense cotangents of m, W, K and Kuf from a, b, kappa of mean, variance and KL."""
    I = np.eye(len(K), dtype=K.dtype)  # noqa: E741
    T = implicit_step(K, R).astype(K.dtype)
    S, D, half = W @ W.T, T.T @ K @ T - I, T.T @ Kuf
    d = np.linalg.norm(D)
    G = 2 * (half * b) @ half.T
    half_bar = np.outer(m, a) + 2 * ((S + D - I) @ half) * b
    D_bar = (G + kappa * (np.outer(m, m) + S + 2 * D - I + D / (1 - d))) / 2
    T_bar = np.tril(Kuf @ half_bar.T + 2 * K @ T @ D_bar)
    C = np.tril(R.T @ T_bar)
    C = C + C.T
    C[np.diag_indices(len(C))] /= 2  # Phi(C) + Phi(C)'
    W_bar = np.tril((G + kappa * (I + D)) @ W) - kappa * np.diag(1 / np.diag(W))
    return half @ a + kappa * (m + D @ m), W_bar, T @ D_bar @ T.T - R @ C @ R.T / 2, T @ half_bar
