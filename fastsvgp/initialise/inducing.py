"""Where to start: inducing inputs and lengthscales from the data.

All functions read only a random subset of the rows where there are many, so data larger than memory
(``numpy.memmap``) is fine. ``rng`` is None, an integer seed, or a ``numpy.random.Generator``. Of
data on a device that subset is copied to the host, where the choice is made, the same for the same
seed; what is returned is on the device again.
"""

from typing import Any, Literal, overload

import numpy as np

from .. import check, kernels
from ..covariances import Convolutional, Covariance
from ..distributed import broadcast
from ..errors import BadEntry, names_options, warn
from ..means import LinearMean
from ..records import is_record, leaves
from ..records.inducing_sets import InducingPair
from ..records.typed import Array, ArrayLike, Group, Seed
from ..runtime import devices
from ..runtime.deferred_checks import on_device

_CHUNK = 4096
GATHERED = 20_000  # rows of all ranks that k-means looks at, where each rank has its own


# a pair of numbers gives a pair of sets
@overload
def kmeans_inducing(
    X: ArrayLike,
    M: int,
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
) -> Array: ...
@overload
def kmeans_inducing(
    X: ArrayLike,
    M: tuple[int, int],
    rng: Seed = ...,
    iterations: int = ...,
    subset: int | None = ...,
    group: Group | None = ...,
) -> InducingPair: ...
@names_options
def kmeans_inducing(X, M, rng=None, iterations=10, subset=None, group=None):
    """Inducing inputs at the centres of clusters: k-means++ seeding, then a few rounds of Lloyd's algorithm.

    Parameters
    ----------
    X : (N, D) array
        Inputs. Distances are Euclidean in the given units: standardise first.
    M : int, or (M, M2)
        Number of centres, at most N; two of them for the sets of an ``InducingPair``, chosen
        together.
    rng : None, int or Generator
    iterations : int
        Lloyd's rounds at most, fewer once no row changes its centre; 0 returns the seeds, which are
        rows of X.
    subset : int, optional
        How many random rows to look at; default about min(20 000, 4 000 000 / D), at least 10 M, at
        most all.
    group : group of ``fs.distributed``, optional
        Several ranks: the same result on all of them, rank 0's, of the same rows; where each has
        rows of its own, of a random choice among those of all ranks.

    Returns
    -------
    Z : (M, D) array, or ``InducingPair``
        In the dtype of X (float64 for integers). Distinct unless X has fewer than M distinct rows;
        then the others are repeated, with a warning.

    Raises
    ------
    ValueError
        M > N or M < 1, X of the wrong shape, NaN or infinity.

    Notes
    -----
    About 2 (iterations + 1) M D flops a row. The seeding samples exactly from the k-means++
    distribution (Arthur & Vassilvitskii 2007), but updates the distances of all rows for 64 new
    centres at a time: in between, a candidate drawn with the old distances d is kept with
    probability (d_new / d)^2.

    Examples
    --------
    >>> fs.kmeans_inducing(X, 5, rng=0).shape
    (5, 1)
    """
    if group is not None:
        rows = GATHERED if subset is None else subset
        return broadcast.chosen(
            group, lambda X, rng: kmeans_inducing(X, M, rng, iterations, subset), X, rng, rows, M=M
        )
    rng, (M, divided) = check.generator(rng), _sizes(M)
    X, dtype, home = _rows("kmeans_inducing", X, M, rng, subset)
    iterations, before = check.whole("iterations", iterations, 0), None
    centre = X.mean(axis=0)
    X -= centre  # distances by expanding the square cancel less around the origin
    Z = X[_kmeans_seeds(X, M, rng)]
    for _ in range(iterations):
        labels, squared = _nearest(X, Z)
        if np.array_equal(labels, before):
            break  # what follows would change nothing any more
        before = labels
        counts = np.bincount(labels, minlength=M)
        sums = np.stack(
            [np.bincount(labels, weights=column, minlength=M) for column in X.T], axis=1
        )
        Z = np.where(counts[:, None] > 0, sums / np.maximum(counts, 1)[:, None], Z)
        empty = np.flatnonzero(counts == 0)
        # a centre that lost all its rows starts again from a row that is badly served
        if empty.size:
            distinct = np.unique(X, axis=0, return_index=True)[1]
            worst = distinct[np.argsort(squared[distinct])][-empty.size :]
            Z[empty[: worst.size]] = X[worst]
    return divided(devices.like((Z + centre).astype(dtype), home))


