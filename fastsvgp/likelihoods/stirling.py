"""Densities of large parameters without cancellation, by the remainder of Stirling's formula.

    log Gamma(x) = (x - 1/2) log x - x + log(2 pi) / 2 + R(x),    psi(x) = log x - D(x)

A density is then a remainder, half a logarithm, and a deviance: the distance of the target from its
mean, which is 0 where they meet. With e(u) = exp(u) - 1 - u,

    log Poisson(y; y exp u) = -log(2 pi y) / 2 - R(y) - y e(u)

    log Binomial(y; y + z, mu) = log(n / (2 pi y z)) / 2 + R(n) - R(y) - R(z)
                                 + y log(mu / p) + z log((1 - mu) / q),
    n = y + z,    p = y / n,    q = z / n

Gamma, beta and negative binomial densities have the same parts.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..runtime.deferred_checks import on_device
from .base import SMALLEST

SHARP = 1e5  # from here on two terms of Temme's expansion are exact in float64
FAR = 700.0  # exponentials of larger numbers overflow, those of their negatives underflow
HALF_LOG_2PI = 0.5 * math.log(2 * math.pi)
SERIES_FROM = 16.0  # from here on six terms of the series are exact in float64
# R(x) = sum_k STIRLING[k] / x^(2 k + 1)
STIRLING = 1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360


def series(x):
    """Return R(x) and R'(x) by the series: relative errors of 1e-12 from 8, of 1e-16 from 16."""
    r = 1 / x
    r2, value, slope = r * r, 0.0, 0.0
    for k in range(len(STIRLING) - 1, -1, -1):
        value = value * r2 + STIRLING[k]
        slope = slope * r2 - (2 * k + 1) * STIRLING[k]
    return value * r, slope * r2


def _select(x, direct, by_series):
    near = x < SERIES_FROM
    if not on_device(near):  # else reading it would wait for the device
        if np.all(near):
            return direct(x)
        if not np.any(near):
            return by_series(x)
    low, high = np.minimum(x, SERIES_FROM), np.maximum(x, SERIES_FROM)
    return np.where(near, direct(low), by_series(high))


def remainder(x):
    """Return R(x) for numbers or arrays x > 0."""
    log_gamma = scipy.special.gammaln
    return _select(
        x,
        lambda x: log_gamma(x) - ((x - 0.5) * np.log(x) - x + HALF_LOG_2PI),
        lambda x: series(x)[0],
    )


def log_less_digamma(x):
    """Return D(x) = log x - psi(x), about 1 / (2 x) for large x, for numbers or arrays x > 0."""
    return _select(x, lambda x: np.log(x) - scipy.special.psi(x), lambda x: 0.5 / x - series(x)[1])


def exp_remainder(u):
    """Return e(u) = exp(u) - 1 - u; a series near 0 avoids cancellation."""
    series = 0.5 * u * u * (1 + u / 3 * (1 + u / 4 * (1 + u / 5 * (1 + u / 6 * (1 + u / 7)))))
    return np.where(np.absolute(u) < 0.02, series, np.expm1(u) - u)


def gamma_chance(a, u, above=False):
    """Return P(G < a exp(u)) of G ~ Gamma(a), for float64 arrays; with ``above`` P(G > a exp(u)).

    ``above`` is for a >= 1.
    """
    # From SHARP on, Temme's expansion (1979): with eta^2 = 2 e(u), Phi(eta sqrt a) and a term of
    # order 1 / sqrt(a). SciPy's function is wrong by 3e-7 there, at 5 standard deviations
    near, side = np.clip(u, -1, 1), -1 if above else 1
    e = exp_remainder(near)
    eta = np.where(near < 0, -1, 1) * np.sqrt(2 * e)
    term = 1 / 3 + eta * (-1 / 12 + eta * (2 / 135 - eta / 864)) + (1 / 540 + eta / 288) / a
    term = term * np.exp(-a * e) / np.sqrt(2 * np.pi * a)
    sharp = scipy.special.ndtr(side * eta * np.sqrt(a)) + side * term
    function = scipy.special.gammaincc if above else scipy.special.gammainc
    plain = function(np.minimum(a, SHARP), a * np.exp(np.clip(u, -FAR, FAR - 100)))
    if not above:  # further out it is a power of exp(u), which would underflow
        plain = plain * np.exp(a * np.minimum(u + FAR, 0))
    return np.where(a > SHARP, sharp, plain)


