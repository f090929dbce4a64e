r"""Moments of f at uncertain inputs x ~ N(mu, S), for posteriors that are ``PredictiveWeights``.

With k = k(Z, x), mean = k'a and var = k(x, x) + k'Q k given x, Q = sum_i s_i C_i C_i', the laws of
total expectation and variance give, with psi = E k,

    E f = psi'a,        Var f = E k(x, x) + E k'Q k + Var k'a
    Var f = [E k(x, x) + psi'Q psi] + sum_ij G_ij Cov(k_i, k_j),       G = Q + a a'

The bracket is the plain prediction with psi in place of k. Entries of G are as large as 1 / jitter;
Cov(k_i, k_j) is computed without cancellation, so its errors vanish with S, as it does. The usual
form E k(x, x) + G : E k k' - (E f)^2 loses up to six more digits.

A mean function m(x) = w'x + b adds w'mu + b to the mean and 2 w'Cov(x, k'a) + w'S w to the
variance. Between the rows n and n', which are independent,

    Cov(f, f') = E k(x, x') + psi'Q psi',   E k(x, x') = E k(mu', x) under x ~ N(mu, S + S').
"""

import numpy as np

from .. import kernels
from ..bounds.protocol import ALL, LayerProtocol
from ..means import ConstantMean, IdentityMean, LinearMean, ZeroMean
from ..posteriors.base import Joint
from ..records import Marginals, replace
from ..records.inducing_sets import stack_sets
from .factors import Line, bumps_vjp
from .nodes import refuse_samples
from .rows import row_bumps_vjp
from .terms import Term, terms_of

EACH = 8  # arrays of M^2 numbers a row that a chunk counts: smaller chunks stay in the caches


