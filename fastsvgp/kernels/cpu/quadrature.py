"""CPU twin of ``kernels.gauss_hermite`` and the fused expectations: see the front door for what they promise.

Everything runs in float64 whatever comes in, and results are cast at the end: a rule is a sum of some twenty terms that may
cancel, and its derivative in the variance divides by the standard deviation.
"""

import functools

import numpy as np
from numpy.polynomial.hermite_e import hermegauss
from scipy.special import log_expit, log_ndtr

FLOOR = np.finfo(np.float64).eps ** (2 / 3)


@functools.lru_cache
def rule(num):
    """Nodes z and weights w with sum_k w_k g(z_k) ~ E g(z), z ~ N(0, 1); nodes are symmetric to the last bit."""
    z, w = hermegauss(num)
    z, w = (z - z[::-1]) / 2, (w + w[::-1]) / 2
    z.flags.writeable = w.flags.writeable = False
    return z, w / w.sum()


def spread(mean, var):
    """Variance at which the rule is evaluated (see ``gauss_hermite_nodes``), and its root."""
    raised = np.maximum(var, FLOOR * np.maximum(1, np.square(mean, dtype=np.float64)))
    return raised, np.sqrt(raised)


def gauss_hermite_nodes(mean, var, num):
    z, _ = rule(num)
    return mean + np.multiply.outer(z, spread(mean, var)[1])


def gauss_hermite(G):
    _, w = rule(len(G))
    out = w[0] * G[0]
    for k in range(1, len(G)):
        out += w[k] * G[k]
    return out


def gauss_hermite_vjp(e_bar, G_prime, mean, var):
    z, w = rule(len(G_prime))
    mean_bar, slope = 0.0, 0.0
    for k in range(len(G_prime)):
        mean_bar = mean_bar + w[k] * G_prime[k]
        slope = slope + (w[k] * z[k]) * G_prime[k]
    return (
        np.asarray(e_bar * mean_bar, mean.dtype),
        np.asarray(e_bar * slope / (2 * spread(mean, var)[1]), mean.dtype),
    )


def log_ndtr_and_slope(f):
    value = log_ndtr(f)
    return value, np.exp(-0.5 * f * f - value) / np.sqrt(2 * np.pi)


def log_sigmoid_and_slope(f):
    return log_expit(f), np.exp(log_expit(-f))


def log1p_square_and_slope(f):
    return np.log1p(f * f), 2 * f / (1 + f * f)


FUNCTIONS = {"log_ndtr": log_ndtr_and_slope, "log_sigmoid": log_sigmoid_and_slope, "log1p_square": log1p_square_and_slope}


def expectation(function, mean, var, num, need):
    raised, root = spread(mean, var)
    z, w = rule(num)
    value, d_mean, d_var = (np.zeros(mean.shape) for _ in range(3))
    for zk, wk in zip(z, w, strict=True):
        g, slope = FUNCTIONS[function](mean + zk * root)
        value += wk * g
        d_mean += wk * slope
        d_var += wk * zk * slope
    d_var /= 2 * root
    value += (var - raised) * d_var
    return tuple(x.astype(mean.dtype, copy=False) for x in (value, d_mean, d_var))
