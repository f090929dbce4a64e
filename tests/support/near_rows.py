"""Rows given their near rows, one at a time in plain NumPy; complex numbers pass through."""

import numpy as np


def near_rows_problem(rng, n, k, u, M):
    """Return ``(K, Lam, rows, noise)``, with absent rows, and rows that come again."""
    rows = rng.integers(0, u, (n, k + 1))
    rows[:, :k][rng.uniform(size=(n, k)) < 0.2] = -1
    Lam = 0.3 * rng.standard_normal((u, M)) / np.sqrt(M)
    root = rng.standard_normal((n, k + 1, k + 3))
    K = root @ np.swapaxes(root, 1, 2) / (k + 3) + np.eye(k + 1)
    return K, Lam, rows, rng.uniform(0.1, 1, (n, k))


def near_rows_oracle(K, Lam, rows, noise):
    """Return ``(a, s, phi, factor)``; a factor of complex matrices is not that of their parts."""
    n, k = noise.shape
    dtype = np.result_type(K, Lam)
    a, s, phi = np.zeros((n, k), dtype), np.zeros(n, dtype), np.zeros((n, Lam.shape[1]), dtype)
    factor = np.zeros((n, k, k))
    for i in range(n):
        here = np.flatnonzero(rows[i] >= 0)
        lam, near = Lam[rows[i, here]], here[:-1]
        lower = np.tril(K[i])
        R = (lower + np.tril(lower, -1).T)[np.ix_(here, here)] - lam @ lam.T
        A = R[:-1, :-1] + np.diag(noise[i, near])
        a[i, near] = np.linalg.solve(A, R[:-1, -1])
        s[i] = R[-1, -1] - a[i, near] @ R[:-1, -1]
        phi[i] = lam[-1] - a[i, near] @ lam[:-1]
        factor[i] = np.eye(k)
        factor[i][np.ix_(near, near)] = np.linalg.cholesky(A.real)
    return a, s, phi, factor
