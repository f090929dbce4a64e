"""CUDA twin of ``packing``: six fields a launch, and one launch for all positive entries."""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.scalars import NULL, on_device

BLOCK, FIELDS = 256, 6  # as in packing.cu and positive_entries.cu
BLOCKS_EACH = 8  # blocks per multiprocessor
NOTHING = NULL, np.int64(0), np.int64(0), np.int64(0)
DOUBLE = np.dtype(np.float64)
REALS = DOUBLE, np.dtype(np.float32)


def pack_tril(A, out):
    target = out if out.dtype == DOUBLE else cuda_devices.cupy().empty(out.shape)
    pack_fields([A], [True], target)
    if target is not out:
        out[...] = target


def unpack_tril(packed, size, dtype):
    cp = cuda_devices.cupy()
    out = cp.empty((*packed.shape[:-1], size, size), dtype)
    unpack_fields(cp.ascontiguousarray(packed, dtype=DOUBLE), [out], [True])
    return out


def pack_fields(fields, triangles, out):
    found = []
    for field, triangle, start, size in _placed(fields, triangles):
        if on_device(field) and field.dtype in REALS:
            found.append((cuda_devices.cupy().ascontiguousarray(field), triangle, start))
        else:  # a number of the host, or integers
            out.reshape(-1)[start : start + size].reshape(np.shape(field))[...] = field
    _launch("pack", found, out)


def unpack_fields(vector, fields, triangles):
    placed = [(field, triangle, start) for field, triangle, start, _ in _placed(fields, triangles)]
    _launch("unpack", placed, vector)


def _placed(fields, triangles):
    """Yield ``(field, triangle, start, size)``, the last two in the vector."""
    start = 0
    for field, triangle in zip(fields, triangles, strict=True):
        shape = field.shape if on_device(field) else np.shape(field)
        size = math.prod(shape)
        if triangle:
            size = math.prod(shape[:-2]) * (shape[-1] * (shape[-1] + 1) // 2)
        yield field, triangle, start, size
        start += size


def _launch(kernel, placed, vector):
    alike = {}
    for field, triangle, start in placed:
        if field.size:
            alike.setdefault(field.dtype, []).append((field, triangle, start))
    for dtype, members in alike.items():
        for first in range(0, len(members), FIELDS):
            _launch_alike(kernel, dtype, members[first : first + FIELDS], vector)


def _launch_alike(kernel, dtype, members, vector):
    arguments, blocks = [vector], 0
    for field, triangle, start in members:
        if triangle:
            rows = field.shape[-1]
            arguments += [field, np.int64(field.size // rows**2), np.int64(rows), np.int64(start)]
            blocks = max(blocks, field.size // rows)
        else:
            arguments += [field, np.int64(field.size), np.int64(0), np.int64(start)]
            blocks = max(blocks, -(-field.size // BLOCK))
    arguments += NOTHING * (FIELDS - len(members))
    grid = min(blocks, BLOCKS_EACH * cuda_devices.multiprocessors()), len(members)
    loader.launch("packing", kernel, dtype, grid, (BLOCK,), tuple(arguments))


def to_positive(vector, entries, transform, low, high):
    _over("to_positive", entries, transform, (vector,), (low, high))


def from_positive(vector, entries, transform):
    _over("from_positive", entries, transform, (vector,))


def to_positive_vjp(vector_bar, vector, entries, transform):
    _over("through_positive", entries, transform, (vector_bar, vector))


def _over(kernel, entries, transform, first, last=()):
    if entries.size:
        by_log = np.int32(("softplus", "log").index(transform.name))
        arguments = *first, entries, np.int64(entries.size), by_log, *last
        grid = (-(-entries.size // BLOCK),)
        loader.launch("positive_entries", kernel, DOUBLE, grid, (BLOCK,), arguments)
