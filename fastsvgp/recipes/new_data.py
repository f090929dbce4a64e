"""New rows in a trained model: estimators and the command line share it."""

import numpy as np

from ..conditioning.condition import condition
from ..errors import warn
from .beyond_range import BeyondRange, describe_outside

MARGIN = 0.1  # of the width of the training range, by which a row that is far outside exceeds it
ROUNDING = 1e-6  # of a value at the end of a range without a width


def take_in(model, X, y, scale, names, *, weights=None, jitter=None):
    """Condition a trained model on rows in its units.

    A model that holds its value at the border of the training range (``BeyondRange``) takes what is
    far outside for that value, so it does not learn from such rows.

    Parameters
    ----------
    model : record
        As ``condition`` takes it.
    X, y : arrays
        In the units of the model.
    scale : Scale
        With the ends of the training range.
    names : sequence of D str
        Of the columns.
    weights, jitter
        As in ``condition``.

    Returns
    -------
    record

    Raises
    ------
    TypeError, ValueError, NotPositiveDefinite
        As ``condition``; ``ValueError`` if no row is left.

    Warns
    -----
    UserWarning
        Rows are far outside the training range.
    """
    outside = _outside(X, scale)
    far = outside.any(axis=1)
    if far.any():
        found = describe_outside(outside, far, names)
        covariance = getattr(model, "covariance", None)
        if isinstance(covariance, BeyondRange) and covariance.held:
            if far.all():
                raise ValueError(f"{found}, and none is inside; fit old and new rows together")
            X, y, weights = (part if part is None else part[~far] for part in (X, y, weights))
            warn(f"{found}, and are left out; fit old and new rows together")
        else:
            warn(f"{found}, where the model has no inducing inputs; fit old and new rows together")
    return condition(model, X, y, weights=weights, jitter=jitter)


def _outside(X, scale):
    """Return which values (N, D), in the units of the model, are far outside."""
    if scale.x_ends is None:
        return np.zeros(X.shape, bool)
    low, high = scale.X(scale.x_ends.astype(X.dtype))
    margin = MARGIN * (high - low) + ROUNDING * (1 + np.maximum(abs(low), abs(high)))
    return (X < low - margin) | (X > high + margin)
