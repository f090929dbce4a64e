"""One step of a pivoted Cholesky factorisation of a covariance that is never formed."""

import numpy as np

from .common.compiled import kernel
from .common.thread_pool import over_rows


@kernel("i i R2 R1 x R1 R1", fastmath={"contract", "reassoc", "nsz", "arcp"}, error_model="numpy")
def _deflate(start, stop, factor, weights, inverse_root, column, variance):
    j = weights.size
    for n in range(start, stop):
        row = factor[n, :j]
        total = 0.0
        for k in range(j):
            total += row[k] * weights[k]
        c = (column[n] - total) * inverse_root
        factor[n, j] = c
        variance[n] -= c * c


def deflate(factor, j, pivot, column, variance):
    weights, inverse_root = factor[pivot, :j].copy(), 1 / np.sqrt(variance[pivot])
    over_rows(
        _deflate,
        variance.size,
        (j + 2) * variance.size,
        factor,
        weights,
        inverse_root,
        column,
        variance,
    )
