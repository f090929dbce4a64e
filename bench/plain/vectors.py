"""Packed triangles and a fused step of Adam, against NumPy."""

import numpy as np

from fastsvgp.kernels.cpu import vectors

from .common import Case


def pack_tril(A, out):
    out[...] = A[np.tril_indices(len(A))]


def unpack_tril(packed, out):
    out[...] = 0
    out[np.tril_indices(len(out))] = packed


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    vector_out, first_out, second_out = out
    first_out[...] = beta1 * first + (1 - beta1) * vector_bar
    second_out[...] = beta2 * second + (1 - beta2) * vector_bar * vector_bar
    root = np.sqrt(second_out / (1 - beta2**count)) + epsilon
    vector_out[...] = vector + step_size * (first_out / (1 - beta1**count)) / root


def cases(dtype):
    rng = np.random.default_rng(0)
    for M in 100, 512, 1000:
        A, packed = rng.standard_normal((M, M)).astype(dtype), np.empty(M * (M + 1) // 2)

        def packed_by(pack):
            pack(A, packed)
            return packed

        def unpacked():
            out = np.empty((M, M), dtype)
            unpack_tril(packed, out)
            return out

        yield Case(
            f"pack_tril, {M}", lambda: packed_by(vectors.pack_tril), lambda: packed_by(pack_tril), 0
        )
        yield Case(f"unpack_tril, {M}", lambda: vectors.unpack_tril(packed, M, dtype), unpacked, 0)
    for n in 500, 10_000, 500_000:
        x, g, m, v = rng.standard_normal((4, n)).astype(dtype)
        out, v = tuple(np.empty((3, n), dtype)), v * v

        def step(function):
            function(x, g, m, v, out, 0.01, 0.9, 0.999, 1e-8, 5)
            return out

        yield Case(f"adam, {n}", lambda: step(vectors.adam), lambda: step(adam), 1e-5)