def poisson_constant(y):
    """Return log Poisson(y; y), the largest log density of a count y >= 0."""
    some = np.maximum(y, 1)
    return np.where(y > 0, -HALF_LOG_2PI - 0.5 * np.log(some) - remainder(some), 0)


class Shares(NamedTuple):
    """Two shares that add up to 1, and their logarithms; each is as accurate as the other."""

    one: Any
    two: Any
    log_one: Any
    log_two: Any


def shares_of(y, z):
    """Return the ``Shares`` p and q of y and z >= 0; 1, with the logarithm 0, where one is 0."""
    n = np.maximum(y + z, SMALLEST)
    p, q = (np.where(x > 0, x / n, 1) for x in (y, z))
    both = (y > 0) & (z > 0)
    least = np.where(both, np.minimum(p, q), 0.5)
    small, large = (np.where(both, x, 0) for x in (np.log(least), np.log1p(-least)))
    return Shares(p, q, np.where(p <= q, small, large), np.where(p <= q, large, small))


def logistic_shares(f):
    """Return the ``Shares`` 1 / (1 + exp(-f)) and 1 / (1 + exp f)."""
    expit, log_expit = scipy.special.expit, scipy.special.log_expit
    return Shares(expit(f), expit(-f), log_expit(f), log_expit(-f))


def normal_shares(f):
    """Return the ``Shares`` Phi(f) and Phi(-f)."""
    ndtr, log_ndtr = scipy.special.ndtr, scipy.special.log_ndtr
    return Shares(ndtr(f), ndtr(-f), log_ndtr(f), log_ndtr(-f))


def binomial_constant(y, z):
    """Return log Binomial(y; n, p) at p = y / n, n = y + z: the largest one. y and z are >= 0."""
    both = (y > 0) & (z > 0)
    y, z = (np.where(both, x, 1.0) for x in (y, z))
    n = y + z
    half = 0.5 * (np.log(n / y) - np.log(z))
    value = half - HALF_LOG_2PI + remainder(n) - remainder(y) - remainder(z)
    return np.where(both, value, 0)


def deviance(y, z, p, mu):
    """Return y log(mu / p) + z log((1 - mu) / (1 - p)) for y : z = p : 1 - p; it is at most 0.

    ``p`` and ``mu`` are ``Shares``. The error is about eps times the square root of the larger
    term where the result is small.
    """
    # At mu = p + d both terms are about n d, with opposite signs; log1p makes their sum exact
    d = np.where(p.one < p.two, mu.one - p.one, p.two - mu.two)
    near = (np.absolute(d) < 0.5 * np.minimum(p.one, p.two)) & (y > 0) & (z > 0)
    d = np.where(near, d, 0)
    one, two = (np.where(near, share, 1) for share in (p.one, p.two))
    close = y * np.log1p(d / one) + z * np.log1p(-d / two)
    apart = y * (mu.log_one - p.log_one) + z * (mu.log_two - p.log_two)
    return np.where(near, close, apart)


def log_binomial(y, z, shares):
    """Return the function log Binomial(y; y + z, mu) - ``binomial_constant(y, z)`` of f.

    shares : function
        f -> the ``Shares`` mu and 1 - mu. See ``log_logistic``.
    """
    p = shares_of(y, z)
    return lambda f: deviance(y, z, p, shares(f))


def odds_deviance(y, n, p, d):
    """Return ``deviance`` of log odds that exceed those of p = y / n <= 1 / 2 by d."""
    near = np.minimum(d, FAR)
    return y * d - n * (np.log1p(p * np.expm1(near)) + (d - near))


def log_logistic(y, z):
    """Return ``log_binomial`` for mu = 1 / (1 + exp(-f)): one exponential and one logarithm."""
    p, n, both = shares_of(y, z), y + z, (y > 0) & (z > 0)
    sign = np.where(p.one <= p.two, 1, -1)
    small, share = np.where(sign > 0, y, z), np.where(both, np.minimum(p.one, p.two), 0.5)
    centre = np.where(both, p.log_one - p.log_two, 0)
    certain = np.where(y > 0, 1, -1)  # if there are only successes, or only failures

    def log_p(f):
        value = odds_deviance(small, n, share, sign * (f - centre))
        if both.all():
            return value
        return np.where(both, value, n * scipy.special.log_expit(certain * f))

    return log_p


def logistic_slopes(y, z, f):
    """Return two derivatives of ``log_binomial`` in the log odds f; the second is negated."""
    mu, rest = scipy.special.expit(f), scipy.special.expit(-f)
    return y * rest - z * mu, (y + z) * mu * rest
