"""Poisson counts with more zeros than a Poisson likelihood expects.

With the rate lambda = exp(f) and the probability p of a zero that has nothing to do with it,

    log p(y | f) = log(1 - p) + log Poisson(y; lambda)        for y > 0
    log p(0 | f) = log(p + (1 - p) exp(-lambda)) = g(f)

and only E g needs a quadrature rule. At D = exp g, dg/df = -lambda (1 - p) exp(-lambda) / D and
dg/dp = (1 - exp(-lambda)) / D.
"""

import numpy as np

from ...records import leaf, record, static
from ...records.typed import Number
from ..averages import log_normal_moments
from ..base import number
from ..one_latent import OneLatent
from ..targets import refuse_all_but_counts
from ..wide import NODES as FEW, Feature
from .poisson import Poisson, expected_log_density

LARGEST = 700.0  # upper limit of log rates: their exponentials must not overflow


@record
class ZeroInflatedPoisson(OneLatent):
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
    >>> inflated = fs.replace(model, likelihood=fs.likelihoods.ZeroInflatedPoisson(0.3))
    >>> round(fs.elbo(inflated, X, counts), 2)
    -66.11
    """

    counts = True
    chunk = Poisson.chunk

    probability: Number = leaf("unit", default=0.5)
    num_nodes: int | None = static(default=None)

    def _shares(self):
        """Return p, log p and log(1 - p)."""
        p = number(self.probability)
        return p, np.log(p), np.log1p(-p)

    @property
    def singularities(self):
        return self._feature().width

    def _feature(self):
        # D = 0, and g has branch points, where the rate is L + i pi
        _, log_p, log_rest = self._shares()
        L = np.minimum(np.maximum(np.rint(log_rest - log_p), -LARGEST), LARGEST)
        radius = np.sqrt(L * L + np.pi**2)
        return Feature(np.log(radius), np.arccos(np.maximum(L, 0) / radius))

    def _poisson(self):
        return Poisson(num_nodes=self.num_nodes or FEW)

    def log_density(self, y, f, need=True):
        """Of a zero: of other counts the expectation has a closed form."""
        _, log_p, log_rest = self._shares()
        rate = np.exp(np.minimum(f, LARGEST))
        g = np.logaddexp(log_p, log_rest - rate)
        if not need:
            return (g,)
        return g, -np.exp(f + (log_rest - rate - g)), -np.expm1(-rate) * np.exp(-g)

    def tables(self, y):
        return self._feature(), np.where(y == 0, 0, -1), np.zeros((1, 1), like=y)

    def expected(self, Y, f, need=True):
        (y, mean, var), (p, _, log_rest) = self.rows(Y, f), self._shares()
        positive, rate = expected_log_density(y, mean, var)
        positive = [log_rest + positive, y - rate, -0.5 * rate, -1 / (1 - p)]
        at_zero = super().expected(Y, f, need)
        return [np.where(y == 0, *pair) for pair in zip(at_zero, positive, strict=False)]

    def moments(self, mean, var):
        p, _, _ = self._shares()
        rate, spread, _ = log_normal_moments(mean, var)
        return (1 - p) * rate, (1 - p) * (rate + spread + p * rate * rate)

    def log_marginal(self, y, mean, var):
        _, log_p, log_rest = self._shares()
        logs = log_rest + self._poisson().log_marginal(y, mean, var)
        return np.where(y == 0, np.logaddexp(log_p, logs), logs)

    def marginal_cdf(self, y, mean, var):
        p, _, _ = self._shares()
        below = self._poisson().marginal_cdf(y, mean, var)
        return np.where(y < 0, 0, p + (1 - p) * below)

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
