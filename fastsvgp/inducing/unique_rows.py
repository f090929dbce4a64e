"""Distinct rows of inputs with weights: a row of weight 2 is equivalent to two equal rows."""

import numpy as np

from ..records import is_record

SORTED = 20_000  # largest number of rows that is searched for duplicates


def distinct(X, weights=None):
    """Distinct rows of X, sorted, with summed weights; X itself above ``SORTED`` rows."""
    if len(X) > SORTED:
        return X, weights
    rows, which = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(which.ravel(), weights, len(rows))


def are_the_rows(inducing, X):
    """Whether the inducing inputs are the distinct rows of X."""
    return not is_record(inducing) and np.array_equal(inducing, distinct(X)[0])
