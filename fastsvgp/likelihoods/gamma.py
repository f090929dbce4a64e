"""Positive numbers with gamma noise around a mean exp(f); exponential for the shape 1.

With the shape a, E exp(-f) = exp(-mean + var / 2) and

    log p(y | f) = a log a - log Gamma(a) + (a - 1) log y - a (f + y exp(-f))
                 = log(a / (2 pi)) / 2 - R(a) - log y - a e(log y - f)

where the terms of the last form do not cancel; R, D and e are those of ``stirling``. With
w = log y - mean + var / 2, the expectation of e is e(w) + var / 2, and the derivative in a is
D(a) - e(w) - var / 2.

Given f, the target is at most y if a Gamma(a) variable is at most a y exp(-f).
"""

import numpy as np

from ..records import leaf, record
from ..records.typed import Number
from .averages import chance_below, log_average, log_gamma_law, log_normal_moments
from .base import number
from .one_latent import OneLatent
from .quantiles import search_quantiles
from .stirling import HALF_LOG_2PI, exp_remainder, log_less_digamma, remainder
from .targets import as_targets, refuse

LARGEST = 700.0  # upper limit of logarithms: their exponentials must not overflow


class _GammaNoise(OneLatent):
    """Base of both; ``_shape`` is a () array, or a number."""

    log_concave = True

    def expected(self, Y, f, need=True):
        a, (y, mean, var) = self._shape, self.rows(Y, f)
        log_y, half = np.log(y), 0.5 * var
        w = log_y - mean + half
        with np.errstate(over="ignore"):
            loss = exp_remainder(w) + half
            value = _constant(a) - log_y - a * loss
            if not need:
                return (value,)
            return value, a * np.expm1(w), -0.5 * a * np.exp(w), log_less_digamma(a) - loss

    def moments(self, mean, var):
        mean, spread, square = log_normal_moments(mean, var)
        return mean, spread + square / self._shape

    def log_marginal(self, y, mean, var):
        # of u = f - mean: the digits of a large mean would be lost in f - log y
        a, log_y = self._shape, np.log(y)
        centre = log_y - mean

        def above(u):
            return np.minimum(centre - u, LARGEST)

        def log_p(u):
            return -a * exp_remainder(above(u))

        def slopes(u):
            return a * np.expm1(above(u)), a * np.exp(above(u))

        return _constant(a) - log_y + log_average(log_p, slopes, centre, 0 * centre, var)

    def marginal_cdf(self, y, mean, var):
        p = self._cdf_of_log(np.log(np.where(y > 0, y, 1)), mean, var)
        return np.where(y > 0, p, 0)

    def _cdf_of_log(self, log_y, mean, var):
        a = self._shape + np.zeros(1, like=mean)
        return chance_below(log_gamma_law(a, log_y, sign=-1), mean, var)

    def predict_quantiles(self, levels, f):
        a, (_, mean, var) = self._shape, self.rows(f.mean, f)
        centre = mean - log_less_digamma(a)
        spread = var + 1 / a + 1 / (a * a)  # above the variance of log G
        logs = search_quantiles(levels, centre, spread, self._cdf_of_log, False, mean, var)
        with np.errstate(over="ignore"):
            return np.exp(logs).astype(f.mean.dtype, copy=False)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = f"{type(self).__name__} targets are positive; leave out zeros, or use another one"
        refuse(name, Y, ~(Y > 0), "positive numbers", advice)


@record
class Gamma(_GammaNoise):
    """y > 0 with mean exp(f) and variance exp(2 f) / shape.

    The expected log density is in closed form. For shapes up to 1e14 the error of the predictive
    log density is 1e-9, that of the distribution function 1e-11.

    Parameters
    ----------
    shape : ()
        Shared by all outputs: 1 / shape is the squared relative error of y. Positive; default 1.

    Examples
    --------
    >>> positive = fs.replace(model, likelihood=fs.likelihoods.Gamma(shape=4.0))
    >>> round(fs.elbo(positive, X, np.exp(Y)), 2)
    -175.53
    """

    shape: Number = leaf("positive", default=1.0)

    @property
    def _shape(self):
        return number(self.shape)


@record
class Exponential(_GammaNoise):
    """y > 0, exponential with mean exp(f): ``Gamma`` of shape 1.

    Examples
    --------
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.likelihoods.Exponential()), X, np.exp(Y)), 2)
    -81.42
    """

    _shape = 1.0  # it is no field, so that the derivative in it is dropped


def _constant(a):
    """Return a log a - a - log Gamma(a)."""
    return 0.5 * np.log(a) - HALF_LOG_2PI - remainder(a)
