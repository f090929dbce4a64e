"""Tiles of a matrix: the steps of an entrywise function keep their results in the caches."""

import numpy as np

from .. import kernels

SIZE = 12_288  # entries: arrays below 128 kB, which malloc reuses


def tiles(shape, like, size=SIZE):
    """Yield tiles of a matrix as pairs of slices: of rows, and of columns if these are many.

    ``size`` is their number of entries on the CPU.
    """
    size = size if isinstance(like, np.ndarray) else kernels.chunk_numbers(like)
    width = max(1, min(shape[1], size))
    height = size // width
    for i in range(0, shape[0], height):
        for j in range(0, shape[1], width):
            yield slice(i, i + height), slice(j, j + width)
