"""Shorter initial lengthscales, for functions of many cycles.

From the median distance of rows, a sine of many cycles looks like noise, and L-BFGS converges to
pure noise. The bound at the start tells which lengthscales explain something. It is below that of
pure noise for such a sine, and above it for common tables, which keep the median distance.
"""

import numpy as np

from ..collapsed.sgpr import collapsed_bound
from ..errors import NotPositiveDefinite
from ..optim.flat import free_paths
from ..records import leaves, replace_at

DIVISORS = 4, 16, 64


def bound_of_noise(model, X, Y, weights=None):
    """Return the largest bound of an SGPR that explains everything as noise.

    It is infinite if the targets equal the mean.
    """
    residual = np.asarray(Y if model.mean is None else Y - model.mean(X), np.float64)
    squares = np.square(residual).reshape(len(X), -1)
    counts = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    number = counts.sum() * squares.shape[1]
    variance = (counts @ squares).sum() / number
    return -0.5 * number * (np.log(2 * np.pi * variance) + 1) if variance > 0 else np.inf


def by_bound(sgpr, X, Y, weights=None, jitter=None, fixed=()):
    """Return the start of an SGPR whose lengthscales have the highest bound, and the bounds taken.

    The lengthscales are those of ``sgpr`` if their bound is above that of pure noise, or else these
    divided by one of ``DIVISORS``, if a bound is.
    """
    least = bound_of_noise(sgpr, X, Y, weights)

    def bound(start):
        try:
            return collapsed_bound(start, X, Y, weights=weights, jitter=jitter)
        except NotPositiveDefinite:
            return -np.inf

    if not np.isfinite(least) or bound(sgpr) > least:
        return sgpr, 1
    starts = [_divided(sgpr, divisor, fixed) for divisor in DIVISORS]
    bounds = [bound(start) for start in starts]
    best = int(np.argmax(bounds))
    return starts[best] if bounds[best] > least else sgpr, 1 + len(DIVISORS)


def _divided(sgpr, divisor, fixed):
    free = free_paths(sgpr, fixed)
    for path, _, value in leaves(sgpr.covariance, "covariance."):
        if path in free and path.rpartition(".")[2] == "lengthscales":
            sgpr = replace_at(sgpr, path, value / divisor)
    return sgpr
