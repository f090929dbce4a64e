"""CPU twin of ``vectors``: triangles and steps of Adam in one pass; all else is NumPy's."""

import math

import numpy as np

from .common.batching import plain
from .common.compiled import FAST, kernel
from .common.thread_pool import over_rows


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


# A checked division ("python" error model) would not vectorise.
@kernel("R1 R1 R1 R1 R1 R1 R1 x x x x x x", fastmath=FAST, error_model="numpy")
def _adam(x, g, m, v, x_out, m_out, v_out, step, beta1, beta2, c1, c2, epsilon):
    for k in range(x.size):
        m_k = beta1 * m[k] + (1 - beta1) * g[k]
        v_k = beta2 * v[k] + (1 - beta2) * g[k] * g[k]
        m_out[k] = m_k
        v_out[k] = v_k
        x_out[k] = x[k] + step * (m_k * c1) / (np.sqrt(v_k * c2) + epsilon)


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    # bias corrections as factors, so that the loop has one division
    c1, c2 = 1 / (1 - beta1**count), 1 / (1 - beta2**count)
    numbers = (float(number) for number in (step_size, beta1, beta2, c1, c2, epsilon))
    numbers, arrays = tuple(numbers), (vector, vector_bar, first, second, *out)

    def part(start, stop):
        _adam(*(array[start:stop] for array in arrays), *numbers)

    over_rows(part, vector.size, 8 * vector.size)


def sum_each(groups, factor=1.0):
    sums = [sum(arrays[1:], arrays[0]) for arrays in groups]
    return sums if factor == 1.0 else [factor * total for total in sums]


def fold_bits(numbers):
    bits = numbers.view(np.uint64)
    return np.array([np.bitwise_xor.reduce(bits), np.add.reduce(bits)])
