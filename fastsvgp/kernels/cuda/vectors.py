"""CUDA twin of ``vectors``: six fields, or six sums, a launch."""

import math

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.loader import NULL, number, on_device

BLOCK, FIELDS, GROUPS, TERMS = 256, 6, 6, 3  # as in vectors.cu
BLOCKS_EACH = 8  # blocks per multiprocessor
NO_FIELD = NULL, np.int64(0), np.int64(0), np.int64(0)
NO_GROUP = (NULL,) * (TERMS + 1) + (np.int64(0),)
DOUBLE = np.dtype(np.float64)
REALS = DOUBLE, np.dtype(np.float32)
_launch = loader.launcher("vectors", BLOCK)


def _filling(blocks):
    """Limit a number of blocks to what fills the device."""
    return min(blocks, BLOCKS_EACH * cuda_devices.multiprocessors())


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
    _over_fields("pack", found, out)


def unpack_fields(vector, fields, triangles):
    placed = [(field, triangle, start) for field, triangle, start, _ in _placed(fields, triangles)]
    _over_fields("unpack", placed, vector)


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


def _over_fields(kernel, placed, vector):
    alike = {}
    for field, triangle, start in placed:
        if field.size:
            alike.setdefault(field.dtype, []).append((field, triangle, start))
    for dtype, members in alike.items():
        for first in range(0, len(members), FIELDS):
            _launch_fields(kernel, dtype, members[first : first + FIELDS], vector)


def _launch_fields(kernel, dtype, members, vector):
    arguments, blocks = [vector], 0
    for field, triangle, start in members:
        if triangle:
            rows = field.shape[-1]
            arguments += [field, np.int64(field.size // rows**2), np.int64(rows), np.int64(start)]
            blocks = max(blocks, field.size // rows)
        else:
            arguments += [field, np.int64(field.size), np.int64(0), np.int64(start)]
            blocks = max(blocks, -(-field.size // BLOCK))
    arguments += NO_FIELD * (FIELDS - len(members))
    _launch(kernel, dtype, (_filling(blocks), len(members)), *arguments)


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
        _launch(kernel, DOUBLE, -(-entries.size // BLOCK), *arguments)


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    if vector.size:
        numbers = *number(step_size, DOUBLE), *number(count, DOUBLE)
        given = vector, vector_bar, first, second, *out, np.int64(vector.size), *numbers
        factors = map(vector.dtype.type, (beta1, beta2, epsilon))
        _launch("adam", vector.dtype, -(-vector.size // BLOCK), *given, *factors)


def sum_each(groups, factor=1.0):
    cp, results, alike = cuda_devices.cupy(), [None] * len(groups), {}
    for i, arrays in enumerate(groups):
        first = arrays[0]
        like = all(
            a.flags.c_contiguous and a.dtype == first.dtype and a.shape == first.shape
            for a in arrays
        )
        if like and len(arrays) <= TERMS:
            results[i] = cp.empty(first.shape, first.dtype)
            alike.setdefault(first.dtype, []).append((results[i], *arrays))
        else:
            results[i] = sum(arrays[1:], first) * first.dtype.type(factor)
    for dtype, members in alike.items():
        for start in range(0, len(members), GROUPS):
            _launch_groups(dtype, members[start : start + GROUPS], factor)
    return results


def _launch_groups(dtype, members, factor):
    largest, arguments = max(member[0].size for member in members), []
    if largest:
        for member in members:
            arguments += [*member, *[NULL] * (TERMS + 1 - len(member)), np.int64(member[0].size)]
        arguments += NO_GROUP * (GROUPS - len(members))
        grid = _filling(-(-largest // BLOCK)), len(members)
        _launch("sum_each", dtype, grid, *arguments, dtype.type(factor))


def fold_bits(numbers):
    """Fold one pair of numbers per block; the host folds these."""
    blocks = max(1, _filling(-(-len(numbers) // BLOCK)))
    parts = cuda_devices.cupy().empty((blocks, 2), np.int64)
    _launch("fold_bits", DOUBLE, blocks, numbers.view(np.int64), np.int64(len(numbers)), parts)
    parts = parts.get().view(np.uint64)
    return np.array([np.bitwise_xor.reduce(parts[:, 0]), np.add.reduce(parts[:, 1])])
