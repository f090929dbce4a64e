"""The chevron matrix written out."""

import numpy as np


def matrix(dense, diagonal):
    """C (m, m) from the dense columns (m, k) and the rest of the diagonal."""
    m, k = dense.shape
    C = np.zeros((m, m), dense.dtype)
    for i in range(m):
        for j in range(min(i + 1, k)):
            C[i, j] = dense[i, j]
        if i >= k:
            C[i, i] = diagonal[i - k]
    return C
