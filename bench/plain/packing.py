"""Packed triangles, against NumPy's indices of a triangle."""

import numpy as np

from fastsvgp.kernels.cpu import packing

from .common import Case


def pack_tril(A, out):
    out[...] = A[np.tril_indices(len(A))]


def unpack_tril(packed, out):
    out[...] = 0
    out[np.tril_indices(len(out))] = packed


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
            f"pack_tril, {M}", lambda: packed_by(packing.pack_tril), lambda: packed_by(pack_tril), 0
        )
        yield Case(f"unpack_tril, {M}", lambda: packing.unpack_tril(packed, M, dtype), unpacked, 0)
