"""Sobol' indices of first order: the share of the variance that each input explains by itself.

With independent inputs of the distributions of the columns of X, a function f has the variance V
and the mean effects e_c(x) = E[f | x_c = x]. The index of c is S_c = var e_c / V; the rest of 1 are
interactions.

All indices come from one set of N points (Plischke 2010). The columns of B_c are functions of x_c,
orthonormal over the points: cosines of its rank and of its value, or if x_c has few values,
indicators of these. By least squares f = mean + sum_c B_c a_c + r, and

    var e_c = |a_c|^2 - s^2 tr(G^-1)_cc,    s^2 = |r|^2 / (N - p - 1),    G = B'B,

the second term the bias by r, the interactions, as if they were noise. For the weaker inputs of
many, var e_c is that of the means of r in 32 bins of the ranks, times N^2 / (N - p)^2: r has lost p
of N directions.

The points combine the ranks of quasi-random normal points with the values of each column, so a
function without interactions has no error but that of cosines.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import check, kernels
from ..records.typed import Array, ArrayLike, Record, Seed
from .values import Values, check_columns, check_rows, squeezed

ROWS = 20_000  # of X, from which the distributions of the columns come
NUM_POINTS = 8192  # for the mean; draws take fewer, because they are joint
TERMS, OF_VALUE = 24, 12  # cosines of the rank and of the value of an input
SAME = 1e-6  # part of a cosine that is new, below which it is left out
MOST_LEVELS = 64  # of several columns that count as one input
JOINTLY = 800  # terms of the least squares
BINS = 32  # of an input that has no part in them
PER_TERM = 4  # points for each of its terms, at least
LEVELS = 0.025, 0.975


class Sobol(NamedTuple):
    """Sobol' indices, as ``sobol`` returns them.

    Parameters
    ----------
    first : (C,) array, or (C, P) for P functions
        The share of the variance of the posterior mean that each input explains by itself.
    low, high : arrays of the same shape
        The ends of their 95 % bands, over draws of the posterior.

    Examples
    --------
    >>> fs.sobol(model, X).first.shape
    (1,)
    """

    first: Array
    low: Array
    high: Array


def sobol(
    model: Record,
    X: ArrayLike,
    columns: Sequence[int | Sequence[int]] | None = None,
    *,
    num_draws: int = 100,
    num_points: int = 1024,
    targets: bool = False,
    rng: Seed = 0,
    jitter: float | None = None,
) -> Sobol:
    """Compute the share of the variance of a model that each input explains by itself.

    Sobol' indices of first order of the posterior mean, and their bands over joint draws of the
    posterior. The inputs count as independent, with the distributions of the columns of X. Indices
    sum to 1 if inputs do not interact, and to less otherwise.

    Parameters
    ----------
    model : SVGP, VIF, MultiGP, DeepGP or QSGP
    X : (N, D) array
        Rows in the units of the model, on the host.
    columns : sequence, optional
        As in ``effects``. Columns that are not listed vary, too.
    num_draws : int
        Draws of the posterior, for the bands.
    num_points : int
        Points of a draw: a power of two, at least 256. The mean has at least 8192.
    targets : bool
        As in ``effects``.
    rng : int or numpy.random.Generator
        For the points, and the draws.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.

    Returns
    -------
    Sobol
        ``first``, ``low`` and ``high``, in the order of ``columns``. An index of a function that is
        constant is 0.

    Raises
    ------
    ValueError, TypeError
        A column that X does not have, or a setting that is no whole number.

    Notes
    -----
    The means at 8192 points, and the joint draws at n of them, which take M^2 n + M n^2 + n^3 / 3
    flops per output; 8 n^2 bytes. An effect that goes up and down more than 12 times counts as an
    interaction. Draws have the variance that the data leave, so an index can lie outside its
    band, where a part of the function is unknown. Source: Sobol' 1993; Plischke 2010.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> U = rng.uniform(-1, 1, (200, 2))
    >>> two = fs.recipes.regression(U, U[:, 0] + 0.5 * U[:, 1])  # variances 1/3 and 1/12
    >>> Us, y = two.scale.X(U), two.scale.y(U[:, 0] + 0.5 * U[:, 1])
    >>> trained = fs.fit(two.model, Us, y, **two.fit)[1].svgp
    >>> fs.sobol(trained, Us).first.round(1)
    array([0.8, 0.2])
    """
    data = check_rows(X)
    groups = check_columns(columns, data.shape[1])
    draws, n = check.whole("num_draws", num_draws), check.whole("num_points", num_points, 256)
    if n & (n - 1):
        raise ValueError(f"`num_points` must be a power of two, got {n}; 1024 is the default")
    rng = check.generator(rng)
    data = data if len(data) <= ROWS else data[rng.choice(len(data), ROWS, replace=False)]
    values = Values(model, targets, jitter)
    F, places = _evaluate(values.means, data, groups, max(n, NUM_POINTS), rng)
    P, (first, order) = F.shape[1], _shares(F, places)

    def joint(at):
        samples = values.draws(at, draws, rng).swapaxes(0, 1).reshape(n, draws * P)
        return np.concatenate([values.means(at), samples], axis=1)

    both, places = _evaluate(joint, data, groups, n, rng)
    found = _shares(both, places, order)[0]
    of_mean, of_draws = found[:, :P], found[:, P:].reshape(-1, draws, P)
    # the points of the draws are fewer: what that changes for the mean, it changes for them
    ends = np.clip(np.quantile(of_draws, LEVELS, axis=1) + (first - of_mean), 0, 1)
    return Sobol(*(squeezed(part, P) for part in (first, *ends)))


def _evaluate(function, X, groups, n, rng):
    """Return a function at n points, and where each input is there: see ``_basis``."""
    alone = sorted(set(range(X.shape[1])) - {column for group in groups for column in group})
    parts = [*groups, *((column,) for column in alone)]
    points = kernels.normal_points(len(parts), n, rng)
    at, places = np.empty((n, X.shape[1]), X.dtype), []
    for part, u in zip(parts, points.T, strict=True):
        ranks = (np.argsort(np.argsort(u, kind="stable"), kind="stable") + 0.5) / n
        levels, which = np.unique(X[:, part], axis=0, return_inverse=True)
        if len(part) > 1 and len(levels) > MOST_LEVELS:
            raise ValueError(
                f"`columns`: {part!r:.40} have {len(levels)} different rows together; columns that"
                f" count as one input can have {MOST_LEVELS}"
            )
        which = np.sort(which.ravel())[(ranks * len(X)).astype(int)]
        at[:, part] = levels[which]
        if len(places) < len(groups):
            places.append((which, ranks, levels))
    return function(at), places


def _basis(which, ranks, levels):
    """Return functions (n, T) of an input, orthonormal over the points and to the constant.

    which : (n,) the rows of ``levels`` at the points, increasing with the ranks (n,)
    levels : (L, K), different and in order
    """
    if len(levels) > TERMS + 1 and levels.shape[1] == 1:
        x = levels[which, 0].astype(np.float64)
        x = (x - levels[0, 0]) / (levels[-1, 0] - levels[0, 0])
        angles = [np.outer(u, np.arange(1, k + 1)) for u, k in ((ranks, TERMS), (x, OF_VALUE))]
        B = np.cos(np.pi * np.concatenate(angles, axis=1))
    else:
        B = (which[:, None] == np.unique(which)[1:]).astype(np.float64)
    Q, R = np.linalg.qr(B - B.mean(axis=0))
    return Q[:, np.abs(np.diag(R)) > SAME * np.sqrt(len(B))] * np.sqrt(len(B))


def _of_bins(F, ranks):
    """Return the mean squares of the means of ``BINS`` bins of ranks: functions F (n, K)."""
    means = F[np.argsort(ranks)].reshape(BINS, -1, F.shape[1]).mean(axis=1)
    return np.square(means).mean(axis=0)


def _shares(F, places, order=None):
    """Return the shares (C, K) of K functions at points, F (n, K), and inputs in order of these.

    places : list of C tuples ``(which, ranks, levels)``, as for ``_basis``
    order : inputs, the strongest first; by default that of the bins
    """
    n, F = len(F), F - F.mean(axis=0)
    total = np.square(F).mean(axis=0)
    if order is None:
        plain = np.array([_of_bins(F, ranks).sum() for _, ranks, _ in places])
        order = np.argsort(-plain, kind="stable")
    jointly, B = {}, np.empty((n, 0))
    for c in order:
        own = _basis(*places[c])
        if (p := B.shape[1]) + own.shape[1] > min(JOINTLY, n // PER_TERM):
            break
        B = np.concatenate([B, own], axis=1)
        jointly[c] = slice(p, B.shape[1])
    inverse = np.linalg.inv(B.T @ B)
    weights = inverse @ (B.T @ F)
    rest, left = F - B @ weights, n - B.shape[1]
    noise = np.square(rest).sum(axis=0) / (left - 1)
    found = np.empty((len(places), F.shape[1]))
    for c in order:
        if c in jointly:
            rows = jointly[c]
            bias = np.trace(inverse[rows, rows])
            found[c] = np.square(weights[rows]).sum(axis=0) - bias * noise
        else:
            own = _of_bins(rest, places[c][1]) * (n / left) ** 2
            found[c] = own - (BINS - 1) / n * noise
    return np.clip(found / np.where(total > 0, total, 1), 0, 1), order
