"""Optimiser updates in one fused pass over flat parameter vectors."""

import numpy as np

from .common.compiled import kernel
from .common.thread_pool import over_rows

FAST = {"contract", "reassoc", "nsz", "arcp"}


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
