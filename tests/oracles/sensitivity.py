"""Mean effects and Sobol' indices by their definitions: loops over rows and over all combinations.

``m(X)`` (N,) and ``k(X)`` (N, N) are the mean and covariance of a process at rows.
"""

import itertools

import numpy as np


def effect(m, k, X, columns, point):
    """Mean and variance of the average over rows whose ``columns`` are at ``point``."""
    rows = []
    for x in X:
        x = np.array(x)
        x[list(columns)] = point
        rows.append(x)
    rows = np.array(rows)
    n, K, variance = len(rows), k(rows), 0.0
    for i in range(n):
        for j in range(n):
            variance += K[i, j] / n**2
    return sum(m(rows)) / n, variance


def first_order(f, X, groups):
    """Indices of f (N,) at all combinations of the values of groups, which cover the columns."""
    n, values = len(X), np.empty((len(X),) * len(groups))
    for rows in itertools.product(range(n), repeat=len(groups)):
        x = np.empty((1, X.shape[1]))
        for row, group in zip(rows, groups, strict=True):
            x[0, list(group)] = X[row, list(group)]
        values[rows] = f(x)[0]
    axes = range(len(groups))
    effects = [values.mean(axis=tuple(a for a in axes if a != c)) for c in axes]
    return np.array([np.var(effect) for effect in effects]) / np.var(values)
