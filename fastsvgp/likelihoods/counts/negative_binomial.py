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

from ...records import Marginals, leaf, record, static
from ...records.typed import Number
from ..averages import chance_below, log_average, log_normal_moments, log_odds_law
from ..base import (
    CHUNK,
    Likelihood,
    by_chunks,
    in_dtype,
    number,
    sum_outputs,
    total,
    weighted_finite,
)
from ..poisson import (
    check_counts,
    columns_of_counts,
    counts_and_means,
    settings_of_counts,
    unit_exposure,
)
from ..quantiles import searched_quantiles
from ..stirling import binomial_constant, log_logistic, logistic_slopes
from ..two_functions.negative_binomial import _log_rising
from ..wide import expectation


@record
class NegativeBinomial(Likelihood):
    """Counts y = 0, 1, 2, ... with mean mu = exposure exp(f) and variance mu + mu^2 / dispersion.

    A Poisson likelihood whose rate has gamma noise; it tends to ``Poisson`` for a large dispersion.
    The expected log density is a quadrature rule over log(1 + mu / dispersion). Its error is y +
    dispersion times

    ===================  =====  ====  ====  ====  ====
    marginal variance        1     4    10    30   100
    ===================  =====  ====  ====  ====  ====
    error                 1e-9  1e-9  1e-9  1e-9  1e-9
    error with 20 nodes  3e-11  2e-6  2e-4  4e-3  4e-2
    ===================  =====  ====  ====  ====  ====

    Predictions do not use it: the error of their log density is 1e-9, that of the distribution
    function 1e-11, at any dispersion.

    With ``exposure="column"`` each target has its own: Y has the columns y and exposure, (N, 2) or
    (N, P, 2). Moments and quantiles are then those of one unit of exposure.

    Parameters
    ----------
    dispersion : ()
        Shared by all outputs. Positive; default 1.
    exposure : float or "column"
        Factor on the mean of every datum, positive; or a column of Y.
    num_nodes : int, optional
        Number of Gauss-Hermite nodes for every datum, at any variance. Default: 20, and a table
        where q(f) is wide.

    Examples
    --------
    >>> counts = np.arange(40) % 4
    >>> dispersed = fs.replace(model, likelihood=fs.NegativeBinomial(dispersion=2.0))
    >>> round(fs.elbo(dispersed, X, counts), 2)
    -81.0
    """

    log_concave = True
    counts = True

    dispersion: Number = leaf("positive", default=1.0)
    exposure: float | str = static(default=1)
    num_nodes: int | None = static(default=None)
    unit_columns = (1.0,)

    @property
    def settings(self):
        return settings_of_counts(self)

    @property
    def target_columns(self):
        return columns_of_counts(self)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        # With h = log a - log c and R = E log sigmoid(h - f), R_m and R_v its derivatives at
        # (h - mean, var):
        #   ell = A - log y! + y (mean + log c) + (a + y) R
        #   d/dmean = y - (a + y) R_m,   d/dvar = (a + y) R_v,
        #   d/da = (dA/dh + a R + (a + y) R_m) / a
        dtype, (y, mean) = f.mean.dtype, counts_and_means(self, Y, f)
        mean = mean + self._log_exposure()
        a = number(self.dispersion) + np.zeros(y.shape, like=y)
        h, both = np.log(a), a + y
        R, R_m, R_v = expectation(
            "log_sigmoid",
            h - mean,
            f.var.astype(np.float64, copy=False),
            self.num_nodes,
            need,
        )
        A, A_bar = _log_rising(y, a, h)
        ell = total(A - scipy.special.gammaln(y + 1.0) + y * mean + both * R, weights)
        if not need:
            return ell, None, None
        bars = (weighted_finite(bar, weights, dtype) for bar in (y - both * R_m, both * R_v))
        dispersion_bar = total((A_bar + a * R + both * R_m) / a, weights)
        return (
            ell,
            Marginals(*bars),
            NegativeBinomial(
                in_dtype(dispersion_bar, dtype), exposure=self.exposure, num_nodes=self.num_nodes
            ),
        )

    def _log_exposure(self):
        return float(np.log(unit_exposure(self)))

    def predict_mean_and_var(self, f):
        dtype = f.mean.dtype
        mean, spread, square = log_normal_moments(
            np.add(f.mean, self._log_exposure(), dtype=np.float64), f.var
        )
        with np.errstate(over="ignore"):
            var = mean + spread + square / number(self.dispersion)
            return tuple(x.astype(dtype, copy=False) for x in (mean, var))

    def predict_log_density(self, Y, f):
        y, mean = counts_and_means(self, Y, f)
        return sum_outputs(by_chunks(self._log_density, f.mean, CHUNK // 8, y, mean, f.var))

    def _log_density(self, y, mean, var):
        y = y.astype(np.float64, copy=False)
        a = number(self.dispersion) + np.zeros(y.shape, like=y)
        peak = np.where(y > 0, np.log(np.maximum(y, 1)) - np.log(a), -np.inf)
        log_p, slopes = log_logistic(y, a), partial(logistic_slopes, y, a)
        average = log_average(log_p, slopes, peak, mean + (self._log_exposure() - np.log(a)), var)
        return average + binomial_constant(y, a) - np.log1p(y / a)

    def predict_cdf(self, Y, f):
        y, mean = counts_and_means(self, Y, f)
        return by_chunks(self._cdf, f.mean, CHUNK // 8, y, mean, f.var)

    def _cdf(self, y, mean, var):
        a = number(self.dispersion) + np.zeros(1, like=mean)
        t = mean.astype(np.float64, copy=False) + (self._log_exposure() - np.log(a))
        k = np.maximum(np.floor(y), 0).astype(np.float64, copy=False)
        return np.where(y < 0, 0, chance_below(log_odds_law(k + 1, a), t, var))

    def predict_quantiles(self, levels, f):
        mean, var = self.predict_mean_and_var(f)
        return searched_quantiles(levels, mean, var, self._cdf, True, f.mean, f.var)

    def check_targets(self, Y, name="Y"):
        check_counts(self, Y, name, "Negative binomial")
