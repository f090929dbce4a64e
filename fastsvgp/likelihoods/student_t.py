"""Student-t noise."""

import functools
import math

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import leaf, record, static
from ..records.typed import Number
from .base import NODES, POSITIVE, SMALLEST, log, log_sum_exp, number
from .one_latent import Symmetric
from .quantiles import HUGE
from .stirling import exp_remainder, remainder
from .wide import expectation

MAX_DF = 1e100  # upper limit of ``df``: larger values give the same results in float64
NODES_AT_ONCE = 1024  # nodes of the predictive rule per chunk


@record
class StudentT(Symmetric):
    """y = f + scale t, t ~ Student-t with ``df`` degrees of freedom.

    The expected log density is a quadrature rule, whose error is (df + 1) / 2 times that of
    ``OneLatent`` at the variance var / (df scale^2). The predictive log density does not use it:
    its error is 1e-10 (a relative 1e-12 for densities below exp(-100)) for any scale, variance and
    ``df``. It takes about 40 nodes in q(f) or the noise, whichever is wider; a target far outside
    both takes more: at worst about as many as its distance in scales. Any positive ``df`` works.
    The density is not log-concave: derivatives in the variance can be positive.

    Parameters
    ----------
    scale : ()
        Noise scale, shared by all outputs. Positive.
    df : float
        Degrees of freedom, positive.
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.StudentT(scale=0.3, df=4.0)), X, Y), 2)
    -108.57
    """

    scale: Number = leaf("positive")
    df: float = static(default=4.0)
    num_nodes: int | None = static(default=None)
    settings = NODES | {"df": POSITIVE}

    def _df(self):
        return min(float(self.df), MAX_DF)

    def _log_normaliser(self):
        return _log_ratio(0.5 * self._df()) - 0.5 * math.log(2 * math.pi) - log(number(self.scale))

    def expected(self, Y, f, need=True):
        # With c = scale sqrt(df) the latent r = (f - y) / c is N((mean - y) / c, var / c^2), and
        # log p = const - (df + 1) / 2 log(1 + r^2). With R the expectation of that logarithm, R_m
        # and R_v its derivatives at (m, v):
        #   d/dmean = R_m / c,   d/dvar = R_v / c^2,
        #   d/dscale = dR/dc c / scale = -(R_m m + 2 R_v v) / scale
        (y, mean, var), scale, df = self.rows(Y, f), number(self.scale), self._df()
        c, half = scale * math.sqrt(df), -0.5 * (df + 1)
        m, v = (mean - y) / c, var / (c * c)
        R, R_m, R_v = expectation("log1p_square", m, v, self.num_nodes, need)
        value = half * R + self._log_normaliser()
        if not need:
            return (value,)
        scale_bar = (R_m * m + 2 * R_v * v) * (-half / scale) - 1 / scale
        return value, R_m * (half / c), R_v * (half / (c * c)), scale_bar

    def predict_mean_and_var(self, f):
        """Mean and variance of y.

        The variance is infinite for ``df`` <= 2; the "mean" is the centre for ``df`` <= 1.
        """
        return super().predict_mean_and_var(f)

    def moments(self, mean, var):
        noise = self.scale * self.scale * (self.df / (self.df - 2)) if self.df > 2 else np.inf
        return mean, var + noise

    def log_marginal(self, y, mean, var):
        # A Student-t is a normal of random precision: with r = y - mean, a = df / 2 and T = var +
        # scale^2 exp(-u),
        #   E p(y | f) = int Gamma(exp u; a, a) N(r; 0, T) exp(u) du,
        # and the integrand is smooth in u on the scale of 1 / sqrt(1 + a), however sharp the
        # density is compared with q(f): the trapezoidal rule converges geometrically. At a mode the
        # curvature is at most 2 a + 1, and
        #   a (1 - exp u) = (x / 2) (r^2 / T - 1) with x = scale^2 exp(-u) / T,
        # so that exp(-u) <= 1 + r^2 / (df scale^2), and 1 - exp(u) <= r^2 / (8 a var) because
        # x (1 - x) <= 1/4. The integrand falls off like exp((a + 1/2) u) on the left and exp(a (u -
        # exp u)) on the right, and not before exp(-a u^2 / 2). It is cut at exp(-32).
        a, scale = 0.5 * self._df(), number(self.scale)
        square = (y - mean) ** 2
        near = square / (8 * a * np.maximum(var, SMALLEST))
        beyond = square / (2 * a * scale * scale)
        beyond = np.where(near < 0.5, np.minimum(beyond, 2 * near), beyond)
        top = math.log1p(8 / math.sqrt(a) + 32 / a)
        # On a device this copies to the host: one synchronisation per chunk, besides the deferred
        # checks
        bottom = -math.log1p(float(beyond.max())) - 32 / (a + 0.5) - 8 / math.sqrt(a + 0.5)
        step = 0.4 / math.sqrt(1 + 0.5 * a)
        count, total = 2 + int((top - bottom) / step), -np.inf
        for first in range(0, count, NODES_AT_ONCE):  # there can be many nodes
            # node positions do not depend on how the data are split into chunks
            u = top - step * np.arange(first, min(count, first + NODES_AT_ONCE), like=mean)[:, None]
            T = var + scale * scale * np.exp(-u)
            total = np.logaddexp(
                total, log_sum_exp(-a * exp_remainder(u) - 0.5 * (np.log(T) + square / T))
            )
        # a log(a) - a - log Gamma(a) = log(a / (2 pi)) / 2 - remainder; the normal density adds a
        # factor of 1 / sqrt(2 pi)
        return total + (
            math.log(step) + 0.5 * math.log(a) - math.log(2 * math.pi) - float(remainder(a))
        )

    def noise(self, tail):
        return -number(self.scale) * float(scipy.special.stdtrit(float(self.df), tail))

    def halves(self, r, var):
        # The mixture of ``log_marginal``, of distribution functions:
        #   P(0 < y - mean < r) = 1/2 int Gamma(exp u; a, a) erf(r / sqrt(2 T)) exp(u) du
        # falls off on the left like the density does, because erf(x) ~ x, and has the same nodes.
        # The weights sum to one except for the mass left of the nodes, where erf is negligible. For
        # large a that mass is negligible too: normalising the weights then avoids differences of
        # lgamma.
        a, scale = 0.5 * self._df(), number(self.scale)
        r, top = np.minimum(r, HUGE), float(np.log1p(8 / np.sqrt(a) + 32 / a))
        # on a device this copies to the host
        far = float(r.max()) / (float(np.sqrt(2 * a)) * float(scale))
        bottom = -2 * float(np.log(max(far, 1))) - 1 - 32 / (a + 0.5) - 8 / np.sqrt(a + 0.5)
        # further left the weights are below exp(-40), because exp(u) - 1 - u > u^2 / 3 from -1 to 0
        if a > 120:
            bottom = max(bottom, -math.sqrt(120 / a))
        step = 0.3 / float(np.sqrt(1 + 0.25 * a))
        u = top - step * np.arange(2 + int((top - bottom) / step), like=r)[:, None]
        weight = np.exp(-a * exp_remainder(u))
        if a < 8:
            weight *= step * float(np.exp(a * np.log(a) - a - math.lgamma(a)))
        else:
            weight /= weight.sum()
        T = var + scale * scale * np.exp(-u)
        within = 0.5 * (weight * scipy.special.erf(r / np.sqrt(2 * T))).sum(axis=0)
        density = (weight * np.exp(-0.5 * r * (r / T)) / np.sqrt(2 * np.pi * T)).sum(axis=0)
        return within, 0.5 - within, density


@functools.cache
def _log_ratio(a):
    """log Gamma(a + 1/2) - log Gamma(a) - log(a) / 2; it is -1 / (8 a) + ... for large a."""
    return a * math.log1p(0.5 / a) - 0.5 + float(remainder(a + 0.5) - remainder(a))
