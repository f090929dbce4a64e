"""Negative binomial counts whose log mean and log dispersion are latent functions.

With mu = exp(f), a = exp(h), t = f - h, the softplus s = log(1 + exp t) and its slope p = s'(t),

    log p(y | f, h) = A(y, a) - log y! + y f - (a + y) s,
    A = log Gamma(y + a) - log Gamma(a) - y h

    d/df = y - (a + y) p,    d/dh = dA/dh - a s + (a + y) p

A is a difference of large terms for large a. With x = a + 8 and Stirling's series
log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + R(x),

    A = (y + x - 1/2) log(1 + y / x) - y + y log(1 + 8 / a) + R(y + x) - R(x)
        + sum_(j < 8) log((a + j) / (a + y + j))

    dA/dh = a [log(1 + y / x) - (1 / (y + x) - 1 / x) / 2 + R'(y + x) - R'(x)
               + sum_(j < 8) y / ((a + j) (a + y + j))] - y

for any a > 0: an absolute error of a few eps times y, as in the term y f.
"""

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...records import record, static
from ...runtime.deferred_checks import on_device
from ..averages import beta_survival, log_normal_moments
from ..stirling import series
from ..targets import refuse_all_but_counts
from .base import TwoLatents

LARGEST = 300.0  # log mean and log dispersion are cut off here: no product of two overflows
MOST = 35.0  # limit of the log dispersion in distribution functions: Poisson counts in float64
NEGLIGIBLE = 40.0  # -log of a probability that counts as 0
SHIFT = 8  # from here on the series has an absolute error of 1e-14


@record
class HeteroskedasticNegativeBinomial(TwoLatents):
    """Counts y = 0, 1, 2, ... with mean mu = exp(f) and variance mu + mu^2 exp(-h).

    Log mean and log dispersion are latent functions: a gamma-Poisson mixture, which tends to a
    Poisson likelihood for large h.

    The expected log density is a rule of ``num_nodes^2`` Gauss-Hermite nodes, and its gradient is
    exact for that number. Its error grows with the variances of both functions, in units of the
    value if that is above 1, which large variances of h make it:

    ===================  =====  ====  ====  ====  ===
    marginal variances       1     4    10    30  100
    ===================  =====  ====  ====  ====  ===
    error with 20 nodes  3e-10  6e-5  6e-4  2e-2  0.3
    ===================  =====  ====  ====  ====  ===

    Predictive moments are in closed form. The error of the predictive log density is 1e-5 for
    densities above exp(-14), that of the distribution function 2e-6. Both take about 1,000 nodes
    per target, more for large counts under a wide posterior.

    Parameters
    ----------
    num_nodes : int
        Number of nodes in either function.

    Examples
    --------
    >>> q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=2)
    >>> counts = np.arange(40) % 4
    >>> dispersed = fs.SVGP(covariance, Z, q, fs.likelihoods.HeteroskedasticNegativeBinomial())
    >>> round(fs.elbo(dispersed, X, counts), 2)
    -83.3
    """

    counts = True

    num_nodes: int = static(default=20)

    def log_density(self, Y, f, h):
        f, h = np.clip(f, -LARGEST, LARGEST), np.clip(h, -LARGEST, LARGEST)
        a = np.exp(h)
        total, (A, A_bar) = a + Y, _log_rising(Y, a, h)
        # Three tensors in one block, and no temporary ones: allocating them takes longer than the
        # arithmetic
        g, g_f, g_h = np.empty((3, *np.broadcast_shapes(Y.shape, f.shape, h.shape)), like=f)
        np.multiply(np.exp(f), 1 / a, out=g_h)  # exp t
        np.log1p(g_h, out=g)  # s
        np.divide(g_h, np.add(g_h, 1, out=g_f), out=g_f)
        g_f *= total  # (a + y) p
        np.subtract(g_f, np.multiply(g, a, out=g_h), out=g_h)
        g_h += A_bar
        np.subtract(Y, g_f, out=g_f)
        g *= total
        np.subtract(Y * f, g, out=g)
        g += A - scipy.special.gammaln(Y + 1.0)
        return g, g_f, g_h

    def predict_mean_and_var(self, f):
        # var y = E mu + E mu^2 (1 + exp(-h)) - (E mu)^2
        (m, g), (v, u) = (x.astype(np.float64, copy=False) for x in (f.mean, f.var))
        with np.errstate(over="ignore"):
            mean, spread, _ = log_normal_moments(m, v)
            var = mean + spread + np.exp(2 * (m + v) + 0.5 * u - g)
            return tuple(x.astype(f.mean.dtype, copy=False) for x in (mean, var))

    def conditional_mean_and_var(self, f, h):
        mean = np.exp(f)
        return mean, mean + np.exp(2 * f - h)

    def conditional_cdf(self, Y, f, h):
        # P(y > k) is an incomplete beta function. It is evaluated only where Chernoff's bound of
        # P(y <= k) or P(y >= k), exp(-D) with D = (k + a) (s - log(1 + k / a)) - k (f - log k), is
        # not negligible
        f, h = np.clip(f, -LARGEST, LARGEST), np.clip(h, -LARGEST, MOST)
        a, k = np.exp(h), np.maximum(np.floor(Y), 0)
        log_k = np.log(np.maximum(k, 1))
        t = f - h  # log odds
        D = (k + a) * (np.log1p(np.exp(t)) - np.log1p(k / a)) - k * (f - log_k)
        out = np.where((k > 0) & (f < log_k), 1.0, 0.0 * t)
        if on_device(D):  # choosing entries would wait for it
            out = np.where(D < NEGLIGIBLE, beta_survival(t, k + 1, a), out)
            return np.where(Y < 0, 0, out)
        at = np.argwhere(D.reshape(-1) < NEGLIGIBLE)[:, 0]
        k, a, t = (np.broadcast_to(x, D.shape).reshape(-1)[at] for x in (k, a, t))
        out.reshape(-1)[at] = beta_survival(t, k + 1, a)
        return np.where(Y < 0, 0, out)

    def width(self, Y, h):
        # the standard deviation of log y, at least that of a gamma variable of shape y + 1
        return np.sqrt(1 / (np.maximum(Y, 0) + 1.0) + np.exp(-np.clip(h, -MOST, MOST)))

    def check_targets(self, Y, name="Y"):
        refuse_all_but_counts(name, Y, "Negative binomial")


def _log_rising(y, a, h):
    """Return A of the text above, and its derivative in h = log a, for arrays y and a."""
    x = a + SHIFT
    X = y + x
    low = a + np.arange(float(SHIFT), like=a).reshape(SHIFT, *(1,) * x.ndim)
    ratio = low / (low + y)
    grown, tail = np.log1p(y / x), (ratio / (low * low)).sum(axis=0)
    (R_X, R_x), (slope_X, slope_x) = series(np.stack([X, x]))
    A = (
        (X - 0.5) * grown
        - y
        + y * np.log1p(SHIFT / a)
        + (R_X - R_x)
        + np.log(np.multiply.reduce(ratio))
    )
    slope = grown - 0.5 * (1 / X - 1 / x) + (slope_X - slope_x) + y * tail
    return A, a * slope - y
