"""Positive numbers with gamma noise around a mean exp(f); exponential for the shape 1.

With the shape a, E exp(-f) = exp(-mean + var / 2) and

    log p(y | f) = a log a - log Gamma(a) + (a - 1) log y - a (f + y exp(-f))

Given f, the target is at most y if a Gamma(a) variable is at most a y exp(-f).
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import Marginals, leaf, record
from ..records.typed import Number
from .averages import chance_below, log_average, log_gamma_law, log_normal_moments
from .base import (
    CHUNK,
    Likelihood,
    as_targets,
    by_chunks,
    in_dtype,
    number,
    refuse,
    sum_outputs,
    total,
    weighted_finite,
)
from .quantiles import searched_quantiles

LARGEST = 700.0  # upper limit of logarithms: their exponentials must not overflow


class _GammaNoise(Likelihood):
    """Base of both; ``_shape`` is a () array, or a number."""

    log_concave = True

    def _of_data(self, Y, f, weights, need):
        """Return the expected log density, derivatives in f, and the derivative in the shape."""
        a, log_y = self._shape, np.log(Y, dtype=np.float64)
        mean = f.mean.astype(np.float64, copy=False)
        with np.errstate(over="ignore"):
            ratio = np.exp(log_y - mean + 0.5 * f.var)
        if weights is not None:
            ratio = np.where(weights > 0, ratio, 0)  # it can be infinite
        ell = total(_constant(a) + (a - 1) * log_y - a * (mean + ratio), weights)
        if not need:
            return ell, None, None
        with np.errstate(over="ignore"):
            bars = (
                weighted_finite(bar, weights, f.mean.dtype)
                for bar in (a * (ratio - 1), -0.5 * a * ratio)
            )
            slope = np.log(a) + 1 - scipy.special.digamma(a) + log_y - mean - ratio
            return ell, Marginals(*bars), total(slope, weights)

    def predict_mean_and_var(self, f):
        mean, spread, square = log_normal_moments(f.mean, f.var)
        with np.errstate(over="ignore"):
            var = spread + square / self._shape
            return tuple(x.astype(f.mean.dtype, copy=False) for x in (mean, var))

    def predict_log_density(self, Y, f):
        return sum_outputs(by_chunks(self._log_density, f.mean, CHUNK // 8, Y, f.mean, f.var))

    def _log_density(self, y, mean, var):
        a, log_y = self._shape, np.log(y, dtype=np.float64)

        def ratio(f):
            return np.exp(np.minimum(log_y - f, LARGEST))

        def log_p(f):
            return a * (log_y - f - ratio(f))

        def slopes(f):
            return a * (ratio(f) - 1), a * ratio(f)

        return _constant(a) - log_y + log_average(log_p, slopes, log_y, mean, var)

    def predict_cdf(self, Y, f):
        def part(y, mean, var):
            p = self._cdf_of_log(np.log(np.where(y > 0, y, 1), dtype=np.float64), mean, var)
            return np.where(y > 0, p, 0)

        return by_chunks(part, f.mean, CHUNK // 8, Y, f.mean, f.var)

    def _cdf_of_log(self, log_y, mean, var):
        a = self._shape + np.zeros(1, like=mean)
        return chance_below(log_gamma_law(a, log_y + np.log(a)), mean, var)

    def predict_quantiles(self, levels, f):
        a = self._shape
        mean, var = (x.astype(np.float64, copy=False) for x in (f.mean, f.var))
        centre = mean + (scipy.special.digamma(a) - np.log(a))
        spread = var + 1 / a + 1 / (a * a)  # above the variance of log G
        logs = searched_quantiles(levels, centre, spread, self._cdf_of_log, False, mean, var)
        with np.errstate(over="ignore"):
            return np.exp(logs).astype(f.mean.dtype, copy=False)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = f"{type(self).__name__} targets are positive; leave out zeros, or use another one"
        refuse(name, Y, ~(Y > 0), "positive numbers", advice)


@record
class Gamma(_GammaNoise):
    """y > 0 with mean exp(f) and variance exp(2 f) / shape.

    The expected log density is in closed form. The error of the predictive log density is 1e-9,
    that of the distribution function 1e-12.

    Parameters
    ----------
    shape : ()
        Shared by all outputs: 1 / shape is the squared relative error of y. Positive; default 1.

    Examples
    --------
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.Gamma(shape=4.0)), X, np.exp(Y)), 2)
    -175.53
    """

    shape: Number = leaf("positive", default=1.0)

    @property
    def _shape(self):
        return number(self.shape)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        ell, f_bar, shape_bar = self._of_data(Y, f, weights, need)
        return ell, f_bar, Gamma(in_dtype(shape_bar, f.mean.dtype)) if need else None


@record
class Exponential(_GammaNoise):
    """y > 0, exponential with mean exp(f): ``Gamma`` of shape 1.

    Examples
    --------
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.Exponential()), X, np.exp(Y)), 2)
    -81.42
    """

    _shape = 1.0

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        ell, f_bar, _ = self._of_data(Y, f, weights, need)
        return ell, f_bar, self if need else None


def _constant(a):
    """Return a log a - log Gamma(a)."""
    return a * np.log(a) - scipy.special.gammaln(a)
