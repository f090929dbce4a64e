"""Arguments, launches and sums of the CUDA twin of ``fourier``."""

import math

import numpy as np

from ....runtime import cuda_devices
from . import loader

# as in fourier.cu: threads of a block, columns that a block sums up
BLOCK, FINISHED = 256, 32
POINTS = {4: 256, 8: 128}  # of a block, by the bytes of an element
GROUPS_EACH = 8  # the most blocks along points for each multiprocessor
# of freedom of the Student-t spectrum; 0: normal
DEGREES = {"rbf": 0, "matern12": 1, "matern32": 3, "matern52": 5}
NULL = np.uint64(0)


def lines(a):
    """(right-hand sides, n), contiguous, for any leading axes."""
    return cuda_devices.cupy().ascontiguousarray(a).reshape(math.prod(a.shape[:-1]), a.shape[-1])


def parameter(value, dtype):
    """A parameter () or (D,) for kernels: ``(place or null, value if on the host, step)``.

    The step is that from feature to feature.
    """
    cp = cuda_devices.cupy()
    if isinstance(value, cp.ndarray) or np.ndim(value):
        return cp.ascontiguousarray(value, dtype=dtype), dtype.type(0), np.int32(np.ndim(value))
    return NULL, dtype.type(value), np.int32(0)


def launch(kernel, dtype, grid, *arguments):
    loader.launch("fourier", kernel, dtype, grid, (BLOCK,), arguments)


def sum_parts(parts, out, factor=1.0, variance=None, num=0):
    place, value = variance or (NULL, parts.dtype.type(0))
    target = out if out.flags.c_contiguous else cuda_devices.cupy().empty(out.shape, out.dtype)
    arguments = (
        parts,
        np.int32(len(parts)),
        np.int64(out.size),
        np.float64(factor),
        place,
        value,
        np.float64(num),
        target,
    )
    launch("sum_parts", out.dtype, (-(-out.size // FINISHED),), *arguments)
    if target is not out:
        out[...] = target


def column_products(a, b, columns, factor, divisor):
    out = cuda_devices.cupy().empty(columns, a.dtype)
    rows = np.int64(a.size // columns), np.int32(columns)
    launch(
        "column_products",
        a.dtype,
        (columns,),
        a,
        b,
        *rows,
        np.float64(factor),
        *parameter(divisor, a.dtype),
        out,
    )
    return out
