"""Shares between 0 and 1 with beta noise around a mean that is the logistic function of f.

With mu the mean, A = scale mu and B = scale (1 - mu),

    log p(y | f) = log Gamma(scale) - log Gamma(A) - log Gamma(B)
                   + (A - 1) log y + (B - 1) log(1 - y)
                 = log(A B / (2 pi scale)) / 2 + R(scale) - R(A) - R(B) - log y - log(1 - y)
                   + scale K,    K = mu log(y / mu) + (1 - mu) log((1 - y) / (1 - mu)),

where the terms of the last form do not cancel; R and D are those of ``stirling``.

    d/df = scale mu (1 - mu) (logit y - f + D(A) - D(B))
    d/dscale = mu D(A) + (1 - mu) D(B) - D(scale) + K

It is not concave in f: far out its slope tends to 1 on the left and to -1 on the right. Predictive
densities therefore look for the mass of their integrand by zooming in on an interval that holds it:
with S a bound of the slope, all but exp(-LOST) lies within 2 var S + sd sqrt(2 LOST) of the mean.
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import Marginals, leaf, record, static
from ..records.typed import Number
from .averages import LOST, NODES_AT_ONCE, average, average_of_edge, beta_survival
from .base import CHUNK, SMALLEST, apply_to_chunks, log_sum_exp, number
from .bernoulli import BernoulliLogit
from .one_latent import OneLatent
from .quantiles import search_quantiles
from .stirling import (
    HALF_LOG_2PI,
    Shares,
    log_less_digamma,
    logistic_shares,
    odds_deviance,
    remainder,
)
from .targets import as_targets, refuse
from .wide import Feature, averages

LEAST = 1e-300  # lower limit of A and B
ZOOMS, NODES_OF_ZOOM = 20, 48  # at most 20, of which ordinary scales take three
STEP = 0.25  # largest distance of nodes of the final rule
FEWEST_NODES = 192
MOST_NODES = 2**13
EDGE = 1.4  # largest width of the distribution function in f
LOGISTIC = BernoulliLogit()


@record
class Beta(OneLatent):
    """0 < y < 1 with mean mu = 1 / (1 + exp(-f)) and variance mu (1 - mu) / (1 + scale).

    The expected log density is a quadrature rule, whose error is the scale times that of
    ``OneLatent``. The density is not log-concave: natural steps are halved where they must be. The
    error of the predictive log density is 1e-9, that of the distribution function 1e-11. Quantiles
    are 0 or 1 where float64 cannot tell them from that.

    Parameters
    ----------
    scale : ()
        Number of observations that y is worth, shared by all outputs. Positive; default 1.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> shares = 1 / (1 + np.exp(-Y))
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.likelihoods.Beta(scale=10.0)), X, shares), 2)
    -23.6
    """

    scale: Number = leaf("positive", default=1.0)
    num_nodes: int | None = static(default=None)
    # log p has branch points at -log(1 + scale / k) +- i pi for k = 1, 2, ..., and at their
    # negatives: as they are many, 20 nodes are as exact as for a single one at this distance
    singularities = 2.5
    chunk = CHUNK // 16

    def _shapes(self, f):
        """Return mu and 1 - mu at f, and A and B."""
        mu, scale = logistic_shares(f), number(self.scale)
        return mu, *(np.maximum(scale * share, LEAST) for share in (mu.one, mu.two))

    def _subtract_deviance(self, A, B):
        """Return the terms of log p that depend on f and the scale alone, but for scale K."""
        scale = number(self.scale)
        constant = remainder(scale) - 0.5 * np.log(scale) - HALF_LOG_2PI
        return constant + 0.5 * (np.log(A) + np.log(B)) - remainder(A) - remainder(B)

    def log_density(self, y, f, need=True):
        y, scale, (mu, A, B) = _shares(y), number(self.scale), self._shapes(f)
        odds = y.log_one - y.log_two
        d = odds - (mu.log_one - mu.log_two)
        less, share = mu.one <= mu.two, np.minimum(mu.one, mu.two)
        K = odds_deviance(share, 1.0, share, np.where(less, d, -d))
        log_p = self._subtract_deviance(A, B) - y.log_one - y.log_two + scale * K
        if not need:
            return (log_p,)
        D_A, D_B = log_less_digamma(A), log_less_digamma(B)
        slope = scale * mu.one * mu.two * (odds - f + D_A - D_B)
        return log_p, slope, mu.one * D_A + mu.two * D_B + K - log_less_digamma(scale)

    def where_wide(self, y, mean, var, need=True):
        y, scale = _shares(y), number(self.scale)

        def functions(nodes):  # K = mu log y + (1 - mu) log(1 - y) + H(mu)
            mu, A, B = self._shapes(nodes)
            H = -mu.one * mu.log_one - mu.two * mu.log_two
            of_scale = mu.one * log_less_digamma(A) + mu.two * log_less_digamma(B) + H
            return np.stack([self._subtract_deviance(A, B) + scale * H, mu.one, of_scale], axis=1)

        feature = Feature(0.0, self.singularities, np.ceil(np.log1p(scale)))
        wide, values, d_mean, d_var = averages(functions, feature, Marginals(mean, var), need=need)
        alone, mu, of_scale = values
        K = mu * y.log_one + (1 - mu) * y.log_two
        ell = alone + scale * K - y.log_one - y.log_two
        if not need:
            return wide, [ell]
        odds = scale * (y.log_one - y.log_two)
        bars = (bar[0] + odds * bar[1] for bar in (d_mean, d_var))
        return wide, [ell, *bars, K + of_scale - log_less_digamma(scale)]

    def moments(self, mean, var):
        centre, spread = LOGISTIC.predict_mean_and_var(Marginals(mean, var))

        def part(m, v):  # E mu (1 - mu)
            expit = scipy.special.expit
            return average(lambda t: expit(t) * expit(-t), m, np.sqrt(v), np.ones_like(m))

        inner = apply_to_chunks(part, mean, self.chunk, mean, var)
        return centre, np.maximum(spread - inner, 0) + inner / (1 + self.scale)

    def log_marginal(self, y, mean, var):
        m, v = mean, np.maximum(var, SMALLEST)
        scale, far = number(self.scale), np.sqrt(2 * LOST * v)
        size = np.abs(np.log(y) - np.log1p(-y))

        def logs(x):
            return self.log_density(y, m + x, need=False)[0] - 0.5 * x * (x / v)

        # bounds of the slope: everywhere, and beyond the edge
        most, edge = 1.2 + scale * (size + np.log1p(scale) + 1), np.log1p(scale * (1 + size)) + 3
        low = np.maximum(-2 * v * most - far, np.minimum(-edge - m, 0) - 2.4 * v - far)
        high = np.minimum(2 * v * most + far, np.maximum(edge - m, 0) + 2.4 * v + far)
        for _ in range(ZOOMS):
            step = (high - low) / (NODES_OF_ZOOM - 1)
            at = low + step * np.arange(NODES_OF_ZOOM, like=m)[:, None]
            values = logs(at)
            within, width = values > values.max(axis=0) - 1.5 * LOST, high - low
            low = np.maximum(low, np.where(within, at, np.inf).min(axis=0) - step)
            high = np.minimum(high, np.where(within, at, -np.inf).max(axis=0) + step)
            if (high - low > 0.5 * width).all():
                break
        # on a device this copies to the host
        count = FEWEST_NODES + min(MOST_NODES, int(((high - low) / STEP).max()))
        step, total_logs = (high - low) / (count - 1), -np.inf
        for first in range(0, count, NODES_AT_ONCE):
            k = np.arange(first, min(count, first + NODES_AT_ONCE), like=m)[:, None]
            total_logs = np.logaddexp(total_logs, log_sum_exp(logs(low + step * k)))
        return total_logs + np.log(step) - 0.5 * np.log(2 * np.pi * v)

    def marginal_cdf(self, y, mean, var):
        inner = _shares(np.where((y > 0) & (y < 1), y, 0.5))
        p = self._cdf(inner.log_one - inner.log_two, mean, var)
        return np.where(y <= 0, 0, np.where(y >= 1, 1, p))

    def _cdf(self, t, mean, var):
        """Return P(logit y <= t)."""

        def survival(f, t):
            _, A, B = self._shapes(f)
            return beta_survival(-t, B, A)

        def edge(f):  # the standard deviation of the log odds of y
            _, A, B = self._shapes(f)
            return np.minimum(np.sqrt(1 / A + 1 / B), EDGE)

        narrowest = np.minimum(2 / np.sqrt(2 + number(self.scale)), EDGE)
        return average_of_edge(survival, edge, narrowest, mean, np.sqrt(var), t)

    def predict_quantiles(self, levels, f):
        # of the log odds, where there are no ends
        _, mean, var = self.rows(f.mean, f)
        spread = var + 4 / number(self.scale)
        odds = search_quantiles(levels, mean, spread, self._cdf, False, mean, var)
        return scipy.special.expit(odds).astype(f.mean.dtype, copy=False)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = "Beta targets lie strictly inside; move 0 and 1 inwards, or use another likelihood"
        refuse(name, Y, ~((Y > 0) & (Y < 1)), "numbers between 0 and 1", advice)


def _shares(y):
    """Return the ``Shares`` y and 1 - y."""
    return Shares(y, 1 - y, np.log(y), np.log1p(-y))
