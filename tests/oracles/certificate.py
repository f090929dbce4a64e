"""Evidence of exact processes, and bounds of it from above, on dense matrices.

K = Kff and Q = Kfu Kuu^-1 Kuf are (N, N). A weight w of a row is that of its log density.
"""

import numpy as np
from oracles.gp import LOG_2PI, log_normal
from oracles.linear_algebra import cholesky, solve


def log_det(A):
    return 2 * np.log(cholesky(A).diagonal()).sum()


def evidence(K, y, noise, w):
    """log of the integral of N(f | 0, K) prod N(y_n | f_n, noise)^w_n."""
    scale = 0.5 * np.log(2 * np.pi * noise / w) - 0.5 * w * np.log(2 * np.pi * noise)
    return log_normal(y, np.zeros_like(y), K + np.diag(noise / w)) + scale.sum()


def above(K, Q, y, noise, w, v):
    """The bound of ``evidence`` from above that a vector v gives."""
    C, A = K + np.diag(noise / w), Q + np.diag(noise / w)
    scale = 0.5 * np.log(noise / w) - 0.5 * w * (LOG_2PI + np.log(noise))
    return scale.sum() - 0.5 * log_det(A) - 0.5 * (y @ v) ** 2 / (v @ C @ v)


def product_bound(K, Q, y, noise, w):
    mean = np.sum(w * (K - Q).diagonal()) / w.sum()
    return above(K, Q, y, noise, w, solve(Q + np.diag((noise + mean) / w), y))


def titsias(K, Q, y, noise, w):
    total = np.sum(w * (K - Q).diagonal())
    v = solve(Q + np.diag((noise + total) / w), y)
    return above(Q + np.diag(total / w), Q, y, noise, w, v)


def by_duality(K, Q, prior, expected, slopes, m, v):
    """Bound from above of sum E(m, v) - KL over all Gaussians, by tangents at (m, v).

    expected : sum of E(m, v); slopes : its derivatives (dE/dm, dE/dv)
    """
    a, lam = slopes[0], -2 * slopes[1]
    tangent = expected - a @ (m - prior) + 0.5 * lam @ v
    root = np.sqrt(lam)
    return (
        tangent
        + 0.5 * a @ K @ a
        - 0.5 * log_det(np.eye(len(a)) + root[:, None] * Q * root[None, :])
    )
