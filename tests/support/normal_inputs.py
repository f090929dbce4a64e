"""Bumps and rises over normal inputs in plain NumPy; complex numbers pass through."""

import numpy as np


def normal_inputs_problem(rng, N, M, D, P, scale=1.0):
    """Return ``(mean, Z, values, kappa, nu, shift)``, symmetric G and weights (N, P)."""
    mean, Z = rng.standard_normal((N, D)), rng.standard_normal((M, D))
    kappa = scale * rng.uniform(0, 1, (N, D))
    nu = kappa * rng.uniform(0, 1, (N, D))
    values = np.exp(-scale * rng.uniform(1, 3, (N, M))) * rng.choice([-1.0, 1.0], (N, M))
    G = rng.standard_normal((P, M, M))
    given = mean, Z, values, kappa, nu, rng.uniform(0, 0.5, N)
    return given, G + np.swapaxes(G, 1, 2), rng.standard_normal((N, P))


def turned(mean, Z, turn=None):
    """Return e (N, M, D)."""
    e = mean[:, None] - Z
    return e if turn is None else e @ turn


def bumps_oracle(mean, Z, precision, logs, turn=None):
    e = turned(mean, Z, turn)
    return np.exp(logs[:, None] - 0.5 * (precision[:, None] * e**2).sum(-1))


def rises_oracle(mean, Z, values, kappa, nu, shift, turn=None):
    """Return R (N, M, M), with expm1 by a series where it is small, for complex steps."""
    e = turned(mean, Z, turn)
    h = 0.5 * (nu[:, None] * e**2).sum(-1)
    x = np.einsum("nid,nd,njd->nij", e, kappa, e) - h[:, :, None] - h[:, None]
    x = x + shift[:, None, None]
    return values[:, :, None] * values[:, None] * (np.exp(x) - 1)
