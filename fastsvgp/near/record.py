"""The near rows of a data set: which rows stand for the detail around each row."""

from typing import Any

import numpy as np

from .. import check
from ..check import weights as weighing
from ..covariances import Covariance
from ..records import data, record, replace
from ..records.typed import Array, ArrayLike
from .index import Nearest, earlier_rows, maximin_order, place_rows, random_order
from .points import points_of, scales_moved

ORDERS = "random", "maximin"
FEWEST = 2  # rows of a data set with near rows


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

    def index(self, covariance):
        """Return the ``Nearest`` of all usable rows at the scales of a covariance.

        It is made once per record, as long as the scales stay the same.
        """
        points = points_of(covariance, self.X)
        known = self.__dict__.get("_index")
        if known is None or not np.array_equal(known[0], points.scales):
            known = points.scales, Nearest(points.points, self.order, points.codes)
            self.__dict__["_index"] = known
        return known[1]

    def points(self, covariance, X):
        """Return new inputs X as points of ``index``."""
        return points_of(covariance, X).points

    def inputs(self, rows):
        """Return the inputs (n, D) of these rows, in float64."""
        return np.asarray(self.X[rows], np.float64)

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
    order: str = "random",
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
    order : {"random", "maximin"}
        Order of the rows. Each conditions on earlier ones. "maximin" takes the row farthest from
        all earlier ones next.
    rng : int or numpy.random.Generator
        Seed of the random order.

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
    About log N distances per row with few columns, N / 2 with many. 4 N k bytes, and X as it is.

    Examples
    --------
    >>> near = fs.neighbours(X, covariance, 5)
    >>> near.earlier.shape
    (40, 5)
    """
    X = X if isinstance(X, np.memmap) else check.inputs("X", X)
    N = len(X)
    k = check.whole("k", k, 0)
    if not N > k:
        raise ValueError(
            f"neighbours: `k` must be below the number of rows, got {k} and {N} rows; give fewer"
        )
    check.columns(X, X.shape[1])
    covariance.check_dim(X.shape[1])
    if order not in ORDERS:
        raise ValueError(f'neighbours: `order` must be "random" or "maximin", got {order!r:.80}')
    usable = np.arange(N)
    if weights is not None:
        weights = weighing.shape_weights(weights, np.empty((N, 1)))
        usable = np.flatnonzero(weighing.rows_that_count(weights))
    points = points_of(covariance, X)
    rows = (
        random_order(usable, check.generator(rng))
        if order == "random"
        else maximin_order(points.points, usable)
    )
    near = NearRows(X, None if Y is None else check.as_array("Y", Y), rows)
    return _found(near, points, k)


def _found(near, points, k):
    return replace(
        near,
        earlier=earlier_rows(points.points, near.order, k, points.codes),
        place=place_rows(points.points, points.codes),
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
