"""Chevron problems of difficult sizes, and the assertions for every twin of the family."""

import numpy as np
from oracles import chevron as oracle
from support.numerics import assert_as_accurate_as, generator

# m, k, right-hand sides
SHAPES = [(1, 0, 1), (1, 1, 2), (3, 1, 1), (17, 17, 3), (65, 3, 5), (130, 65, 1), (300, 10, 4)]


def problem(rng, m, k, count, dtype, padding=0):
    """Return ``dense``, ``diagonal``, two sets of vectors, and rows with repeats.

    NaN is above the diagonal and between padded rows.
    """
    memory = np.full((m, k + padding), np.nan, dtype)
    dense = memory[:, :k]
    dense[:] = rng.standard_normal((m, k)) / np.sqrt(k + 1)
    dense[np.arange(min(m, k)), np.arange(min(m, k))] = rng.uniform(0.5, 2, min(m, k))
    dense[np.triu_indices(m, 1, k)] = np.nan
    diagonal = rng.uniform(0.5, 2, m - k).astype(dtype)
    x, y = (rng.standard_normal((count, m)).astype(dtype) for _ in range(2))
    rows = rng.integers(0, m, 2 * m // 3 + 1)
    return dense, diagonal, x, y, rows


def as_accurate(results, plain, truth, sizes, slack=4):
    for result, in_dtype, exact, size in zip(results, plain, truth, sizes, strict=True):
        assert (
            result.dtype == in_dtype.dtype
            and result.shape == exact.shape
            and result.flags.c_contiguous
        )
        if exact.size:
            assert_as_accurate_as(result, in_dtype, exact, slack, size)


def both(definition, *arrays):
    """Return a definition in the dtype of the arrays and in extended precision, and sizes.

    Sizes are those of sums of terms of this size with random signs.
    """
    long = [np.asarray(a, np.longdouble) for a in arrays]
    terms = definition(*map(np.abs, long))
    return (
        definition(*arrays),
        definition(*long),
        [a.max(initial=0) / np.sqrt(len(arrays[0])) for a in terms],
    )


def check_products(twin, dense, diagonal, x, y):
    k = dense.shape[1]

    def definition(dense, diagonal, x, y):
        C = oracle.matrix(dense, diagonal)
        forwards, backwards = x @ C.T, x @ C
        return [forwards, backwards, *oracle.parts(y.T @ x, k)]

    results = [
        twin.multiply(dense, diagonal, x, False),
        twin.multiply(dense, diagonal, x, True),
        *twin.outer(k, y, x),
    ]
    as_accurate(results, *both(definition, dense, diagonal, x, y))


def check_gram_vjp(twin, dense, diagonal, x, y_bar):
    def definition(dense, diagonal, x, y_bar):
        C = oracle.matrix(dense, diagonal)
        return [
            *oracle.parts(y_bar.T @ (x @ C) + x.T @ (y_bar @ C), dense.shape[1]),
            y_bar @ C @ C.T,
        ]

    # a sum of sums: the errors of both add, and those of plain NumPy can be small by chance
    as_accurate(
        twin.gram_vjp(y_bar, dense, diagonal, x),
        *both(definition, dense, diagonal, x, y_bar),
        slack=6,
    )


def check_rows(twin, dense, diagonal, x, y, rows):
    k, n, m = dense.shape[1], len(rows), len(dense)
    head, rest = (
        np.ascontiguousarray(x[:, :k]),
        np.where(rows < k, np.nan, x[:, rows]).astype(x.dtype),
    )
    u = np.ascontiguousarray(y[:, :n]) if n <= m else np.tile(y, 2)[:, :n]

    def definition(dense, diagonal, x, u):
        C = oracle.matrix(dense, diagonal)[rows]
        return [x @ C.T, u @ C, *oracle.row_parts(u.T @ x, rows, k)]

    transposed = oracle.scattered(rows, *twin.multiply_rows_transposed(dense, diagonal, rows, u), m)
    results = [
        twin.multiply_rows(dense, diagonal, rows, head, rest),
        transposed,
        *twin.outer_rows(rows, u, head, rest),
    ]
    as_accurate(results, *both(definition, dense, diagonal, x, u))


def check_log_det(twin, dense, diagonal, rows):
    entries = np.diag(oracle.matrix(dense, diagonal))
    for chosen, values in ((None, entries), (rows, entries[rows])):
        result = twin.log_det(dense, diagonal, chosen)
        assert result.dtype == np.float64 and result.shape == ()
        truth = np.log(values.astype(np.longdouble)).sum()
        tolerance = 4 * np.finfo(dense.dtype).eps * max(1.0, float(np.abs(np.log(values)).sum()))
        assert abs(float(result) - float(truth)) <= tolerance
        vjp = twin.log_det_vjp(2.5, dense, diagonal, chosen)
        assert vjp.dtype == dense.dtype
        np.testing.assert_allclose(
            vjp, 2.5 / values.astype(float), rtol=2 * np.finfo(dense.dtype).eps
        )


def check_all(twin, rng, m, k, count, dtype, padding=0):
    dense, diagonal, x, y, rows = problem(rng, m, k, count, dtype, padding)
    check_products(twin, dense, diagonal, x, y)
    check_gram_vjp(twin, dense, diagonal, x, y)
    check_rows(twin, dense, diagonal, x, y, rows)
    check_log_det(twin, dense, diagonal, rows)


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs.

    Rows are given or not, aligned or not.
    """
    rng = generator(1)
    for k, count in ((9, 2), (8, 1)):
        dense, diagonal, x, _, _ = problem(rng, 140, k, count, dtype)
        twin.multiply(dense, diagonal, x, False)
        twin.multiply(dense, diagonal, x, True)
    rows = rng.integers(0, 140, 260)
    rest = twin.multiply_rows(
        dense, diagonal, rows, x[:, :k].copy(), rng.standard_normal((1, 260)).astype(dtype)
    )
    head, rest = twin.multiply_rows_transposed(dense, diagonal, rows, rest)
    twin.outer_rows(rows, rest, head, rest)
    twin.log_det(dense, diagonal, rows)
    twin.log_det_vjp(1.0, dense, diagonal, rows)
