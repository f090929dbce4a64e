"""CUDA twin of ``packing``: lower triangles as flat rows, and back; the bits of numbers in two."""

import math

import numpy as np

from . import loader

BLOCK = 256  # as in packing.cu
BLOCKS_EACH = 4  # blocks for each multiprocessor, where numbers are folded


def _launch(kernel, dtype, first, size, last):
    rows = math.prod(first.shape[:-2]) * size if kernel == "pack" else math.prod(first.shape[:-1]) * size
    if rows:
        loader.launch("packing", kernel, dtype, (rows,), (BLOCK,), (first, np.int64(size), last))


def pack_tril(A, out):
    cp = loader.cupy()
    target = out if out.dtype == np.float64 else cp.empty(out.shape)
    _launch("pack", A.dtype, cp.ascontiguousarray(A), A.shape[-1], target)
    if target is not out:
        out[...] = target


def unpack_tril(packed, size, dtype):
    cp = loader.cupy()
    out = cp.empty((*packed.shape[:-1], size, size), dtype)
    _launch("unpack", out.dtype, cp.ascontiguousarray(packed, dtype=np.float64), size, out)
    return out


def fold_bits(numbers):
    blocks = max(1, min(-(-len(numbers) // BLOCK), BLOCKS_EACH * loader.multiprocessors()))
    parts = loader.cupy().empty((blocks, 2), np.int64)
    bits = numbers.view(np.int64)
    loader.launch("packing", "fold_bits", numbers.dtype, (blocks,), (BLOCK,), (bits, np.int64(len(numbers)), parts))
    parts = parts.get().view(np.uint64)
    return np.array([np.bitwise_xor.reduce(parts[:, 0]), np.add.reduce(parts[:, 1])])
