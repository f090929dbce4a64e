"""Sums over data of a likelihood's terms in closed form, by NumPy: passes over rows of data are nothing beside a product."""

import math

import numpy as np

LOG_2PI = math.log(2 * math.pi)


def gaussian_term(Y, mean, var, variance, need=True):
    # With r = y - mean and q = sum(r^2 + var):
    #   value = -1/2 (N log(2 pi s) + q / s),   d/dmean = r / s,   d/dvar = -1 / (2 s),   d/ds = -1/2 (N / s - q / s^2)
    s, residual = float(variance), Y - mean
    square = residual * residual
    square += var
    q, count = float(np.add.reduce(square, axis=None, dtype=np.float64)), residual.size
    value = -0.5 * (count * (LOG_2PI + math.log(s)) + q / s)
    if not need:
        return value, None, None, None
    residual *= 1 / s
    square.fill(-0.5 / s)
    with np.errstate(over="ignore"):
        return value, residual, square, residual.dtype.type(-0.5 * (count - q / s) / s)
