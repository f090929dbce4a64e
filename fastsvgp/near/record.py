"""The near rows of a data set: which rows stand for the detail around each row."""

from typing import Any

import numpy as np

from .. import check
from ..check import weights as weighing
from ..covariances import Covariance
from ..records import data, record, replace
from ..records.typed import Array, ArrayLike
from .index import Nearest, earlier_rows, place_rows
from .points import points_of, scales_moved


@record
class NearRows:
    """The near rows of N rows of data: a record without parameters, as ``neighbours`` makes it.

    Parameters
    ----------
    X : (N, D)
        The inputs of all rows.
    Y : (N,) or (N, P), optional
        Their targets. Bounds of batches and predictions need them.
    order : (n,) integers
        The usable rows in their order. The others are never neighbours.
    earlier : (N, k) integers
        The nearest of the usable rows that come earlier in the order, nearest first; -1 where there
        are fewer. Of a row that is not usable, the nearest of all.
    place : (N,) integers
        Places of the rows in an order in which neighbours are near each other, for batches.
    scales : array
        The scales of the inputs at which rows are near: see ``follow``.
    lambda1, lambda2 : (N,), optional
        For likelihoods other than Gaussian, the site of each row, of f without its mean function:
        pseudo-target lambda1 / lambda2 with noise 1 / lambda2. A row with lambda2 <= 0 is no
        neighbour.

    Examples
    --------
    >>> near = fs.neighbours(X, covariance, 5, Y=Y)
    >>> near.earlier.shape, near.earlier[near.order[0]]
    ((40, 5), array([-1, -1, -1, -1, -1], dtype=int32))
    """

    X: Array = data()
    Y: Any = data(default=None)
    order: Any = data(default=None)
    earlier: Any = data(default=None)
    place: Any = data(default=None)
    scales: Any = data(default=None)
    lambda1: Any = data(default=None)
    lambda2: Any = data(default=None)

    def nearest(self, covariance, X):
        """Return the nearest usable rows (n, k) of new inputs X at the scales of a covariance.

        The trees are kept for the next call with the same scales.
        """
        here = points_of(covariance, np.concatenate([np.asarray(self.X[:1], np.float64), X]))
        known = self.__dict__.get("_nearest")
        if known is None or not np.array_equal(known[0], here.scales):
            points = points_of(covariance, self.X)
            known = here.scales, Nearest(points.points, self.order, points.codes)
            self.__dict__["_nearest"] = known
        codes = None if here.codes is None else here.codes[1:]
        return known[1].query(here.points[1:], self.earlier.shape[1], codes)

    def other_targets(self, Y):
        """Return which usable rows (N,) have other targets than these."""
        if self.Y is None:
            return np.zeros(len(self.X), bool)
        differ = np.asarray(Y).reshape(self.Y.shape) != self.Y
        return self.usable() & differ.reshape(len(Y), -1).any(axis=1)

    def usable(self):
        """Return which rows (N,) can be neighbours."""
        usable = np.zeros(len(self.X), bool)
        usable[self.order] = True
        return usable

    def inputs(self, rows):
        """Return the inputs (n, D) of these rows, in float64."""
        return np.asarray(self.X[rows], np.float64)

    def sites(self, rows):
        """Return pseudo-targets and noise, of the shape of ``rows``; noise 0 is no site."""
        first, second = self.lambda1[rows], self.lambda2[rows]
        there = second > 0
        precision = np.where(there, second, 1.0)
        return np.where(there, first / precision, 0.0), np.where(there, 1 / precision, 0.0)

    def targets(self, rows):
        """Return the targets (..., *rows.shape) of these rows, in float64."""
        Y = np.asarray(self.Y[rows], np.float64)
        return np.moveaxis(Y, -1, 0) if self.Y.ndim > 1 else Y


def neighbours(
    X: ArrayLike,
    covariance: Covariance,
    k: int = 20,
    *,
    Y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    rng: Any = 0,
) -> NearRows:
    """Find the k nearest earlier rows of each row, for the near rows of a ``VIF``.

    Parameters
    ----------
    X : (N, D) array
        All inputs; also ``numpy.memmap``, which is not copied.
    covariance : Covariance
        Distances are those of inputs divided by its lengthscales: see ``NearRows``.
    k : int
        Number of neighbours; fewer than N.
    Y : (N,) or (N, P) array, optional
        Targets, which bounds of batches and predictions need.
    weights : (N,) array, optional
        Rows of weight 0 are never neighbours: their targets are not read.
    rng : int or numpy.random.Generator
        Seed of the order of the rows, which is random. Each is conditioned on earlier ones.

    Returns
    -------
    NearRows

    Raises
    ------
    ValueError, TypeError
        k is not below N; NaN or infinity in X; the covariance does not fit X, or has no distances,
        as that of images.

    Notes
    -----
    The rows found are exact with up to ten columns, and up to 131,072 rows with more; beyond, a few
    of them have other near rows in their place. Each row costs about N D flops up to 4,096 D rows,
    or up to 131,072 with more than ten columns, and log N or 16,384 D flops beyond. 4 N k bytes,
    and X as it is.

    Examples
    --------
    >>> near = fs.neighbours(X, covariance, 5)
    >>> near.earlier.shape
    (40, 5)
    """
    inputs: Any = check.inputs("X", X, values=weights is None)
    usable = np.arange(len(inputs))
    if weights is not None:
        counting = weighing.shape_weights(weights, np.empty((len(inputs), 1)))
        usable = usable[weighing.rows_that_count(counting)]
        inputs = weighing.inputs_that_count(inputs, counting)
        check.finite("X", inputs)
    N = len(inputs)
    k = check.whole("k", k, 0)
    if not N > k:
        raise ValueError(
            f"neighbours: `k` must be below the number of rows, got {k} and {N} rows; give fewer"
        )
    covariance.check_dim(inputs.shape[1])
    points = points_of(covariance, inputs)
    order = check.generator(rng).permutation(usable)
    return _found(NearRows(inputs, _targets(Y, N), order), points, k)


def _targets(Y, N):
    """Return targets (N,) or (N, P), or None."""
    if Y is None:
        return None
    Y = check.as_array("Y", Y)
    if Y.shape[:1] != (N,) or Y.ndim > 2:
        raise ValueError(f"`Y` must have shape ({N},) or ({N}, P), got {Y.shape}")
    return Y[:, 0] if Y.shape == (N, 1) else Y


def _found(near, points, k):
    return replace(
        near,
        earlier=earlier_rows(points.points, near.order, k, points.codes),
        place=place_rows(points.points),
        scales=points.scales,
    )


def follow(near, covariance):
    """Return the near rows at the scales of a covariance: found again if these have moved.

    The rule depends on the scales then and now alone, so a training that is resumed finds the same
    rows at the same step.
    """
    points = points_of(covariance, near.X[:1])
    if not scales_moved(near.scales, points.scales):
        return near
    return _found(near, points_of(covariance, near.X), near.earlier.shape[1])
