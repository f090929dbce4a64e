"""CUDA twin of ``checks``: verdicts on values that nobody waits for."""

import numpy as np

from . import loader

BLOCK = 256  # as in checks.cu
BLOCKS_EACH = 4  # blocks for each multiprocessor


def find_outside(x, low, high, flag):
    """Add to ``flag`` (1,) int32 where an entry of x, of up to two axes and any strides, is outside [low, high]."""
    if x.size == 0:
        return
    x = x if x.ndim == 2 else x.reshape(1, -1) if x.ndim < 2 else x.reshape(-1, x.shape[-1])
    real = x.dtype.type
    (rows, columns), (row_stride, column_stride) = x.shape, (s // x.itemsize for s in x.strides)
    blocks = min(-(-x.size // BLOCK), BLOCKS_EACH * loader.multiprocessors())
    shape = map(np.int64, (rows, row_stride, columns, column_stride))
    loader.launch("checks", "find_outside", x.dtype, (blocks,), (BLOCK,), (x, *shape, real(low), real(high), flag))
