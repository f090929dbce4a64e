"""CPU twin of ``packing``: triangles row by row; all else is copied by NumPy."""

import math

import numpy as np

from .common.batching import plain
from .common.compiled import kernel
from .common.thread_pool import over_rows

FAST = {"contract", "reassoc", "nsz", "arcp"}


@kernel("i i R3 X2", fastmath=FAST)
def _pack(start, stop, A, out):
    for b in range(len(A)):
        for i in range(start, stop):
            offset = i * (i + 1) // 2
            for j in range(i + 1):
                out[b, offset + j] = A[b, i, j]


@kernel("i i X2 R3", fastmath=FAST)
def _unpack(start, stop, packed, out):
    for b in range(len(out)):
        for i in range(start, stop):
            offset = i * (i + 1) // 2
            for j in range(i + 1):
                out[b, i, j] = packed[b, offset + j]
            for j in range(i + 1, out.shape[1]):
                out[b, i, j] = 0


def pack_tril(A, out):
    size = A.shape[-1]
    A = plain(A).reshape(-1, size, size)
    over_rows(_pack, size, A.size, A, out.reshape(A.shape[0], size * (size + 1) // 2))


def unpack_tril(packed, size, dtype):
    out = np.empty(packed.shape[:-1] + (size, size), dtype)
    _unpack_into(packed, out)
    return out


def _unpack_into(packed, out):
    size = out.shape[-1]
    flat = out.reshape(-1, size, size)
    over_rows(_unpack, size, out.size, packed.reshape(flat.shape[0], packed.shape[-1]), flat)


def pack_fields(fields, triangles, out):
    for part, field, triangle in _parts(fields, triangles, out):
        if not triangle:
            part[...] = field
        elif field.size:
            pack_tril(field, part)


def unpack_fields(vector, fields, triangles):
    for part, field, triangle in _parts(fields, triangles, vector):
        if not triangle:
            field[...] = part
        elif field.size:
            _unpack_into(part, field)


def _parts(fields, triangles, vector):
    """Yield ``(part of the vector, field, triangle)``."""
    start = 0
    for field, triangle in zip(fields, triangles, strict=True):
        shape = np.shape(field)
        if triangle:
            shape = *shape[:-2], shape[-1] * (shape[-1] + 1) // 2
        stop = start + math.prod(shape)
        yield vector[start:stop].reshape(shape), field, triangle
        start = stop


def to_positive(vector, entries, transform, low, high):
    vector[entries] = np.minimum(np.maximum(transform.forward(vector[entries]), low), high)


def from_positive(vector, entries, transform):
    vector[entries] = transform.inverse(vector[entries])


def to_positive_vjp(vector_bar, vector, entries, transform):
    vector_bar[entries] *= transform.derivative(vector[entries])
