"""Plain twins of ``kernels/cpu/chevron``: several right-hand sides, and the log-determinant."""

import math

import numpy as np
from numba import njit

from fastsvgp import kernels

from .common import Case

FAST = {"contract", "reassoc", "nsz", "arcp"}


@njit(nogil=True, fastmath=FAST)
def product(dense, diagonal, z):
    k, out = dense.shape[1], np.empty_like(z)
    for i in range(len(dense)):
        row, own = dense[i], min(k, i + 1)
        for r in range(len(z)):
            total, weights = dense.dtype.type(0), z[r]
            for j in range(own):
                total += row[j] * weights[j]
            out[r, i] = total + diagonal[i - k] * z[r, i] if i >= k else total
    return out


@njit(nogil=True, fastmath=FAST)
def transposed(dense, diagonal, x):
    k, out = dense.shape[1], np.empty_like(x)
    sums = np.zeros((len(x), k))
    for i in range(len(dense)):
        row, own = dense[i], min(k, i + 1)
        for r in range(len(x)):
            y, total = x[r, i], sums[r]
            for j in range(own):
                total[j] += row[j] * y
            if i >= k:
                out[r, i] = diagonal[i - k] * y
    out[:, :k] = sums
    return out


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
    for m, k, count in ((20_000, 10, 8), (1_000_000, 3, 2), (1_000_000, 10, 4), (300_000, 100, 4)):
        dense = (rng.standard_normal((m, k)) / math.sqrt(m)).astype(dtype)
        diagonal = rng.uniform(0.5, 2, m - k).astype(dtype)
        dense[range(k), range(k)] = diagonal[:k]
        z = rng.standard_normal((count, m)).astype(dtype)
        sizes = f"({m}, {k}) and {count} sides"
        yield Case(
            f"chevron product, {sizes}",
            lambda a=(dense, diagonal, z): kernels.chevron_multiply(*a),
            lambda a=(dense, diagonal, z): product(*a),
            tolerance,
        )
        yield Case(
            f"chevron transposed product, {sizes}",
            lambda a=(dense, diagonal, z): kernels.chevron_multiply(*a, transpose=True),
            lambda a=(dense, diagonal, z): transposed(*a),
            tolerance,
        )
        yield Case(
            f"chevron log_det, ({m}, {k})",
            lambda a=(dense, diagonal): kernels.chevron_log_det(*a),
            lambda a=(dense, diagonal): log_det(*a),
            tolerance,
        )
