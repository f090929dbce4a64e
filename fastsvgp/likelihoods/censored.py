"""Gaussian noise behind limits: of some data only a bound is known (the Tobit model).

With R(m, v) = E log Phi(f) under N(m, v), a quadrature rule, a datum that is at least y (side 1) or
at most y (side -1) has the expected log density R(side (mean - y) / sd, var / variance).
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import leaf, record, static
from ..records.typed import Number
from .base import CHUNK, number
from .gaussian import LOG_2PI, Gaussian
from .one_latent import OneLatent
from .targets import as_targets, refuse_in_column
from .wide import expectation


@record
class Censored(OneLatent):
    """y = f + noise, noise ~ N(0, variance); targets have the columns y, side.

    Y is (N, 2), or (N, P, 2) for P outputs. Where side is 0, y was seen. Where it is 1 the value is
    at least y, and where it is -1 at most y. The expected log density of such a limit is a
    quadrature rule, with the error of ``BernoulliProbit`` at the marginal variance var / variance.
    Predictions are those of the value itself, as in ``Gaussian``.

    Parameters
    ----------
    variance : ()
        Noise variance, shared by all outputs. Positive; default 1.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> limited = np.stack([np.minimum(Y, 0.5), Y > 0.5], axis=1)
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.likelihoods.Censored(0.1)), X, limited), 2)
    -261.11
    """

    log_concave = True
    chunk = CHUNK

    variance: Number = leaf("positive", default=1.0)
    num_nodes: int | None = static(default=None)
    target_columns = ("y", "side")
    unit_columns = (0.0,)

    def expected(self, Y, f, need=True):
        (y, side, mean, var), s = self.rows(Y, f), number(self.variance)
        sd, seen = s**0.5, side == 0
        sign = np.where(seen, 1, side) / sd
        t, v = sign * (mean - y), var / s
        R, R_m, R_v = expectation("log_ndtr", t, v, self.num_nodes, need)
        q = t * t + v
        value = np.where(seen, -0.5 * (LOG_2PI + np.log(s) + q), R)
        if not need:
            return (value,)
        mean_bar = np.where(seen, -t, R_m) * sign
        var_bar = np.where(seen, -0.5, R_v) / s
        return value, mean_bar, var_bar, np.where(seen, 0.5 * (q - 1), -0.5 * R_m * t - R_v * v) / s

    def moments(self, mean, var):
        return mean, var + self.variance

    def log_marginal(self, y, side, mean, var):
        """log E p(y | f): a density where y was seen, else the logarithm of a probability."""
        var = var + self.variance
        r = (mean - y) / np.sqrt(var)
        seen = -0.5 * (LOG_2PI + np.log(var) + r * r)
        return np.where(side == 0, seen, scipy.special.log_ndtr(side * r))

    def marginal_cdf(self, y, side, mean, var):
        return scipy.special.ndtr((y - mean) / np.sqrt(var + self.variance))

    def predict_quantiles(self, levels, f):
        return Gaussian(self.variance).predict_quantiles(levels, f)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        bad = (Y[1] != 0) & (Y[1] != 1) & (Y[1] != -1)
        advice = "0: y was seen; 1: the value is at least y; -1: it is at most y"
        refuse_in_column(name, Y, (1, "side"), bad, "sides -1, 0 or 1", advice)
