"""CPU twin of ``distances``: differences, and the pass of ``pairwise`` with given weights.

The pass of an RBF with a given matrix k reads no distances: its weights are K_bar k. With k = -2
they are those of r^2. No pair is then near for its form with many features, whose differences
cancel there as those of a matrix product do.
"""

import numpy as np

from . import pairwise
from .common import scratch
from .common.batching import plain
from .pairwise.tiles import SQUARED


def squared_distances(X1, X2, lengthscales):
    symmetric = X2 is None
    X1 = plain(X1)
    X2 = X1 if symmetric else plain(X2)
    one = X1.dtype.type(1)
    return pairwise.by_differences(SQUARED, X1, X2, one, lengthscales, symmetric)


def squared_distances_vjp(R_bar, X1, X2, lengthscales, need):
    if not R_bar.flags.forc:
        R_bar = np.ascontiguousarray(R_bar)
    weights = scratch.empty(R_bar.shape, R_bar.dtype)
    weights.fill(-2)
    if not R_bar.flags.c_contiguous:
        weights = weights.reshape(R_bar.shape[::-1]).T
    bars = pairwise.stationary_vjp(R_bar, "rbf", X1, X2, 1.0, lengthscales, need, weights)
    return *bars[:2], bars[3]
