"""Lengthscales from data by the median heuristic, over random pairs or all pairs of rows."""

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
    """Compute lengthscales by the median heuristic, from distances between rows of X.

    Parameters
    ----------
    X : (N, D) array
    rng : None, int or Generator
    ard : bool
        True: one lengthscale per column, sqrt(D) times the median of ``|x_d - x'_d|`` over random
        pairs of rows. The scaled distance of a typical pair is then about one for any D. False: one
        for all columns, the median of ``|x - x'|``.
    subset : int
        Number of random rows that the pairs are drawn from.
    group : group of ``fs.distributed``, optional
        As in ``inducing.kmeans``.

    Returns
    -------
    (D,) array in the dtype of X, or a float when ``ard`` is False
        Pairs with equal values in a column are ignored for that column; a constant column gets 1.

    Examples
    --------
    >>> fs.inducing.median_lengthscales(X, rng=0).shape
    (1,)
    """
    if group is not None:
        return broadcast.broadcast_choice(
            group, lambda X, rng: median_lengthscales(X, rng, ard, subset), X, rng, subset
        )
    rng, ard = check.generator(rng), check.flag("ard", ard)
    X, dtype, device_like = random_rows("median_lengthscales", X, 1, rng, subset)
    first = rng.integers(len(X), size=20_000)
    second = (first + rng.integers(1, max(len(X), 2), size=first.size)) % len(X)
    if ard:
        medians = [_median(np.abs(column[first] - column[second])) for column in X.T]
        return devices.copy_to(
            np.array([1.0 if m is None else np.sqrt(X.shape[1]) * m for m in medians], dtype),
            device_like,
        )
    squared = np.zeros(first.size)
    for column in X.T:
        squared += (column[first] - column[second]) ** 2
    median = _median(np.sqrt(squared))
    return 1.0 if median is None else float(median)


def all_pairs_lengthscales(X, shares, ard):
    """Median heuristic over all pairs of distinct rows X, weighted by products of ``shares``."""
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
    """Median of the positive distances; None if there are none."""
    positive = distances[distances > 0]
    return np.median(positive) if positive.size else None


def _weighted_median(distances, weights):
    """Weighted median of the positive distances; None if there are none."""
    distances, weights = distances[distances > 0], weights[distances > 0]
    if not distances.size:
        return None
    order = np.argsort(distances, kind="stable")
    below = np.cumsum(weights[order])
    return float(distances[order[np.searchsorted(below, 0.5 * below[-1])]])
