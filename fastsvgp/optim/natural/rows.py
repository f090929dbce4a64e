"""Row numbers of a step, checked."""

import numpy as np

from ... import check


def row_numbers(name, rows, N):
    """Return the numbers of some of N rows as an array; ``ValueError`` for repeats."""
    rows = check.as_array(name, rows)
    if (
        rows.ndim != 1
        or rows.dtype.kind not in "iu"
        or rows.size == 0
        or rows.min() < 0
        or rows.max() >= N
    ):
        raise ValueError(
            f"`{name}` must hold row numbers, 0 to {N - 1}, in an array for each step, got"
            f" {rows!r:.200}"
        )
    values, counts = np.unique(rows, return_counts=True)
    if len(values) < len(rows):
        raise ValueError(
            f"`{name}` has row {values[counts > 1][0]} more than once in a step; give each once"
        )
    return rows
