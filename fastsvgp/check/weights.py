"""Checks of data weights: the non-negative weight of each row or target in a bound.

A target of weight 0 is never read, so it can be NaN: a missing output. Before any check a target of
positive weight replaces it, in all its columns: that one passes the checks of the likelihood and
gives finite terms, which are multiplied by 0. If all targets of a row have weight 0, its inputs are
not read either: those of a row that counts replace them.
"""

import functools
import inspect
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from ..errors import BadEntry
from ..records.typed import AnyRecord
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from . import models
from .arrays import as_array, num_columns

ADVICE = "; give the weight 0 to leave out a target"


def svgp(
    model: Any, X: Any, Y: Any, weights: Any, checked: Callable[..., Any] = models.svgp
) -> tuple[AnyRecord, np.ndarray, np.ndarray, np.ndarray | None, np.dtype]:
    """Check the arguments of a bound that takes weights of data.

    Parameters
    ----------
    model : record
        With a ``likelihood``.
    X, Y : array
    weights : (N,) array, array of the shape of ``Y`` without its axis of columns, or None
    checked : function
        ``checked(model, X, Y)`` checks and casts these, and returns ``(model, X, Y, dtype)``, with
        Y in the layout of likelihoods. It never receives a target of weight 0.
        Default: the checks of an ``SVGP``.

    Returns
    -------
    model, X, Y
        As returned by ``checked``.
    weights : (N,) or (P, N) array in the layout of likelihoods, or None
    dtype : dtype

    Examples
    --------
    >>> observed = X[:, 0] <= 1
    >>> holed = np.where(observed, Y, np.nan)
    >>> _, _, targets, w, dtype = weighed(model, X, holed, weights=observed)
    >>> np.isfinite(targets).all(), w.shape, dtype
    (np.True_, (40,), dtype('float64'))
    """
    if weights is None:
        model, X, Y, dtype = checked(model, X, Y)
        return model, X, Y, None, dtype
    columns = num_columns(getattr(model, "likelihood", None))
    (model, X, Y, dtype), weights = through(
        lambda X, Y: checked(model, X, Y), X, Y, weights, columns
    )
    check_likelihood(model.likelihood)
    return model, X, Y, laid_out(weights, Y, dtype, columns), dtype


def through(checked, X, Y, weights, columns=1):
    """Call ``checked(X, Y)`` with rows and targets of weight 0 replaced; check all three.

    Returns ``(result of checked, weights as an array)``. X is None if something else holds the
    rows. ``columns`` is the number of columns of a target.
    """
    X, Y = None if X is None else as_array("X", X), as_array("Y", Y)
    weights = shape_weights(weights, Y, columns)
    one_device(("X", X), ("Y", Y), ("weights", weights))
    targets, first = fill_targets(Y, weights, columns)
    try:
        found = checked(inputs_that_count(X, weights), targets)
    except BadEntry as error:
        check_values(weights)  # the cause, if no target counts
        if error.name == "Y" and not _counting(weights, Y)[error.index]:
            axes = _axes(Y, columns)
            at = tuple(map(int, np.unravel_index(int(first), axes)))
            error.index = *at, *error.index[len(axes) :]
        elif error.name == "X" and not (counts := rows_that_count(weights))[error.index[0]]:
            error.index = int(np.argmax(counts)), *error.index[1:]
        raise
    check_values(weights)
    return found, weights


def _axes(Y, columns):
    """Return the shape of the array of targets: that of Y without an axis of several columns."""
    return Y.shape[:-1] if columns > 1 and Y.ndim > 1 and Y.shape[-1] == columns else Y.shape


def shape_weights(weights, Y, columns=1):
    """Convert weights to an array with one entry per row of Y, or per target.

    A column (N, 1) is read as (N,) if targets are (N,). ``columns`` is the number of columns of a
    target, the last axis of Y if there are several.
    """
    weights = as_array("weights", weights)
    if not Y.shape:
        raise ValueError("`Y` must have rows, got a single value")
    axes = _axes(Y, columns)
    if len(axes) == 1 and weights.shape == (*axes, 1):
        weights = weights[:, 0]
    if weights.shape not in (axes[:1], axes):
        each = f", or {axes}, one for each target" if len(axes) > 1 else ""
        raise ValueError(
            f"`weights` must have shape {Y.shape[:1]}, one for each row of `Y`{each}; got"
            f" {weights.shape}"
        )
    return weights


def check_values(weights):
    """Reject weights that are negative, not finite, or all zero."""
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


def _counting(weights, Y):
    return np.broadcast_to(
        (weights > 0).reshape(*weights.shape, *(1,) * (Y.ndim - weights.ndim)), Y.shape
    )


def fill_targets(Y, weights, columns=1):
    """Replace targets of weight 0 in Y by the first that counts; return Y and its flat index."""
    if not Y.size:
        return Y, 0
    counted = _counting(weights, Y)
    if (axes := _axes(Y, columns)) != Y.shape:
        first = np.argmax(counted[..., 0])
        return np.where(counted, Y, Y.reshape(math.prod(axes), -1).take(first, axis=0)), first
    first = np.argmax(counted)
    return np.where(counted, Y, Y.reshape(-1).take(first)), first


def rows_that_count(weights):
    """Return a mask (N,) of the rows with a target of positive weight."""
    counts = weights > 0
    return counts if counts.ndim == 1 else counts.any(axis=tuple(range(1, counts.ndim)))


def inputs_that_count(X, weights):
    """Replace rows of X that do not count by the first that does.

    Returns X itself if all rows count or if its shape is wrong.
    """
    if X is None or X.ndim != 2 or len(X) != len(weights) or not len(X):
        return X  # rejected later
    counts = rows_that_count(weights)
    if type(counts) is np.ndarray and counts.all():  # on a device this would synchronise
        return X
    return np.where(counts[:, None], X, X[np.argmax(counts)[None]])


def laid_out(weights, Y, dtype, columns=1):
    """Return weights in the layout of likelihoods: the shape of Y, or of one of its columns."""
    axes = Y.shape if columns == 1 else Y.shape[1:]
    # a column of weights, given with a column Y
    weights = weights[:, 0] if len(axes) == 1 and weights.ndim > 1 else weights.T
    weights = np.broadcast_to(weights, axes)
    return np.ascontiguousarray(weights, dtype, like=weights)


def check_likelihood(likelihood):
    """Reject user-defined likelihoods without a ``weights`` argument."""
    if not _takes(type(likelihood)):
        name = f"{type(likelihood).__name__}.expected_log_prob"
        raise TypeError(
            f"`weights` are given, but {name} takes none; add an argument `weights=None` that"
            " multiplies the terms of each datum, as in docs/likelihood.md"
        )


@functools.cache
def _takes(kind):
    parameters = inspect.signature(kind.expected_log_prob).parameters
    return "weights" in parameters or any(p.kind is p.VAR_KEYWORD for p in parameters.values())
