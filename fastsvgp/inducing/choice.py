"""Inducing inputs from data: cluster centres, and rows of largest conditional variance."""

from typing import overload

import numpy as np

from .. import check, kernels
from ..covariances import Covariance
from ..distributed import broadcast
from ..errors import names_options, warn
from ..records import is_record, leaves
from ..records.inducing_sets import InducingPair
from ..records.typed import Array, ArrayLike, Group, Seed
from ..runtime import devices
from .subset import as_data, random_rows, sizes_of_sets

_CHUNK = 4096
GATHERED = 20_000  # rows of all ranks that k-means uses if each rank holds its own rows


# a pair of numbers gives a pair of sets
@overload
def kmeans(
    X: ArrayLike,
    M: int,
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
    covariance: Covariance | None = ...,
) -> Array: ...
@overload
def kmeans(
    X: ArrayLike,
    M: tuple[int, int],
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
    covariance: Covariance | None = ...,
) -> InducingPair: ...
@names_options
def kmeans(X, M, rng=None, iterations=10, subset=None, group=None, covariance=None):
    """Choose inducing inputs by k-means: k-means++ seeding, then iterations of Lloyd's algorithm.

    Parameters
    ----------
    X : (N, D) array
        Inputs. Distances are Euclidean in the given units: standardise first.
    M : int, or (M, M2)
        Number of centres, at most N. A pair gives the two sets of an ``InducingPair``, chosen
        together.
    rng : None, int or Generator
    iterations : int
        Maximum number of Lloyd iterations; stops early once no row changes its centre. 0 returns
        the seeds, which are rows of X.
    subset : int, optional
        Number of random rows to use. Default about min(20 000, 4 000 000 / D), at least 10 M, at
        most all.
    group : group of ``fs.distributed``, optional
        Returns the result of rank 0 on all ranks. If each rank holds its own rows, a random sample
        of the rows of all ranks is used.
    covariance : Covariance, optional
        If it has columns of codes (``covariance.code_columns``), inducing inputs are rows of X: of
        each cluster the row nearest to its centre.

    Returns
    -------
    Z : (M, D) array, or ``InducingPair``
        Centres, in the dtype of X (float64 for integers). They are distinct unless X has fewer than
        M distinct rows; the rest then repeat rows, with a warning.

    Raises
    ------
    ValueError
        M > N or M < 1, X of the wrong shape, NaN or infinity.

    Notes
    -----
    The cost is about 2 (iterations + 1) M D flops per row. The seeding samples exactly from the
    k-means++ distribution (Arthur & Vassilvitskii 2007), but updates the distances of all rows for
    64 new centres at a time. In between, a candidate drawn with the old distances d is kept with
    probability (d_new / d)^2.

    Examples
    --------
    >>> fs.inducing.kmeans(X, 5, rng=0).shape
    (5, 1)
    """
    if group is not None:
        rows = GATHERED if subset is None else subset
        return broadcast.broadcast_choice(
            group,
            lambda X, rng: kmeans(X, M, rng, iterations, subset, None, covariance),
            X,
            rng,
            rows,
            M=M,
        )
    rng, (M, divided) = check.generator(rng), sizes_of_sets(M)
    if covariance is not None and not hasattr(covariance, "code_columns"):
        raise TypeError(
            "`covariance` must be a record such as fastsvgp.RBF(...), or None, got"
            f" {type(covariance).__name__}"
        )
    X, dtype, device_like = random_rows("kmeans", X, M, rng, subset)
    iterations, before = check.whole("iterations", iterations, 0), None
    with_codes = covariance is not None and covariance.code_columns(X.shape[1])
    rows = X.copy() if with_codes else None  # exact: codes must stay whole numbers
    centre = X.mean(axis=0)
    X -= centre  # near the origin, distances from expanded squares cancel less
    Z = X[_kmeans_seeds(X, M, rng)]
    for _ in range(iterations):
        labels, squared = _nearest(X, Z)
        if np.array_equal(labels, before):
            break  # converged
        before = labels
        counts = np.bincount(labels, minlength=M)
        sums = np.stack(
            [np.bincount(labels, weights=column, minlength=M) for column in X.T], axis=1
        )
        Z = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], Z)
        empty = np.flatnonzero(counts == 0)
        # a centre that lost all its rows moves to one of the rows farthest from their centres
        if empty.size:
            distinct = np.unique(X, axis=0, return_index=True)[1]
            worst = distinct[np.argsort(squared[distinct])][-empty.size :]
            Z[empty[: worst.size]] = X[worst]
    Z = rows[_nearest_rows(X, Z)] if with_codes else Z + centre
    return divided(devices.copy_to(Z.astype(dtype), device_like))


