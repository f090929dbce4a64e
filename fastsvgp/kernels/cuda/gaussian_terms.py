"""CUDA twin of ``gaussian_terms``: sums that stay on the device."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.scalars import NULL, number

BLOCK = 256  # as in gaussian_terms.cu
BLOCKS_EACH = 8  # blocks per multiprocessor


def _launch(kernel, dtype, blocks, *arguments):
    loader.launch("gaussian_terms", kernel, dtype, (blocks,), (BLOCK,), arguments)


def gaussian_term(Y, mean, var, variance, need=True, weights=None):
    cp, dtype, count, s = (
        cuda_devices.cupy(),
        mean.dtype,
        np.int64(mean.size),
        number(variance, mean.dtype),
    )
    blocks = max(1, min(-(-mean.size // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors()))
    mean_bar, var_bar = (cp.empty(mean.shape, dtype) if need else NULL for _ in range(2))
    value, s_bar = cp.empty(()), cp.empty((), dtype)
    given = [cp.ascontiguousarray(a, dtype=dtype) for a in (Y, mean, var)]
    if weights is None:
        parts = cp.empty(blocks)
        _launch("gaussian_rows", dtype, blocks, *given, *s, count, mean_bar, var_bar, parts)
        _launch("gaussian_total", dtype, 1, parts, np.int64(blocks), count, *s, value, s_bar)
    else:
        parts, weights = cp.empty((2, blocks)), cp.ascontiguousarray(weights, dtype=dtype)
        _launch(
            "weighted_gaussian_rows",
            dtype,
            blocks,
            *given,
            weights,
            *s,
            count,
            mean_bar,
            var_bar,
            parts,
        )
        _launch("weighted_gaussian_total", dtype, 1, parts, np.int64(blocks), *s, value, s_bar)
    return (value, mean_bar, var_bar, s_bar) if need else (value, None, None, None)
