"""Which basis functions a step looks at, how often each counts, and gradients that have rows for these alone."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels

SCHEMES = "stratified", "without", "with"


class BasisSample(NamedTuple):
    """Units of a basis: functions, or frequencies of a ``RandomFourier``, of which each brings its cosine and its sine.

    i : (s,) integers; j : (s',) integers drawn independently of i, or None
    columns : (c,) integers drawn independently of both, or None: of the m columns of the factor C, dense or not. With them
        estimators are those of the paper, without them the reduced ones, which take all columns exactly
    weight_i, weight_j : how often each unit counts, a number or one for each; None: units of the basis / s, as of equal draws
    weight_columns : the same of columns; None: m / c
    """

    i: Any
    j: Any = None
    columns: Any = None
    weight_i: Any = None
    weight_j: Any = None
    weight_columns: Any = None


@dataclass(frozen=True)
class SparseRows:
    """A gradient that is zero but for some rows: ``rows`` (r,), unique and increasing, ``values`` (r, ...)."""

    rows: Any
    values: Any

    def dense(self, m):
        """All m rows."""
        out = np.zeros((m, *self.values.shape[1:]), self.values.dtype, like=self.values)
        out[self.rows] = self.values
        return out


def summed(*parts):
    """``SparseRows`` of the sum of (rows, values), rows repeated or not."""
    return SparseRows(*kernels.sum_rows(*zip(*parts, strict=True)))


def counted(numbers, weights, at):
    """How often each of the numbers ``at`` counts among others, which count ``weights`` times: sums over coincidences."""
    unique, where = np.unique(numbers, return_inverse=True)
    totals = np.bincount(where, weights)
    found = np.minimum(np.searchsorted(unique, at), len(unique) - 1)
    return np.where(unique[found] == at, totals[found], 0).astype(weights.dtype)


def draw_basis_sample(basis, size, *, rng=None, scheme="stratified", pair=True, columns=None):
    """Draw the units of a step, each weighted so that sums over the sample are sums over the basis on average.

    Parameters
    ----------
    basis : RandomFourier, InducingBasis or RelevanceBasis
    size : int
        How many units each of i and j has: functions, or frequencies of two functions each.
    rng : None, int or numpy.random.Generator
    scheme : {"stratified", "without", "with"}
        One unit of each of ``size`` blocks of neighbours, O(size); without replacement, O(units of the basis); with it, O(size).
        Not repeating a unit takes the part size / units off the variance.
    pair : bool
        Whether to draw j too.
    columns : int, optional
        How many of the m columns of C to draw, by the same scheme, for the paper's own estimators; default none, for the reduced
        ones. The paper draws as many as functions.

    Returns
    -------
    BasisSample
        Its units increase, but for "with".

    Raises
    ------
    ValueError
        More units than the basis has, or columns than C has, but for "with"; an unknown scheme; columns and no pair.

    Notes
    -----
    Source: Evans and Nair 2018, Theorems 1 and 2, which draw with replacement.
    """
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise ValueError(f"draw_basis_sample: `scheme` must be one of {', '.join(map(repr, SCHEMES))}, got {scheme!r:.200}")
    size, units, rng = check.whole("size", size), num_units(basis), check.generator(rng)
    if size > units and scheme != "with":
        raise ValueError(f'draw_basis_sample: `size` is {size}, but the basis has {units} units; scheme="with" may repeat them')
    i, weight_i = _drawn(units, size, rng, scheme)
    j, weight_j = _drawn(units, size, rng, scheme) if check.flag("pair", pair) else (None, None)
    if columns is None:
        return BasisSample(i, j, None, weight_i, weight_j)
    count, m = check.whole("columns", columns), units * basis.width
    if not pair:
        raise ValueError("draw_basis_sample: `columns` are for estimators that need j; leave them out, or `pair` True")
    if count > m and scheme != "with":
        raise ValueError(f'draw_basis_sample: `columns` is {count}, but C has {m}; scheme="with" may repeat them')
    drawn, weight_columns = _drawn(m, count, rng, scheme)
    return BasisSample(i, j, drawn, weight_i, weight_j, weight_columns)


def num_units(basis):
    """How many there are to draw from."""
    if isinstance(basis, type) or not hasattr(basis, "functions"):
        came = f"{basis.__name__}, a class" if isinstance(basis, type) else type(basis).__name__
        raise TypeError(f"`basis` must be a fastsvgp.RandomFourier, InducingBasis or RelevanceBasis, got {came}")
    basis.check_settings()
    return int(basis.num_functions()) // basis.width


def _drawn(units, size, rng, scheme):
    if scheme == "with":
        return rng.integers(units, size=size), None
    if scheme == "without":
        return np.sort(rng.choice(units, size, replace=False)), None
    edges = np.arange(size + 1) * units // size
    widths = np.diff(edges)
    return edges[:-1] + (rng.random(size) * widths).astype(np.int64), widths.astype(float)


def checked_units(name, indices, weights, units, dtype, there="the basis has {} units"):
    """``(units, weights)`` of one side of a sample as arrays; O(their number). ``there`` says how many there are."""
    indices = np.asarray(indices)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) == 0:
        raise TypeError(f"`sample.{name}` must hold one or more whole numbers, (s,), got {indices.dtype} {indices.shape}")
    if indices.min() < 0 or indices.max() >= units:
        wrong = indices.max() if indices.max() >= units else indices.min()
        raise ValueError(f"`sample.{name}` names {wrong}, but {there.format(units)}, from 0")
    if weights is None:
        return indices, np.full(len(indices), units / len(indices), dtype)
    called, s = f"sample.weight_{name}", len(indices)
    weights = check.as_array(called, weights)
    if weights.shape not in ((), (s,)):
        raise ValueError(f"`{called}` must be a number or have shape ({s},), as `sample.{name}` has, got {weights.shape}")
    check.finite(called, weights)
    check.positive(called, weights, "")
    return indices, np.broadcast_to(weights, (s,)).astype(dtype)
