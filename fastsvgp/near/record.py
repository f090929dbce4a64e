"""The near rows of a data set: which rows stand for the detail around each row."""

from typing import Any, Literal

import numpy as np

from .. import check
from ..check import weights as weighing
from ..covariances import Covariance
from ..records import data, record, replace
from ..records.typed import Array, ArrayLike
from ..runtime.deferred_checks import on_device
from ..runtime.devices import copy_to
from .index import Nearest, earlier_rows, maximin_order, place_rows
from .points import points_of, scales_moved


@record
class NearRows:
    """The near rows of N rows of data: a record without parameters, as ``neighbours`` makes it.

    ``to_device`` moves X and Y. All else stays on the host, which searches for near rows; X and Y
    can stay there too, for example ``numpy.memmap``: each pass copies those of its rows.

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

    X: Array = data(moves=True)
    Y: Any = data(default=None, moves=True)
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
        first, X = (np.asarray(check.on_host(part), np.float64) for part in (self.X[:1], X))
        here = points_of(covariance, np.concatenate([first, X]))
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
        differ = np.asarray(check.on_host(Y)).reshape(self.Y.shape) != check.on_host(self.Y)
        return self.usable() & differ.reshape(len(Y), -1).any(axis=1)

    def usable(self):
        """Return which rows (N,) can be neighbours."""
        usable = np.zeros(len(self.X), bool)
        usable[self.order] = True
        return usable

    def inputs(self, rows, like=None):
        """Return the inputs (n, D) of these rows, in float64, on the device of ``like``."""
        return _take(self.X, rows, like)

    def sites(self, rows, like=None):
        """Return pseudo-targets and noise, of the shape of ``rows``; noise 0 is no site."""
        first, second = self.lambda1[rows], self.lambda2[rows]
        there = second > 0
        precision = np.where(there, second, 1.0)
        y, noise = np.where(there, first / precision, 0.0), np.where(there, 1 / precision, 0.0)
        return copy_to(y, like), copy_to(noise, like)

    def targets(self, rows, like=None):
        """Return the targets (..., *rows.shape) of these rows, in float64."""
        Y = _take(self.Y, rows, like)
        return np.moveaxis(Y, -1, 0) if self.Y.ndim > 1 else Y


def _take(data, rows, like):
    """Return some rows of data in float64, on the device of ``like``."""
    if on_device(data):
        found = data[copy_to(rows, data)].astype(np.float64, copy=False)
        return found if on_device(like) else found.get()
    return copy_to(np.asarray(data[rows], np.float64), like)


def neighbours(
    X: ArrayLike,
    covariance: Covariance,
    k: int = 20,
    *,
    Y: ArrayLike | None = None,
    weights: ArrayLike | None = None,
    order: Literal["random", "maximin"] = "random",
    rng: Any = 0,
) -> NearRows:
    """Find the k nearest earlier rows of each row, for the near rows of a ``VIF``.

    Parameters
    ----------
    X : (N, D) array
        All inputs; also ``numpy.memmap``, which is not copied. The search takes place on the host,
        to which inputs on a device are copied for it.
    covariance : Covariance
        Distances are those of inputs divided by its lengthscales: see ``NearRows``.
    k : int
        Number of neighbours; fewer than N.
    Y : (N,) or (N, P) array, optional
        Targets, which bounds of batches and predictions need.
    weights : (N,) array, optional
        Rows of weight 0 are never neighbours: their targets are not read.
    order : {"random", "maximin"}
        Order of the rows; each is conditioned on earlier ones. In a maximin order each row is the
        farthest from all earlier ones, at the scales of the covariance.
    rng : int or numpy.random.Generator
        Seed of a random order.

    Returns
    -------
    NearRows

    Raises
    ------
    ValueError, TypeError
        k is not below N; NaN or infinity in X; another order; the covariance does not fit X, or has
        no distances, as that of images.

    Notes
    -----
    The rows found are exact with up to ten columns, and up to 131,072 rows with more; beyond, a few
    of them have other near rows in their place. Each row costs about N D flops up to 4,096 D rows,
    or up to 131,072 with more than ten columns, and log N or 16,384 D flops beyond. A maximin
    order takes 3 N^2 D flops more. The record takes 4 N k + 16 N bytes besides X and Y, which stay
    as they are; each pass computes the covariances of its rows with the inducing inputs again.

    Examples
    --------
    >>> near = fs.neighbours(X, covariance, 5)
    >>> near.earlier.shape
    (40, 5)
    """
    inputs: Any = check.inputs("X", X, values=weights is None)
    usable = np.arange(len(inputs))
    if weights is not None:
        counting = check.on_host(weighing.shape_weights(weights, np.empty((len(inputs), 1))))
        usable = usable[weighing.rows_that_count(counting)]
        inputs = weighing.inputs_that_count(inputs, copy_to(counting, inputs))
        check.finite("X", inputs)
    N = len(inputs)
    k = check.whole("k", k, 0)
    if not N > k:
        raise ValueError(
            f"neighbours: `k` must be below the number of rows, got {k} and {N} rows; give fewer"
        )
    covariance.check_dim(inputs.shape[1])
    points = points_of(covariance, inputs)
    if order == "maximin":
        rows = usable[maximin_order(points.points[usable])]
    elif order == "random":
        rows = check.generator(rng).permutation(usable)
    else:
        raise ValueError(f'neighbours: `order` must be "random" or "maximin", got {order!r:.80}')
    return _found(NearRows(inputs, _targets(Y, N), rows), points, k)


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


def add_rows(near, covariance, X, Y):
    """Return near rows with new rows, which come last in the order; others stay as they are."""
    X, Y = (
        np.concatenate([old, new if on_device(old) else check.on_host(new)])
        for old, new in ((near.X, X), (near.Y, Y))
    )
    N, n = len(near.X), len(X) - len(near.X)
    points = points_of(covariance, X)
    order = np.concatenate([near.order, np.arange(N, N + n)])
    codes = None if points.codes is None else points.codes[N:]
    before = len(near.order) + np.arange(n)
    nearest = Nearest(points.points, order, points.codes)
    added = nearest.search(points.points[N:], before, near.earlier.shape[1], codes)
    earlier = np.concatenate([near.earlier, added])
    place = place_rows(points.points)
    return replace(near, X=X, Y=Y, order=order, earlier=earlier, place=place)


def follow(near, covariance):
    """Return the near rows at the scales of a covariance: found again if these have moved.

    The rule depends on the scales then and now alone, so a training that is resumed finds the same
    rows at the same step.
    """
    points = points_of(covariance, near.X[:1])
    if not scales_moved(near.scales, points.scales):
        return near
    return _found(near, points_of(covariance, near.X), near.earlier.shape[1])
