"""Gaussian noise with a known part of its variance for each datum."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import Marginals, leaf, record, static
from ..records.typed import Number
from .base import (
    Likelihood,
    as_targets,
    in_dtype,
    number,
    refuse_in_column,
    sum_outputs,
    total,
    weighted,
)
from .gaussian import LOG_2PI, Gaussian


@record
class KnownNoise(Likelihood):
    """y = f + noise, noise ~ N(0, variance + known); targets have the columns y, known.

    Y is (N, 2), or (N, P, 2) for P outputs: a measurement, and the variance of its error. All
    expectations are in closed form. Predictions of y are of ``variance`` alone.

    Parameters
    ----------
    variance : ()
        Noise variance in excess of the known one, shared by all outputs. Positive; default 1.
    extra : bool
        Whether there can be such noise. With False ``variance`` counts as 0, and nothing is learnt.
        Default True.

    Examples
    --------
    >>> measured = np.stack([Y, np.full(40, 0.01)], axis=1)
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.KnownNoise(0.09)), X, measured), 2)
    -279.18
    """

    log_concave = True
    linear_in_var = True

    variance: Number = leaf("positive", default=1.0)
    extra: bool = static(default=True)
    settings = {"extra": (lambda value: value in (True, False), "True or False")}
    target_columns = ("y", "known")
    unit_columns = (0.0,)

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        # ell = -(log 2 pi s + q / s) / 2 with s = variance + known and q = (y - mean)^2 + var
        dtype, (y, known) = f.mean.dtype, Y.astype(np.float64, copy=False)
        s, r = number(self.excess) + known, y - f.mean
        q = r * r + f.var
        ell = total(-0.5 * (LOG_2PI + np.log(s) + q / s), weights)
        if not need:
            return ell, None, None
        bars = (weighted(bar, weights).astype(dtype, copy=False) for bar in (r / s, -0.5 / s))
        variance_bar = self.extra * total(0.5 * (q / s - 1) / s, weights)
        bar = KnownNoise(in_dtype(variance_bar, dtype), extra=self.extra)
        return ell, Marginals(*bars), bar

    @property
    def excess(self):
        """Noise variance in excess of the known one: ``variance``, or 0."""
        return self.variance if self.extra else 0.0 * self.variance

    def predict_mean_and_var(self, f):
        return Gaussian(self.excess).predict_mean_and_var(f)

    def predict_log_density(self, Y, f):
        y, var = Y[0], f.var + self.excess + Y[1]
        return sum_outputs(-0.5 * (LOG_2PI + np.log(var) + (y - f.mean) ** 2 / var))

    def predict_cdf(self, Y, f):
        return scipy.special.ndtr((Y[0] - f.mean) / np.sqrt(f.var + self.excess + Y[1]))

    def predict_quantiles(self, levels, f):
        return Gaussian(self.excess).predict_quantiles(levels, f)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = "It is a variance, the square of a standard error; without any use Gaussian"
        bad = ~(Y[1] > 0)
        refuse_in_column(name, Y, (1, "known"), bad, "positive variances", advice)
