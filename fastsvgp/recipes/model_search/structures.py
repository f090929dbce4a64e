"""Structures of a covariance: two smoothnesses, a function for each code, parts of one input.

They begin at trained lengthscales. On few rows exact processes with them are compared by their
leave-one-out densities.
"""

import numpy as np

from ...covariances import RBF, Linear, Matern12, Matern32, Matern52, On, Periodic, Sum
from ...inducing.spectrum import peaks

SHARE = 0.2  # of the variance for the parts of one input each, together
CODES, EACH, COLUMNS = 64, 20, 1  # values of a code, rows of each, columns that are tried
MOST = 30  # inputs that have parts of their own
CYCLIC, WAVES, TURNS = 3, 2, 2  # inputs that can have cycles, how many each, fewest turns
SAMPLED = 2000  # rows from which a spectrum is computed


def structures(covariance, X):
    """Yield names and covariances of other structures, which begin at a trained plain one.

    X : (N, D) rows in the units of the covariance; constant columns have no part of their own
    """
    parts = covariance.parts if isinstance(covariance, Sum) else (covariance,)
    linear = tuple(one for one in parts if isinstance(one, Linear))
    smooth = next(one for one in parts if not isinstance(one, Linear))
    v, lengthscales = float(smooth.variance), smooth.lengthscales
    two = Matern12(v / 2, 2 * lengthscales), Matern52(v / 2, lengthscales)
    yield "Matern12 + Matern52", Sum((*linear, *two))
    for d in code_columns(X):
        values = np.unique(X[:, d])
        apart = lengthscales.copy()
        apart[d] = np.diff(values).min() / 3
        others = tuple(e for e in range(X.shape[1]) if e != d)
        shared = On(Matern32(v / 2, lengthscales[list(others)]), others)
        yield f"column {d} as codes", Sum((*linear, shared, Matern32(v / 2, apart)))
    varying = np.flatnonzero(np.ptp(X, axis=0) > 0)
    if not 1 < len(varying) <= MOST:
        return
    each = SHARE * max(v, 0.1) / len(varying)
    for kind in (Matern12, Matern32):
        single = [On(kind(each, np.ones(1)), (int(d),)) for d in varying]
        yield f"one-dimensional {kind.__name__}", Sum((*linear, Matern32(v, lengthscales), *single))


def code_columns(X):
    """Return the columns that may hold codes: at most ``CODES`` values, each in several rows."""
    if X.shape[1] < 2:
        return []
    sizes = [np.unique(column, return_counts=True)[1] for column in X.T]
    found = [
        d
        for d, counts in enumerate(sizes)
        if 2 < len(counts) <= CODES and np.median(counts) >= EACH
    ]
    return sorted(found, key=lambda d: -len(sizes[d]))[:COLUMNS]


def cycles(covariance, X, y):
    """Yield a name and the covariance with cycles, if the spectrum of y has peaks.

    X : (N, D) rows in the units of the covariance, at most ``CYCLIC`` columns; y : (N,) residuals
    """
    columns = range(X.shape[1]) if X.shape[1] <= CYCLIC else ()
    found = [wave for d in columns for wave in waves(X, y, d)]
    if found:
        parts = covariance.parts if isinstance(covariance, Sum) else (covariance,)
        yield "cycles", Sum((*parts, *found))


def waves(X, y, column):
    """Return periodic covariances of a column at the peaks of the spectrum of y (N,)."""
    some = slice(None, None, -(-len(X) // SAMPLED))
    x, y = X[some, column], y[some]
    return [
        On(Periodic(RBF(SHARE, np.ones(1)), period=np.array([1 / frequency])), (column,))
        for _, frequency in peaks(x, y, WAVES)
        if frequency * np.ptp(x) >= TURNS
    ]
