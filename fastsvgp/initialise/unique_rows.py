"""The distinct rows of inputs with their weights: a row of weight 2 is the same as two rows."""

import numpy as np

from ..records import is_record

SORTED = 20_000  # rows up to which equal ones are looked for


def distinct(X, weights=None):
    """The distinct rows of X, sorted, with the sum of the weights of each; of very many rows X itself."""
    if len(X) > SORTED:
        return X, weights
    rows, which = np.unique(X, axis=0, return_inverse=True)
    return rows, np.bincount(which.ravel(), weights, len(rows))


def are_the_rows(inducing, X):
    """Whether the inducing inputs are the distinct rows of X."""
    return not is_record(inducing) and np.array_equal(inducing, distinct(X)[0])
