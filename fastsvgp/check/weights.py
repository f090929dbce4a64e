"""Weights of data: how often each target counts in a bound.

One of weight 0 is never read, and may be NaN: a missing output.

Where a target counts 0 times, one that counts takes its place before anybody looks: it passes the
checks of its likelihood, gives finite terms, and these are multiplied by 0. A row of which no
target counts is left out whole, so its inputs are not read either: those of a row that counts stand
there.
"""

import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import BadEntry
from ..records.typed import AnyRecord
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from . import models
from .arrays import as_array

ADVICE = "; a target that is not to count has the weight 0"


def svgp(
    model: Any, X: Any, Y: Any, weights: Any, checked: Callable[..., Any] = models.svgp
) -> tuple[AnyRecord, np.ndarray, np.ndarray, np.ndarray | None, np.dtype]:
    """The arguments of a bound that takes weights of data, checked.

    Parameters
    ----------
    model : record
        With a ``likelihood``.
    X, Y : array
    weights : (N,) array, as ``Y``, or None
    checked : function
        ``checked(model, X, Y)`` checks and casts these, and returns ``(model, X, Y, dtype)``, with
        Y in the layout of likelihoods, (N,) or (P, N). It is never shown a target that does not
        count. Default: that of an ``SVGP``.

    Returns
    -------
    model, X, Y : as ``checked`` left them
    weights : as Y, or None
    dtype : dtype

    Examples
    --------
    >>> _, _, targets, w, dtype = weighed(model, X, np.where(X[:, 0] > 1, np.nan, Y), weights=X[:, 0] <= 1)
    >>> np.isfinite(targets).all(), w.shape, dtype
    (np.True_, (40,), dtype('float64'))
    """
    if weights is None:
        model, X, Y, dtype = checked(model, X, Y)
        return model, X, Y, None, dtype
    (model, X, Y, dtype), weights = through(lambda X, Y: checked(model, X, Y), X, Y, weights)
    check_likelihood(model.likelihood)
    return model, X, Y, laid_out(weights, Y, dtype), dtype


def through(checked, X, Y, weights):
    """``(what checked(X, Y) returns, weights as an array)``, where X and Y hold nothing but what counts; all three are checked.

    X may be None, where something else has the rows.
    """
    X, Y = None if X is None else as_array("X", X), as_array("Y", Y)
    weights = shaped(weights, Y)
    one_device(("X", X), ("Y", Y), ("weights", weights))
    targets, first = filled(Y, weights)
    try:
        found = checked(inputs_that_count(X, weights), targets)
    except BadEntry as error:
        check_values(weights)  # the cause, where none counts
        if error.name == "Y" and not _counted(weights, Y)[error.index]:
            error.index = tuple(map(int, np.unravel_index(int(first), Y.shape)))
        elif error.name == "X" and not (counts := rows_that_count(weights))[error.index[0]]:
            error.index = int(np.argmax(counts)), *error.index[1:]
        raise
    check_values(weights)
    return found, weights


def shaped(weights, Y):
    """Weights as an array: one for each row of Y, or for each target.

    A column (N, 1) beside Y (N,) is (N,).
    """
    weights = as_array("weights", weights)
    if not Y.shape:
        raise ValueError("`Y` must have rows, got a single value")
    if len(Y.shape) == 1 and weights.shape == (*Y.shape, 1):
        weights = weights[:, 0]
    if weights.shape not in (Y.shape[:1], Y.shape):
        each = f", or {Y.shape}, one for each target" if len(Y.shape) > 1 else ""
        raise ValueError(
            f"`weights` must have shape {Y.shape[:1]}, one for each row of `Y`{each}; got"
            f" {weights.shape}"
        )
    return weights


def check_values(weights):
    """Refuse weights that are negative, or not finite, or all zero."""
    bad = ~((weights >= 0) & (weights < np.inf))
    if not deferred_checks.none(bad):
        at = tuple(map(int, np.argwhere(bad)[0]))
        raise BadEntry(
            "weights", f"must be zero or more, and finite; got {float(weights[at]):g}", at, ADVICE
        )
    if not deferred_checks.none(~(weights > 0).any()):
        raise ValueError(
            "`weights` are all zero, so that no target counts; give at least one that is positive"
        )


def _counted(weights, Y):
    return np.broadcast_to(
        (weights > 0).reshape(*weights.shape, *(1,) * (Y.ndim - weights.ndim)), Y.shape
    )


def filled(Y, weights):
    """Y with the first target that counts in the place of all that do not, and the flat index of that one."""
    if not Y.size:
        return Y, 0
    counted = _counted(weights, Y)
    first = np.argmax(counted)
    return np.where(counted, Y, Y.reshape(-1).take(first)), first


def rows_that_count(weights):
    """Which rows have a target that counts (N,)."""
    counts = weights > 0
    return counts if counts.ndim == 1 else counts.any(axis=tuple(range(1, counts.ndim)))


def inputs_that_count(X, weights):
    """X with the first row that counts in the place of all that do not; where there are none, or X has other rows, X itself."""
    if X is None or X.ndim != 2 or len(X) != len(weights) or not len(X):
        return X  # which is refused
    counts = rows_that_count(weights)
    if type(counts) is np.ndarray and counts.all():  # a device would be waited for
        return X
    return np.where(counts[:, None], X, X[np.argmax(counts)[None]])


def laid_out(weights, Y, dtype):
    """Weights in the shape of Y (N,) or (P, N), as likelihoods have them."""
    # a column of them, beside a column Y
    weights = weights[:, 0] if Y.ndim == 1 and weights.ndim > 1 else weights.T
    weights = np.broadcast_to(weights, Y.shape)
    return np.ascontiguousarray(weights, dtype, like=weights)


def check_likelihood(likelihood):
    """Refuse a likelihood of somebody's own that knows nothing of weights."""
    if not _takes(type(likelihood)):
        name = f"{type(likelihood).__name__}.expected_log_prob"
        raise TypeError(
            f"`weights` are given, and {name} takes none; give it an argument `weights=None`, by"
            " which the terms of each datum are multiplied, as docs/likelihood.md shows"
        )


@functools.cache
def _takes(kind):
    parameters = inspect.signature(kind.expected_log_prob).parameters
    return "weights" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
