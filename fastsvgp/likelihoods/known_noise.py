"""Gaussian noise with a known part of its variance for each datum."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import leaf, record, static
from ..records.typed import Number
from .base import CHUNK, number
from .gaussian import LOG_2PI, Gaussian
from .one_latent import OneLatent
from .targets import as_targets, refuse_in_column


@record
class KnownNoise(OneLatent):
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
    >>> known = fs.replace(model, likelihood=fs.likelihoods.KnownNoise(0.09))
    >>> round(fs.elbo(known, X, measured), 2)
    -279.18
    """

    log_concave = True
    linear_in_var = True
    chunk = CHUNK

    variance: Number = leaf("positive", default=1.0)
    extra: bool = static(default=True)
    settings = {"extra": (lambda value: value in (True, False), "True or False")}
    target_columns = ("y", "known")
    unit_columns = (0.0,)

    def expected(self, Y, f, need=True):
        # ell = -(log 2 pi s + q / s) / 2 with s = variance + known and q = (y - mean)^2 + var
        y, known, mean, var = self.rows(Y, f)
        s, r = number(self.excess) + known, y - mean
        q = (r * r + var) / s
        value = -0.5 * (LOG_2PI + np.log(s) + q)
        return (value, r / s, -0.5 / s, self.extra * 0.5 * (q - 1) / s) if need else (value,)

    @property
    def excess(self):
        """Noise variance in excess of the known one: ``variance``, or 0."""
        return self.variance if self.extra else 0.0 * self.variance

    def moments(self, mean, var):
        return mean, var + self.excess

    def log_marginal(self, y, known, mean, var):
        var = var + self.excess + known
        return -0.5 * (LOG_2PI + np.log(var) + (y - mean) ** 2 / var)

    def marginal_cdf(self, y, known, mean, var):
        return scipy.special.ndtr((y - mean) / np.sqrt(var + self.excess + known))

    def predict_quantiles(self, levels, f):
        return Gaussian(self.excess).predict_quantiles(levels, f)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = "It is a variance, the square of a standard error; without any use Gaussian"
        bad = ~(Y[1] > 0)
        refuse_in_column(name, Y, (1, "known"), bad, "positive variances", advice)
