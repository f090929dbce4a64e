"""Laplace noise: robust, with all expectations in closed form."""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import Marginals, leaf, record
from ..records.typed import Number
from .base import (
    CHUNK,
    Likelihood,
    in_chunks,
    in_dtype,
    log,
    number,
    size,
    sum_outputs,
    total,
    weighted,
)
from .quantiles import symmetric_quantiles

SMALLEST = 1e-30  # lower limit of variances that are divided by


@record
class Laplace(Likelihood):
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
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.Laplace(scale=0.3)), X, Y), 2)
    -108.2
    """

    log_concave = True

    scale: Number = leaf("positive")

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        # With d = mean - y, s = sqrt(var), t = d / s and A = E|f - y|:
        #   A = s sqrt(2 / pi) exp(-t^2 / 2) + d erf(t / sqrt 2)
        #   dA/dd = erf(t / sqrt 2)  (two terms with exp cancel)
        #   dA/ds = sqrt(2 / pi) exp(-t^2 / 2),   dA/dvar = dA/ds / (2 s)
        #   ell = -N log(2 b) - sum A / b,   dell/db = (sum A / b - N) / b
        # With weights, N is their sum, and the sum of A is weighted.
        b, dtype = number(self.scale), f.mean.dtype
        d = np.subtract(f.mean, Y, dtype=np.float64)
        s = np.sqrt(np.maximum(f.var, SMALLEST, dtype=np.float64))
        t = d / s
        sign = scipy.special.erf(t * float(np.sqrt(0.5)))
        peak = float(np.sqrt(2 / np.pi)) * np.exp(-0.5 * t * t)
        count, folded = size(d, weights), total(s * peak + d * sign, weights)
        ell = -count * log(2 * b) - folded / b
        if not need:
            return ell, None, None
        bars = (
            weighted(bar, weights).astype(dtype, copy=False)
            for bar in (sign / -b, peak / (-2 * b * s))
        )
        return ell, Marginals(*bars), Laplace(in_dtype((folded / b - count) / b, dtype))

    def predict_mean_and_var(self, f):
        return f.mean, f.var + 2 * self.scale * self.scale

    def predict_log_density(self, Y, f):
        # E exp(-|y - f| / b) = [U(d) + U(-d)] / 2 with d = y - mean and
        #   U(d) = exp(v / (2 b^2) - d / b) erfc(a), a = (v / b - d) / sqrt(2 v).
        # For a > 0 the equal form U = exp(-d^2 / (2 v)) erfcx(a) neither overflows nor cancels.
        b = number(self.scale)
        d = np.subtract(Y, f.mean, dtype=np.float64)
        v = np.maximum(f.var, SMALLEST * b * b, dtype=np.float64)
        log_U = [_log_U(x, v, b) for x in (d, -d)]
        return sum_outputs((np.logaddexp(*log_U) - log(4 * b)).astype(f.mean.dtype, copy=False))

    def predict_cdf(self, Y, f):
        def part(y, mean, var):
            r = np.subtract(y, mean, dtype=np.float64)
            within, beyond, _ = self._halves(abs(r), var)
            return np.where(r < 0, beyond, 0.5 + within)

        return in_chunks(part, Y, f)

    def predict_quantiles(self, levels, f):
        b = number(self.scale)
        return symmetric_quantiles(
            levels, f, self._halves, lambda tail: -b * float(np.log(2 * tail)), CHUNK
        )

    def _halves(self, r, var):
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