@overload
def greedy_variance(
    X: ArrayLike, M: int, covariance: Covariance, rng: Seed = ..., subset: int | None = ...
) -> Array: ...
@overload
def greedy_variance(
    X: ArrayLike,
    M: tuple[int, int],
    covariance: Covariance,
    rng: Seed = ...,
    subset: int | None = ...,
) -> InducingPair: ...
@names_options
def greedy_variance(X, M, covariance, rng=None, subset=None):
    """Choose inducing inputs greedily from rows of X, each at the largest conditional variance.

    This is the pivoted Cholesky factorisation of K(X, X) (Burt, Rasmussen & van der Wilk 2020). It
    also greedily reduces tr(Kff - Qff), the slack of the collapsed bound.

    Parameters
    ----------
    X : (N, D) array
    M : int, or (M, M2)
        Number of inducing inputs, at most N. With a pair, the first M and the next M2 of them are
        the sets of an ``InducingPair``.
    covariance : Covariance
        Covariance with the lengthscales that training starts from; on the device of X.
    rng : None, int or Generator
        For the subset and for ties.
    subset : int, optional
        Number of random rows to choose from. Default 10 000, at least 10 M, at most all. The factor
        takes 8 subset M bytes.

    Returns
    -------
    Z : (M, D) array, or ``InducingPair``
        Rows of X, in the order of choice, in the dtype of X. If the covariance has lower rank than
        M in working precision, the rest are random rows that differ from all chosen ones. Rows are
        only repeated, with a warning, if X has fewer than M distinct rows.

    Raises
    ------
    ValueError
        M > N or M < 1, X of the wrong shape, NaN or infinity.

    Notes
    -----
    The cost is subset * M^2 flops.

    Examples
    --------
    >>> fs.inducing.greedy_variance(X, 5, covariance, rng=0).shape
    (5, 1)
    """
    if not is_record(covariance) or not hasattr(covariance, "check_dim"):
        kind = type(covariance).__name__
        raise TypeError(
            "greedy_variance: `covariance` must be a record such as fastsvgp.RBF(...),"
            f" got {kind}; the arguments are X, M, covariance, in this order"
        )
    rng, (M, divided) = check.generator(rng), sizes_of_sets(M)
    if hasattr(covariance, "geometry"):
        raise TypeError(
            "greedy_variance: `covariance` is of images, and its inducing inputs are"
            " patches, not rows of X; use fastsvgp.inducing.patches"
        )
    X = as_data(X)
    fields = [(f"covariance.{path}", value) for path, _, value in leaves(covariance)]
    check.one_device(
        ("X", X),
        *((path, check.as_array(path, value)) for path, value in fields if value is not None),
    )
    X, dtype, device_like = random_rows(
        "greedy_variance", X, M, rng, 10_000 if subset is None else subset
    )
    covariance, _ = check.parameters(devices.to_host(covariance), X, prefix="covariance.")
    covariance.check_dim(X.shape[1])
    variance = np.array(covariance.kff(X), np.float64)
    floor = M * np.finfo(np.float64).eps * variance.max()
    factor, chosen = np.empty((len(X), M)), []
    for j in range(M):
        pivot = int(variance.argmax())
        if not variance[pivot] > floor:
            break
        column = np.asarray(covariance.Kff(X[pivot : pivot + 1], X))[0]
        kernels.deflate(factor, j, pivot, column, variance)
        variance[pivot] = -np.inf
        chosen.append(pivot)
    return divided(devices.copy_to(X[_top_up(X, chosen, M, rng)].astype(dtype), device_like))


def _kmeans_seeds(X, M, rng):
    """Row numbers of X drawn by k-means++ seeding."""
    seeds = [int(rng.integers(len(X)))]
    squared = _nearest(X, X[seeds])[1]
    recent = []  # seeds that `squared` does not include yet
    floor = 1e-14 * squared.max()  # smaller distances are rounding errors of duplicates
    while len(seeds) < M:
        cumulative = np.cumsum(np.where(squared > floor, squared, 0.0))
        if not cumulative[-1] > 0:
            break
        for u in rng.random(256):
            row = int(np.searchsorted(cumulative, u * cumulative[-1], side="right"))
            row = min(row, len(X) - 1)
            now = squared[row]
            if recent:
                now = min(now, ((X[recent] - X[row]) ** 2).sum(axis=1).min())
            if now > floor and rng.random() * squared[row] < now:
                seeds.append(row)
                recent.append(row)
                if len(seeds) == M or len(recent) == 64:
                    break
        if recent:
            squared = np.minimum(squared, _nearest(X, X[recent])[1])
            recent = []
    return _top_up(X, seeds, M, rng)


def _nearest(X, Z):
    """Index of the nearest row of Z for each row of X, and its squared distance; by chunks."""
    from scipy.cluster.vq import vq

    labels, squared = np.empty(len(X), np.intp), np.empty(len(X))
    for a in range(0, len(X), _CHUNK):
        labels[a : a + _CHUNK], distance = vq(X[a : a + _CHUNK], Z, check_finite=False)
        np.square(distance, out=squared[a : a + _CHUNK])
    return labels, squared


def _nearest_rows(X, Z):
    """For each centre, return the number of the nearest row of its cluster.

    A centre that has no rows is a row itself: then of the nearest row of all.
    """
    labels, squared = _nearest(X, Z)
    order = np.lexsort((squared, labels))
    found, first = np.unique(labels[order], return_index=True)
    nearest = _nearest(Z, X)[0]
    nearest[found] = order[first]
    return nearest


def _top_up(X, chosen, M, rng):
    """Add random rows to the ``chosen`` ones up to M.

    Added rows are distinct while there are any; the rest repeat rows, with a warning.
    """
    if len(chosen) == M:
        return chosen
    _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    taken = np.zeros(len(first), bool)
    taken[group.ravel()[chosen]] = True
    others = rng.permutation(first[~taken])[: M - len(chosen)]
    chosen = [*chosen, *others]
    if len(chosen) < M:
        warn(
            f"only {len(chosen)} of the {len(X)} sampled rows of `X` are distinct, fewer than the"
            f" {M} inducing inputs requested: {M - len(chosen)} are repeated. Choose a smaller M,"
            " or Kuu will need a large jitter"
        )
        chosen = [*chosen, *rng.choice(chosen, size=M - len(chosen))]
    return np.array(chosen)
