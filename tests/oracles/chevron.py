"""The chevron matrix written out, and its products by definition."""

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


def parts(C_bar, k):
    """The cotangents of the dense columns and of the diagonal, from one of the whole matrix."""
    return np.tril(C_bar)[:, :k], np.diag(C_bar)[k:].copy()


def row_parts(C_bar, rows, k):
    """The same row by row, for C_bar (n, m): line i belongs to row ``rows[i]``."""
    dense_bar, diagonal_bar = (
        np.zeros((len(rows), k), C_bar.dtype),
        np.zeros(len(rows), C_bar.dtype),
    )
    for i, g in enumerate(rows):
        dense_bar[i, : min(k, g + 1)] = C_bar[i, : min(k, g + 1)]
        if g >= k:
            diagonal_bar[i] = C_bar[i, g]
    return dense_bar, diagonal_bar


def scattered(rows, head, rest, m):
    """C[rows]' x as one vector, from its parts (..., k) and (..., n)."""
    out = np.zeros((*head.shape[:-1], m), head.dtype)
    out[..., : head.shape[-1]] = head
    for i, g in enumerate(rows):
        out[..., g] += rest[..., i]
    return out