@overload
def patch_inducing(X: ArrayLike, M: int, covariance: Convolutional, rng: Seed = ...) -> Array: ...
@overload
def patch_inducing(
    X: ArrayLike, M: tuple[int, int], covariance: Convolutional, rng: Seed = ...
) -> InducingPair: ...
@names_options
def patch_inducing(X, M, covariance, rng=None):
    """Inducing patches for a ``Convolutional`` covariance: centres of clusters of the distinct patches of images.

    Parameters
    ----------
    X : (N, H W C) array
        Images, in the layout of the covariance.
    M : int, or (M, M2)
        As of ``kmeans_inducing``.
    covariance : Convolutional
        With a location covariance clusters are of patches and places together, these scaled to the
        same total variance, so that both count alike.
    rng : None, int or Generator

    Returns
    -------
    Z : (M, h w C) array, or ``InducingPair``
        With two more columns, the place of each, where there is a location covariance. In the dtype
        of X.

    Raises
    ------
    ValueError, TypeError
        Fewer than M distinct patches among those looked at; columns that are not H W C, NaN or
        infinity.

    Notes
    -----
    It looks at some 20 000 patches, at least 10 M, of at most 1000 images or as many as that takes.
    Cost as of ``kmeans_inducing``.

    Examples
    --------
    >>> of_patches = fs.Convolutional(fs.RBF(1.0, 1.0), 1 / 9, image_shape=(4, 4), patch_shape=(2, 2))
    >>> images = np.arange(48.0).reshape(3, 16) ** 2
    >>> fs.patch_inducing(images, 5, of_patches, rng=0).shape
    (5, 4)
    """
    rng, (total, divided) = check.generator(rng), _sizes(M)
    if not hasattr(covariance, "geometry"):
        raise TypeError(
            "patch_inducing: `covariance` must be a fastsvgp.Convolutional, got"
            f" {type(covariance).__name__}"
        )
    geometry, X = covariance.geometry, _data(X)
    places = kernels.window_places(geometry, np.empty(0))
    images, dtype, home = _rows(
        "patch_inducing", X, 1, rng, max(1000, -(-10 * total // len(places)))
    )
    covariance.check_dim(images.shape[1])
    each, patches = min(len(places), -(-max(20_000, 10 * total) // len(images))), []
    for image in images:
        chosen = np.sort(rng.choice(len(places), each, replace=False))
        patch = kernels.gather_patches(image[None], geometry)[0, chosen]
        patches.append(
            patch
            if covariance.location_covariance is None
            else np.concatenate([patch, places[chosen]], 1)
        )
    patches = np.unique(np.concatenate(patches), axis=0)
    if len(patches) < total:
        raise ValueError(
            f"patch_inducing: {total} inducing patches were asked for, but only {len(patches)}"
            " distinct ones found"
        )
    scale = np.ones(patches.shape[1])
    if covariance.location_covariance is not None:
        variances = patches.var(axis=0)
        of_patches, of_places = variances[:-2].sum(), variances[-2:].sum()
        scale[-2:] = np.sqrt(of_patches / of_places) if of_patches > 0 and of_places > 0 else 1.0
    Z = kmeans_inducing(patches * scale, total, rng) / scale
    return divided(devices.like(Z.astype(dtype), home))


@overload
def greedy_variance_inducing(
    X: ArrayLike, M: int, covariance: Covariance, rng: Seed = ..., subset: int | None = ...
) -> Array: ...
@overload
def greedy_variance_inducing(
    X: ArrayLike,
    M: tuple[int, int],
    covariance: Covariance,
    rng: Seed = ...,
    subset: int | None = ...,
) -> InducingPair: ...
@names_options
def greedy_variance_inducing(X, M, covariance, rng=None, subset=None):
    """Inducing inputs chosen one by one from the rows of X, each where the conditional variance given the others is largest.

    This is the pivoted Cholesky factorisation of K(X, X) (Burt, Rasmussen & van der Wilk 2020),
    which also greedily reduces tr(Kff - Qff), the slack of the collapsed bound.

    Parameters
    ----------
    X : (N, D) array
    M : int, or (M, M2)
        How many, at most N; the first M and the next M2 of them are the sets of an
        ``InducingPair``.
    covariance : Covariance
        With the lengthscales that training starts from; on the device where X is on one.
    rng : None, int or Generator
        For the subset and for ties.
    subset : int, optional
        How many random rows to choose from; default 10 000, at least 10 M, at most all. The factor
        takes 8 subset M bytes.

    Returns
    -------
    Z : (M, D) array, or ``InducingPair``
        Rows of X, in the order of choice, in the dtype of X. Where the covariance has lower rank
        than M in working precision, the rest are random rows that differ from all chosen ones; only
        if X has fewer than M distinct rows are some repeated, with a warning.

    Raises
    ------
    ValueError
        M > N or M < 1, X of the wrong shape, NaN or infinity.

    Notes
    -----
    subset * M^2 flops.

    Examples
    --------
    >>> fs.greedy_variance_inducing(X, 5, covariance, rng=0).shape
    (5, 1)
    """
    rng, (M, divided) = check.generator(rng), _sizes(M)
    if not is_record(covariance) or not hasattr(covariance, "check_dim"):
        kind = type(covariance).__name__
        raise TypeError(
            "greedy_variance_inducing: `covariance` must be a record such as fastsvgp.RBF(...),"
            f" got {kind}"
        )
    if hasattr(covariance, "geometry"):
        raise TypeError(
            "greedy_variance_inducing: `covariance` is of images, and its inducing inputs are"
            " patches, no rows of X; use fastsvgp.patch_inducing"
        )
    X = _data(X)
    fields = [(f"covariance.{path}", value) for path, _, value in leaves(covariance)]
    check.one_device(
        ("X", X),
        *((path, check.as_array(path, value)) for path, value in fields if value is not None),
    )
    X, dtype, home = _rows(
        "greedy_variance_inducing", X, M, rng, 10_000 if subset is None else subset
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
    return divided(devices.like(X[_top_up(X, chosen, M, rng)].astype(dtype), home))


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
        return broadcast.chosen(
            group, lambda X, rng: median_lengthscales(X, rng, ard, subset), X, rng, subset
        )
    rng, ard = check.generator(rng), check.flag("ard", ard)
    X, dtype, home = _rows("median_lengthscales", X, 1, rng, subset)
    first = rng.integers(len(X), size=20_000)
    second = (first + rng.integers(1, max(len(X), 2), size=first.size)) % len(X)
    if ard:
        medians = [_median_of_positive(np.abs(column[first] - column[second])) for column in X.T]
        return devices.like(
            np.array([1.0 if m is None else np.sqrt(X.shape[1]) * m for m in medians], dtype), home
        )
    squared = np.zeros(first.size)
    for column in X.T:
        squared += (column[first] - column[second]) ** 2
    median = _median_of_positive(np.sqrt(squared))
    return 1.0 if median is None else float(median)


@names_options
def pca_mean(X: ArrayLike, P: int, rng: Seed = None, subset: int | None = None) -> LinearMean:
    """A mean function whose P outputs are the principal components of X: for hidden layers narrower than their inputs.

    Parameters
    ----------
    X : (N, D) array
    P : int
        Number of outputs, at most D.
    rng : None, int or Generator
    subset : int, optional
        How many random rows to look at; default about min(20 000, 4 000 000 / D), at most all.

    Returns
    -------
    LinearMean
        Of weights (P, D), orthonormal rows, largest variance first, the largest entry of each
        positive; the centre of X goes to 0. In the dtype of X. Deep GPs keep it fixed.

    Notes
    -----
    2 N D^2 + 9 D^3 flops, or so. Source: Salimbeni and Deisenroth 2017, section 2.2.

    Examples
    --------
    >>> inputs = np.hstack([X, 2 * X, X**2])
    >>> fs.pca_mean(inputs, 2, rng=0).weights.shape
    (2, 3)
    """
    P, rng = check.whole("P", P), check.generator(rng)
    X, dtype, home = _rows("pca_mean", X, 1, rng, subset)
    if P > X.shape[1]:
        raise ValueError(
            f"pca_mean: `P` is {P}, but `X` has {X.shape[1]} columns, and no more components;"
            " choose a smaller P"
        )
    centre = X.mean(axis=0)
    X -= centre
    _, directions = np.linalg.eigh(kernels.matmul(X, X, transpose_a=True))
    weights = directions[:, ::-1][:, :P].T
    largest = np.take_along_axis(weights, abs(weights).argmax(axis=1)[:, None], axis=1)
    weights = weights * np.sign(largest)
    bias = -kernels.matmul(weights, centre[:, None])[:, 0]
    return LinearMean(*(devices.like(a.astype(dtype), home) for a in (weights, bias)))


def _median_of_positive(distances):
    positive = distances[distances > 0]
    return np.median(positive) if positive.size else None


def _sizes(M):
    """How many inputs there shall be in all, and what returns them: as they are, or as a pair of the first and the rest."""
    if not isinstance(M, (tuple, list)):
        return check.whole("M", M), lambda Z: Z
    if len(M) != 2:
        raise ValueError(f"`M` must be a number, or two of them for an InducingPair, got {len(M)}")
    first, second = (check.whole("M", m) for m in M)
    return first + second, lambda Z: InducingPair(Z[:first], Z[first:])


def _data(X):
    """Lists and tables as arrays; an array of any library is read later, and only the rows that are looked at."""
    return X if hasattr(X, "dtype") else check.as_array("X", X)


def _rows(function, X, M, rng, subset) -> tuple[np.ndarray, np.dtype, Any]:
    """Random rows of X in random order, as float64 and checked; the dtype of results, and what they are ``devices.like``."""
    X = _data(X)
    if np.ndim(X) != 2 or 0 in np.shape(X):
        raise ValueError(
            f"{function}: `X` must have shape (N, D) with at least one row and column, got"
            f" {np.shape(X)}"
        )
    N, D = np.shape(X)
    if M > N:
        raise ValueError(
            f"{function}: {M} inducing inputs were asked for, but `X` has only {N} rows; choose M"
            f" <= {N}"
        )
    if subset is None:
        subset = max(1, min(20_000, 4_000_000 // D))
    subset = check.whole("subset", subset)
    rows = rng.choice(N, size=min(N, max(subset, 10 * M)), replace=False)
    order = np.argsort(rows)  # read in the order of the file, then shuffle
    part: Any = check.as_array("X", X[devices.like(rows[order], X)])
    part, home = (part.get(), X) if on_device(part) else (part, None)
    shuffled = np.empty(part.shape)
    shuffled[order] = part
    try:
        check.finite("X", shuffled)
    except BadEntry as error:
        error.index = (int(rows[error.index[0]]), error.index[1])
        raise
    return shuffled, check.common_dtype(part, names=("X",)), home


def _kmeans_seeds(X, M, rng):
    """Rows of X drawn as k-means++ does."""
    seeds = [int(rng.integers(len(X)))]
    squared = _nearest(X, X[seeds])[1]
    recent = []  # seeds that `squared` does not know yet
    floor = 1e-14 * squared.max()  # below it the distance of a duplicate is rounding
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
    """Index of the nearest row of Z for each row of X, and its squared distance, a chunk of rows at a time."""
    from scipy.cluster.vq import vq

    labels, squared = np.empty(len(X), np.intp), np.empty(len(X))
    for a in range(0, len(X), _CHUNK):
        labels[a : a + _CHUNK], distance = vq(X[a : a + _CHUNK], Z, check_finite=False)
        np.square(distance, out=squared[a : a + _CHUNK])
    return labels, squared


def _top_up(X, chosen, M, rng):
    """``chosen`` rows and random others up to M: distinct rows while there are any, then repeated ones, with a warning."""
    if len(chosen) == M:
        return chosen
    _, first, group = np.unique(X, axis=0, return_index=True, return_inverse=True)
    taken = np.zeros(len(first), bool)
    taken[group.ravel()[chosen]] = True
    others = rng.permutation(first[~taken])[: M - len(chosen)]
    chosen = [*chosen, *others]
    if len(chosen) < M:
        warn(
            f"only {len(chosen)} of the {len(X)} rows of `X` that were looked at are distinct,"
            f" fewer than the {M} inducing inputs asked for: {M - len(chosen)} are repeated. Choose"
            " a smaller M, or Kuu will need a large jitter"
        )
        chosen = [*chosen, *rng.choice(chosen, size=M - len(chosen))]
    return np.array(chosen)
