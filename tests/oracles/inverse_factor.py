"""Dense, obvious forms of the natural-gradient update towards chol(A^-1).

Imports nothing of fastsvgp.
"""

import numpy as np


def deviation(A, L):
    """E - I for E = L' A L."""
    return L.T @ A @ L - np.eye(len(A))


def residual(A, L):
    """Normalised residual, eq. (8) of the inverse-free paper."""
    return np.linalg.norm(deviation(A, L)) / np.sqrt(len(A))


def step(A, L, g):
    """Eq. (6) as printed."""
    E = L.T @ A @ L
    return L - g * L @ (np.tril(E) - (np.eye(len(A)) + np.diag(np.diag(E))) / 2)


def objective(A, L):
    """KL[N(0, L L') || N(0, A^-1)], eq. (5)."""
    M = len(A)
    return (
        np.trace(A @ L @ L.T) - M - np.linalg.slogdet(A)[1] - 2 * np.log(np.abs(np.diag(L))).sum()
    ) / 2


def inverse_factor(A):
    """Lower W with W W' = A^-1 and a positive diagonal."""
    return np.linalg.cholesky(np.linalg.inv(A))


def variances(A, Kuf, kff, dtype=float):
    """kff - k' A^-1 k; in a wider ``dtype`` by iterative refinement of a float64 solve."""
    x = np.linalg.solve(A, Kuf).astype(dtype)
    for _ in range(20 if dtype is not float else 0):
        x += np.linalg.solve(A, (Kuf.astype(dtype) - A.astype(dtype) @ x).astype(float))
    return kff - (Kuf.astype(dtype) * x).sum(0)


def slack(A, L, Kuf):
    """||(I - A T) k||^2 of each column k, T = L L'."""
    L = np.tril(L)
    return ((Kuf - A @ L @ L.T @ Kuf) ** 2).sum(0)


def variance_bounds(A, L, Kuf, kff, s):
    """(U_n, L_n) of eq. (3) and (9), term by term."""
    M = len(A)
    L = np.tril(L)
    T = L @ L.T
    minus = A - s * np.eye(M)
    upper = kff - np.diag(Kuf.T @ (2 * T - T @ A @ T) @ Kuf)
    inner = np.eye(M) - 2 * T @ minus + T @ minus @ A @ T
    return upper, kff - np.diag(Kuf.T @ inner @ Kuf) / s
