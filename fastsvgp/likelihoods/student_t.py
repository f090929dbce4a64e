"""Student-t noise."""

import math
from typing import Any

import numpy as np
import scipy  # its submodules load with their first use, and scipy.special takes longer than NumPy

from .. import kernels
from ..records import Marginals, leaf, record, static
from .base import CHUNK, NODES, POSITIVE, Likelihood, in_chunks, in_dtype, log, log_sum_exp, number, sum_outputs, total
from .quantiles import HUGE, symmetric_quantiles


@record
class StudentT(Likelihood):
    """y = f + scale t, t ~ Student-t with ``df`` degrees of freedom; ``scale`` () > 0 is shared by all outputs.

    The expected log density is a Gauss-Hermite rule of ``num_nodes``. The density has a feature of width scale: where q(f) is
    wider than that, the default of 20 nodes is coarse (error of the expected log density 3e-3 at marginal variance 1 and
    scale 0.4, 5e-2 at variance 4); ``num_nodes=100`` costs five times as much. Value and gradient agree exactly for any
    number. The predictive log density does not use these nodes: it is accurate to 1e-9 for any scale and variance (df up to
    100; 1e-4 for a target 100 standard deviations out with df = 1000).

    The density is not log-concave: derivatives in the variance may be positive.
    """

    scale: Any = leaf("positive")
    df: float = static(default=4.0)
    num_nodes: int = static(default=20)
    settings = NODES | {"df": POSITIVE}

    def _log_normaliser(self):
        nu = float(self.df)
        return math.lgamma((nu + 1) / 2) - math.lgamma(nu / 2) - 0.5 * math.log(nu * math.pi) - log(number(self.scale))

    def expected_log_prob(self, Y, f, rng=None, need=True):
        # With c = scale sqrt(df) the latent r = (f - y) / c is N((mean - y) / c, var / c^2), and log p = const - (df + 1) / 2
        # log(1 + r^2). With R the expectation of that logarithm, R_m and R_v its derivatives at (m, v):
        #   d/dmean = R_m / c,   d/dvar = R_v / c^2,   d/dscale = dR/dc c / scale = -(R_m m + 2 R_v v) / scale
        c, half = number(self.scale) * float(np.sqrt(self.df)), -0.5 * (self.df + 1)
        m, v = np.subtract(f.mean, Y, dtype=np.float64) / c, np.divide(f.var, c * c, dtype=np.float64)
        R, R_m, R_v = kernels.expectation("log1p_square", m, v, self.num_nodes, need)
        ell = R.size * self._log_normaliser() + half * total(R)
        if not need:
            return ell, None, None
        dtype = f.mean.dtype
        scale_bar = -(R.size + half * total(R_m * m + 2 * R_v * v)) / number(self.scale)
        f_bar = Marginals((R_m * (half / c)).astype(dtype, copy=False), (R_v * (half / (c * c))).astype(dtype, copy=False))
        return ell, f_bar, StudentT(in_dtype(scale_bar, dtype), df=self.df, num_nodes=self.num_nodes)

    def predict_mean_and_var(self, f):
        """Mean and variance of y; the variance is infinite for ``df`` <= 2, the "mean" is the centre for ``df`` <= 1."""
        noise = self.scale * self.scale * (self.df / (self.df - 2)) if self.df > 2 else np.inf
        return f.mean, f.var + in_dtype(noise, f.mean.dtype)

    def predict_log_density(self, Y, f):
        return sum_outputs(in_chunks(self._log_density, Y, f, CHUNK // 8))  # some hundred nodes

    def _log_density(self, y, mean, var):
        # A Student-t is a normal of random precision: with r = y - mean, a = df / 2 and T = var + scale^2 exp(-u),
        #   E p(y | f) = int Gamma(exp u; a, a) N(r; 0, T) exp(u) du,
        # and the integrand is smooth in u on the scale of 1 / sqrt(1 + a) however sharp the density is beside q(f): the
        # trapezoidal rule converges geometrically. Its mode lies between -log(1 + r^2 / (df scale^2)) and 0; it falls off like
        # exp((a + 1/2) u) on the left, exp(a (u - exp u)) on the right, and not before exp(-a u^2 / 2): cut at exp(-32).
        a, scale = 0.5 * float(self.df), number(self.scale)
        square = np.subtract(y, mean, dtype=np.float64) ** 2
        top = float(np.log1p(8 / np.sqrt(a) + 32 / a))
        # (on a device, a copy to the host that predictions need beside that of their checks, one for each piece of the data)
        bottom = -float(np.log1p(square.max() / (self.df * scale * scale))) - 32 / (a + 0.5) - 8 / np.sqrt(a + 0.5)
        step = 0.4 / float(np.sqrt(1 + 0.25 * a))
        # the same nodes however the data are cut in pieces
        u = top - step * np.arange(2 + int((top - bottom) / step), like=mean)[:, None]
        T = var + scale * scale * np.exp(-u)
        log_gamma = a * float(np.log(a)) - math.lgamma(a) + a * (u - np.exp(u))
        return float(np.log(step / np.sqrt(2 * np.pi))) + log_sum_exp(log_gamma - 0.5 * (np.log(T) + square / T))

    def predict_cdf(self, Y, f):
        def part(y, mean, var):
            r = np.subtract(y, mean, dtype=np.float64)
            within, beyond, _ = self._halves(abs(r), var)
            return np.where(r < 0, beyond, 0.5 + within)

        return in_chunks(part, Y, f, CHUNK // 8)

    def predict_quantiles(self, levels, f):
        def noise(tail):
            return -number(self.scale) * float(scipy.special.stdtrit(float(self.df), tail))

        return symmetric_quantiles(levels, f, self._halves, noise, CHUNK // 8)

    def _halves(self, r, var):
        # The mixture of ``_log_density``, of distribution functions:
        #   P(0 < y - mean < r) = 1/2 int Gamma(exp u; a, a) erf(r / sqrt(2 T)) exp(u) du
        # falls off on the left like the density does, since erf(x) ~ x, and has the same nodes. Their weights sum to one but for
        # what lies left of them, where erf is nothing; only a large a leaves nothing there, and spares the differences of lgamma.
        a, scale = 0.5 * float(self.df), number(self.scale)
        r, top = np.minimum(r, HUGE), float(np.log1p(8 / np.sqrt(a) + 32 / a))
        far = float(r.max()) / (float(np.sqrt(self.df)) * float(scale))  # (on a device, a copy to the host)
        bottom = -2 * float(np.log(max(far, 1))) - 1 - 32 / (a + 0.5) - 8 / np.sqrt(a + 0.5)
        step = 0.3 / float(np.sqrt(1 + 0.25 * a))
        u = top - step * np.arange(2 + int((top - bottom) / step), like=r)[:, None]
        weight = np.exp(a * (u - np.expm1(u)))
        if a < 8:
            weight *= step * float(np.exp(a * np.log(a) - a - math.lgamma(a)))
        else:
            weight /= weight.sum()
        T = var + scale * scale * np.exp(-u)
        within = 0.5 * (weight * scipy.special.erf(r / np.sqrt(2 * T))).sum(axis=0)
        density = (weight * np.exp(-0.5 * r * (r / T)) / np.sqrt(2 * np.pi * T)).sum(axis=0)
        return within, 0.5 - within, density
