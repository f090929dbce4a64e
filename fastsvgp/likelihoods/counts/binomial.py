"""Binomial likelihood: successes among the trials of each datum.

With g the logarithm of the link and R(m) = E g(f) under N(m, var), which is a quadrature rule,

    E log p(y | f) = log C(n, y) + y R(mean) + (n - y) R(-mean)

Its terms cancel for many trials. With p = y / n and C the largest log density, which is
log Binomial(y; n, p),

    log p(y | f) = C + y log(g(f) / p) + (n - y) log(g(-f) / (1 - p))

Given f, y is at most k if a Beta(k + 1, n - k) variable exceeds the probability of a success.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...records import Marginals, record, static
from ..averages import chance_below, log_average, log_odds_law, probit_law
from ..base import Likelihood
from ..bernoulli import BernoulliLogit, BernoulliProbit
from ..one_latent import OneLatent
from ..stirling import (
    binomial_constant,
    log_binomial,
    log_logistic,
    logistic_slopes,
    normal_shares,
    shares_of,
)
from ..targets import as_targets, not_whole, refuse_all_but_counts, refuse_in_column
from ..wide import expectation

ROOT_HALF, ROOT_2_PI = 0.5**0.5, (2 / np.pi) ** 0.5


class Link(NamedTuple):
    """What depends on the link g; y successes and z failures."""

    of_one: Likelihood  # of one trial
    law: Callable  # of the variable T in P(f < T)
    log_p: Callable  # (y, z) -> the log density of f, less its largest value
    slopes: Callable  # (y, z, f) -> the first derivative of log p(y | f), and the second, negated
    inverse: Callable  # of g
    edge: Callable  # n -> least distance in f over which the log density of n trials changes


def _probit_slopes(y, z, f):
    # phi(f) / Phi(f) and phi(f) / Phi(-f)
    up, down = (ROOT_2_PI / scipy.special.erfcx(s * ROOT_HALF * f) for s in (-1, 1))
    return y * up - z * down, np.maximum(y * up * (up + f) + z * down * (down - f), 0)


def _probit_edge(n):
    """Return the width of the edge of Phi(f)^n, which is at Phi(-f) = 1 / n."""
    return 1 / np.maximum(1, -scipy.special.ndtri(0.5 / n))


LINKS = {
    "logit": Link(
        BernoulliLogit(),
        log_odds_law,
        log_logistic,
        logistic_slopes,
        lambda p: scipy.special.logit(p),
        lambda n: 1.0,
    ),
    "probit": Link(
        BernoulliProbit(),
        probit_law,
        lambda y, z: log_binomial(y, z, normal_shares),
        _probit_slopes,
        lambda p: scipy.special.ndtri(p),
        _probit_edge,
    ),
}


@record
class Binomial(OneLatent):
    """y successes in n trials, each with the probability g(f); targets have the columns y, trials.

    Y is (N, 2), or (N, P, 2) for P outputs. One trial of each datum is ``BernoulliLogit`` or
    ``BernoulliProbit``, and predictions of y are those of one trial. The expected log density is a
    quadrature rule, with the error of these likelihoods times the number of trials. Predictions do
    not use it: for up to 1e9 trials the error of their log density is 1e-9, that of the
    distribution function 1e-11.

    Parameters
    ----------
    link : {"logit", "probit"}
        g(f) = 1 / (1 + exp(-f)), or the standard normal distribution function.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> trials = np.full(40, 5)
    >>> successes = np.stack([np.arange(40) % 6, trials], axis=1)
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.likelihoods.Binomial()), X, successes), 2)
    -108.05
    """

    log_concave = True
    counts = True

    link: str = static(default="logit")
    num_nodes: int | None = static(default=None)
    target_columns = ("y", "trials")
    unit_columns = (1.0,)

    def expected(self, Y, f, need=True):
        (y, n, mean, var), link = self.rows(Y, f), LINKS[self.link].of_one.link
        R, R_m, R_v = expectation(link, mean, var, self.num_nodes, need)
        L, L_m, L_v = expectation(link, -mean, var, self.num_nodes, need)
        z = n - y
        p = shares_of(y, z)
        value = binomial_constant(y, z) + (y * (R - p.log_one) + z * (L - p.log_two))
        return (value, y * R_m - z * L_m, y * R_v + z * L_v) if need else (value,)

    def moments(self, mean, var):
        return LINKS[self.link].of_one.predict_mean_and_var(Marginals(mean, var))

    def log_marginal(self, y, n, mean, var):
        link, z = LINKS[self.link], n - y
        log_p, slopes = link.log_p(y, z), functools.partial(link.slopes, y, z)
        average = log_average(log_p, slopes, link.inverse(y / n), mean, var, link.edge(n))
        return binomial_constant(y, z) + average

    def marginal_cdf(self, y, n, mean, var):
        k = np.floor(y)
        inner = np.clip(k, 0, n - 1)
        p = chance_below(LINKS[self.link].law(inner + 1, n - inner), mean, var)
        return np.where(k < 0, 0, np.where(k >= n, 1, p))

    def predict_quantiles(self, levels, f):
        p, _ = self.predict_mean_and_var(f)
        levels = np.asarray(levels, p.dtype, like=p).reshape(-1, *(1,) * p.ndim)
        return (1 - p < levels).astype(p.dtype)

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
