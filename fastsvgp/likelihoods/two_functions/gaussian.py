"""Gaussian noise whose log variance is a second latent function.

With f ~ N(m, v) and h ~ N(g, u) independent, r = y - m and s = E exp(-h) = exp(u / 2 - g),

    E log p(y | f, h) = -(log 2 pi + g + q) / 2,    q = (r^2 + v) s

    d/dm = r s,    d/dv = -s / 2,    d/dg = (q - 1) / 2,    d/du = -q / 4

Predictions average over z = (h - g) / sd(h): given h, y ~ N(m, T) with T = v + exp(h). The log of
the integrand of the density is, without log(2 pi) / 2,

    l(z) - z^2 / 2,    l = -(log T + r^2 / T) / 2

An interval of z that holds all but exp(-LOST) of the integral follows from two bounds of l,

    l <= -(log T* + r^2 / T*) / 2 with T* = max(r^2, v)    and    l <= -h / 2,

that make the integrand a normal density with a factor, and from a point of the integrand: z = 0, or
the mode for v = 0, where w = h - g + u / 2 solves w + log w = log(u r^2 / 2) - g + u / 2. For a
target far from m, l itself is too small on the left: where s = r^2 / T exceeds the larger solution
of s - log s = A, which is at most A + log(A + sqrt(2 (A - 1))). At a mode the curvature in z is at
most 1 + u / 2 + (h - g), and the integrand is analytic for |Im h| < pi: the trapezoidal rule
converges geometrically.

Source: Lazaro-Gredilla and Titsias 2011, "Variational heteroscedastic Gaussian process regression",
for the expected log density.
"""

import math

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ...records import Marginals, record
from ..base import CHUNK, SMALLEST, Likelihood, apply_to_chunks, log_sum_exp, sum_outputs
from ..counts.poisson import wright_omega
from ..quantiles import HUGE, symmetric_quantiles

TINY = 1e-300  # lower limit of squares and variances whose logarithm is taken
LARGEST = 340.0  # upper limit of the logarithm of E exp(-h): squares of residuals must not overflow
LOST = 34.0  # the rule for the density ends where its integrand has fallen by exp(-LOST)
ENDS = 7.5  # the rule for the distribution function ends this many standard deviations from g
STEP = 0.33  # largest distance of nodes in h
STEP_OF_WIDTH = 0.7  # largest distance of nodes, in units of the width of the integrand
MOST_NODES = 2**14
NODES_AT_ONCE = 256  # nodes of the density per chunk


