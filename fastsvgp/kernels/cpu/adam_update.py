"""Optimiser updates in one fused pass over flat parameter vectors."""

import numpy as np

from .common.compiled import kernel
from .common.thread_pool import over_rows

FAST = {"contract", "reassoc", "nsz", "arcp"}


# Ranges are sliced first, so that loops count from zero: with an index that could be negative
# LLVM emits gathers and scatters. A checked division ("python" error model) would not vectorise
# either.
@kernel("i i X1 X1 X1 X1 X1 X1 X1 x x x x x x", fastmath=FAST, error_model="numpy")
def _adam(
    start,
    stop,
    vector,
    vector_bar,
    first,
    second,
    vector_out,
    first_out,
    second_out,
    step,
    beta1,
    beta2,
    c1,
    c2,
    epsilon,
):
    x, g, m, v = vector[start:stop], vector_bar[start:stop], first[start:stop], second[start:stop]
    x_out, m_out, v_out = vector_out[start:stop], first_out[start:stop], second_out[start:stop]
    for k in range(x.size):
        m_k = beta1 * m[k] + (1 - beta1) * g[k]
        v_k = beta2 * v[k] + (1 - beta2) * g[k] * g[k]
        m_out[k] = m_k
        v_out[k] = v_k
        x_out[k] = x[k] + step * (m_k * c1) / (np.sqrt(v_k * c2) + epsilon)


def adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count):
    # bias corrections as factors, so that the loop has one division
    c1, c2 = 1 / (1 - beta1**count), 1 / (1 - beta2**count)
    over_rows(_adam, vector.size, 8 * vector.size, vector, vector_bar, first, second, *out,
              float(step_size), float(beta1), float(beta2), c1, c2, float(epsilon))  # fmt: skip