class ClosedFormPass(LayerProtocol):
    """Predictions in closed form, in float64 inside.

    Parameters
    ----------
    layer : record
        With ``PredictiveWeights`` in float64.
    X : GaussianInputs
        All rows of the call, checked, in float64.
    dtype : dtype
        That of the results.
    need : tuple of str
        "inputs" for ``pull``.
    alone : bool
        False leaves out Var(k'a) and the slope of the mean function, for ``MixedPass``.
    """

    def __init__(self, layer, X, dtype, need=(), alone=True):
        self.layer, self._dtype, self._full = layer, dtype, X.var.ndim == 3
        self._uncertain = X.uncertain()
        q = layer.posterior
        self.terms = terms_of(layer.covariance, self._uncertain, self._full)
        self.Z = np.ascontiguousarray(stack_sets(layer.inducing))
        pulled = "inputs" in need
        if pulled:
            check_pullback(self.terms, self._full)
        self.work = q.start_from(None, need=("blocks.Kuf",) if pulled else ())
        self.num_inducing = M = q.alpha.shape[-1]
        self._outputs = q.alpha.shape[:-1]
        self.alpha = q.alpha.reshape(-1, M)
        C = q.C.reshape(-1, *q.C.shape[-2:])
        signs = q.sign.reshape(-1, q.C.shape[-2])
        Q = np.stack([
            kernels.matmul(one, s[:, None] * one, transpose_a=True)
            for one, s in zip(C, signs, strict=True)
        ])  # fmt: skip
        G = Q + self.alpha[:, :, None] * self.alpha[:, None] if alone else Q
        self._G = G  # (P, M, M)
        self._slopes = slopes_of(layer.mean, self._outputs) if alone else None

    @property
    def clamped(self):
        return self.work.clamped

    @property
    def sizes(self):
        widest = max([self.num_inducing, *(term.width for term in self.terms)])
        rows_alone = len(self.terms) == 1 and not self.terms[0].factors
        return [(widest, EACH if rows_alone else EACH * widest)]

    def _psi(self, X):
        """Return E k(Z, x) of each term, their sum (M, n), and E k(x, x), (n,)."""
        values = [term.expected(X.mean, X.var, self.Z) for term in self.terms]
        own = sum(t.variance(X.mean, X.var) for t in self.terms)
        return values, np.ascontiguousarray(sum(values).T), own

    def _shaped(self, values):
        return values.reshape(*self._outputs, values.shape[-1]).astype(self._dtype)

    def forward(self, X, rows=ALL):
        """Return ``(Marginals, residuals)`` at a chunk of rows."""
        values, *psi = self._psi(X)
        f, residuals = self.work.project(*psi)
        var = f.var.reshape(len(self.alpha), -1) + self._spread(X, values)
        return Marginals(self._with_mean(f.mean, X), self._shaped(var)), (X, values, residuals)

    def pull(self, residuals, f_bar):
        """Return the cotangents of means and variances, as ``GaussianInputs``.

        With r the cotangent of the variance, r_p is that of the form G_p of the added variance, and
        the bracket is pulled back as a plain prediction is. A slope w adds 2 w'Cov(x, k'a) + w'S w,
        where Cov(x_d, k'a) = -s q sum_i a_i psi_i e_i with q = p / (1 + p s), so
        (s q)' = q (1 - s q).
        """
        X, values, inner = residuals
        f_bar = Marginals(*(np.asarray(bar, np.float64) for bar in (f_bar.mean, f_bar.var)))
        psi_bar = np.ascontiguousarray(self.work.pull(inner, f_bar).T)
        r = np.ascontiguousarray(f_bar.var.reshape(len(self.alpha), -1).T)
        mean_bar, var_bar = self._pull_line(X, f_bar)
        e = X.mean[:, None] - self.Z
        for i, (a, psi) in enumerate(zip(self.terms, values, strict=True)):
            bar = psi_bar
            if self._slopes is not None:
                q = a.precision / (1 + a.precision * X.var)
                tilt = self._of_slopes(r)  # (n, M, D)
                bar = bar - (tilt * (e * (X.var * q)[:, None])).sum(2)
                tilt *= psi[:, :, None]
                mean_bar -= X.var * q * tilt.sum(1)
                var_bar -= q * (1 - X.var * q) * (tilt * e).sum(1)
            own = row_bumps_vjp(a.precision, X.mean, X.var, self.Z, psi, bar, self._G, r)
            mean_bar += own.mean
            var_bar += own.var
            for b in self.terms[:i]:
                scale = 2.0 * a.amplitude * b.amplitude  # G is symmetric
                C_bar = scale * kernels.matmul(r, self._G.reshape(len(self._G), -1))
                C_bar = C_bar.reshape(len(X), *self._G.shape[1:])
                more = bumps_vjp(a.precision, b.precision, C_bar, X.mean, X.var, self.Z)
                mean_bar += more[0]
                var_bar += more[1]
        return replace(X, mean=mean_bar.astype(self._dtype), var=var_bar.astype(self._dtype))

    def _of_slopes(self, r):
        """Return sum_p 2 r_p w_p a_p, (n, M, D), of cotangents r (n, P) and slopes w (P, D)."""
        weighted = 2 * self.alpha[:, :, None] * self._slopes[:, None]  # (P, M, D)
        shape = len(r), *weighted.shape[1:]
        return kernels.matmul(r, weighted.reshape(len(weighted), -1)).reshape(shape)

    def _pull_line(self, X, f_bar):
        """Return the cotangents of mean and variance of w'mu and w'S w, (n, D) each."""
        if self._slopes is None:
            return np.zeros_like(X.mean), np.zeros_like(X.var)
        slopes = np.broadcast_to(self._slopes, (len(self.alpha), X.mean.shape[1]))
        a, r = (bar.reshape(len(slopes), -1) for bar in (f_bar.mean, f_bar.var))
        return [
            kernels.matmul(bar, power, transpose_a=True)
            for bar, power in ((a, np.ascontiguousarray(slopes)), (r, slopes**2))
        ]

    def means(self, X, rows=ALL):
        """Return the means alone."""
        return self._with_mean(kernels.matmul(self.alpha, self._psi(X)[1]), X)

    def _with_mean(self, values, X):
        values = values.reshape(len(self.alpha), -1)
        return self._shaped(values if self.layer.mean is None else values + self.layer.mean(X.mean))

    def _spread(self, X, values):
        """Return the variance (P, n) that the uncertainty of rows adds."""
        total, flat = np.zeros((len(self._G), len(X))), self._G.reshape(len(self._G), -1)
        for i, a in enumerate(self.terms):
            for b in self.terms[:i] if not a.factors else self.terms[: i + 1]:
                C = a.covariance(b, X.mean, X.var, self.Z, self.Z)
                if C is not None:
                    times = 1.0 if a is b else 2.0  # G is symmetric
                    C = C.reshape(len(X), -1)
                    total += times * kernels.matmul(flat, C, transpose_b=True)
            if not a.factors:
                total += a.rows(X.mean, X.var).forms(self.Z, values[i], self._G).T
        return total if self._slopes is None else total + self._of_line(X)

    def _of_line(self, X):
        """Return what the slope of a mean function adds to the variance."""
        slopes = np.broadcast_to(self._slopes, (len(self.alpha), X.mean.shape[1]))
        moved = X.times(slopes)  # S w
        total = (moved * slopes[:, None]).sum(-1)
        for p, a in enumerate(self.alpha):
            total[p] += 2 * (self.with_inputs(X, a) * slopes[p]).sum(-1)
        return total

    def with_inputs(self, X, a):
        """Return Cov(x, k'a), (n, D), of each row."""
        if self._full:
            return sum(t.with_inputs(a, X.mean, X.var, self.Z) for t in self.terms)
        found, ones = np.zeros_like(X.mean), np.ones((1, X.mean.shape[1]))
        zeros = np.zeros(X.mean.shape[1])
        for c in np.flatnonzero(self._uncertain):
            line = Term(1.0, zeros, {int(c): Line()}, ())
            for term in self.terms:
                C = term.covariance(line, X.mean, X.var, self.Z, ones)
                if C is not None:
                    found[:, c] += (C[:, :, 0] * a).sum(-1)
        return found

    def with_functions(self, X):
        """Return Cov(x, f), (P, n, D)."""
        found = np.stack([self.with_inputs(X, a) for a in self.alpha])
        return found if self._slopes is None else found + X.times(self._slopes)

    def joint(self, X):
        """Return the ``Joint`` moments at all rows, which are independent of each other."""
        values, psi, own = self._psi(X)
        K = np.empty((len(X), len(X)))
        for n in range(len(X)):
            var = X.var + X.var[n]
            K[:, n] = sum(t.expected(X.mean, var, X.mean[n : n + 1])[:, 0] for t in self.terms)
        np.fill_diagonal(K, own)
        mean, cov = self.work.joint(psi, K)
        cov = cov.reshape(-1, len(X), len(X))
        rows = np.arange(len(X))
        cov[:, rows, rows] += self._spread(X, values)
        shape = *self._outputs, len(X), len(X)
        return Joint(self._with_mean(mean, X), cov.reshape(shape).astype(self._dtype))

    def sample(self, X, num_samples, jitter, rng, name=None):
        """Refuse: f at an uncertain input is not normal."""
        refuse_samples()


def check_pullback(terms, full):
    """Refuse models whose predictions have no pullback to uncertain inputs."""
    what = "a matrix `var`" if full else None
    if any(term.factors or term.known for term in terms):
        what = "a covariance other than sums of RBF"
    if what:
        raise TypeError(
            f"predict_f_and_vjp: no pullback to uncertain inputs for {what}; use differences of"
            " predict_f"
        )


def slopes_of(mean, outputs):
    """Return the slopes (1, D) or (P, D) of a mean function that is linear, None for constants."""
    if mean is None or type(mean) in (ZeroMean, ConstantMean):
        return None
    if type(mean) is LinearMean:
        return np.atleast_2d(mean.weights)
    if type(mean) is IdentityMean:
        return np.eye(*outputs)
    raise TypeError(
        f"a {type(mean).__name__} mean has no closed-form expectation under normal inputs: use"
        " LinearMean or ConstantMean, or `nodes=5`"
    )
