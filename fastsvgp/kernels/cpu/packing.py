"""Conversion between lower triangles and packed rows."""

import numpy as np
from numba import njit

from .common.thread_pool import over_rows

FAST = {"contract", "reassoc", "nsz", "arcp"}


# One unit of work is the pair of rows i and M - 1 - i: every pair has M + 1 entries, so equal
# ranges are equal work.
@njit(nogil=True, cache=True, fastmath=FAST)
def _pack(start, stop, A, out):
    size = A.shape[1]
    half = (size + 1) // 2
    for unit in range(start, stop):
        b, top = unit // half, unit % half
        for i in (top, size - 1 - top):
            offset = i * (i + 1) // 2
            for j in range(i + 1):
                out[b, offset + j] = A[b, i, j]


@njit(nogil=True, cache=True, fastmath=FAST)
def _unpack(start, stop, packed, out):
    size = out.shape[1]
    half = (size + 1) // 2
    for unit in range(start, stop):
        b, top = unit // half, unit % half
        for i in (top, size - 1 - top):
            offset = i * (i + 1) // 2
            for j in range(i + 1):
                out[b, i, j] = packed[b, offset + j]
            for j in range(i + 1, size):
                out[b, i, j] = 0


def pack_tril(A, out):
    size = A.shape[-1]
    A = A.reshape(-1, size, size)
    units = A.shape[0] * ((size + 1) // 2)
    over_rows(_pack, units, A.size, A, out.reshape(A.shape[0], size * (size + 1) // 2))


def unpack_tril(packed, size, dtype):
    out = np.empty(packed.shape[:-1] + (size, size), dtype)
    flat = out.reshape(-1, size, size)
    units = flat.shape[0] * ((size + 1) // 2)
    over_rows(_unpack, units, out.size, packed.reshape(flat.shape[0], packed.shape[-1]), flat)
    return out
