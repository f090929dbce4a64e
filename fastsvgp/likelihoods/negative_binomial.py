"""Negative binomial counts; the log mean is a latent function, and the log dispersion can be one.

With mu = exp(f), a = exp(h), t = f - h, the softplus s = log(1 + exp t) and its slope p = s'(t),

    log p(y | f, h) = A(y, a) - log y! + y f - (a + y) s,
    A = log Gamma(y + a) - log Gamma(a) - y h

    d/df = y - (a + y) p,    d/dh = dA/dh - a s + (a + y) p

A is a difference of large terms for large a. With x = a + 8 and Stirling's series
log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + R(x),

    A = (y + x - 1/2) log(1 + y / x) - y + y log(1 + 8 / a) + R(y + x) - R(x)
        + sum_(j < 8) log((a + j) / (a + y + j))

    dA/dh = a [log(1 + y / x) - (1 / (y + x) - 1 / x) / 2 + R'(y + x) - R'(x)
               + sum_(j < 8) y / ((a + j) (a + y + j))] - y

for any a > 0: an absolute error of a few eps times y, as in the term y f. If a is a parameter, only
s = -log sigmoid(h - f) needs a quadrature rule.

Given f, the count is at most y if the log odds of a Beta(y + 1, a) variable exceed f - h.
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .. import kernels
from ..records import Marginals, leaf, record, static
from ..records.typed import Number
from .averages import chance_below, log_average, log_normal_moments, log_odds_law
from .base import (
    CHUNK,
    Likelihood,
    by_chunks,
    in_dtype,
    number,
    refuse_all_but_counts,
    sum_outputs,
    total,
    weighted_finite,
)
from .poisson import (
    check_counts,
    columns_of_counts,
    counts_and_means,
    settings_of_counts,
    unit_exposure,
)
from .quantiles import searched_quantiles
from .two_latents import TwoLatents

LARGEST = 300.0  # log mean and log dispersion are cut off here: no product of two overflows
MOST = 35.0  # limit of the log dispersion in distribution functions
SHIFT = 8  # from here on five terms of the series are exact in float64
# R(x) = sum_k STIRLING[k] / x^(2 k + 1)
STIRLING = 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360


@record
class NegativeBinomial(Likelihood):
    """Counts y = 0, 1, 2, ... with mean mu = exposure exp(f) and variance mu + mu^2 / dispersion.

    A Poisson likelihood whose rate has gamma noise; it tends to ``Poisson`` for a large dispersion.
    The expected log density is a Gauss-Hermite rule of ``num_nodes`` over log(1 + mu / dispersion).
    With 20 nodes its error is 2e-10 (y + dispersion) at marginal variance 1. Predictions do not use
    these nodes: the error of their log density is 1e-9, that of the distribution function 1e-12.

    With ``exposure="column"`` each target has its own: Y has the columns y and exposure, (N, 2) or
    (N, P, 2). Moments and quantiles are then those of one unit of exposure.

    Parameters
    ----------
    dispersion : ()
        Shared by all outputs. Positive; default 1.
    exposure : float or "column"
        Factor on the mean of every datum, positive; or a column of Y.
    num_nodes : int
        Number of nodes of the Gauss-Hermite rule.

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
    num_nodes: int = static(default=20)
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
        mean, y = mean + self._log_exposure(), y.astype(np.float64, copy=False)
        a = number(self.dispersion) + np.zeros((1,) * y.ndim, like=y)
        h, both = np.log(a), a + y
        R, R_m, R_v = kernels.expectation(
            "log_sigmoid",
            np.subtract(h, mean, dtype=np.float64),
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
        # in terms of t = f + log c - log a, so that a large dispersion does not cancel
        y, a = y.astype(np.float64, copy=False), number(self.dispersion) + np.zeros(1, like=mean)
        h, both = np.log(a), a + y

        def log_p(t):
            return y * t - both * np.logaddexp(0, t)

        def slopes(t):
            p = scipy.special.expit(t)
            return y - both * p, both * p * scipy.special.expit(-t)

        peak = np.log(np.where(y > 0, y, 1)) - h
        peak = np.where(y > 0, peak, -np.inf)
        t = mean.astype(np.float64, copy=False) + (self._log_exposure() - h)
        # A lacks the term y h of y f = y (t + h)
        constant = _log_rising(y, a, h)[0] + y * h - scipy.special.gammaln(y + 1.0)
        return constant + log_average(log_p, slopes, peak, t, var)

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


@record
class HeteroskedasticNegativeBinomial(TwoLatents):
    """Counts y = 0, 1, 2, ... with mean mu = exp(f) and variance mu + mu^2 exp(-h).

    Log mean and log dispersion are latent functions: a gamma-Poisson mixture, which tends to a
    Poisson likelihood for large h.

    The expected log density is a tensor rule of ``num_nodes``^2 Gauss-Hermite nodes, and its
    gradient is exact for that number. Predictive moments are in closed form; densities,
    distribution functions and quantiles are those of the mixture of these nodes.

    Parameters
    ----------
    num_nodes : int
        Number of nodes in either function.

    Examples
    --------
    >>> q = fs.at_prior(fs.Whitened, covariance, Z, outputs=2)
    >>> counts = np.arange(40) % 4
    >>> dispersed = fs.SVGP(covariance, Z, q, fs.HeteroskedasticNegativeBinomial())
    >>> round(fs.elbo(dispersed, X, counts), 2)
    -79.46
    """

    counts = True

    num_nodes: int = static(default=20)

    def log_density(self, Y, f, h):
        f, h = np.clip(f, -LARGEST, LARGEST), np.clip(h, -LARGEST, LARGEST)
        a = np.exp(h)
        total, (A, A_bar) = a + Y, _log_rising(Y, a, h)
        # Three tensors in one block, and no temporary ones: allocating them takes longer than the
        # arithmetic
        g, g_f, g_h = np.empty((3, *np.broadcast_shapes(Y.shape, f.shape, h.shape)), like=f)
        np.multiply(np.exp(f), 1 / a, out=g_h)  # exp t
        np.log1p(g_h, out=g)  # s
        np.divide(g_h, np.add(g_h, 1, out=g_f), out=g_f)
        g_f *= total  # (a + y) p
        np.subtract(g_f, np.multiply(g, a, out=g_h), out=g_h)
        g_h += A_bar
        np.subtract(Y, g_f, out=g_f)
        g *= total
        np.subtract(Y * f, g, out=g)
        g += A - scipy.special.gammaln(Y + 1.0)
        return g, g_f, g_h

    def predict_mean_and_var(self, f):
        # var y = E mu + E mu^2 (1 + exp(-h)) - (E mu)^2
        (m, g), (v, u) = (x.astype(np.float64, copy=False) for x in (f.mean, f.var))
        with np.errstate(over="ignore"):
            mean = np.exp(m + 0.5 * v)
            spread = np.exp(np.log(np.maximum(np.expm1(v), 1e-300)) + 2 * m + v)
            var = mean + spread + np.exp(2 * (m + v) + 0.5 * u - g)
            return tuple(x.astype(f.mean.dtype, copy=False) for x in (mean, var))

    def conditional_mean_and_var(self, f, h):
        mean = np.exp(f)
        return mean, mean + np.exp(2 * f - h)

    def conditional_cdf(self, Y, f, h):
        # the counts are Poisson to rounding error from MOST on
        f, h = np.clip(f, -LARGEST, LARGEST), np.clip(h, -LARGEST, MOST)
        ratio, k = np.exp(f) * np.exp(-h), np.maximum(np.floor(Y), 0)
        p = 1 - scipy.special.betainc(k + 1, np.exp(h), ratio / (1 + ratio))
        return np.where(Y < 0, 0, p)

    def check_targets(self, Y, name="Y"):
        refuse_all_but_counts(name, Y, "Negative binomial")


def _log_rising(y, a, h):
    """Return A of the text above, and its derivative in h = log a."""
    x = a + SHIFT
    X = y + x
    low = a + np.arange(float(SHIFT), like=a).reshape(SHIFT, *(1,) * x.ndim)
    ratio = low / (low + y)
    grown, tail = np.log1p(y / x), (ratio / (low * low)).sum(axis=0)
    (R_X, slope_X), (R_x, slope_x) = _stirling(X), _stirling(x)
    A = (X - 0.5) * grown - y + y * np.log1p(SHIFT / a) + (R_X - R_x) + np.log(ratio.prod(axis=0))
    slope = grown - 0.5 * (1 / X - 1 / x) + (slope_X - slope_x) + y * tail
    return A, a * slope - y


def _stirling(x):
    """Return R(x) and R'(x)."""
    r = 1 / x
    r2, value, slope = r * r, 0.0, 0.0
    for k in range(len(STIRLING) - 1, -1, -1):
        value = value * r2 + STIRLING[k]
        slope = slope * r2 - (2 * k + 1) * STIRLING[k]
    return value * r, slope * r2
