"""Counts."""

import numpy as np
import scipy  # its submodules load with their first use, and scipy.special takes longer than NumPy

from .. import kernels
from ..records import Marginals, record, static
from .base import CHUNK, NODES, POSITIVE, Likelihood, in_chunks, in_numbers, not_whole, refuse, sum_outputs, total
from .quantiles import count_quantiles

SMALLEST = 1e-100  # what a variance of zero is taken for where it is divided by


@record
class Poisson(Likelihood):
    """y ~ Poisson(exposure exp(f)), y = 0, 1, 2, ...; the expected log density and the predictive moments are closed forms.

    Where exp(mean + var / 2) overflows float64 (mean beyond 709), the expected log density is -inf, and so are its
    derivatives: never NaN.

    ``exposure`` > 0 multiplies the rate of every datum. The predictive log density is a Gauss-Hermite rule of ``num_nodes``
    placed around the mode of the integrand, with its curvature: 20 nodes reach 1e-8 also for large counts under a wide q(f).
    """

    exposure: float = static(default=1)
    num_nodes: int = static(default=20)
    settings = NODES | {"exposure": POSITIVE}

    def _rate(self, f):
        with np.errstate(over="ignore"):
            return self.exposure * np.exp(f.mean.astype(np.float64, copy=False) + 0.5 * f.var)

    def expected_log_prob(self, Y, f, rng=None, need=True):
        # E[y (f + log c) - c exp(f) - log y!] with E exp(f) = exp(mean + var / 2)
        rate, dtype = self._rate(f), f.mean.dtype
        ell = total(Y * (f.mean + float(np.log(self.exposure))) - rate - scipy.special.gammaln(Y + 1.0))
        if not need:
            return ell, None, None
        with np.errstate(over="ignore"):
            return ell, Marginals((Y - rate).astype(dtype, copy=False), (-0.5 * rate).astype(dtype, copy=False)), self

    def predict_mean_and_var(self, f):
        # var y = E rate + var rate, and var rate = c^2 exp(2 mean + var) (exp(var) - 1), in logarithms: no inf * 0
        rate, var = self._rate(f), f.var.astype(np.float64, copy=False)
        doubled = 2 * (f.mean + float(np.log(self.exposure))) + 2 * var
        with np.errstate(over="ignore"):
            spread = np.exp(doubled + np.log(np.maximum(-np.expm1(-var), SMALLEST)))
            return rate.astype(f.mean.dtype, copy=False), (rate + spread).astype(f.mean.dtype, copy=False)

    def predict_log_density(self, Y, f):
        return sum_outputs(in_chunks(self._log_density, Y, f))

    def _log_density(self, y, mean, var):
        # h(d) = log Poisson(y; c exp(mean + d)) - d^2 / (2 v) is concave in d = f - mean. Its mode solves
        # y - c exp(mean + d) = d / v, that is d = v y - w with w + log w = log(c v) + mean + v y (Wright's omega), and there
        # -h'' = (1 + w) / v. With d_k = d + sqrt(b) z_k, b = v / (1 + w), the integral is
        # sum_k w_k exp(h(d_k) + z_k^2 / 2) sqrt(b / v).
        y, mean, v = y.astype(np.float64), mean.astype(np.float64), np.maximum(var, SMALLEST, dtype=np.float64)
        z = kernels.gauss_hermite_nodes(np.zeros_like(mean[:1]), np.ones_like(mean[:1]), self.num_nodes)
        omega = wright_omega(float(np.log(self.exposure)) + np.log(v) + mean + v * y)
        d = (v * y - omega) + np.sqrt(v / (1 + omega)) * z
        log_rate = float(np.log(self.exposure)) + mean + d
        with np.errstate(over="ignore"):
            h = y * log_rate - np.exp(log_rate) - scipy.special.gammaln(y + 1) - 0.5 * d * d / v
        return kernels.log_gauss_hermite(h + 0.5 * z * z) - 0.5 * np.log1p(omega)

    def predict_cdf(self, Y, f):
        return in_chunks(self._cdf, Y, f, CHUNK // 4)

    def predict_quantiles(self, levels, f):
        return count_quantiles(levels, f, float(np.log(self.exposure)), self._cdf, CHUNK // 4)

    def _cdf(self, y, mean, var):
        # y <= k where a Gamma(k + 1) variable G exceeds the rate: P = P(log G > log c + f), two independent smooth variables of
        # widths (k + 1)^(-1/2) and sd(f). The trapezoidal rule runs over f where that is much the narrower, so that it sees a
        # smooth function, and else over log G, for which the integrand is cheaper.
        k = np.maximum(y.astype(np.float64), 0)
        x, sd = float(np.log(self.exposure)) + mean.astype(np.float64), np.sqrt(var, dtype=np.float64)
        narrow, p = sd * np.sqrt(k + 1) <= 1 / 3, np.empty(x.shape, like=x)
        for where, rule in ((narrow, _over_rates), (~narrow, _over_gammas)):
            at = np.argwhere(where)[:, 0]
            if at.size:
                p[at] = rule(k[at] + 1, x[at], sd[at])
        return np.where(y < 0, 0, p)

    def check_targets(self, Y, name="Y"):
        Y = in_numbers(Y)
        refuse(name, Y, not_whole(Y), "counts", "Poisson targets are whole numbers 0, 1, 2, ...")
        refuse(name, Y, Y < 0, "counts", "Poisson targets are whole numbers 0, 1, 2, ...")
        refuse(name, Y, ~np.isfinite(Y), "counts", "Poisson targets are whole numbers 0, 1, 2, ...")


def wright_omega(x):
    """w > 0 with w + log w = x, elementwise on any device; relative error of some eps times max(1, |log w|).

    Starts from exp(x) on the left and x - log x on the right. A step of Fritsch, Shafer and Crowley (1973, algorithm 443) raises
    the error to the fourth power. It is taken in log w, so that nothing is lost where w is tiny.
    """
    right = np.maximum(x, 1)
    log_w = np.where(x > 1, np.log(right - np.log(right) * right / (1 + right)), x - np.log1p(np.exp(np.minimum(x, 1))))
    for _ in range(3):
        w = np.exp(log_w)
        r = x - w - log_w
        e, s = r / (1 + w), 1 + w + 2 / 3 * r
        log_w = log_w + np.log1p(e * (s - 0.5 * e) / (s - e))
    return np.exp(log_w)


def _over_rates(a, x, sd):
    """P(G > exp(x + sd z)), G ~ Gamma(a), z ~ N(0, 1), over nodes of z; for sd up to a^(-1/2) / 3."""
    z = (0.7 * (np.arange(23, like=x) - 11))[:, None]
    weight = np.exp(-0.5 * z * z)
    with np.errstate(over="ignore"):
        return (weight * scipy.special.gammaincc(a, np.exp(x + sd * z))).sum(axis=0) / weight.sum()


def _over_gammas(a, x, sd):
    """The same over nodes of log G = log a + u, whose density is a multiple of exp(a (u - exp u)); for sd from a^(-1/2) / 3."""
    top, bottom = np.log1p(8 / np.sqrt(a) + 32 / a), -32 / (a + 0.5) - 8 / np.sqrt(a + 0.5)
    u = bottom + (top - bottom) * (np.arange(112, like=x) / 111)[:, None]
    weight = np.exp(a * (u - np.expm1(u)))
    return (weight * scipy.special.ndtr((np.log(a) + u - x) / sd)).sum(axis=0) / weight.sum(axis=0)
