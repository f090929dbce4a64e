"""Moments of f at an uncertain input, by definition: a trapezoid rule over the input.

Imports nothing of the package under test. ``k`` is a function (X1, X2) -> matrix; q(u) = N(m, S);
``Kuu`` includes the jitter. The rule has no error but rounding for smooth functions.
"""

import itertools

import numpy as np
from oracles.linear_algebra import solve


def moments(k, Kuu, Z, m, S, mean, root, width=9.0, steps=121):
    """Return mean and variance of f(x), and Cov(x, f(x)), for x = mean + root t, t ~ N(0, I)."""
    t = np.linspace(-width, width, steps)
    nodes = np.array(list(itertools.product(t, repeat=len(mean))))
    weights = np.exp(-0.5 * (nodes**2).sum(axis=1))
    weights = weights / weights.sum()
    x = mean + nodes @ root.T
    A = solve(Kuu, k(Z, x))  # (M, nodes)
    prior = np.array([k(one[None], one[None])[0, 0] for one in x])
    f = A.T @ m
    v = prior - (A * ((Kuu - S) @ A)).sum(axis=0)
    centre = weights @ f
    return centre, weights @ (v + (f - centre) ** 2), (weights * (f - centre)) @ (x - mean)
