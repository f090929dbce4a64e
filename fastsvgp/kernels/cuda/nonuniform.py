"""CUDA twin of ``nonuniform``: one warp a row; sums in whole numbers, whatever their order."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader

WARP, BLOCK = 32, 256  # as in nonuniform.cu
_launch = loader.launcher("nonuniform", WARP)
FLOAT64 = np.dtype(np.float64)


def _sizes(angles, grids):
    D, n = angles.shape
    return np.int64(n), np.int32(D), *map(np.int32, grids.shape)


def spread_to_grid(angles, values, grids):
    cp, n = cuda_devices.cupy(), angles.shape[1]
    if n == 0:
        return
    exponent, sums = cp.empty(1, np.int32), cp.zeros(grids.shape, np.int64)
    counts = np.int64(values.size), np.int64(n)
    _launch("find_exponent", FLOAT64, 1, values, *counts, exponent, threads=BLOCK)
    _launch("spread", FLOAT64, n, angles, values, *_sizes(angles, grids), exponent, sums)
    count = np.int64(grids.size)
    _launch("settle", FLOAT64, -(-grids.size // BLOCK), sums, count, exponent, grids, threads=BLOCK)


def interpolate_grid(angles, grids):
    out = cuda_devices.cupy().empty((len(grids), angles.shape[1]))
    if out.size:
        _launch("interpolate", FLOAT64, out.shape[1], angles, grids, *_sizes(angles, grids), out)
    return out
