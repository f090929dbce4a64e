"""Packed triangles, against NumPy's indices of a triangle."""

import numpy as np

from fastsvgp.kernels.cpu import packing

from .common import Case, plain


@plain
def pack_tril(A, out):
    at = 0
    for i in range(len(A)):
        for j in range(i + 1):
            out[at] = A[i, j]
            at += 1


@plain
def unpack_tril(packed, out):
    at = 0
    for i in range(len(out)):
        for j in range(len(out)):
            out[i, j] = packed[at] if j <= i else 0
            at += j <= i


def cases(dtype):
    rng = np.random.default_rng(0)
    for M in 100, 512, 1000:
        A, packed = rng.standard_normal((M, M)).astype(dtype), np.empty(M * (M + 1) // 2, dtype)

        def packed_by(pack):
            pack(A, packed)
            return packed

        def unpacked():
            out = np.empty((M, M), dtype)
            unpack_tril(packed, out)
            return out

        yield Case(
            f"pack_tril, {M}", lambda: packed_by(packing.pack_tril), lambda: packed_by(pack_tril), 0
        )
        yield Case(f"unpack_tril, {M}", lambda: packing.unpack_tril(packed, M, dtype), unpacked, 0)
