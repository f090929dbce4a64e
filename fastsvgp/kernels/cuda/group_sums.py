"""CUDA twin of ``group_sums``: six sums per launch."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader
from .common.scalars import NULL

BLOCK, GROUPS, TERMS = 256, 6, 3  # as in group_sums.cu
BLOCKS_EACH = 4  # blocks per multiprocessor
NOTHING = (NULL,) * (TERMS + 1) + (np.int64(0),)


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
            _launch(dtype, members[start : start + GROUPS], factor)
    return results


def _launch(dtype, members, factor):
    largest, arguments = max(member[0].size for member in members), []
    if largest:
        for member in members:
            arguments += [*member, *[NULL] * (TERMS + 1 - len(member)), np.int64(member[0].size)]
        arguments += NOTHING * (GROUPS - len(members))
        grid = min(-(-largest // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors()), len(members)
        loader.launch(
            "group_sums", "sum_each", dtype, grid, (BLOCK,), (*arguments, dtype.type(factor))
        )
