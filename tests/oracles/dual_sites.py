"""q(u) from tied sites, by definition. Analytic; imports nothing of the package."""

import numpy as np
from oracles.linear_algebra import solve


def q_of_u(Kuu, lambda1, lambda2, dual):
    """Mean and covariance; of ``lambda2`` the lower triangle is read."""
    lower = np.tril(lambda2)
    lambda2 = lower + np.tril(lambda2, -1).T
    eye = np.eye(len(Kuu), dtype=Kuu.dtype)
    if dual:
        S = Kuu @ solve(Kuu + lambda2, Kuu)
        return Kuu @ solve(Kuu + lambda2, lambda1), S
    S = solve(solve(Kuu, eye) + lambda2, eye)
    return S @ lambda1, S
