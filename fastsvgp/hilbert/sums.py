"""Sums over the rows of data in a fixed basis: all that a process with Gaussian noise needs."""

from typing import Any

import numpy as np

from .. import check
from ..distributed.reduce import call_on_ranks
from ..records import data, record
from ..records.typed import Array, ArrayLike, Group
from ..runtime.deferred_checks import on_device
from ..runtime.edge import public_call
from .basis import HilbertBasis


@record
class SufficientSums:
    """The sums of some rows in a basis, as ``sufficient_sums`` makes them.

    Those of other rows in the same basis add; those of some of the rows subtract. ``save`` and
    ``load`` take them. They say nothing about single rows beyond these sums.

    Parameters
    ----------
    basis : HilbertBasis
    products : array
        Phi' W Phi: of one group of columns as sums of cosines, of several groups as (m, m).
    crossed : (m,) or (m, P)
        Phi' W Y.
    squares : () or (P,)
        Weighted sums of squared targets.
    count : float
        Sum of the weights.
    rows : int
        Number of rows.

    Examples
    --------
    >>> basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), 20, 1.5)
    >>> first, second = (fs.bounds.sufficient_sums(basis, X[at], Y[at])
    ...                  for at in (slice(0, 15), slice(15, 40)))
    >>> (first + second).rows, (first + second - first).count
    (40, 25.0)
    """

    basis: HilbertBasis = data()
    products: Array = data()
    crossed: Array = data()
    squares: Any = data()
    count: float = data()
    rows: int = data()

    def __len__(self):
        return int(self.rows)

    def __add__(self, other):
        return self._combine(other, 1)

    def __sub__(self, other):
        found = self._combine(other, -1)
        if found.count <= 0 or found.rows <= 0:
            raise ValueError(
                f"{self.rows} rows less {other.rows} leave nothing: subtract sums of some of the"
                " rows"
            )
        return found

    def _combine(self, other, sign):
        if not isinstance(other, SufficientSums):
            return NotImplemented
        check_same_basis("the other sums", other, self.basis)
        if np.shape(self.squares) != np.shape(other.squares):
            raise ValueError(
                f"sums of targets {np.shape(self.squares)} and {np.shape(other.squares)} do not"
                " combine: give the same outputs"
            )
        names = "products", "crossed", "squares", "count", "rows"
        return SufficientSums(
            self.basis, *(getattr(self, name) + sign * getattr(other, name) for name in names)
        )

    def gram(self):
        """Return Phi' W Phi (m, m), made once."""
        known = self.__dict__.get("_gram")
        if known is None:
            known = self.__dict__["_gram"] = self.basis.gram(self.products)
        return known


def check_same_basis(name, sums, basis):
    """Refuse sums of another basis, and name the field in which it differs."""
    if differs := basis.same_as(sums.basis):
        raise ValueError(
            f"{name} are those of another basis: `{differs}` is"
            f" {getattr(sums.basis, differs)!s:.40}, here {getattr(basis, differs)!s:.40}"
        )


