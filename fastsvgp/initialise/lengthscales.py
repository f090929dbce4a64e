"""Lengthscales from the data: the median heuristic, over random pairs of rows or over all pairs of distinct rows."""

from typing import Literal, overload

import numpy as np

from .. import check
from ..distributed import broadcast
from ..errors import names_options
from ..records.typed import Array, ArrayLike, Group, Seed
from ..runtime import devices
from .subset import random_rows


@overload
def median_lengthscales(
    X: ArrayLike,
    rng: Seed = ...,
    ard: Literal[True] = ...,
    subset: int = ...,
    group: Group | None = ...,
) -> Array: ...
@overload
def median_lengthscales(
    X: ArrayLike,
    rng: Seed = ...,
    *,
    ard: Literal[False],
    subset: int = ...,
    group: Group | None = ...,
) -> float: ...
@overload
def median_lengthscales(
    X: ArrayLike, rng: Seed = ..., ard: bool = ..., subset: int = ..., group: Group | None = ...
) -> Array | float: ...
@names_options
def median_lengthscales(X, rng=None, ard=True, subset=2000, group=None):
    """Lengthscales of the order of the distances in the data: the median heuristic.

    Parameters
    ----------
    X : (N, D) array
    rng : None, int or Generator
    ard : bool
        True: one for each column, the median of ``|x_d - x'_d|`` over random pairs of rows times
        sqrt(D), so that the scaled distance of a typical pair is about one in any number of
        dimensions. False: one for all, the median of ``|x - x'|``.
    subset : int
        How many random rows the pairs are drawn from.
    group : group of ``fs.distributed``, optional
        As in ``kmeans_inducing``.

    Returns
    -------
    (D,) array in the dtype of X, or a float when ``ard`` is False
        Pairs that agree in a column do not count there; a constant column gets 1.

    Examples
    --------
    >>> fs.median_lengthscales(X, rng=0).shape
    (1,)
    """
    if group is not None:
        return broadcast.from_root(
            group, lambda X, rng: median_lengthscales(X, rng, ard, subset), X, rng, subset
        )
    rng, ard = check.generator(rng), check.flag("ard", ard)
    X, dtype, home = random_rows("median_lengthscales", X, 1, rng, subset)
    first = rng.integers(len(X), size=20_000)
    second = (first + rng.integers(1, max(len(X), 2), size=first.size)) % len(X)
    if ard:
        medians = [_median(np.abs(column[first] - column[second])) for column in X.T]
        return devices.like(
            np.array([1.0 if m is None else np.sqrt(X.shape[1]) * m for m in medians], dtype), home
        )
    squared = np.zeros(first.size)
    for column in X.T:
        squared += (column[first] - column[second]) ** 2
    median = _median(np.sqrt(squared))
    return 1.0 if median is None else float(median)


def medians(X, shares, ard):
    """The median heuristic over all pairs of distinct rows, each pair as often as its rows come together."""
    first, second = np.triu_indices(len(X), 1)
    weights, columns = (
        shares[first] * shares[second],
        np.abs(X[first] - X[second]).astype(np.float64),
    )
    if not ard:
        median = _weighted_median(np.sqrt(np.square(columns).sum(axis=1)), weights)
        return 1.0 if median is None else median
    medians = [_weighted_median(column, weights) for column in columns.T]
    return np.array([1.0 if m is None else np.sqrt(X.shape[1]) * m for m in medians], X.dtype)


def _median(distances):
    """The median of those above zero; None where there are none."""
    positive = distances[distances > 0]
    return np.median(positive) if positive.size else None


def _weighted_median(distances, weights):
    """The weighted median of those above zero; None where there are none."""
    distances, weights = distances[distances > 0], weights[distances > 0]
    if not distances.size:
        return None
    order = np.argsort(distances, kind="stable")
    below = np.cumsum(weights[order])
    return float(distances[order[np.searchsorted(below, 0.5 * below[-1])]])
