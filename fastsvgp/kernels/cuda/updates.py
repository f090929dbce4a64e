"""CUDA twin of ``updates``: one fused pass over flat parameter vectors."""

import numpy as np

from . import loader

BLOCK = 256  # as in updates.cu


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    if vector.size:
        real = vector.dtype.type
        numbers = step_size, beta1, beta2, 1 / (1 - beta1**count), 1 / (1 - beta2**count), epsilon
        arguments = vector, vector_bar, first, second, *out, np.int64(vector.size), *map(real, numbers)
        loader.launch("updates", "adam", vector.dtype, (-(-vector.size // BLOCK),), (BLOCK,), arguments)
