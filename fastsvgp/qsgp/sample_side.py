"""One side of a sample of basis functions: products with a batch of data, forward and backward."""

from typing import Any, NamedTuple

import numpy as np

from .. import check, kernels
from ..runtime.deferred_checks import on_device
from .bases.base import BasisWeights, WeightBars
from .bases.samples import SparseRows, sum_rows
from .posterior import ChevronWeights


class SideFunctions(NamedTuple):
    """Functions of one side of a sample, and the weight of each in sums over all functions."""

    units: Any
    numbers: Any
    w: Any

    @classmethod
    def of(cls, basis, units, weights):
        """Expand units and their weights to functions."""
        return cls(units, basis.functions(units), np.repeat(weights, basis.width))


class Seen(NamedTuple):
    """Forward values of one side at a batch of n data.

    p (n,), X (k, n), V (n,): as in ``sampled_bound``, kriged with a control; V is None without
    ``rest``. errors (1 + k, p): at the points of a control, or None. vjp: result of
    ``products_vjp`` if it was computed in the same sweep, else None.
    """

    p: Any
    X: Any
    V: Any
    errors: Any = None
    vjp: Any = None


class SeenBars(NamedTuple):
    """Cotangents of one side's ``Seen``: ``out`` (1 + k, n) of p and X, and V (n,) or None.

    points (1 + k, p): cotangent of the values at the points of a control, or None.
    """

    out: Any
    V: Any
    points: Any = None

    @classmethod
    def of(cls, p_bar, X_bar, V_bar):
        """Stack the cotangents of p and X."""
        return cls(np.concatenate([p_bar[None], X_bar]), V_bar)


class BasisBatch:
    """Rows of the posterior for the functions of one side, and their products with data.

    A (1 + k, s): mean and dense columns as rows; all columns, or those in ``dense``.
    weighted: w A.
    d (s,): the rest of the diagonal, 0 for functions that are not ``below`` the dense columns.
    pivots (s,): d, with 1 in place of these zeros.
    w, w_rest (s,): weights of the functions in sums and in sums of their squares.
    """

    def __init__(self, model, functions, rest, dense=None, w_rest=None):
        basis, q = model.basis, model.posterior
        self.basis, self.rest = basis, rest
        self.units, self.functions, self.w = functions
        self.w_rest = self.w if w_rest is None else w_rest
        self.k, self.num_rest = q.columns.shape[1], len(q.diagonal)
        self.dense = np.arange(self.k, like=self.functions) if dense is None else dense
        self.below = self.functions >= self.k
        self.A = self._rows_of(q, dense is None)
        self.d = np.zeros_like(self.A[0])
        if self.num_rest:
            numbers = np.maximum(self.functions - self.k, 0)
            self.d = np.where(self.below, q.diagonal[numbers], self.d)
        self.pivots = np.where(self.below, self.d, self.d.dtype.type(1))
        self._check(q)
        self.weighted = np.multiply(self.w, self.A, out=kernels.empty(self.A.shape, self.A))
        self._kept = []  # by the basis, from the forward to the backward pass

    def _rows_of(self, q, all_columns):
        f, k = self.functions, self.k
        A = kernels.empty((1 + len(self.dense), len(f)), q.mean)
        A[0] = q.mean[f]
        if all_columns:
            kernels.gather_rows(q.columns, f, A[1:])
        else:
            A[1:] = q.columns[f, self.dense[:, None]]
        if not on_device(f):
            head = np.flatnonzero(~self.below)
            A[1:, head] = np.where(f[head] >= self.dense[:, None], A[1:, head], 0)
        elif k:  # without a synchronisation to find the functions above the diagonal
            A[1:] = np.where(f >= self.dense[:, None], A[1:], A.dtype.type(0))
        return A

    def _check(self, q):
        for name, values in (("mean", self.A[0]), ("columns", self.A[1:]), ("diagonal", self.d)):
            if values.size and not check.all_finite(values):
                whole = np.tril(q.columns) if name == "columns" else getattr(q, name)
                check.finite(f"posterior.{name}", whole)
        check.positive("posterior.diagonal", self.pivots)

    def _make_weights(self):
        """Return the ``BasisWeights`` that the basis multiplies."""
        squares = self.w_rest * self.d**2 if self.rest else None
        return BasisWeights(self.weighted, squares, self.units, self._kept)

    def forward(self, X, control=None, near=None, bars=None, wrt=()):
        """Return ``Seen``; with ``near`` (p, n) a control's errors are subtracted from p and X.

        With ``bars``, cotangents that do not depend on the result, the backward pass is computed in
        the same sweep.
        """
        vjp = None
        if bars is not None and differentiates_weights(wrt):
            (out, V), vjp = self.basis.products_and_vjp(
                X, self._make_weights(), bars.out, bars.V, wrt
            )
        else:
            out, V = self.basis.products(X, self._make_weights())
        errors = None if control is None else control.errors_of(self)
        if near is not None:
            out = out - kernels.matmul(control.kriging_weights(errors), near)
        return Seen(out[0], out[1:], V, errors, vjp)

    def backward(self, X, wrt, seen, bars, prior):
        """Return ``(WeightBars, {field of the basis: cotangent})``; ``prior`` is added."""
        vjp = seen.vjp
        if vjp is None:
            vjp = self.basis.products_vjp(X, self._make_weights(), bars.out, bars.V, wrt)
        W_bar, v_bar, basis_bars = vjp
        A_bar, squares_bar = np.multiply(self.w, W_bar, out=W_bar), prior.squares
        if prior.A is not None:
            A_bar += prior.A
        if self.rest:
            of_data = self.w_rest * v_bar
            squares_bar = of_data if squares_bar is None else squares_bar + of_data
        return WeightBars(A_bar, squares_bar), basis_bars

    def diagonal_gradient(self, squares_bar, log_bar):
        """Return ``(rows, cotangents)`` of the diagonal beyond the dense columns.

        On a device the cotangent of a function without an entry is zero, at the first row.
        """
        rows, bars = self.functions - self.k, 2 * self.d * squares_bar + log_bar
        if not on_device(rows):
            return rows[self.below], bars[self.below]
        count = len(rows) if self.num_rest else 0
        return np.maximum(rows, 0)[:count], bars[:count]


