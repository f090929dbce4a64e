"""CUDA twin of ``adam_update``: one fused pass over flat parameter vectors."""

import numpy as np

from .common import loader
from .common.scalars import number

DOUBLE = np.dtype(np.float64)
BLOCK = 256  # as in adam_update.cu


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    if vector.size:
        real, numbers = vector.dtype.type, (*number(step_size, DOUBLE), *number(count, DOUBLE))
        arguments = (
            vector,
            vector_bar,
            first,
            second,
            *out,
            np.int64(vector.size),
            *numbers,
            *map(real, (beta1, beta2, epsilon)),
        )
        loader.launch(
            "adam_update", "adam", vector.dtype, (-(-vector.size // BLOCK),), (BLOCK,), arguments
        )
