"""Gaussian noise."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from .. import kernels
from ..records import Marginals, leaf, record
from ..records.typed import Number
from .base import Likelihood, sum_outputs

LOG_2PI = float(np.log(2 * np.pi))


@record
class Gaussian(Likelihood):
    """y = f + noise, noise ~ N(0, variance); all expectations are in closed form.

    Parameters
    ----------
    variance : ()
        Noise variance, shared by all outputs. Positive; default 1.

    Examples
    --------
    >>> likelihood = fs.Gaussian(variance=0.5)
    >>> likelihood.predict_mean_and_var(fs.records.Marginals(np.zeros(2), np.ones(2)))
    (array([0., 0.]), array([1.5, 1.5]))
    """

    log_concave = True
    linear_in_var = True

    variance: Number = leaf("positive", default=1.0)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        value, mean_bar, var_bar, variance_bar = kernels.gaussian_term(
            Y, f.mean, f.var, self.variance, need, weights
        )
        return (
            (value, Marginals(mean_bar, var_bar), Gaussian(variance_bar))
            if need
            else (value, None, None)
        )

    def of_variances(self, ell):
        return Gaussian(-ell / self.variance)  # it is proportional to 1 / variance

    def predict_mean_and_var(self, f):
        return f.mean, f.var + self.variance

    def predict_log_density(self, Y, f):
        var = f.var + self.variance
        return sum_outputs(-0.5 * (LOG_2PI + np.log(var) + (Y - f.mean) ** 2 / var))

    def predict_cdf(self, Y, f):
        return scipy.special.ndtr((Y - f.mean) / np.sqrt(f.var + self.variance))

    def predict_quantiles(self, levels, f):
        sd = np.sqrt(f.var + self.variance)
        out = np.empty((len(levels), *f.mean.shape), f.mean.dtype, like=f.mean)
        for k, level in enumerate(levels):
            out[k] = f.mean + sd * float(scipy.special.ndtri(level))
        return out
