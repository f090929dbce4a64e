"""The plain twin of the log-determinant of ``kernels/cpu/chevron``."""

import math

import numpy as np
from numba import njit

from fastsvgp import kernels

from .common import Case


@njit(nogil=True)
def log_det(dense, diagonal):
    total = 0.0
    for i in range(dense.shape[1]):
        total += math.log(dense[i, i])
    for i in range(diagonal.size):
        total += math.log(diagonal[i])
    return total


def cases(dtype):
    rng = np.random.default_rng(0)
    tolerance = 1000 * float(np.finfo(dtype).eps)
    for m, k in ((20_000, 10), (1_000_000, 3), (300_000, 100)):
        factor = rng.uniform(0.5, 2, (m, k)).astype(dtype), rng.uniform(0.5, 2, m - k).astype(dtype)
        yield Case(
            f"chevron log_det, ({m}, {k})",
            lambda a=factor: kernels.chevron_log_det(*a),
            lambda a=factor: log_det(*a),
            tolerance,
        )