def moments(i, j):
    """Return estimates ``(mean, var)`` of f at the batch, from what one or both sides see."""
    if j is None:
        return i.p, i.V
    V = i.V if j.V is None else 0.5 * (i.V + j.V)
    return 0.5 * (i.p + j.p), V + (i.X * j.X).sum(axis=0)


def differentiates_weights(wrt):
    """Return whether ``wrt`` names a field that weights or features depend on."""
    return any(name.partition(".")[0] in ("posterior", "basis") for name in wrt)


def sparse_posterior_gradient(batches, weight_bars, log_bar, log_bars):
    """Return the gradient of the posterior as ``ChevronWeights`` of ``SparseRows``.

    ``log_bar``: cotangent of log det C in the sampled diagonal of the first side. ``log_bars``: the
    rest of that cotangent, as (rows, values) of the dense columns and perhaps of the diagonal.
    """
    first, pairs = batches[0], list(zip(batches, weight_bars, strict=True))
    mean = sum_rows(*((side.functions, bars.A[0]) for side, bars in pairs))
    columns = sum_rows(
        *((side.functions, bars.A[1:].T) for side, bars in pairs if len(first.dense)), log_bars[0]
    )
    if on_device(columns.rows):
        nothing = columns.values.dtype.type(0)
        columns = SparseRows(
            columns.rows, np.where(columns.rows[:, None] >= first.dense, columns.values, nothing)
        )
    else:
        head = columns.rows[: np.searchsorted(columns.rows, first.k)]
        columns.values[: len(head)][head[:, None] < first.dense] = 0
    diagonal = [
        side.diagonal_gradient(bars.squares, log_bar if side is first else 0.0)
        for side, bars in pairs
        if side.rest or side is first
    ]
    return ChevronWeights(mean, columns, sum_rows(*diagonal, *log_bars[1:]))