@public_call()
def sufficient_sums(
    basis: HilbertBasis,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    weights: ArrayLike | None = None,
    group: Group | None = None,
) -> SufficientSums:
    """Sum rows up in a basis, in one pass: for a ``BasisGP``, whatever its covariance.

    Parameters
    ----------
    basis : HilbertBasis
    X : (N, D) array
    Y : (N,) or (N, P) array
        Arrays, ``numpy.memmap`` or ``fs.records.row_files``; chunks of rows are read one by one.
        P outputs share the covariance.
    weights : (N,) array, optional
        Non-negative weight of each row. Rows of weight 0 are not read.
    group : group of ``fs.distributed``, optional
        As in ``elbo``; one all-reduce. With ``group.rows`` "own" the rows stay where they are.

    Returns
    -------
    SufficientSums

    Raises
    ------
    ValueError, TypeError
        Rows lie outside of the box; NaN in Y; shapes that do not fit.

    Notes
    -----
    For one group of D columns 13^D (2 + 2 P) flops and 13 D exponentials a row, free of the number
    of functions, to a relative error of some 1e-11; sums are in float64. For several groups m^2
    flops a row. On one thread and the same rows the result is always the same.

    Source: Solin & Sarkka 2020 (the basis); Barnett, Magland & af Klinteberg 2019 (the transform).

    Examples
    --------
    >>> basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), 20, 1.5)
    >>> sums = fs.bounds.sufficient_sums(basis, X, Y)
    >>> sums.crossed.shape, sums.rows
    ((20,), 40)
    """
    if not isinstance(basis, HilbertBasis):
        raise TypeError(
            f"`basis` must be a fastsvgp.bounds.HilbertBasis, got {type(basis).__name__}"
        )
    rows: Any = X if hasattr(X, "shape") else check.as_array("X", X)
    targets: Any = Y if hasattr(Y, "shape") else check.as_array("Y", Y)
    if on_device(rows) or on_device(targets):
        raise TypeError("sums in a basis are made on the host: give arrays of NumPy, X.get()")
    N, shape = len(rows), tuple(targets.shape)
    if len(targets) != N or N == 0 or len(shape) not in (1, 2) or 0 in shape:
        raise ValueError(
            f"`Y` must be (N,) or (N, P), one row for each of the rows of `X`, at least one, got"
            f" {tuple(rows.shape)} and {shape}"
        )
    if group is not None:
        options = {"weights": weights}
        return call_on_ranks("sufficient_sums", _sums, basis, rows, targets, group, None, options)
    return _sums(basis, rows, targets, None, weights=weights)


def _sums(basis, X, Y, scale, *, weights):
    P = Y.shape[1] if len(Y.shape) == 2 else 1
    if weights is not None:
        weights = check.as_array("weights", weights)
        if weights.shape != (len(X),):
            raise ValueError(f"`weights` must be ({len(X)},), got {weights.shape}")
        check.finite("weights", weights)
        if (weights < 0).any() or not (weights > 0).any():
            raise ValueError("`weights` must be non-negative, and some positive")
    made, count, squares, rows = basis.sums(1, P), 0.0, np.zeros(P), 0
    for start in range(0, len(X), basis.chunk):
        at = slice(start, start + basis.chunk)
        x, y = check.as_array("X", X[at]), check.as_array("Y", Y[at])
        w = np.ones(len(x)) if weights is None else weights[at].astype(np.float64)
        if (counting := w > 0).sum() < len(w):
            x, y, w = x[counting], y[counting], w[counting]
        y = np.asarray(y, np.float64).reshape(len(y), P).T
        if not np.isfinite(y).all():
            row = start + int(np.argmin(np.isfinite(y).all(axis=0)))
            raise ValueError(f"`Y` has NaN or infinity at row {row} of those that count")
        angles, weighted = basis.angles(x, first=start), w * y
        made.add(angles, w[None], weighted)
        count, rows = count + w.sum(), rows + len(w)
        squares += (weighted * y).sum(axis=1)
    found = made.products()[0], made.crossed().T, squares, count, float(rows)
    if scale is not None:
        found = _over_ranks(basis, scale, found)
    products, crossed, squares, count, rows = found
    if len(Y.shape) == 1:
        crossed, squares = crossed[:, 0], squares[0]
    return SufficientSums(
        basis, products, np.ascontiguousarray(crossed), squares, float(count), int(round(rows))
    )


def _over_ranks(basis, scale, found):
    """Sum over the ranks, and refuse ranks with different boxes."""
    own = np.concatenate([basis.lower, basis.upper, basis.boundary, basis.num_functions])
    *found, count, rows, ends = scale.all_reduce(
        *map(np.ascontiguousarray, found[:3]), *found[3:], own
    )
    if not np.allclose(ends, scale.size * own, rtol=1e-14, atol=0):
        raise ValueError(
            "the ranks have different bases: make one from the ranges of all rows, and give it to"
            " each"
        )
    return *found, count, rows
