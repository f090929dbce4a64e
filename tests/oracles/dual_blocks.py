"""The dual of the bound in the mean of the weights, dense: optimum, dual, and a block's step."""

import numpy as np


def optimal_mean(phi, y, noise):
    """Return the mean (m,) that maximises -|y - phi mu|^2 / (2 noise) - |mu|^2 / 2."""
    return np.linalg.solve(phi.T @ phi + noise * np.eye(phi.shape[1]), phi.T @ y)


def primal(phi, y, noise, mean):
    """Return the bound in the mean, up to a constant."""
    return -np.sum((y - phi @ mean) ** 2) / (2 * noise) - mean @ mean / 2


def dual(K, y, noise, a):
    """Return the upper bound of the largest primal value, with K = phi phi'."""
    return noise * a @ a / 2 + a @ K @ a / 2 - a @ y


def block_step(K, stand_in, y, noise, a, rows):
    """Return the dual variables (N,) after the best step along the solution for some rows."""
    residual = (y - K @ a - noise * a)[rows]
    d = np.linalg.solve(stand_in + noise * np.eye(len(rows)), residual)
    size = (d @ residual) / (d @ K[np.ix_(rows, rows)] @ d + noise * d @ d)
    after = a.copy()
    after[rows] += size * d
    return after
