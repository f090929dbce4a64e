"""Poisson likelihood of counts.

With the rate c exp(f) and u = f + log(c) - log(y),

    log p(y | f) = -log(2 pi y) / 2 - R(y) - y e(u)    for y > 0,    and -c exp(f) for y = 0

where the terms do not cancel for large counts; R and e are those of ``stirling``. With
w = E u + var / 2, the expectation of e is e(w) + var / 2.
"""

import numpy as np

from ...records import record, static
from ..averages import chance_below, log_gamma_law, log_normal_moments
from ..base import CHUNK, NODES, POSITIVE, SMALLEST, apply_to_chunks, sum_outputs
from ..layout import add_unit_columns
from ..one_latent import OneLatent
from ..quantiles import count_quantiles
from ..stirling import exp_remainder, poisson_constant
from ..targets import as_targets, refuse_all_but_counts, refuse_in_column

COLUMN = "column"  # an exposure that is a column of Y
LOST = 30.0  # the predictive rule ends where its integrand has fallen by exp(-30)
# the nodes accumulate at a point this far to the right of the mode, in units of the right end
BEYOND = 1.15


class OfRate(OneLatent):
    """Base of counts whose mean is ``exposure`` exp(f); an exposure is a number, or a column."""

    counts = True
    exposure: float | str
    unit_columns = (1.0,)

    @property
    def target_columns(self):
        return ("y", "exposure") if self._has_column() else ("y",)

    def _has_column(self):
        return isinstance(self.exposure, str) and self.exposure == COLUMN

    def rows(self, Y, f):
        """Return counts, and mean and variance of the log rate: a product of f and its exposure.

        A count of a million has no digits to spare in float32.
        """
        y, *own, mean, var = super().rows(Y, f)
        return y, mean + np.log(own[0] if own else self.exposure), var

    @property
    def settings(self):
        exposure = self.exposure
        if self._has_column():
            return NODES
        if isinstance(exposure, str) or np.ndim(exposure):
            shape = np.shape(exposure)
            came = f"an array of shape {shape}" if shape else repr(exposure)
            raise ValueError(
                f"{type(self).__name__}: `exposure` must be a positive number, or"
                f' "{COLUMN}" if Y has the columns y and exposure, got {came:.80}'
            )
        return NODES | {"exposure": POSITIVE}

    def check_targets(self, Y, name="Y"):
        if not self._has_column():
            return refuse_all_but_counts(name, Y, self._title)
        Y = as_targets(Y)
        refuse_all_but_counts(name, Y, self._title, (0, "y"))
        advice = "Leave out rows without exposure: they have no information"
        refuse_in_column(name, Y, (1, "exposure"), ~(Y[1] > 0), "positive numbers", advice)


