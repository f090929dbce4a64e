"""Mean effects of inputs: the function averaged over the rows of the other inputs.

With x_c the value of the inputs c, and rows x_1 ... x_n of data,

    e_c(x) = 1/n sum_i f(x, x_i without c).

f is a Gaussian process, so e_c(x) is normal:

    E e_c(x) = 1/n sum_i m(x, x_i),    var e_c(x) = 1/n^2 sum_ij cov(f(x, x_i), f(x, x_j)).

The variance is that of the average, not the average of variances: it takes the joint posterior. A
value that is not jointly normal has a band from joint draws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from .. import check
from ..records.typed import Array, ArrayLike, Record, Seed
from .values import Values, check_columns, check_rows, squeezed

NORMAL = 1.959963984540054  # of a 95 % band
LEVELS = 0.025, 0.975
DRAWS = 200  # of bands that are not normal


class Effect(NamedTuple):
    """The mean effect of an input, as ``effects`` returns it.

    Parameters
    ----------
    columns : tuple of int
        The columns of X that vary, together.
    grid : (G,) array, or (G, K) for K columns
        Their values.
    mean, low, high : (G,) arrays, or (G, P) for P functions
        The mean, and the ends of its 95 % band.

    Examples
    --------
    >>> fs.effects(model, X)[0].columns
    (0,)
    """

    columns: tuple[int, ...]
    grid: Array
    mean: Array
    low: Array
    high: Array


def effects(
    model: Record,
    X: ArrayLike,
    columns: Sequence[int | Sequence[int]] | None = None,
    *,
    num_points: int = 32,
    num_rows: int = 200,
    targets: bool = False,
    rng: Seed = 0,
    jitter: float | None = None,
) -> list[Effect]:
    """Average a model over all inputs but one, along that one, with a 95 % band.

    The mean effect, or partial dependence, shows how the model depends on an input. The band is
    that of the average under the joint posterior, noise excluded.

    Parameters
    ----------
    model : SVGP, VIF, MultiGP, DeepGP or QSGP
    X : (N, D) array
        Rows in the units of the model, on the host: their values of the other inputs are averaged
        over.
    columns : sequence, optional
        Numbers of columns. A tuple of them is one input, such as a level in one-hot form, and takes
        only values of rows. Default: each column.
    num_points : int
        Values of an input: half of them evenly from the smallest to the largest, half at quantiles
        of the rows. Its distinct values if there are no more than that.
    num_rows : int
        If there are more rows, as many are drawn.
    targets : bool
        Describe E[y | f] (a probability for each class, a rate) instead of the functions.
    rng : int or numpy.random.Generator
        For the drawn rows, and for the draws of bands that have no closed form: with ``targets``,
        and of a ``DeepGP``.
    jitter : float, optional
        Added to the diagonal of Kuu, as in ``elbo``: use the same.

    Returns
    -------
    list of Effect
        ``columns``, ``grid``, ``mean``, ``low`` and ``high`` of each.

    Raises
    ------
    ValueError, TypeError
        A column that X does not have, or a setting that is no whole number.

    Notes
    -----
    Each value of the grid takes a joint prediction at ``num_rows`` rows n: 2 M^2 n + M n^2 flops,
    and for draws n^3 / 3 more. The rows of the other inputs keep their dependence; with the input
    they are combined as if independent of it. Source: Friedman 2001, section 8.2.

    Examples
    --------
    >>> (effect,) = fs.effects(model, X, [0], num_points=5)
    >>> effect.grid
    array([-2., -1.,  0.,  1.,  2.])
    >>> bool((effect.low < effect.mean).all())
    True
    """
    data = check_rows(X)
    groups = check_columns(columns, data.shape[1])
    count = check.whole("num_points", num_points)
    n, rng = check.whole("num_rows", num_rows), check.generator(rng)
    values, rows = Values(model, targets, jitter), data
    if len(data) > n:
        rows = data[np.sort(rng.choice(len(data), n, replace=False))]
    seed = int(rng.integers(2**31))
    return [_effect(values, data, rows, group, count, seed) for group in groups]


def _effect(values, X, rows, group, count, seed):
    grid, found = _grid(X[:, group], count), []
    for point in grid:
        at = rows.copy()
        at[:, group] = point
        found.append(_at_point(values, at, seed))
    parts = (squeezed(np.array(part), part[0].size) for part in zip(*found, strict=True))
    return Effect(group, squeezed(grid, len(group)), *parts)


def _at_point(values, at, seed):
    """Return mean, low and high (P,) of the average over rows."""
    if values.normal:
        mean, var = values.average(at)
        return mean, mean - NORMAL * np.sqrt(var), mean + NORMAL * np.sqrt(var)
    draws = values.draws(at, DRAWS, np.random.default_rng(seed)).mean(axis=1)
    return values.means(at).mean(axis=0), *np.quantile(draws, LEVELS, axis=0)


def _grid(X, count):
    """Return values (G, K) of K columns that vary together, in order, of the dtype of X."""
    distinct = np.unique(X, axis=0)
    if len(distinct) <= count:
        return distinct
    if X.shape[1] > 1:
        return distinct[np.linspace(0, len(distinct) - 1, count).round().astype(int)]
    half = count // 2
    even = np.linspace(distinct[0], distinct[-1], count - half)
    at_rows = np.quantile(X, (np.arange(half) + 0.5) / max(half, 1), axis=0)
    return np.unique(np.concatenate([even, at_rows]), axis=0).astype(X.dtype)
