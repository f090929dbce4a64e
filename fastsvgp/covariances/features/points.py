"""Points of functions, in runs that fit a chunk: (N, D) of all functions, or (S, n, D) of each."""

from ... import kernels


def as_rows(X):
    """Return points as rows (N, D) or (S n, D)."""
    return X.reshape(-1, X.shape[-1])


def runs(X, M):
    """Yield slices of functions and points: a chunk holds M numbers for each point of a slice.

    Functions of shared points are not divided. Own points come for several functions at a time, or
    in parts for one.
    """
    most = max(1, kernels.chunk_numbers(X) // M)
    S, n = (1, len(X)) if X.ndim == 2 else X.shape[:2]
    each = max(1, most // max(1, n))
    for first in range(0, S, each):
        functions = slice(None) if X.ndim == 2 else slice(first, first + each)
        for start in range(0, n, most):
            yield functions, slice(start, start + most)


def point_runs(X, numbers):
    """Yield slices of the points: a chunk holds ``numbers`` numbers for each point of a slice.

    Functions with points of their own are not divided.
    """
    n, step = X.shape[-2], max(1, kernels.chunk_numbers(X) // max(1, numbers))
    for start in range(0, n, step):
        yield slice(start, start + step)


def points_at(X, functions, points):
    """Return the rows (.., D) of points X in a run."""
    return X[points] if X.ndim == 2 else as_rows(X[functions, points])
