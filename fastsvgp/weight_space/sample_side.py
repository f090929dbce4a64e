"""One sample of basis functions: what a batch sees of them, and what comes back."""

import numpy as np

from .. import check, kernels
from ..runtime.deferred_checks import on_device
from .bases.samples import SparseRows, summed
from .posterior import ChevronWeights


class Side:
    """One sample: the weights of its functions, what the batch sees of them, and the cotangents.

    A (1 + k, s) : mean and dense columns as rows, of all columns or of those that ``dense`` names;
    ``weighted`` w A d (s,) : the rest of the diagonal, 0 for functions not ``below`` the dense
    columns, and ``pivots`` 1 in the place of that log_bar (s,) or 0 : cotangents of what there is
    of d in log det C w, w_rest (s,) : how often each counts, and its square p (n,), X_ (k, n), V
    (n,) : see ``sampled``; V is None without ``rest`` out_bar (1 + k, n), V_bar (n,) : cotangents
    of p and X_, and of V
    """

    def __init__(self, model, units, weights, rest, dense=None):
        basis, q = model.basis, model.posterior
        self.basis, self.units, self.rest = basis, units, rest
        self.functions = f = basis.functions(units)
        self.w = self.w_rest = np.repeat(weights, basis.width)
        self.k, self.num_rest = q.columns.shape[1], len(q.diagonal)
        k = self.k
        self.dense = np.arange(k, like=f) if dense is None else dense
        self.A = kernels.empty((1 + len(self.dense), len(f)), q.mean)
        self.A[0] = q.mean[f]
        if dense is None:
            kernels.gather_rows(q.columns, f, self.A[1:])
        else:
            self.A[1:] = q.columns[f, dense[:, None]]
        self.below = f >= k
        # where it is not asked which functions are above the diagonal of these columns
        if on_device(f):
            if k:
                self.A[1:] = np.where(f >= self.dense[:, None], self.A[1:], self.A.dtype.type(0))
        else:
            head = np.flatnonzero(~self.below)
            self.A[1:, head] = np.where(f[head] >= self.dense[:, None], self.A[1:, head], 0)
        self.d = np.zeros_like(self.A[0])
        if self.num_rest:
            self.d = np.where(self.below, q.diagonal[np.maximum(f - k, 0)], self.d)
        self.pivots = np.where(self.below, self.d, self.d.dtype.type(1))
        for name, values in (("mean", self.A[0]), ("columns", self.A[1:]), ("diagonal", self.d)):
            if values.size and not check.all_finite(values):
                check.finite(
                    f"posterior.{name}",
                    np.tril(q.columns) if name == "columns" else getattr(q, name),
                )
        check.positive("posterior.diagonal", self.pivots)
        self.A_bar, self.squares_bar, self.log_bar = (
            kernels.empty(self.A.shape, self.A),
            np.zeros_like(self.d),
            0.0,
        )
        self.A_bar[...] = 0
        self.weighted = np.multiply(self.w, self.A, out=kernels.empty(self.A.shape, self.A))
        self.out_bar = self._bars = None
        self._kept = []

    def _multiplied(self):
        """What the basis multiplies: rows and squares, as often as they count."""
        return self.weighted, self.w_rest * self.d**2 if self.rest else None

    def see(self, X, control, near, wrt=None):
        """Forward; what a control's points show to be wrong, carried over by ``near`` (p, n), is taken off.

        With ``wrt`` back too, in the same sweep: the cotangents are there already.
        """
        if wrt is not None and moves(wrt):
            bars = self.out_bar, self.V_bar, X, *self._multiplied(), wrt, self.units, self._kept
            (out, self.V), self._bars = self.basis.products_and_vjp(*bars)
        else:
            out, self.V = self.basis.products(X, *self._multiplied(), self.units, self._kept)
        if control is not None:
            control.see(self)
        if near is not None:
            out = out - kernels.matmul(control.weighed(self.errors), near)
        self.p, self.X = out[0], out[1:]

    def moments(self, other):
        """Estimates ``(mean, var)`` of f at the batch."""
        if other is None:
            return self.p, self.V
        V = self.V if other.V is None else 0.5 * (self.V + other.V)
        return 0.5 * (self.p + other.p), V + (self.X * other.X).sum(axis=0)

    def pull(self, p_bar, X_bar, V_bar):
        """Keep the cotangents of what the batch sees."""
        self.out_bar, self.V_bar = np.concatenate([p_bar[None], X_bar]), V_bar

    def back(self, X, wrt):
        """Add to the cotangents of A and of the squares what comes from the batch; ``{field of the basis: cotangent}``."""
        if self._bars is None:
            self._bars = self.basis.products_vjp(
                self.out_bar, self.V_bar, X, *self._multiplied(), wrt, self.units, self._kept
            )
        W_bar, v_bar, bars = self._bars
        self.A_bar += np.multiply(self.w, W_bar, out=W_bar)
        if self.rest:
            self.squares_bar += self.w_rest * v_bar
        return bars

    def of_diagonal(self):
        """``(rows, cotangents)`` of the diagonal beyond the dense columns; on a device zeros for the first where none is."""
        rows, bars = self.functions - self.k, 2 * self.d * self.squares_bar + self.log_bar
        if not on_device(rows):
            return rows[self.below], bars[self.below]
        count = len(rows) if self.num_rest else 0
        return np.maximum(rows, 0)[:count], bars[:count]


def moves(wrt):
    """Whether anything is differentiated that weights or features depend on."""
    return any(name.partition(".")[0] in ("posterior", "basis") for name in wrt)


def gathered(basis, sides, X, wrt, control, prior_bars, log_bars):
    """``(posterior_bar, basis_bar)`` of all sides: sparse rows.

    The first side is the one that the prior's are of; ``log_bars`` what log det C has besides: rows
    of the dense columns, and perhaps of the diagonal.
    """
    parts = [(sides[0].functions, prior_bars)]
    for side in sides:
        parts.append((side.functions, side.back(X, wrt)))
        if control is not None:
            control.pull(side)
    first = sides[0]
    mean = summed(*((side.functions, side.A_bar[0]) for side in sides))
    columns = summed(
        *((side.functions, side.A_bar[1:].T) for side in sides if len(first.dense)), log_bars[0]
    )
    if on_device(columns.rows):
        nothing = columns.values.dtype.type(0)
        columns = SparseRows(
            columns.rows, np.where(columns.rows[:, None] >= first.dense, columns.values, nothing)
        )
    else:
        head = columns.rows[: np.searchsorted(columns.rows, first.k)]
        columns.values[: len(head)][head[:, None] < first.dense] = 0
    diagonal = [side.of_diagonal() for side in sides if side.rest or side is first]
    posterior_bar = ChevronWeights(mean, columns, summed(*diagonal, *log_bars[1:]))
    return posterior_bar, basis.sampled_gradient(parts)
