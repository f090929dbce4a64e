"""Negative binomial counts with one dispersion; the log mean is the latent function.

With mu = exp(f), a the dispersion, h = log a and A(y, a) = log Gamma(y + a) - log Gamma(a) - y h of
``negative_binomial``,

    log p(y | f) = A(y, a) - log y! + y f - (a + y) s,    s = -log sigmoid(h - f)

and only s needs a quadrature rule. With the log odds t = f - h this is also the logarithm of
a / (y + a) Binomial(y; y + a, sigmoid t), as predictions have it: its terms do not cancel for large
counts or dispersions. Given f, the count is at most y if the log odds of a
Beta(y + 1, a) variable exceed f - h.
"""

from functools import partial

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...records import leaf, record, static
from ...records.typed import Number
from ..averages import chance_below, log_average, log_normal_moments, log_odds_law
from ..base import number
from ..stirling import binomial_constant, log_logistic, logistic_slopes
from ..two_functions.negative_binomial import _log_rising
from ..wide import expectation
from .poisson import OfRate


@record
class NegativeBinomial(OfRate):
    """Counts y = 0, 1, 2, ... with mean mu = exposure exp(f) and variance mu + mu^2 / dispersion.

    A Poisson likelihood whose rate has gamma noise; it tends to ``Poisson`` for a large dispersion.
    The expected log density is a quadrature rule over log(1 + mu / dispersion), whose error is y +
    dispersion times that of ``BernoulliLogit``. Predictions do not use it: the error of their log
    density is 1e-9, that of the distribution function 1e-11, at any dispersion.

    With ``exposure="column"`` each target has its own: Y has the columns y and exposure, (N, 2) or
    (N, P, 2). Moments and quantiles are then those of one unit of exposure.

    Parameters
    ----------
    dispersion : ()
        Shared by all outputs. Positive; default 1.
    exposure : float or "column"
        Factor on the mean of every datum, positive; or a column of Y.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> counts = np.arange(40) % 4
    >>> dispersed = fs.replace(model, likelihood=fs.likelihoods.NegativeBinomial(dispersion=2.0))
    >>> round(fs.elbo(dispersed, X, counts), 2)
    -81.0
    """

    log_concave = True
    _title = "Negative binomial"

    dispersion: Number = leaf("positive", default=1.0)
    exposure: float | str = static(default=1)
    num_nodes: int | None = static(default=None)

    def expected(self, Y, f, need=True):
        # With h = log a and R = E log sigmoid(h - f), R_m and R_v its derivatives at (h - mean,
        # var):
        #   ell = A - log y! + y mean + (a + y) R
        #   d/dmean = y - (a + y) R_m,   d/dvar = (a + y) R_v,
        #   d/da = (dA/dh + a R + (a + y) R_m) / a
        y, mean, var = self.rows(Y, f)
        a = number(self.dispersion) + np.zeros(y.shape, like=y)
        h, both = np.log(a), a + y
        R, R_m, R_v = expectation("log_sigmoid", h - mean, var, self.num_nodes, need)
        A, A_bar = _log_rising(y, a, h)
        value = A - scipy.special.gammaln(y + 1.0) + y * mean + both * R
        if not need:
            return (value,)
        return value, y - both * R_m, both * R_v, (A_bar + a * R + both * R_m) / a

    def moments(self, mean, var):
        mu, spread, square = log_normal_moments(mean, var)
        return mu, mu + spread + square / number(self.dispersion)

    def log_marginal(self, y, mean, var):
        a = number(self.dispersion) + np.zeros(y.shape, like=y)
        peak = np.where(y > 0, np.log(np.maximum(y, 1)) - np.log(a), -np.inf)
        log_p, slopes = log_logistic(y, a), partial(logistic_slopes, y, a)
        average = log_average(log_p, slopes, peak, mean - np.log(a), var)
        return average + binomial_constant(y, a) - np.log1p(y / a)

    def marginal_cdf(self, y, mean, var):
        a = number(self.dispersion) + np.zeros(1, like=mean)
        k = np.maximum(np.floor(y), 0)
        return np.where(y < 0, 0, chance_below(log_odds_law(k + 1, a), mean - np.log(a), var))
