"""The task of a search: its likelihood, and the rows in its units."""

import numpy as np

from ..names import BINARY, MULTICLASS, likelihood_of, named
from ..scaling import ClassScale, Scale, constant, usable_rows
from .mapped_inputs import MappedInputs, mapped_rows, on_disk, scale_of
from .rows import Rows

LIKELIHOODS = ("gaussian", "poisson", "classes", *BINARY, *MULTICLASS)


def task_of(likelihood, X, y, weights):
    """Check the data; return ``(likelihood, scale, rows)``.

    The likelihood is None for real-valued targets. ``rows`` are in float64: inputs are unscaled,
    targets are standardised, counts, or codes.
    """
    named("likelihood", likelihood, LIKELIHOODS)
    labels = likelihood not in ("gaussian", "poisson")
    y = np.asarray(y) if labels else y
    if on_disk(X):
        X, y, weights = mapped_rows(X, y, weights, labels)
    else:
        X, y, weights = usable_rows(X, y, weights, labels)
        X = X.astype(np.float64)
    if y.ndim != 1:
        raise ValueError(
            f"`y` must be ({len(X)},), one target for each row, got {y.shape}; for several targets"
            " use `regression`"
        )
    if labels:
        return _classes(likelihood, X, y, weights)
    y = y.astype(np.float64)
    scale = _scale_of(Scale, X, y, likelihood == "gaussian", weights)
    if likelihood == "poisson":
        chosen = likelihood_of("poisson", y, weights=weights)
        chosen.check_targets(y, "y")
        return chosen, scale, Rows(X, y, weights)
    # rounding of a mean is not noise
    equal = constant(np.ptp(y), y)
    return None, scale, Rows(X, np.zeros(len(y)) if equal else scale.y(y), weights)


def _scale_of(kind, X, y, scale_target, weights):
    if isinstance(X, MappedInputs):
        return scale_of(kind, X, y, scale_target, weights)
    return kind.of(X, y, scale_target, weights=weights)


def _classes(likelihood, X, y, weights):
    scale = _scale_of(ClassScale, X, y, False, weights)
    C, usual = scale.with_classes(y)
    if likelihood == "classes":
        likelihood = usual
    if likelihood in BINARY and C != 2:
        raise ValueError(
            f"`likelihood` {likelihood!r} has 2 classes, but `y` has {C}; 'classes' chooses by `y`"
        )
    return likelihood_of(likelihood, num_classes=C), scale, Rows(X, scale.y(y), weights)
