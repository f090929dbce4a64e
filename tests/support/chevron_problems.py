"""Chevron problems of difficult sizes, and the assertions for every twin of the family."""

import numpy as np
from oracles import chevron as oracle
from support.numerics import assert_as_accurate_as, generator

# m, k, right-hand sides
SHAPES = [(1, 0, 1), (1, 1, 2), (3, 1, 1), (17, 17, 3), (65, 3, 5), (130, 65, 1), (300, 10, 4)]


def problem(rng, m, k, count, dtype, padding=0):
    """Return ``dense``, ``diagonal``, vectors; NaN above the diagonal and between padded rows."""
    memory = np.full((m, k + padding), np.nan, dtype)
    dense = memory[:, :k]
    dense[:] = rng.standard_normal((m, k)) / np.sqrt(k + 1)
    dense[np.arange(min(m, k)), np.arange(min(m, k))] = rng.uniform(0.5, 2, min(m, k))
    dense[np.triu_indices(m, 1, k)] = np.nan
    diagonal = rng.uniform(0.5, 2, m - k).astype(dtype)
    return dense, diagonal, rng.standard_normal((count, m)).astype(dtype)


def check_all(twin, rng, m, k, count, dtype, padding=0):
    dense, diagonal, z = problem(rng, m, k, count, dtype, padding)

    def definition(*arrays):
        dense, diagonal, z = arrays
        return z @ oracle.matrix(dense, diagonal).T

    found, long = (
        twin.chevron_multiply(dense, diagonal, z),
        [np.asarray(a, np.longdouble) for a in (dense, diagonal, z)],
    )
    assert found.dtype == dtype and found.shape == z.shape and found.flags.c_contiguous
    # the size of sums of terms of this size with random signs
    size = definition(*map(np.abs, long)).max(initial=0) / np.sqrt(m)
    assert_as_accurate_as(found, definition(dense, diagonal, z), definition(*long), 4, size)
    values = np.diag(oracle.matrix(dense, diagonal))
    result = twin.chevron_log_det(dense, diagonal)
    assert result.dtype == np.float64 and result.shape == ()
    truth = np.log(values.astype(np.longdouble)).sum()
    tolerance = 4 * np.finfo(dtype).eps * max(1.0, float(np.abs(np.log(values)).sum()))
    assert abs(float(result) - float(truth)) <= tolerance


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs: rows aligned or not."""
    rng = generator(1)
    for k, count in ((9, 2), (8, 1)):
        dense, diagonal, z = problem(rng, 140, k, count, dtype)
        twin.chevron_multiply(dense, diagonal, z)
    twin.chevron_log_det(dense, diagonal)