@record
class HeteroskedasticGaussian(Likelihood):
    """y = f + exp(h / 2) e, e ~ N(0, 1): mean and log variance of the noise are latent functions.

    The expected log density is in closed form. Both derivatives in a variance are negative, so
    natural steps of at most 1 stay in the positive definite precisions; they can overshoot: steps
    of 0.5 rise from the prior, and with ``monotone`` all do.

    Predictions average over h by a trapezoidal rule. The error of the log density is 1e-10 (a
    relative 1e-12 for densities below exp(-100)), that of the distribution function 1e-12, for a
    variance of h up to 1,000. A target far outside takes more nodes: about as many as the root of
    its negative log density.

    Examples
    --------
    >>> q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs=2)
    >>> noisy = fs.SVGP(covariance, Z, q, fs.likelihoods.HeteroskedasticGaussian())
    >>> mean, var = fs.predict_y(noisy, X)
    >>> mean.shape, var.shape
    ((40,), (40,))
    """

    latents_per_output = 2

    def expected(self, Y, f, need=True):
        (m, g), (v, u) = f.mean, f.var
        r = np.subtract(Y, m, dtype=np.float64)
        s = np.exp(np.minimum(np.subtract(0.5 * u, g, dtype=np.float64), LARGEST))
        q = (r * r + v) * s
        value = -0.5 * (math.log(2 * math.pi) + g + q)
        if not need:
            return (value,)
        return value, np.stack([r * s, 0.5 * (q - 1)]), np.stack([-0.5 * s, -0.25 * q])

    def predict_mean_and_var(self, f):
        (m, g), (v, u) = f.mean, f.var
        with np.errstate(over="ignore"):
            return m, v + np.exp(g + 0.5 * u)

    def predict_log_density(self, Y, f):
        return sum_outputs(_apply_to_data(_log_density, Y, f))

    def predict_cdf(self, Y, f):
        def part(y, m, v, g, u):
            r = np.subtract(y, m, dtype=np.float64)
            within, beyond, _ = _halves(abs(r), v, g, u)
            return np.where(r < 0, beyond, 0.5 + within)

        return _apply_to_data(part, Y, f)

    def predict_quantiles(self, levels, f):
        (m, g), (v, u) = f.mean, f.var
        return symmetric_quantiles(levels, Marginals(m, v), _halves, _noise, CHUNK // 8, g, u)


def _apply_to_data(function, Y, f):
    (m, g), (v, u) = f.mean, f.var
    return apply_to_chunks(function, m, CHUNK // 8, Y, m, v, g, u)


def _log_density(y, m, v, g, u):
    # Logarithms avoid overflow. A step that would take more nodes than ``MOST_NODES`` is longer
    r2 = np.subtract(y, m, dtype=np.float64) ** 2
    log_r2, log_v = (np.log(np.maximum(x, TINY, dtype=np.float64)) for x in (r2, v))
    g, u = g.astype(np.float64, copy=False), np.maximum(u, SMALLEST, dtype=np.float64)
    sd = np.sqrt(u)

    def log_of(z):
        log_T = np.logaddexp(log_v, g + sd * z)
        return -0.5 * (log_T + np.exp(log_r2 - log_T))

    mode = wright_omega(np.log(0.5 * u) + log_r2 - g + 0.5 * u) / sd - 0.5 * sd
    peak = np.maximum(np.maximum(log_of(0.0 * sd), log_of(mode) - 0.5 * mode * mode), -HUGE)
    log_T = np.maximum(log_r2, log_v)
    reach = np.sqrt(2 * (LOST - 0.5 * (log_T + np.exp(log_r2 - log_T)) - peak))
    other = np.sqrt(2 * np.maximum(LOST + 0.125 * u - 0.5 * g - peak, 0))
    A = np.maximum(2 * (LOST - peak) - log_r2, 1)
    far = log_r2 - np.log(A + np.log(A + np.sqrt(2 * (A - 1))))
    cut = np.where(far > log_v, far + np.log(-np.expm1(np.minimum(log_v - far, -SMALLEST))), -HUGE)
    right = np.minimum(reach, other - 0.5 * sd)
    left = np.maximum(np.maximum(-reach, -other - 0.5 * sd), (cut - g) / sd)
    width = 1 / np.sqrt(1 + 0.5 * u + sd * np.maximum(right, 0))
    step = np.minimum(STEP / sd, STEP_OF_WIDTH * width)
    step = np.maximum(step, (right - left) / MOST_NODES)
    # On a device this copies to the host
    count, sums = max(2, 2 + int(((right - left) / step).max())), -np.inf
    for first in range(0, count, NODES_AT_ONCE):
        z = left + step * np.arange(first, min(count, first + NODES_AT_ONCE), like=g)[:, None]
        sums = np.logaddexp(sums, log_sum_exp(np.maximum(log_of(z) - 0.5 * z * z, -HUGE)))
    return sums + np.log(step) - math.log(2 * math.pi)


def _halves(r, v, g, u):
    """Return the masses of y - m between 0 and ``r`` and beyond it, and its density at ``r``."""
    r, v = np.minimum(r, HUGE), np.maximum(v, TINY, dtype=np.float64)
    sd = np.sqrt(np.maximum(u, SMALLEST, dtype=np.float64))
    step = np.maximum(np.minimum(STEP / sd, STEP_OF_WIDTH), 2 * ENDS / MOST_NODES)
    # on a device this copies to the host
    end, mass, within, density = 1 + int(ENDS / float(step.min())), 0.0, 0.0, 0.0
    for first in range(-end, end + 1, NODES_AT_ONCE):
        z = step * np.arange(first, min(end + 1, first + NODES_AT_ONCE), like=r)[:, None]
        weight, T = np.exp(-0.5 * z * z), v + np.exp(g + sd * z)
        mass = mass + weight.sum(axis=0)
        within = within + (weight * scipy.special.erf(r / np.sqrt(2 * T))).sum(axis=0)
        at = np.exp(-0.5 * r * (r / T)) / np.sqrt(2 * np.pi * T)
        density = density + (weight * at).sum(axis=0)
    within = 0.5 * within / mass
    return within, 0.5 - within, density / mass


def _noise(tail, g, u):
    """Bound the distance beyond which exp(h / 2) e has the mass ``tail``: from below, and above."""
    # P(noise > a) >= P(h > b) P(e > a exp(-b / 2)), and with two halves of ``tail``
    # P(noise > a) <= P(h > b) / 2 + P(e > a exp(-b / 2))
    sd, share = np.sqrt(u, dtype=np.float64), math.sqrt(2 * tail)
    low, high = (
        np.exp(0.5 * (g - float(scipy.special.ndtri(p)) * sd)) * -float(scipy.special.ndtri(q))
        for p, q in ((share, tail / share), (tail, tail / 2))
    )
    return np.maximum(low, TINY), high
