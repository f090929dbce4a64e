"""CPU twin of ``distances``: differences, and the pass of ``pairwise`` with given weights.

The pass of an RBF with a given matrix k reads no distances: its weights are K_bar k. With k = -2
they are those of r^2. No pair is then near for its form with many features, whose differences
cancel there as those of a matrix product do.
"""

import numpy as np

from . import pairwise
from .common import scratch
from .common.batching import plain
from .common.blocked import mirror_rows
from .common.compiled import kernel
from .common.thread_pool import over_rows
from .pairwise.low_dim import transpose
from .pairwise.tiles import LOOP, ROWS, fold, squared_distances as distances_of_row


@kernel("i i R2 R2 R1 b R2", **LOOP)
def _blocks(start, stop, X1, Bt, scale, symmetric, R):
    """Compute block rows start..stop; ``symmetric``: the lower triangle, mirrored."""
    N1, N2 = R.shape
    blocks = (N1 + ROWS - 1) // ROWS
    for u in range(start, stop):
        i0 = fold(u, blocks, symmetric) * ROWS
        i1 = min(i0 + ROWS, N1)
        for i in range(i0, i1):
            distances_of_row(X1[i], Bt, scale, 0, R[i, : i + 1 if symmetric else N2])
        if symmetric:
            mirror_rows(R, i0, i1)


def squared_distances(X1, X2, lengthscales):
    symmetric = X2 is None
    X1 = plain(X1)
    X2 = X1 if symmetric else plain(X2)
    (N1, D), dtype = X1.shape, X1.dtype
    # of any smaller lengthscale the inverse has no finite square
    smallest = 2 / np.sqrt(np.finfo(dtype).max)
    scale = np.empty(D, dtype)
    np.divide(1, np.maximum(lengthscales, smallest), out=scale, casting="same_kind")
    Bt, R = np.empty((D, len(X2)), dtype), scratch.empty((N1, len(X2)), dtype)
    transpose(X2, Bt)
    work = R.size * (0.3 + 0.1 * D)
    over_rows(_blocks, -(-N1 // ROWS), work, X1, Bt, scale, symmetric, R)
    return R


def squared_distances_vjp(R_bar, X1, X2, lengthscales, need):
    if not R_bar.flags.forc:
        R_bar = np.ascontiguousarray(R_bar)
    weights = scratch.empty(R_bar.shape, R_bar.dtype)
    weights.fill(-2)
    if not R_bar.flags.c_contiguous:
        weights = weights.reshape(R_bar.shape[::-1]).T
    bars = pairwise.stationary_vjp(R_bar, "rbf", X1, X2, 1.0, lengthscales, need, weights)
    return *bars[:2], bars[3]
