"""The distinct rows of inputs with their weights, and what depends on these alone: a row of weight 2 is the same as two rows."""

import numpy as np

from ..records import is_record

SORTED = 20_000  # rows up to which equal ones are looked for


def distinct(X, weights=None):
    """The distinct rows of X, sorted, with the sum of the weights of each; of very many rows X itself."""
    if len(X) > SORTED:
        return X, weights
    rows, which = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(which.ravel(), weights, len(rows))


def medians(X, shares, ard):
    """The median heuristic over all pairs of distinct rows, each pair as often as its rows come together."""
    first, second = np.triu_indices(len(X), 1)
    weights, columns = (
        shares[first] * shares[second],
        np.abs(X[first] - X[second]).astype(np.float64),
    )
    if not ard:
        median = _median(np.sqrt(np.square(columns).sum(axis=1)), weights)
        return 1.0 if median is None else median
    medians = [_median(column, weights) for column in columns.T]
    return np.array([1.0 if m is None else np.sqrt(X.shape[1]) * m for m in medians], X.dtype)


def _median(distances, weights):
    """The weighted median of those above zero; None where there are none."""
    distances, weights = distances[distances > 0], weights[distances > 0]
    if not distances.size:
        return None
    order = np.argsort(distances, kind="stable")
    below = np.cumsum(weights[order])
    return float(distances[order[np.searchsorted(below, 0.5 * below[-1])]])


def are_the_rows(inducing, X):
    """Whether the inducing inputs are the distinct rows of X."""
    return not is_record(inducing) and np.array_equal(inducing, distinct(X)[0])
