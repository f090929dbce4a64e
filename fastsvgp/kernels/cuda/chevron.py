"""CUDA twin of ``chevron``: launches the kernels of ``kernels_cuda/chevron.cu``.

The dense columns are read once for up to four right-hand sides.
"""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.blas import rows

# as in chevron.cu: threads and lines of a block, right-hand sides at once
BLOCK, LINES, TOGETHER = 256, 128, 4
# summing blocks per multiprocessor: full waves if 2, 3, 4 or 6 of them fit at a time
BLOCKS_EACH = 12
_launch = loader.launcher("chevron", BLOCK)


def _matrix(dense, diagonal):
    """The first parameters of the kernels."""
    dense = rows(dense)
    stride = dense.strides[0] // dense.itemsize if len(dense) > 1 else dense.shape[1]
    layout = np.int64(stride), np.int32(loader.is_aligned(dense))
    sizes = np.int64(len(dense)), np.int32(dense.shape[1])
    return dense, *layout, cuda_devices.cupy().ascontiguousarray(diagonal), *sizes


def chevron_multiply(dense, diagonal, z):
    cp, (n, matrix) = cuda_devices.cupy(), (len(dense), _matrix(dense, diagonal))
    lines = cp.ascontiguousarray(z).reshape(math.prod(z.shape[:-1]), n)
    out = cp.empty(lines.shape, dense.dtype)
    for first in range(0, len(lines) if n else 0, TOGETHER):
        x, y = lines[first:], out[first:]
        kernel = f"multiply_{1 if len(x) == 1 else TOGETHER}"
        given = x, np.int32(loader.is_aligned(x)), y, np.int32(min(TOGETHER, len(x)))
        _launch(kernel, dense.dtype, -(-n // LINES), *matrix, *given)
    return out.reshape(z.shape)


def chevron_log_det(dense, diagonal):
    cp, n = cuda_devices.cupy(), len(dense)
    out = cp.zeros((), np.float64)
    if n:
        dense, stride, _, *rest = _matrix(dense, diagonal)
        blocks = min(-(-n // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors())
        partial = cp.empty(blocks, np.float64)
        _launch("log_diagonal", dense.dtype, blocks, dense, stride, *rest, partial)
        _launch("sum_logs", dense.dtype, 1, partial, np.int32(blocks), out)
    return out
