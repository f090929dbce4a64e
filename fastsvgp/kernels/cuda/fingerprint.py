"""CUDA twin of ``fingerprint``: one pair of numbers per block, folded on the host."""

import numpy as np

from ...runtime import cuda_devices
from .common import loader

BLOCK = 256  # as in fingerprint.cu
BLOCKS_EACH = 4  # blocks per multiprocessor


def fold_bits(numbers):
    blocks = max(1, min(-(-len(numbers) // BLOCK), BLOCKS_EACH * cuda_devices.multiprocessors()))
    parts = cuda_devices.cupy().empty((blocks, 2), np.int64)
    bits = numbers.view(np.int64)
    loader.launch(
        "fingerprint",
        "fold_bits",
        numbers.dtype,
        (blocks,),
        (BLOCK,),
        (bits, np.int64(len(numbers)), parts),
    )
    parts = parts.get().view(np.uint64)
    return np.array([np.bitwise_xor.reduce(parts[:, 0]), np.add.reduce(parts[:, 1])])
