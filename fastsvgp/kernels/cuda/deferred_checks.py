"""Device side of ``runtime.deferred_checks``: checks of values, without synchronising."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.loader import NULL, number

BLOCK, RANGES = 256, 12  # as in deferred_checks.cu
BLOCKS_EACH = 4  # blocks per multiprocessor
launch = loader.launcher("deferred_checks", BLOCK)


def find_outside(ranges, flag):
    """Add to ``flag`` (1,) int32 if an entry of x is outside [low, high]; return it.

    ``ranges`` holds (x, low, high). x may have any axes and strides; it is copied if it has more
    than two axes and is not contiguous. Twelve arrays of one dtype are one launch.
    """
    dtypes = {x.dtype: None for x, _, _ in ranges if x.size}
    for dtype in dtypes:
        same = [one for one in ranges if one[0].dtype == dtype and one[0].size]
        for first in range(0, len(same), RANGES):
            _launch(dtype, same[first : first + RANGES], flag)
    return flag


def _launch(dtype, ranges, flag):
    real, arguments, largest = dtype.type, [], 0
    for x, low, high in ranges:
        x = x if x.ndim == 2 else x.reshape(1, -1) if x.ndim < 2 else x.reshape(-1, x.shape[-1])
        (rows, columns), (row_stride, column_stride) = x.shape, (s // x.itemsize for s in x.strides)
        arguments += [
            x,
            *map(np.int64, (rows, row_stride, columns, column_stride)),
            real(low),
            real(high),
        ]
        largest = max(largest, x.size)
    arguments += [NULL, *[np.int64(0)] * 4, real(0), real(0)] * (RANGES - len(ranges))
    blocks = min(-(-largest // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors())
    launch("find_outside", dtype, (blocks, len(ranges)), *arguments, flag)


def report(value, flag, like, raised=None):
    """Return (3,) float64: the value (), the flag, and a count () int64.

    ``like`` is an array whose dtype names the kernel module to use, which is loaded already.
    """
    cp = cuda_devices.cupy()
    found, dtype = (
        cp.empty(3, np.float64),
        (like.dtype if like.dtype.char in "fd" else np.dtype(np.float64)),
    )
    given = *number(value, found.dtype), flag, NULL if raised is None else raised
    launch("report", dtype, 1, *given, found, threads=1)
    return found
