"""The paper's own estimators of the bound in weight space, which draw columns of the chevron C too: for comparison.

i, j and r are independent samples, of functions twice and of the m columns of C; w and u say how
often each counts. Below, N_j(i) is how often the function i counts in j, and u(r) how often the
column r counts in r: repeats added up, 0 where it is not drawn, 1 on average. What the batch sees
of the mean is p_i = phi_i (w mu)_i, and of a column X_ir = phi_i (w C)_ir.

*Gaussian noise.* Theorems 1 and 2, and Proposition 2, with c = num_data / (noise batch):

    ell = -num_data log(2 pi noise) / 2 - c / 2 [y'y - 2 y'p_i + p_i'p_j + sum_r u(r) X_ir'X_jr], KL
    = [Q(mu) + sum_r u(r) (Q(C_r) - 2 log C_rr) - sum_i w log S_ii - m] / 2,    Q(a) = sum_ij (w
    a)_i S_ij (w a)_j.

Only the dense columns need products. One of the others, C_r = d_r e_r, is seen by coincidences
alone, of r in i and in j:

    sum_r>=k u(r) X_ir X_jr = sum_r u(r) N_i(r) N_j(r) (phi_r d_r)^2 = sum_i w' (phi_i d_i)^2,    w'_i = w_i N_j(i) u(i):

the squares that the reduced estimators take with weights w, and the same w' does for sum_r>=k u(r)
Q(C_r) = sum_i w' S_ii d_i^2. Likewise Q(a) = sum_i w_i N_j(i) S_ii a_i^2 where S is diagonal. So
the reduced estimators are the means of these over r, with 1 for N_j(i), and with y'(p_i + p_j) for
2 y'p_i. Back, for p_i, p_j, X_ir, X_jr and squares:

    c (y - p_j / 2),    -c / 2 p_i,    -c / 2 u(r) X_jr,    -c / 2 u(r) X_ir,    -c / 2.

*Other likelihoods*, log-concave ones: Theorem 3, whose printed form takes a variance for the standard deviation; this is the
corrected one. H(mean, sd) = E log p(y | mean + sd z) is jointly concave and falls with |sd|. A norm is convex, so the norm of an
unbiased estimate of phi C is at least sd on average, whatever the samples: with one entry for each *distinct* column r,

    sd^2 = sum_r (u(r) X_jr)^2 = sum_r<k (u(r) X_jr)^2 + sum_j w'' (phi_j d_j)^2,    w''_j = w_j N_j(j) u(j)^2,

and E H(p_i, sd) is at most H at the truth. Where all is drawn once they are equal; elsewhere the
bound is loose, for the mean of w'' is as large as m / |j| times m / |r|. Back: H_mean for p_i,
H_var for squares, 2 H_var u(r)^2 X_jr for X_jr.

Source: Evans and Nair 2018, Theorems 1 to 3, Proposition 2.
"""

import numpy as np

from .. import check
from ..likelihoods import Gaussian
from ..records import Marginals, tree_map
from .bases.base import below
from .bases.samples import SparseRows, counted


