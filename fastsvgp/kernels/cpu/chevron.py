"""CPU twin of ``chevron``: a plain product, and a fast sum of logarithms."""

import math

import numpy as np

from .common import scratch
from .common.batching import plain
from .common.compiled import FAST, kernel, njit
from .common.elementwise import bits, from_bits
from .common.thread_pool import over_rows

LANES = 64


@kernel("i i R2 R1 R2 R2", fastmath=FAST)
def _multiply(start, stop, dense, diagonal, z, out):
    """Rows of C z."""
    k = dense.shape[1]
    for i in range(start, stop):
        row = dense[i, : i + 1]
        for r in range(len(out)):
            weights, total = z[r], dense.dtype.type(0)
            for j in range(row.size):
                total += row[j] * weights[j]
            out[r, i] = total + diagonal[i - k] * z[r, i] if i >= k else total


def chevron_multiply(dense, diagonal, z):
    lines = plain(z.reshape(math.prod(z.shape[:-1]), z.shape[-1]))
    out, work = scratch.empty(lines.shape, dense.dtype), lines.size * (dense.shape[1] + 4)
    over_rows(_multiply, len(dense), work, plain(dense), plain(diagonal), lines, out)
    return out.reshape(z.shape)


@njit(error_model="numpy")
def _log_sum(values, exponents, products):
    """Sum of logarithms of up to 32768 ``values`` in float64; -inf and NaN as of ``numpy.log``.

    One logarithm per product of 512 mantissas, below 2^512; exponents add up as integers.
    """
    unusual, lanes = np.int64(0), products.size
    for lane in range(lanes):
        exponents[lane], products[lane] = 0, 1
    whole = values.size // lanes * lanes
    for first in range(0, whole, lanes):
        part = values[first : first + lanes]
        for lane in range(part.size):
            pattern = bits(np.float64(part[lane]))
            exponent = pattern >> np.int64(52)
            # below 0 for what is not positive and finite
            unusual |= (exponent - np.int64(1)) | (np.int64(2046) - exponent)
            exponents[lane] += exponent
            products[lane] *= from_bits((pattern & np.int64((1 << 52) - 1)) | np.int64(1023 << 52))
    total = 0.0
    if unusual < 0:
        whole = 0
    for lane in range(lanes if whole else 0):
        exponent = exponents[lane] - 1023 * (whole // lanes)
        total += np.log(products[lane]) + exponent * 0.6931471805599453
    for x in values[whole:]:
        total += np.log(np.float64(x)) if x >= 0 else np.nan
    return total


@kernel("i i R1")
def _logs(start, stop, values):
    total, exponents, products = 0.0, np.empty(LANES, np.int64), np.empty(LANES)
    for first in range(start, stop, 512 * LANES):
        total += _log_sum(values[first : min(first + 512 * LANES, stop)], exponents, products)
    return total


def chevron_log_det(dense, diagonal):
    parts = (plain(a) for a in (dense.diagonal(), diagonal))
    return np.float64(sum(sum(over_rows(_logs, a.size, 4 * a.size, a)) for a in parts))
