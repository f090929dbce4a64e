"""Poisson counts with more zeros than a Poisson likelihood expects.

With the rate lambda = exp(f) and the probability p of a zero that has nothing to do with it,

    log p(y | f) = log(1 - p) + log Poisson(y; lambda)        for y > 0
    log p(0 | f) = log(p + (1 - p) exp(-lambda)) = g(f)

and only E g needs a quadrature rule. At D = exp g, dg/df = -lambda (1 - p) exp(-lambda) / D and
dg/dp = (1 - exp(-lambda)) / D.
"""

import numpy as np

from ... import kernels
from ...records import Marginals, leaf, record, static
from ...records.typed import Number
from ..averages import log_normal_moments
from ..base import (
    NODES,
    Likelihood,
    in_dtype,
    number,
    refuse_all_but_counts,
    sum_outputs,
    that_count,
    total,
    weighted_finite,
)
from ..poisson import Poisson, counts_and_means, expected_log_density
from ..wide import NODES as FEW, Feature, averages, merged, none_wide

LARGEST = 700.0  # upper limit of log rates: their exponentials must not overflow


@record
class ZeroInflatedPoisson(Likelihood):
    """Counts that are 0 with a probability, and else Poisson(exp(f)).

    The expected log density is in closed form for counts above 0, and a quadrature rule for 0. Its
    nodes follow the probability, because log p(0 | f) bends the more sharply the smaller that is:

    ==========================  ====  ====  ====  ====  ====
    marginal variance              1     4    10    30   100
    ==========================  ====  ====  ====  ====  ====
    error                       2e-9  2e-9  2e-9  2e-9  2e-9
    20 nodes, probability 0.3   1e-5  2e-3  2e-2  4e-2  8e-2
    20 nodes, probability 0.01  4e-3  4e-2  9e-2   0.3   0.3
    20 nodes, probability 1e-8   0.1   0.3   0.6   0.9     2
    ==========================  ====  ====  ====  ====  ====

    The density is not log-concave: natural steps are halved where they must be. Predictions are as
    exact as those of ``Poisson``.

    Parameters
    ----------
    probability : ()
        Of a zero beside those of the rate, shared by all outputs. Between 0 and 1.
    num_nodes : int, optional
        Number of Gauss-Hermite nodes at any variance, and of ``Poisson``. Default: 20, and a table
        where q(f) is wide.

    Examples
    --------
    >>> counts = np.maximum(np.arange(40) % 6 - 2, 0)
    >>> inflated = fs.replace(model, likelihood=fs.ZeroInflatedPoisson(0.3))
    >>> round(fs.elbo(inflated, X, counts), 2)
    -66.11
    """

    counts = True

    probability: Number = leaf("unit", default=0.5)
    num_nodes: int | None = static(default=None)
    settings = NODES

    def _shares(self):
        """Return p, log p and log(1 - p)."""
        p = number(self.probability)
        return p, np.log(p), np.log1p(-p)

    def _poisson(self):
        return Poisson(num_nodes=self.num_nodes or FEW)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        f, dtype, (p, _, log_rest) = that_count(f, weights), f.mean.dtype, self._shares()
        y, mean = counts_and_means(self._poisson(), Y, f)
        zero = y == 0
        found = self._at_zero(zero, f, need)
        positive, expected = expected_log_density(y, mean, f.var)
        ell = total(np.where(zero, found[0], log_rest + positive), weights)
        if not need:
            return ell, None, None
        mean_bar, var_bar, of_p = found[1:]
        bars = (
            weighted_finite(np.where(zero, at_zero, above), weights, dtype)
            for at_zero, above in ((mean_bar, y - expected), (var_bar, -0.5 * expected))
        )
        p_bar = total(np.where(zero, of_p, -1 / (1 - p)), weights)
        own = ZeroInflatedPoisson(in_dtype(p_bar, dtype), num_nodes=self.num_nodes)
        return ell, Marginals(*bars), own

    def _at_zero(self, zero, f, need):
        """Return E g, its derivatives and E dg/dp, of any use where ``zero``."""
        _, log_p, log_rest = self._shares()

        def of_zero(F):
            rate = np.exp(np.minimum(F, LARGEST))
            return rate, np.logaddexp(log_p, log_rest - rate)

        def rule(mean, var):
            F = kernels.gauss_hermite_nodes(mean, var, self.num_nodes or FEW)
            rate, g = of_zero(F)
            if not need:
                return [kernels.gauss_hermite(g)]
            ones = np.zeros(mean.shape, like=F) + 1
            slope = -np.exp(F + (log_rest - rate - g))
            bars = kernels.gauss_hermite_vjp(ones, slope, mean, var)
            return [kernels.gauss_hermite(g), *bars, kernels.gauss_hermite(_of_p(rate, g))]

        def functions(nodes):
            rate, g = of_zero(nodes)
            return np.stack([g, _of_p(rate, g)], axis=1)

        # D = 0, and g has branch points, where the rate is L + i pi
        L = np.clip(np.rint(log_rest - log_p), -LARGEST, LARGEST)
        radius = np.sqrt(L * L + np.pi**2)
        width = np.arccos(np.maximum(L, 0) / radius)
        if self.num_nodes is not None or none_wide(f.var, width):
            return rule(f.mean, f.var)
        feature, which = Feature(np.log(radius), width), np.where(zero, 0, -1)
        wide, values, d_mean, d_var = averages(functions, feature, f, which, need)
        new = [values[0], d_mean[0], d_var[0], values[1]] if need else [values[0]]
        return merged(wide, new, rule, f.mean, f.var)

    def predict_mean_and_var(self, f):
        p, _, _ = self._shares()
        rate, spread, _ = log_normal_moments(f.mean, f.var)
        with np.errstate(over="ignore"):
            mean, var = (1 - p) * rate, (1 - p) * (rate + spread + p * rate * rate)
            return tuple(x.astype(f.mean.dtype, copy=False) for x in (mean, var))

    def predict_log_density(self, Y, f):
        _, log_p, log_rest = self._shares()
        # of one output, so that it is not summed before the zeros are added
        flat = Marginals(f.mean.ravel(), f.var.ravel())
        logs = self._poisson().predict_log_density(Y.ravel(), flat).reshape(f.mean.shape)
        logs = log_rest + logs
        logs = np.where(Y == 0, np.logaddexp(log_p, logs), logs)
        return sum_outputs(logs.astype(f.mean.dtype, copy=False))

    def predict_cdf(self, Y, f):
        p, _, _ = self._shares()
        below = self._poisson().predict_cdf(Y, f)
        return np.where(Y < 0, 0, p + (1 - p) * below).astype(f.mean.dtype, copy=False)

    def predict_quantiles(self, levels, f):
        # P(y <= k) = p + (1 - p) F(k) reaches a level where F reaches (level - p) / (1 - p)
        # or fails to with (1 - level) / (1 - p); the smaller one keeps its digits
        p = float(number(self.probability))
        out = np.zeros((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
        for k, level in enumerate(levels):
            if level > p:
                reached, missed = (level - p) / (1 - p), (1 - level) / (1 - p)
                reached = reached if reached < 0.5 else 1 - missed
                (out[k],) = self._poisson().predict_quantiles([reached], f)
        return out

    def check_targets(self, Y, name="Y"):
        refuse_all_but_counts(name, Y, "Poisson")


def _of_p(rate, g):
    """Return dg/dp."""
    return -np.expm1(-rate) * np.exp(-g)
