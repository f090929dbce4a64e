"""Closed-form sums of likelihood terms over data, in NumPy: their cost is far below a product's."""

import math

import numpy as np

LOG_2PI = math.log(2 * math.pi)


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    # With r = y - mean and q = sum(r^2 + var):
    #   value = -1/2 (N log(2 pi s) + q / s),   d/dmean = r / s,   d/dvar = -1 / (2 s),
    #   d/ds = -1/2 (N / s - q / s^2)
    # Weights w multiply r^2 + var in q, and both derivatives; N is their sum.
    s, residual = float(variance), Y - mean
    square = residual * residual
    square += var
    if weights is not None:
        square *= weights
        residual *= weights
    q, count = _sum(square), residual.size if weights is None else _sum(weights)
    value = -0.5 * (count * (LOG_2PI + math.log(s)) + q / s)
    if not need:
        return value, None, None, None
    residual *= 1 / s
    if weights is None:
        square.fill(-0.5 / s)
    else:
        np.multiply(weights, -0.5 / s, out=square)
    with np.errstate(over="ignore"):
        return value, residual, square, residual.dtype.type(-0.5 * (count - q / s) / s)


def _sum(values):
    return float(np.add.reduce(values, axis=None, dtype=np.float64))
