"""Samples of basis functions with their weights, and gradients that have rows only for these."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ... import check, kernels
from ...errors import names_options
from ...records.typed import Record, Seed
from ...runtime import devices
from ...runtime.deferred_checks import none, on_device

SCHEMES = "stratified", "without", "with"
STREAMS = {"i": 2, "j": 3, "columns": 4}  # random streams; frequencies have 0 and 1


class BasisSample(NamedTuple):
    """Sampled units of a basis: functions, or frequencies of a ``RandomFourier``.

    A frequency stands for its cosine and its sine.

    Parameters
    ----------
    i : (s,) array of int
    j : (s',) array of int, optional
        Drawn independently of i.
    columns : (c,) array of int, optional
        Drawn independently of both, of the m columns of the factor C, dense or not. With columns
        the estimators are those of the paper; without, the reduced ones, which use all columns
        exactly.
    weight_i, weight_j : float or array, optional
        Weight of each unit, a number or one per unit; default: units of the basis / s, as for equal
        draws.
    weight_columns : float or array, optional
        The same for columns; default m / c.

    Examples
    --------
    >>> sample = fs.qsgp.BasisSample(i=np.array([0, 7]), j=np.array([3, 4]))
    >>> value, grad, info = fs.qsgp.sampled_bound_and_grad(weights, X, Y, sample)
    >>> info.mean.shape
    (40,)
    """

    i: Any
    j: Any = None
    columns: Any = None
    weight_i: Any = None
    weight_j: Any = None
    weight_columns: Any = None


@dataclass(frozen=True)
class SparseRows:
    """Gradient that is zero except for some rows.

    On a device, where counting the distinct rows would synchronise, the last row can be repeated at
    the end. The repeated values are ignored; in gradients they are zeros.

    Parameters
    ----------
    rows : (r,) array of int
        Unique and increasing.
    values : (r, ...) array

    Examples
    --------
    >>> fs.qsgp.SparseRows(rows=np.array([1, 3]), values=np.array([0.5, 2.0])).dense(5)
    array([0. , 0.5, 0. , 2. , 0. ])
    """

    rows: Any
    values: Any

    def dense(self, m):
        """Return all m rows."""
        rows, values = self.rows, self.values
        out = np.zeros((m, *values.shape[1:]), values.dtype, like=values)
        if on_device(rows) and len(rows) > 1:
            rows, values = (
                np.concatenate([part[:1], part[1:][rows[1:] != rows[:-1]]])
                for part in (rows, values)
            )
        out[rows] = values
        return out


def sum_rows(*parts):
    """Return ``SparseRows`` of the sum of (rows, values), rows repeated or not."""
    return SparseRows(*kernels.sum_rows(*zip(*parts, strict=True)))


def sum_weights(numbers, weights, at):
    """Return the summed weight of each number of ``at`` among ``numbers``; 0 if it is absent."""
    unique, where = np.unique(numbers, return_inverse=True)
    totals = np.bincount(where, weights)
    found = np.minimum(np.searchsorted(unique, at), len(unique) - 1)
    return np.where(unique[found] == at, totals[found], 0).astype(weights.dtype)


@names_options
def draw_basis_sample(
    basis: Record,
    size: int,
    *,
    rng: Seed | tuple[int, int] = None,
    scheme: str = "stratified",
    pair: bool = True,
    columns: int | None = None,
) -> BasisSample:
    """Draw the units of a step, weighted so that sums over the sample are unbiased.

    Parameters
    ----------
    basis : RandomFourier, InducingBasis or RelevanceBasis
    size : int
        Number of units in each of i and j: functions, or frequencies of two functions each.
    rng : None, int, numpy.random.Generator or (seed, step)
        A pair of whole numbers below 2^64 makes a stratified sample a pure function of them, the
        same on a device, where it is drawn for a basis there; other samples are drawn on the host
        and copied.
    scheme : {"stratified", "without", "with"}
        "stratified": one unit of each of ``size`` blocks of neighbours, O(size). "without": without
        replacement, O(units of the basis). "with": with replacement, O(size). Sampling without
        repeats reduces the variance by the fraction size / units.
    pair : bool
        Whether to draw j too.
    columns : int, optional
        Number of the m columns of C to draw, by the same scheme, for the paper's own estimators.
        Default: none, for the reduced estimators. The paper draws as many columns as functions.

    Returns
    -------
    BasisSample
        With increasing units, except for "with".

    Raises
    ------
    ValueError
        More units than the basis has, or more columns than C has, except for "with"; an unknown
        scheme; columns without a pair.

    Notes
    -----
    Source: Evans and Nair 2018, Theorems 1 and 2, which draw with replacement.

    Examples
    --------
    >>> basis = fs.qsgp.RandomFourier(covariance, num_features=1000)
    >>> sample = fs.qsgp.draw_basis_sample(basis, 20, rng=0)
    >>> sample.i.shape, sample.j.shape
    ((20,), (20,))
    """
    if not isinstance(scheme, str) or scheme not in SCHEMES:
        raise ValueError(
            f"draw_basis_sample: `scheme` must be one of {', '.join(map(repr, SCHEMES))}, got"
            f" {scheme!r:.200}"
        )
    size, units = check.whole("size", size), num_units(basis)
    if size > units and scheme != "with":
        raise ValueError(
            f'draw_basis_sample: `size` is {size}, but the basis has {units} units; scheme="with"'
            " may repeat them"
        )
    drawn = _Drawing(basis, rng, scheme)
    i, weight_i = drawn("i", units, size)
    j, weight_j = drawn("j", units, size) if check.flag("pair", pair) else (None, None)
    if columns is None:
        return BasisSample(i, j, None, weight_i, weight_j)
    given: Any = basis
    count, m = check.whole("columns", columns), units * given.width
    if not pair:
        raise ValueError(
            "draw_basis_sample: `columns` are for estimators that need j; leave them out, or `pair`"
            " True"
        )
    if count > m and scheme != "with":
        raise ValueError(
            f'draw_basis_sample: `columns` is {count}, but C has {m}; scheme="with" may repeat them'
        )
    columns, weight_columns = drawn("columns", m, count)
    return BasisSample(i, j, columns, weight_i, weight_j, weight_columns)


def num_units(basis):
    """Return the number of units of a basis."""
    if isinstance(basis, type) or not hasattr(basis, "functions"):
        came = f"{basis.__name__}, a class" if isinstance(basis, type) else type(basis).__name__
        raise TypeError(
            "`basis` must be a fastsvgp.qsgp.RandomFourier, InducingBasis or RelevanceBasis,"
            f" got {came}"
        )
    basis.check_settings()
    return int(basis.num_functions()) // basis.width


class _Drawing:
    """Draws the parts of a sample one after the other: ``(units, weights or None)``.

    The arrays are on the device of the basis.
    """

    def __init__(self, basis, rng, scheme):
        self._like = devices.device_array(basis)
        self._scheme, self._step, self._rng = scheme, _seed_and_step(rng), None
        if self._step is None or scheme != "stratified":
            self._step, self._rng = None, check.generator(rng)

    def __call__(self, name, units, size):
        if self._step is not None:
            return kernels.stratified_units(units, size, *self._step, STREAMS[name], self._like)
        found, weights = _draw(units, size, self._rng, self._scheme)
        found = devices.copy_to(found, self._like)
        return found, None if weights is None else devices.copy_to(weights, self._like)


def _seed_and_step(rng):
    """Return the pair in an argument ``rng``, or None."""
    if not isinstance(rng, tuple):
        return None
    whole = [
        isinstance(part, (int, np.integer)) and not isinstance(part, bool) and 0 <= part < 2**64
        for part in rng
    ]
    if whole != [True, True]:
        raise ValueError(
            "`rng` as a pair must be (seed, step), whole numbers from 0 to 2^64 - 1, got"
            f" {rng!r:.200}"
        )
    return int(rng[0]), int(rng[1])


def _draw(units, size, rng, scheme):
    if scheme == "with":
        return rng.integers(units, size=size), None
    if scheme == "without":
        return np.sort(rng.choice(units, size, replace=False)), None
    edges = np.arange(size + 1) * units // size
    widths = np.diff(edges)
    return edges[:-1] + (rng.random(size) * widths).astype(np.int64), widths.astype(float)


def check_units(name, indices, weights, units, dtype, like=None, known="the basis has {} units"):
    """Return ``(units, weights)`` of one side of a sample, on the device of ``like``.

    O(their number). ``known`` says how many units exist.
    """
    indices = indices if on_device(indices) else np.asarray(indices)
    if indices.ndim != 1 or indices.dtype.kind not in "iu" or len(indices) == 0:
        raise TypeError(
            f"`sample.{name}` must hold one or more whole numbers, (s,), got {indices.dtype}"
            f" {indices.shape}"
        )
    if not all_below(indices, units):
        wrong = indices.max() if indices.max() >= units else indices.min()
        raise ValueError(f"`sample.{name}` names {int(wrong)}, but {known.format(units)}, from 0")
    indices = devices.copy_to(indices, like)
    if weights is None:
        return indices, np.zeros_like(indices, dtype) + dtype.type(units / len(indices))
    called, s = f"sample.weight_{name}", len(indices)
    weights = check.as_array(called, weights)
    if weights.shape not in ((), (s,)):
        raise ValueError(
            f"`{called}` must be a number or have shape ({s},), as `sample.{name}` has, got"
            f" {weights.shape}"
        )
    weights = np.broadcast_to(devices.copy_to(weights, like), (s,)).astype(dtype)
    check.finite(called, weights)
    check.positive(called, weights, "")
    return indices, weights


def all_below(indices, count):
    """Return whether indices are below ``count`` and not negative.

    On a device the check is deferred and the result is True.
    """
    if on_device(indices):
        return none((indices < 0) | (indices >= count))
    return indices.min() >= 0 and indices.max() < count
