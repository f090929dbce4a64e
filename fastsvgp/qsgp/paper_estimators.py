"""Estimators of the bound in weight space as in the paper, for comparison.

They draw columns of the chevron C too. i, j and r are independent samples, of functions twice and
of the m columns of C; w and u are the weights of their members. N_j(i) is the weight of the
function i in j, and u(r) that of the column r in r: repeats added up, 0 if not drawn, 1 on average.
The batch sees the mean as p_i = phi_i (w mu)_i, and a column as X_ir = phi_i (w C)_ir.

*Gaussian noise.* Theorems 1 and 2, and Proposition 2, with c = num_data / (noise batch):

    ell = -num_data log(2 pi noise) / 2
          - c / 2 [y'y - 2 y'p_i + p_i'p_j + sum_r u(r) X_ir'X_jr],
    KL  = [Q(mu) + sum_r u(r) (Q(C_r) - 2 log C_rr) - sum_i w log S_ii - m] / 2,
    Q(a) = sum_ij (w a)_i S_ij (w a)_j.

Only the dense columns need products. Another column, C_r = d_r e_r, contributes only if r is in
both i and j:

    sum_r>=k u(r) X_ir X_jr = sum_r u(r) N_i(r) N_j(r) (phi_r d_r)^2 = sum_i w' (phi_i d_i)^2,
    w'_i = w_i N_j(i) u(i):

the squares that the reduced estimators take with weights w. The same w' serves sum_r>=k u(r) Q(C_r)
= sum_i w' S_ii d_i^2. Likewise Q(a) = sum_i w_i N_j(i) S_ii a_i^2 if S is diagonal. So the reduced
estimators are the means of these over r, with 1 for N_j(i), and with y'(p_i + p_j) for 2 y'p_i.
Backward, for p_i, p_j, X_ir, X_jr and squares:

    c (y - p_j / 2),    -c / 2 p_i,    -c / 2 u(r) X_jr,    -c / 2 u(r) X_ir,    -c / 2.

*Other likelihoods*, log-concave ones: Theorem 3, corrected; the printed form takes a variance for
the standard deviation. H(mean, sd) = E log p(y | mean + sd z) is jointly concave and falls with
|sd|. A norm is convex, so the norm of an unbiased estimate of phi C is at least sd on average, for
every sampling scheme. With one entry per *distinct* column r,

    sd^2 = sum_r (u(r) X_jr)^2 = sum_r<k (u(r) X_jr)^2 + sum_j w'' (phi_j d_j)^2,
    w''_j = w_j N_j(j) u(j)^2,

and E H(p_i, sd) is at most H at the truth. If everything is drawn once they are equal; otherwise
the bound is loose, because the mean of w'' is as large as m / |j| times m / |r|. Backward: H_mean
for p_i, H_var for squares, 2 H_var u(r)^2 X_jr for X_jr.

Source: Evans and Nair 2018, Theorems 1 to 3, Proposition 2.
"""

import numpy as np

from .. import check
from ..likelihoods import Gaussian
from ..records import Marginals, replace, tree_map
from .bases.base import WeightBars, below, sum64
from .bases.samples import SparseRows, sum_weights
from .estimators import DataTerm, PriorTerm
from .sample_side import BasisBatch, SeenBars, SideFunctions


class DrawnColumns:
    """Distinct drawn columns of C, and how often each counts.

    ``dense`` (R,) are the numbers below k: the columns in the rows of both sides' A.
    """

    def __init__(self, q, numbers, weights):
        self.numbers, where = np.unique(numbers, return_inverse=True)
        self.times = np.bincount(where, weights).astype(weights.dtype)
        self.k = q.columns.shape[1]
        R = np.searchsorted(self.numbers, self.k)
        self.dense, self.rest = self.numbers[:R], self.numbers[R:]
        self.pivots = q.columns[self.dense, self.dense]
        self.diagonal = q.diagonal[self.rest - self.k]
        for name, values in (
            ("diagonal of posterior.columns", self.pivots),
            ("posterior.diagonal", self.diagonal),
        ):
            check.finite(name, values)
            check.positive(name, values)

    def square_weights(self, i, j):
        """Return w' of i and w'' of j: the weights of their squares."""
        u_i = sum_weights(self.numbers, self.times, i.numbers)
        u_j = sum_weights(self.numbers, self.times, j.numbers)
        return (
            i.w * sum_weights(j.numbers, j.w, i.numbers) * u_i,
            j.w * sum_weights(j.numbers, j.w, j.numbers) * u_j**2,
        )

    def widen(self, bar):
        """Return ``SparseRows`` of all k dense columns, from those of the drawn columns."""
        values = np.zeros((len(bar.rows), self.k), bar.values.dtype)
        values[:, self.dense] = bar.values
        return SparseRows(bar.rows, values)


