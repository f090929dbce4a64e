"""Laplace noise: robust, with all expectations in closed form."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import leaf, record
from ..records.typed import Number
from .base import CHUNK, log, number
from .one_latent import Symmetric

SMALLEST = 1e-30  # lower limit of variances that are divided by


@record
class Laplace(Symmetric):
    """``p(y | f) = exp(-|y - f| / scale) / (2 scale)``.

    All results are exact: the mean of ``|y - f|`` is that of a folded normal, and y is
    normal-Laplace under q(f). Where the mean equals the target, the derivative in the variance
    grows like var^(-1/2).

    Parameters
    ----------
    scale : ()
        Noise scale, shared by all outputs. Positive.

    Examples
    --------
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.likelihoods.Laplace(scale=0.3)), X, Y), 2)
    -108.2
    """

    log_concave = True
    chunk = CHUNK

    scale: Number = leaf("positive")

    def expected(self, Y, f, need=True):
        # With d = mean - y, s = sqrt(var), t = d / s and A = E|f - y|:
        #   A = s sqrt(2 / pi) exp(-t^2 / 2) + d erf(t / sqrt 2)
        #   dA/dd = erf(t / sqrt 2)  (two terms with exp cancel)
        #   dA/ds = sqrt(2 / pi) exp(-t^2 / 2),   dA/dvar = dA/ds / (2 s)
        #   ell = -log(2 b) - A / b,   dell/db = (A / b - 1) / b
        b, (y, mean, var) = number(self.scale), self.rows(Y, f)
        d, s = mean - y, np.sqrt(np.maximum(var, SMALLEST))
        t = d / s
        sign = scipy.special.erf(t * float(np.sqrt(0.5)))
        peak = float(np.sqrt(2 / np.pi)) * np.exp(-0.5 * t * t)
        folded = (s * peak + d * sign) / b
        value = -log(2 * b) - folded
        return (value, sign / -b, peak / (-2 * b * s), (folded - 1) / b) if need else (value,)

    def moments(self, mean, var):
        return mean, var + 2 * self.scale * self.scale

    def log_marginal(self, y, mean, var):
        # E exp(-|y - f| / b) = [U(d) + U(-d)] / 2 with d = y - mean and
        #   U(d) = exp(v / (2 b^2) - d / b) erfc(a), a = (v / b - d) / sqrt(2 v).
        # For a > 0 the equal form U = exp(-d^2 / (2 v)) erfcx(a) neither overflows nor cancels.
        b, d = number(self.scale), y - mean
        v = np.maximum(var, SMALLEST * b * b)
        return np.logaddexp(_log_U(d, v, b), _log_U(-d, v, b)) - log(4 * b)

    def noise(self, tail):
        return -number(self.scale) * float(np.log(2 * tail))

    def halves(self, r, var):
        # With U as above: P(y - mean > r) = Phi(-r / s) + [U(r) - U(-r)] / 4, and the density is
        # [U(r) + U(-r)] / (4 b).
        b = number(self.scale)
        v = np.maximum(var, SMALLEST * b * b, dtype=np.float64)
        right, left = (np.exp(_log_U(x, v, b)) for x in (r, -r))
        beyond = scipy.special.ndtr(-r / np.sqrt(v)) + 0.25 * (right - left)
        return 0.5 - beyond, beyond, (right + left) / (4 * b)


def _log_U(d, v, b):
    a = (v / b - d) / np.sqrt(2 * v)
    right = a > 0
    x = np.abs(a)
    left = 0.5 * v / (b * b) - d / b + np.log(scipy.special.erfc(-x))
    return np.where(right, -0.5 * d * d / v + np.log(scipy.special.erfcx(x)), left)
