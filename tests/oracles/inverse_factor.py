"""Dense, obvious forms of the natural-gradient update towards chol(A^-1). Imports nothing of fastsvgp."""

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
    return (np.trace(A @ L @ L.T) - M - np.linalg.slogdet(A)[1] - 2 * np.log(np.abs(np.diag(L))).sum()) / 2


def inverse_factor(A):
    """Lower W with W W' = A^-1 and a positive diagonal."""
    return np.linalg.cholesky(np.linalg.inv(A))
