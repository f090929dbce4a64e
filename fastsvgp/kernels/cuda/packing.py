"""CUDA twin of ``packing``: conversion between lower triangles and packed rows."""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader

BLOCK = 256  # as in packing.cu


def _launch(kernel, dtype, first, size, last):
    rows = (
        math.prod(first.shape[:-2]) * size
        if kernel == "pack"
        else math.prod(first.shape[:-1]) * size
    )
    if rows:
        loader.launch("packing", kernel, dtype, (rows,), (BLOCK,), (first, np.int64(size), last))


def pack_tril(A, out):
    cp = cuda_devices.cupy()
    target = out if out.dtype == np.float64 else cp.empty(out.shape)
    _launch("pack", A.dtype, cp.ascontiguousarray(A), A.shape[-1], target)
    if target is not out:
        out[...] = target


def unpack_tril(packed, size, dtype):
    cp = cuda_devices.cupy()
    out = cp.empty((*packed.shape[:-1], size, size), dtype)
    _launch("unpack", out.dtype, cp.ascontiguousarray(packed, dtype=np.float64), size, out)
    return out