class PaperEstimator:
    """Estimator of the paper for one evaluation, with the methods of ``Reduced``."""

    def __init__(self, task, of_i, of_j, of_columns):
        self.task, model = task, task.model
        self.drawn = drawn = DrawnColumns(model.posterior, *of_columns)
        self._gaussian = isinstance(model.likelihood, Gaussian)
        i, j = (SideFunctions.of(model.basis, *part) for part in (of_i, of_j))
        w_i, w_j = drawn.square_weights(i, j)
        self.i = BasisBatch(model, i, self._gaussian, drawn.dense, w_i)
        self.j = BasisBatch(model, j, not self._gaussian, drawn.dense, w_j)
        self._u = drawn.times[: len(drawn.dense), None]

    def data_term(self):
        """Return the ``DataTerm`` of Theorems 1 and 2, or of Theorem 3."""
        j, i = self.j.forward(self.task.X), self.i.forward(self.task.X)
        return self._theorem_2(i, j) if self._gaussian else self._theorem_3(i, j)

    def _theorem_2(self, i, j):
        Y, u = self.task.Y, self._u
        noise, count = float(self.task.model.likelihood.variance), self.task.scale * len(Y)
        c, var = self.task.scale / noise, i.V + (u * i.X * j.X).sum(axis=0)
        of_mean, of_rest, known = sum64(i.p * j.p - 2 * Y * i.p), sum64(var), sum64(Y * Y)
        i_bars = SeenBars.of(c * (Y - 0.5 * j.p), -0.5 * c * u * j.X, np.full_like(Y, -0.5 * c))
        j_bars = SeenBars.of(-0.5 * c * i.p, -0.5 * c * u * i.X, None)
        bar = Y.dtype.type(-0.5 * (count - c * (of_mean + of_rest + known)) / noise)
        of_noise = count * np.log(2 * np.pi * noise) + c * known
        terms, f = np.array([c * of_mean, c * of_rest, of_noise]), (0.5 * (i.p + j.p), var)
        return DataTerm(terms, Gaussian(bar), f, (i, j), (i_bars, j_bars))

    def _theorem_3(self, i, j):
        task, u = self.task, self._u
        var = np.square(u * j.X).sum(axis=0) + j.V
        # at 0 the derivatives of var are 0, for every cotangent
        var = np.maximum(var, np.finfo(var.dtype).tiny ** 0.5)
        ell, f_bar, likelihood_bar = task.model.likelihood.expected_log_prob(
            task.Y, Marginals(i.p, var), None
        )
        p_bar, var_bar = task.scale * f_bar.mean, task.scale * f_bar.var
        i_bars = SeenBars.of(p_bar, np.zeros_like(i.X), None)
        j_bars = SeenBars.of(np.zeros_like(p_bar), 2 * var_bar * np.square(u) * j.X, var_bar)
        likelihood_bar = tree_map(lambda bar: bar * task.scale, likelihood_bar)
        return DataTerm(task.scale * ell, likelihood_bar, (i.p, var), (i, j), (i_bars, j_bars))

    def prior(self, data):
        """Return the ``PriorTerm`` of the mean and of the drawn columns."""
        i, j, drawn, basis = self.i, self.j, self.drawn, self.task.model.basis
        own, to_i, to_j = basis.sampled_precision(i, j, self.task.jitter)
        rows = np.concatenate([np.ones((1, 1), self._u.dtype), self._u])
        each, squares = rows * i.weighted * to_i, i.w_rest * np.square(i.d)
        products = each.sum(axis=0)
        weight_bars = (
            WeightBars(-0.5 * rows * i.w * to_i, -0.5 * i.w_rest * own),
            WeightBars(-0.5 * rows * j.w * to_j),
        )
        log_det, bars = 0.0, {}
        if not basis.dense_precision:
            log_det = sum64(i.w * np.log(own))
            if "precision" in basis.per_function and below(self.task.wrt, "precision"):
                bars["precision"] = 0.5 * ((i.w - products) / own - squares)
        of_mean = sum64(each[0])
        quadratic = sum64(products) - of_mean + sum64(squares * own)
        R = len(drawn.dense)
        logs = sum64(drawn.times[:R] * np.log(drawn.pivots))
        logs += sum64(drawn.times[R:] * np.log(drawn.diagonal))
        log_bars = (
            (drawn.dense, np.diag(drawn.times[:R] / drawn.pivots)),
            (drawn.rest - drawn.k, drawn.times[R:] / drawn.diagonal),
        )
        terms = np.array([of_mean, quadratic - 2 * logs, -log_det - basis.num_functions()])
        return PriorTerm(terms, bars, 0.0, log_bars, weight_bars)

    def posterior_gradient(self, gradient):
        """Return the gradient of the posterior with all k dense columns."""
        return replace(gradient, columns=self.drawn.widen(gradient.columns))