@record
class Poisson(OfRate):
    """y ~ Poisson(exposure exp(f)), y = 0, 1, 2, ...

    With ``exposure="column"`` each target has its own: Y has the columns y and exposure, (N, 2) or
    (N, P, 2). Moments and quantiles are then those of one unit of exposure.

    The expected log density and the predictive moments are in closed form. Where exp(mean + var /
    2) overflows float64 (mean beyond 709), the expected log density and its derivatives are -inf,
    never NaN.

    The predictive log density is a trapezoidal rule of 2 ``num_nodes`` + 1 nodes around the mode of
    the integrand, densest where the rate sets in. With ``num_nodes=20`` its error is 1e-9 (a
    relative 1e-13 for densities below exp(-1e4)) for any mean, counts up to 1e15 and marginal
    variances up to 100. It is 1e-8 at variance 300 and 1e-6 at 1,000.

    Parameters
    ----------
    exposure : float or "column"
        Factor on the rate of every datum, positive; or a column of Y.
    num_nodes : int
        Sets the number of nodes for the predictive log density.

    Examples
    --------
    >>> counts = np.arange(40) % 4
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.Poisson(exposure=2.0)), X, counts), 2)
    -115.16
    """

    log_concave = True
    chunk = CHUNK // 16  # nodes of one chunk of the distribution function stay in the cache
    _title = "Poisson"

    exposure: float | str = static(default=1)
    num_nodes: int = static(default=20)

    def expected(self, Y, f, need=True):
        y, mean, var = self.rows(Y, f)
        value, rate = expected_log_density(y, mean, var)
        return (value, y - rate, -0.5 * rate) if need else (value,)

    def moments(self, mean, var):
        rate, spread, _ = log_normal_moments(mean, var)
        return rate, rate + spread  # var y = E rate + var rate

    def predict_log_density(self, Y, f):  # the rule is a loop over nodes: long chunks
        return sum_outputs(apply_to_chunks(self.log_marginal, f.mean, CHUNK, *self.rows(Y, f)))

    def log_marginal(self, y, mean, var):
        # h(f) = y log(rate) - rate - (f - mean)^2 / (2 v) with rate = c exp(f) is concave. Its mode
        # f = mean + d solves y - rate = d / v, that is d = v y - w with w + log w = log(c v) + mean
        # + v y (Wright's omega). The first derivative is zero at the mode, so
        #   h(f + x) = h(f) - fall(x),   fall(x) = x^2 / (2 v) + rate (exp(x) - 1 - x).
        v, log_rate = np.maximum(var, SMALLEST), mean
        w = wright_omega(np.log(v) + log_rate + v * y)
        # a large w keeps its digits in log w = log(rate v), a small one in v y - w
        d = np.where(w > 1, np.log(np.maximum(w, 1) / v) - log_rate, v * y - w)
        rate = np.exp(log_rate + d)
        d += (y - rate - d / v) / (rate + 1 / v)  # a Newton step
        log_rate = log_rate + d
        rate = np.exp(log_rate)
        peak = poisson_constant(y) - _loss(y, log_rate, rate) - 0.5 * d * d / v
        return peak + _log_mass(v, rate, self.num_nodes) - 0.5 * np.log(2 * np.pi * v)

    def predict_quantiles(self, levels, f):
        *_, mean, var = self.rows(add_unit_columns(self, 0 * f.mean), f)
        return count_quantiles(levels, f.mean, self.marginal_cdf, CHUNK // 4, mean, var)

    def marginal_cdf(self, y, mean, var):
        # y <= k if a Gamma(k + 1) variable exceeds the rate
        a = np.maximum(np.floor(y), 0) + 1
        return np.where(y < 0, 0, chance_below(log_gamma_law(a, 0 * a), mean - np.log(a), var))


def expected_log_density(y, mean, var):
    """Return E log p(y | f) per datum, and E rate, of log rates N(mean, var); in float64."""
    half = 0.5 * var.astype(np.float64, copy=False)
    with np.errstate(over="ignore"):
        rate = np.exp(mean + half)
        return poisson_constant(y) - _loss(y, mean + half, rate) - y * half, rate


def _loss(y, log_rate, rate):
    """Return rate - y - y log(rate / y), and ``rate`` for y = 0."""
    some = np.maximum(y, 1)
    return np.where(y > 0, some * exp_remainder(log_rate - np.log(some)), rate)


def _log_mass(v, rate, num):
    """log int exp(-fall(x)) dx, for fall(x) = x^2 / (2 v) + rate (exp(x) - 1 - x)."""
    # On the left exp(-fall) is as wide as q(f); on the right it ends within a unit of where rate
    # exp(x) reaches one. Substitute x = A (1 - exp u), with A a little beyond the right end. Then
    # the integrand is about as wide on either side and smooth on the scale of that width, and the
    # smallest steps are on the right: the trapezoidal rule in u converges geometrically. Here e is
    # exp(u).
    # The integrand at the ends is exp(-lost) of its peak. A few nodes cover a shorter interval
    lost = min(LOST, 3.0 * num)
    right, left = _ends(v, np.maximum(rate, SMALLEST), lost)
    A = BEYOND * right
    first = 1 - 1 / BEYOND
    ratio = ((1 + left / A) / first) ** (0.5 / num)
    total, e = 0.0, first
    for _ in range(2 * num + 1):
        x = A - A * e
        total = total + e * np.exp(-0.5 * x * x / v - rate * (np.expm1(x) - x))
        e = e * ratio
    return np.log(total * A * np.log(ratio))


def _ends(v, rate, lost):
    """Positive (right, left) with fall(right) and fall(-left) about ``lost``, and not below it.

    Each takes one Newton step from a bound.
    """
    # exp(x) - 1 - x is at least x^2 / 2 and, from 1.26, (exp(x) - 1) / 2; exp(-x) - 1 + x is at
    # least x^2 / (2 + x)
    right = np.minimum(
        np.sqrt(2 * lost / (rate + 1 / v)), np.maximum(1.26, np.log1p(2 * lost / rate))
    )
    slope = np.expm1(right)
    right -= (0.5 * right * right / v + rate * (slope - right) - lost) / (right / v + rate * slope)
    ratio = lost / rate
    left = np.minimum(
        np.sqrt(2 * lost * v), 0.5 * ratio + np.sqrt(0.25 * ratio * ratio + 2 * ratio)
    )
    slope = -np.expm1(-left)
    left -= (0.5 * left * left / v + rate * (left - slope) - lost) / (left / v + rate * slope)
    return right, left


def wright_omega(x):
    """Solve w + log w = x for w > 0, elementwise on any device.

    The relative error is a few eps times max(1, |log w|). Starts from exp(x) on the left and x -
    log x on the right. A step of Fritsch, Shafer and Crowley (1973, algorithm 443) raises the error
    to the fourth power. Taking it in log w keeps full accuracy where w is tiny.
    """
    right = np.maximum(x, 1)
    log_w = np.where(
        x > 1,
        np.log(right - np.log(right) * right / (1 + right)),
        x - np.log1p(np.exp(np.minimum(x, 1))),
    )
    for _ in range(3):
        w = np.exp(log_w)
        r = x - w - log_w
        e, s = r / (1 + w), 1 + w + 2 / 3 * r
        log_w = log_w + np.log1p(e * (s - 0.5 * e) / (s - e))
    return np.exp(log_w)
