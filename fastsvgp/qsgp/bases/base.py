"""Contract of a basis: f(x) = sum_i phi_i(x) w_i with the prior w ~ N(0, S^-1)."""

from functools import reduce
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ... import kernels
from ...records import plus
from .samples import sum_rows, sum_weights


class Energy(NamedTuple):
    """Prior terms of weights, with residuals.

    sum_r W_r' S W_r + sum_i S_ii v_i, log |S|, and what the backward pass needs.
    """

    quadratic: Any
    log_det: Any
    saved: Any


class WeightBars(NamedTuple):
    """Cotangents of a side's rows A (1 + k, s) and of its squares d^2 (s,); None is zero."""

    A: Any = None
    squares: Any = None


class BasisWeights(NamedTuple):
    """Weights that a basis multiplies: rows W (R, m), and v (m,) for the squared features.

    units : the functions that they belong to; None for all
    kept : list, empty at first, for results that a backward pass with the same X and units reuses
    """

    W: Any
    v: Any = None
    units: Any = None
    kept: list | None = None


class Basis:
    """Base of bases: records of their parameters. phi (N, m) are the features of N inputs.

    Functions are named by ``units``: their own numbers, or that of a frequency for its cosine and
    sine. With ``units``, weights and features are those of the named functions, in their order,
    repeats included; without, those of all functions.

    Weights come as rows, W (R, m), and as squares, v (m,). A ``need`` holds "basis", or dotted
    names of its fields ("basis.covariance.variance"); other cotangents are not computed, but None.
    """

    width: ClassVar[int] = 1  # functions per unit
    per_function: ClassVar[tuple[str, ...]] = ()  # fields with an entry or a row per function
    dense_precision: ClassVar[bool] = False  # whether S has more than a diagonal

    def num_functions(self):
        """Return m."""
        raise NotImplementedError

    def check_settings(self):
        """Raise ``ValueError`` unless the settings are valid."""

    def functions(self, units):
        """Return the numbers of the functions of these units."""
        return (
            units
            if self.width == 1
            else (self.width * units[:, None] + np.arange(self.width, like=units)).ravel()
        )

    def check_columns(self, D):
        """Raise ``ValueError`` unless inputs with D columns, and the fields, fit together."""
        raise NotImplementedError

    def features(self, X, units=None):
        """Return phi (N, m) as a whole: for few inputs or functions."""
        raise NotImplementedError

    def products(self, X, weights):
        """Return ``(W phi' (R, N), (phi * phi) v (N,))`` without storing phi.

        2 (R + 1) m N flops, and the cost of phi. Without v the squares are None, as are their
        cotangents.
        """
        raise NotImplementedError

    def products_vjp(self, X, weights, out_bar, squares_bar, need):
        """Return ``(W_bar, v_bar, {field: cotangent})`` of ``products``.

        With ``units``, fields that have an entry or a row per function have one per named function.
        """
        raise NotImplementedError

    def products_and_vjp(self, X, weights, out_bar, squares_bar, need):
        """Return ``products`` and ``products_vjp``, for cotangents independent of the products."""
        products = self.products(X, weights)
        return products, self.products_vjp(X, weights, out_bar, squares_bar, need)

    def energy(self, W, v, jitter):
        """Return the ``Energy`` of these weights."""
        raise NotImplementedError

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        """Return ``(W_bar, v_bar, {field: cotangent})`` of ``energy``."""
        raise NotImplementedError

    def precision_times(self, W, jitter):
        """Return W S (R, m)."""
        return self.precision_diagonal(jitter) * W

    def precision_diagonal(self, jitter):
        """Return the diagonal of S (m,), or the number that all its entries are."""
        raise NotImplementedError

    def sampled_energy(self, i, j, need, jitter):
        """Return ``((of_mean, of_rest), log_det, {field: cotangent}, weight_bars)`` from samples.

        The first pair are the quadratic terms of the mean and of the covariance. ``weight_bars``
        holds the ``WeightBars`` of -(of_mean + of_rest) / 2 for the ``BasisBatch`` i and for j.
        Here, for a diagonal S, j is not used: sum_i w S_ii mu_i^2, sum_i w S_ii (|C_i|^2 + d_i^2)
        and sum_i w log S_ii. The cotangents of the fields are those of
        (log_det - of_mean - of_rest) / 2.
        """
        s = self.precisions(i.functions)
        _, sizes = kernels.column_moments(i.A, np.zeros(len(i.A), i.A.dtype, like=i.A))
        sizes += np.square(i.d)
        own = WeightBars(-s * i.weighted if np.ndim(s) else -i.weighted, -0.5 * i.w * s)
        bars = (
            {"precision": 0.5 * i.w * (1 / s - sizes)}
            if "precision" in self.per_function and below(need, "precision")
            else {}
        )
        of_mean, both = sum64(i.w * s * np.square(i.A[0])), sum64(i.w * s * sizes)
        return (of_mean, both - of_mean), sum64(i.w * np.log(s)), bars, (own, WeightBars())

    def sampled_precision(self, i, j, jitter):
        """Return ``(S_ii, S_ij (w A)_j (1 + k, s), S_ji (w A)_i)`` of two sides.

        Here, for a diagonal S, only coincidences of i and j count.
        """
        s_i, s_j = self.precisions(i.functions), self.precisions(j.functions)
        to_i = s_i * sum_weights(j.functions, j.w, i.functions) * i.A
        return s_i, to_i, s_j * sum_weights(i.functions, i.w, j.functions) * j.A

    def precisions(self, functions):
        """Return the diagonal of S at these functions (s,), or 1.0 if S is the identity."""
        raise NotImplementedError

    def sampled_gradient(self, parts):
        """Return the record of the sum of ``[(functions, {field: cotangent})]``.

        Fields with an entry per function are ``SparseRows``.
        """
        bars = {}
        for name, _ in self._record_fields:
            found = [
                (functions, part[name]) for functions, part in parts if part.get(name) is not None
            ]
            if found and name in self.per_function:
                bars[name] = sum_rows(*found)
            elif found:
                bars[name] = reduce(plus, (bar for _, bar in found))
        return self.gradient(bars)

    def gradient(self, *parts):
        """Return the record of the sum of such cotangents; None for fields without one."""
        bars = {}
        for part in parts:
            for name, bar in part.items():
                bars[name] = plus(bar, bars.get(name))
        kept = {name: getattr(self, name) for name, kind in self._record_fields if kind == "static"}
        return type(self)(**{name: bars.get(name) for name, _ in self._record_fields} | kept)


def below(need, field, root="basis"):
    """Translate ``need`` for a field of the basis to the names of that field's pullbacks.

    "field", or "field.name".
    """
    if root in need or f"{root}.{field}" in need:
        return (field,)
    prefix = f"{root}."
    return tuple(name[len(prefix) :] for name in need if name.startswith(f"{prefix}{field}."))


def sum64(values):
    """Return the sum of all entries, in float64."""
    return values.sum(dtype=np.float64)


def sum_of_squares(W, weights=1.0):
    """Return sum weights W^2, in float64."""
    return np.multiply(np.square(W), weights, dtype=np.float64).sum()
