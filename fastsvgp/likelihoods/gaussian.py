"""Gaussian noise."""

from typing import Any

import numpy as np
import scipy  # its submodules load with their first use, and scipy.special takes longer than NumPy

from ..records import Marginals, leaf, record
from .base import Likelihood, in_dtype, log, number, sum_outputs, total

LOG_2PI = float(np.log(2 * np.pi))


@record
class Gaussian(Likelihood):
    """y = f + noise, noise ~ N(0, variance); everything in closed form.

    ``variance`` () > 0 is shared by all outputs.
    """

    log_concave = True

    variance: Any = leaf("positive")

    def expected_log_prob(self, Y, f, rng=None, need=True):
        # With r = y - mean and q = sum(r^2 + var):
        #   ell = -1/2 (N log(2 pi s) + q / s),   d/dmean = r / s,   d/dvar = -1 / (2 s),   d/ds = -1/2 (N / s - q / s^2)
        s = number(self.variance)
        residual = Y - f.mean
        square = residual * residual
        square += f.var
        q, count = total(square), residual.size
        ell = -0.5 * (count * (LOG_2PI + log(s)) + q / s)
        if not need:
            return ell, None, None
        residual *= 1 / s
        square[...] = -0.5 / s  # `fill` would have a device copy the number to the host
        return ell, Marginals(residual, square), Gaussian(in_dtype(-0.5 * (count - q / s) / s, residual.dtype))

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
