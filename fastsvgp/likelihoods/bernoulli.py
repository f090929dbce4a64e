"""Likelihoods of binary labels: probit and logistic links."""

import functools
from typing import ClassVar

import numpy as np
import scipy  # submodules load at first use; importing scipy.special takes longer than NumPy

from ..records import record, static
from .base import CHUNK, SMALLEST, apply_to_chunks
from .one_latent import OneLatent
from .targets import as_targets, refuse
from .wide import expectation


class Bernoulli(OneLatent):
    """p(y | f) = g(s f) with s = 2 y - 1 and a symmetric link g, g(-f) = 1 - g(f)."""

    log_concave = True

    link: ClassVar[str]  # name of log g in ``wide.expectation``
    chunk = CHUNK

    def expected(self, Y, f, need=True):
        # E log g(s f) under N(mean, var) is E log g under N(s mean, var), because s^2 = 1; d/dmean
        # therefore has a factor s.
        sign = 2 * as_targets(Y, f.mean.dtype) - 1
        value, d_mean, d_var = expectation(self.link, sign * f.mean, f.var, self.num_nodes, need)
        return (value, sign * d_mean, d_var) if need else (value,)

    def check_targets(self, Y, name="Y"):
        Y = as_targets(Y)
        advice = (
            "Labels are 0 and 1: map -1/+1 with (Y + 1) // 2, other pairs with Y == one_of_them."
        )
        refuse(name, Y, (Y != 0) & (Y != 1), "labels 0 or 1", advice)


@record
class BernoulliProbit(Bernoulli):
    """p(y = 1 | f) = Phi(f), labels 0 and 1; Phi is the standard normal CDF, without an offset.

    The expected log density is a quadrature rule, with the error that ``OneLatent`` states.
    Predictions are in closed form: P(y = 1) = Phi(mean / sqrt(1 + var)).

    Parameters
    ----------
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> labels = (Y > 0).astype(int)
    >>> round(fs.elbo(fs.replace(model, likelihood=fs.BernoulliProbit()), X, labels), 2)
    -40.0
    """

    num_nodes: int | None = static(default=None)
    link = "log_ndtr"

    def moments(self, mean, var):
        p = scipy.special.ndtr(mean / np.sqrt(1 + var))
        return p, p * (1 - p)

    def log_marginal(self, y, mean, var):
        return scipy.special.log_ndtr((2 * y - 1) * mean / np.sqrt(1 + var))


@record
class BernoulliLogit(Bernoulli):
    """p(y = 1 | f) = 1 / (1 + exp(-f)), labels 0 and 1.

    The expected log density is a quadrature rule, with the error that ``OneLatent`` states.
    Predictions do not use it: P(y = 1) and its logarithm have a relative error of 1e-13 at any mean
    and variance.

    Parameters
    ----------
    num_nodes : int, optional
        Number of quadrature nodes at any variance: see ``OneLatent``.

    Examples
    --------
    >>> labels = (Y > 0).astype(int)
    >>> classifier = fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit())
    >>> probability, _ = fs.predict_y(classifier, X)
    >>> round(fs.elbo(classifier, X, labels), 2)
    -32.24
    """

    num_nodes: int | None = static(default=None)
    link = "log_sigmoid"

    def moments(self, mean, var):
        q = apply_to_chunks(_log_minority, mean, CHUNK, mean, var)
        q = np.exp(q, out=q)
        return np.where(mean > 0, 1 - q, q), q * (1 - q)

    def log_marginal(self, y, mean, var):
        sign, log_q = 2 * y - 1, _log_minority(mean, var)
        return np.where(sign * mean > 0, np.log1p(-np.exp(log_q)), log_q)


def _log_minority(mean, var):
    """log E sigmoid(f), f ~ N(-|mean|, var): of the less likely label, by the sign of the mean."""
    # With x = exp(-|f|), sigmoid(f) = x / (1 + x) left of 0 and 1 / (1 + x) right of it. On [0, 1]
    # 1 / (1 + x) is a polynomial sum_k a_k x^k to 1e-14. Its terms have closed forms: E[exp(j f); f
    # < 0] and E[exp(-j f); f > 0] are
    #   T(m, j) = exp(j m + j^2 v / 2) Phi(-(m + j v) / s) = exp(-m^2 / (2 v)) erfcx(z) / 2,
    #   z = (m + j v) / (s sqrt 2),
    # with m = -|mean| and, on the right, m = |mean|, where z >= 0. For z < 0, erfcx(z) = 2 exp(z^2)
    # - erfcx(-z) overflows before the product does, so T = exp(j m + j^2 v / 2) - exp(-m^2 / (2 v))
    # erfcx(-z) / 2. All terms are relative to exp(top), which is about the largest of them.
    m = -np.absolute(mean, dtype=np.float64)
    v = np.maximum(var, SMALLEST, dtype=np.float64)
    peak = -0.5 * m * m / v
    top = np.where(m < -v, m + 0.5 * v, peak)
    half, root = 0.5 * np.exp(peak - top), np.sqrt(2 * v)
    total = 0.0
    for k, a in enumerate(reciprocal()):
        j = k + 1
        z = (m + j * v) / root
        left = half * scipy.special.erfcx(np.absolute(z))
        # the minimum only acts where ``body`` is not used: z > 0
        body = np.exp(np.minimum(j * m + (0.5 * j * j) * v - top, 1))
        left = np.where(z > 0, left, body - left)
        total = total + a * (left + half * scipy.special.erfcx((k * v - m) / root))
    return top + np.log(total)


@functools.cache
def reciprocal(degree=17):
    """Coefficients a_k of the polynomial with the least relative error to 1 / (1 + x) on [0, 1].

    (1 + x) times the polynomial is 1 - T(1 - 2 x) / T(3), with T the Chebyshev polynomial of one
    degree more: 3e-14 from 1. The recursion is that of Cohen, Rodriguez Villegas & Zagier (2000).
    """
    n = degree + 1
    largest = (3 + 8**0.5) ** n
    largest = (largest + 1 / largest) / 2
    coefficients, b, c = [], -1.0, -largest
    for k in range(n):
        c = b - c
        coefficients.append(c / largest)
        b *= (k + n) * (k - n) / ((k + 0.5) * (k + 1))
    return tuple(coefficients)
