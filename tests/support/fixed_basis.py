"""Dense oracles of a process in a basis of sines on a box; complex numbers pass through."""

import math

import numpy as np

NU = {"Matern12": 0.5, "Matern32": 1.5, "Matern52": 2.5, "RBF": None}


def features(X, basis):
    """Phi (n, m): products of sines of each group, with the last column varying fastest."""
    parts = []
    for group in basis.groups:
        part = np.ones((len(X), 1))
        for c in group:
            half = basis.boundary[c] * (basis.upper[c] - basis.lower[c]) / 2
            start = (basis.upper[c] + basis.lower[c]) / 2 - half
            j = np.arange(1, basis.num_functions[c] + 1)
            sines = np.sin(np.pi * (X[:, [c]] - start) / (2 * half) * j) / np.sqrt(half)
            part = (part[:, :, None] * sines[:, None]).reshape(len(X), -1)
        parts.append(part)
    return np.concatenate(parts, axis=1)


def frequencies(basis, group):
    """omega (m, D) of the functions of one group, in its columns."""
    axes = []
    for c in group:
        half = basis.boundary[c] * (basis.upper[c] - basis.lower[c]) / 2
        axes.append(np.pi * np.arange(1, basis.num_functions[c] + 1) / (2 * half))
    return np.stack([a.ravel() for a in np.meshgrid(*axes, indexing="ij")], 1)


def density(family, variance, scales, omega):
    """S(omega) (m,) of a stationary covariance; scales (D,)."""
    D, nu = omega.shape[1], NU[family]
    s = (np.square(omega) * np.square(scales)).sum(1)
    if nu is None:
        return variance * (2 * np.pi) ** (D / 2) * np.prod(scales) * np.exp(-s / 2)
    front = 2**D * np.pi ** (D / 2) * math.gamma(nu + D / 2) / math.gamma(nu) * (2 * nu) ** nu
    return variance * front * np.prod(scales) * (2 * nu + s) ** (-nu - D / 2)


def logdet(A):
    A, found = A.copy(), 0.0  # elimination without pivots: A is positive definite
    for i in range(len(A)):
        found = found + np.log(A[i, i])
        A[i + 1 :, i + 1 :] -= np.outer(A[i + 1 :, i], A[i, i + 1 :]) / A[i, i]
    return found


def bound(Phi, Lam, noise, y, prior=None, weights=None):
    """log N(y | 0, Phi Lam Phi' + noise / weights), less the trace term where ``prior`` is k(0)."""
    n = len(y)
    w = np.ones(n) if weights is None else weights
    K = Phi * Lam @ Phi.T + noise * np.diag(1 / w)
    value = -0.5 * (y @ np.linalg.solve(K, y) + logdet(K) + n * np.log(2 * np.pi))
    value += 0.5 * (n - w.sum()) * np.log(2 * np.pi * noise) - 0.5 * np.log(w).sum()
    if prior is None:
        return value
    return value - 0.5 * (w.sum() * prior - (w[:, None] * Phi**2 @ Lam).sum()) / noise