class DrawnColumns:
    """Columns of C that were drawn, each once: ``dense`` (R,) numbers of those below k, which the rows of both sides' A are."""

    def __init__(self, q, numbers, weights):
        self.numbers, where = np.unique(numbers, return_inverse=True)
        self.times = np.bincount(where, weights).astype(weights.dtype)
        self.k = q.columns.shape[1]
        R = np.searchsorted(self.numbers, self.k)
        self.dense, self.rest = self.numbers[:R], self.numbers[R:]
        self.pivots, self.diagonal = (
            q.columns[self.dense, self.dense],
            q.diagonal[self.rest - self.k],
        )
        for name, values in (
            ("diagonal of posterior.columns", self.pivots),
            ("posterior.diagonal", self.diagonal),
        ):
            check.finite(name, values)
            check.positive(name, values)

    def weigh(self, i, j):
        """How often the squares of each side count: w' and w'' above."""
        i.w_rest = (
            i.w
            * counted(j.functions, j.w, i.functions)
            * counted(self.numbers, self.times, i.functions)
        )
        j.w_rest = (
            j.w
            * counted(j.functions, j.w, j.functions)
            * counted(self.numbers, self.times, j.functions) ** 2
        )

    def data_term(self, likelihood, Y, i, j, scale):
        """``(data term, likelihood_bar, (mean, var))``, estimates of the moments last; the sides get their cotangents. For
        Gaussian noise it is what the data say of L_mu, L_Sigma and L_const.
        """
        term = self._gaussian if isinstance(likelihood, Gaussian) else self._theorem_3
        return term(likelihood, Y, i, j, scale, self.times[: len(self.dense), None])

    def _gaussian(self, likelihood, Y, i, j, scale, u):
        noise = float(likelihood.variance)
        c, n, var = scale / noise, scale * len(Y), i.V + (u * i.X * j.X).sum(axis=0)
        of_mean, of_rest, known = _sum(i.p * j.p - 2 * Y * i.p), _sum(var), _sum(Y * Y)
        i.pull(c * (Y - 0.5 * j.p), -0.5 * c * u * j.X, np.full_like(Y, -0.5 * c))
        j.pull(-0.5 * c * i.p, -0.5 * c * u * i.X, None)
        bar = Y.dtype.type(-0.5 * (n - c * (of_mean + of_rest + known)) / noise)
        terms = np.array([c * of_mean, c * of_rest, n * np.log(2 * np.pi * noise) + c * known])
        return terms, Gaussian(bar), (0.5 * (i.p + j.p), var)

    def _theorem_3(self, likelihood, Y, i, j, scale, u):
        var = np.square(u * j.X).sum(axis=0) + j.V
        # at 0 what it comes from has no cotangent, whatever it has
        var = np.maximum(var, np.finfo(var.dtype).tiny ** 0.5)
        ell, f_bar, likelihood_bar = likelihood.expected_log_prob(Y, Marginals(i.p, var), None)
        p_bar, var_bar = scale * f_bar.mean, scale * f_bar.var
        i.pull(p_bar, np.zeros_like(i.X), None)
        j.pull(np.zeros_like(p_bar), 2 * var_bar * np.square(u) * j.X, var_bar)
        return scale * ell, tree_map(lambda bar: bar * scale, likelihood_bar), (i.p, var)

    def prior(self, basis, i, j, need, jitter):
        """``(what the prior says of L_mu, L_Sigma, L_const; {field of the basis: cotangent of -KL}; cotangents of log det C)``;
        the sides get theirs of the rest.
        """
        own, to_i, to_j = basis.sampled_precision(i, j, jitter)
        rows = np.concatenate([np.ones(1, self.times.dtype), self.times[: len(self.dense)]])[
            :, None
        ]
        each, squares = rows * i.weighted * to_i, i.w_rest * np.square(i.d)
        products = each.sum(axis=0)
        i.A_bar -= 0.5 * rows * i.w * to_i
        j.A_bar -= 0.5 * rows * j.w * to_j
        i.squares_bar -= 0.5 * i.w_rest * own
        log_det, bars = 0.0, {}
        if not basis.dense_precision:
            log_det = _sum(i.w * np.log(own))
            if "precision" in basis.per_function and below(need, "precision"):
                bars["precision"] = 0.5 * ((i.w - products) / own - squares)
        of_mean = _sum(each[0])
        quadratic = _sum(products) - of_mean + _sum(squares * own)
        R = len(self.dense)
        logs = _sum(self.times[:R] * np.log(self.pivots)) + _sum(
            self.times[R:] * np.log(self.diagonal)
        )
        of_columns = self.dense, np.diag(self.times[:R] / self.pivots)
        of_diagonal = self.rest - self.k, self.times[R:] / self.diagonal
        terms = np.array([of_mean, quadratic - 2 * logs, -log_det - basis.num_functions()])
        return terms, bars, (of_columns, of_diagonal)

    def widened(self, bar):
        """``SparseRows`` of all k dense columns, from those of the columns drawn."""
        values = np.zeros((len(bar.rows), self.k), bar.values.dtype)
        values[:, self.dense] = bar.values
        return SparseRows(bar.rows, values)


def _sum(values):
    return values.sum(dtype=np.float64)
