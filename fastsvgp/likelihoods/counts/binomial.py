"""Binomial likelihood: successes among the trials of each datum.

With g the logarithm of the link and R(m) = E g(f) under N(m, var), which is a quadrature rule,

    E log p(y | f) = log C(n, y) + y R(mean) + (n - y) R(-mean)

Given f, y is at most k if a Beta(k + 1, n - k) variable exceeds the probability of a success.
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...records import Marginals, record, static
from ..averages import chance_below, log_average, log_odds_law, probit_law
from ..base import (
    CHUNK,
    NODES,
    Likelihood,
    as_targets,
    by_chunks,
    not_whole,
    refuse_all_but_counts,
    refuse_in_column,
    sum_outputs,
    total,
    weighted,
)
from ..bernoulli import BernoulliLogit, BernoulliProbit
from ..wide import expectation

LINKS = {"logit": (BernoulliLogit(), log_odds_law), "probit": (BernoulliProbit(), probit_law)}


@record
class Binomial(Likelihood):
    """y successes in n trials, each with the probability g(f); targets have the columns y, trials.

    Y is (N, 2), or (N, P, 2) for P outputs. One trial of each datum is ``BernoulliLogit`` or
    ``BernoulliProbit``, and predictions of y are those of one trial. The expected log density is a
    quadrature rule, with the error of these likelihoods times the number of trials. Predictions do
    not use it: the error of their log density is 1e-9, that of the distribution function 1e-12.

    Parameters
    ----------
    link : {"logit", "probit"}
        g(f) = 1 / (1 + exp(-f)), or the standard normal distribution function.
    num_nodes : int, optional
        Number of Gauss-Hermite nodes for every datum, at any variance. Default: 20, and a table
        where q(f) is wide.

    Examples
    --------
    >>> trials = np.full(40, 5)
    >>> successes = np.stack([np.arange(40) % 6, trials], axis=1)
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.Binomial()), X, successes), 2)
    -108.05
    """

    log_concave = True
    counts = True

    link: str = static(default="logit")
    num_nodes: int | None = static(default=None)
    settings = NODES
    target_columns = ("y", "trials")
    unit_columns = (1.0,)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        y, n = Y.astype(np.float64, copy=False)
        mean, var, dtype = f.mean, f.var, f.mean.dtype
        link, _ = LINKS[self.link]
        R, R_m, R_v = expectation(link.link, mean, var, self.num_nodes, need)
        L, L_m, L_v = expectation(link.link, -mean, var, self.num_nodes, need)
        ell = total(_log_choices(y, n) + y * R + (n - y) * L, weights)
        if not need:
            return ell, None, None
        bars = (
            weighted(bar, weights).astype(dtype, copy=False)
            for bar in (y * R_m - (n - y) * L_m, y * R_v + (n - y) * L_v)
        )
        return ell, Marginals(*bars), self

    def predict_mean_and_var(self, f):
        return LINKS[self.link][0].predict_mean_and_var(f)

    def predict_log_density(self, Y, f):
        log_density = _logit_density if self.link == "logit" else _probit_density
        return sum_outputs(by_chunks(log_density, f.mean, CHUNK // 8, *Y, f.mean, f.var))

    def predict_cdf(self, Y, f):
        law = LINKS[self.link][1]

        def part(y, n, mean, var):
            k, n = (x.astype(np.float64, copy=False) for x in (np.floor(y), n))
            inner = np.clip(k, 0, n - 1)
            p = chance_below(law(inner + 1, n - inner), mean, var)
            return np.where(k < 0, 0, np.where(k >= n, 1, p))

        return by_chunks(part, f.mean, CHUNK // 8, *Y, f.mean, f.var)

    def predict_quantiles(self, levels, f):
        p, _ = self.predict_mean_and_var(f)
        out = np.empty((len(levels), *p.shape), p.dtype, like=p)
        for k, level in enumerate(levels):
            out[k] = 1 - p < level
        return out

    def check_settings(self):
        super().check_settings()
        if self.link not in LINKS:
            raise ValueError(f'Binomial: `link` must be "logit" or "probit", got {self.link!r:.80}')

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = "Trials are whole numbers from 1 on; leave out rows without trials"
        bad = not_whole(Y[1]) | ~(Y[1] >= 1) | ~np.isfinite(Y[1])
        refuse_in_column(name, Y, (1, "trials"), bad, "numbers of trials", advice)
        refuse_all_but_counts(name, Y, "Binomial", (0, "y"))
        advice = "A datum has at most as many successes as trials; the columns are y, trials"
        refuse_in_column(name, Y, (0, "y"), Y[0] > Y[1], "counts of at most its trials", advice)


def _log_choices(y, n):
    log_gamma = scipy.special.gammaln
    return log_gamma(n + 1.0) - log_gamma(y + 1.0) - log_gamma(n - y + 1.0)


def _logit_density(y, n, mean, var):
    y, n = (x.astype(np.float64, copy=False) for x in (y, n))
    expit = scipy.special.expit

    def log_p(f):
        return y * f - n * np.logaddexp(0, f)

    def slopes(f):
        return y - n * expit(f), n * expit(f) * expit(-f)

    peak = scipy.special.logit(y / n)
    return _log_choices(y, n) + log_average(log_p, slopes, peak, mean, var)


def _probit_density(y, n, mean, var):
    y, n = (x.astype(np.float64, copy=False) for x in (y, n))
    log_ndtr = scipy.special.log_ndtr

    def log_p(f):
        return y * log_ndtr(f) + (n - y) * log_ndtr(-f)

    def slopes(f):
        up, down = (np.exp(-0.5 * f * f - log_ndtr(s * f)) / np.sqrt(2 * np.pi) for s in (1, -1))
        bend = y * up * (up + f) + (n - y) * down * (down - f)
        return y * up - (n - y) * down, np.maximum(bend, 0)

    peak = scipy.special.ndtri(y / n)
    return _log_choices(y, n) + log_average(log_p, slopes, peak, mean, var)
