"""Sums and updates of rows, against NumPy."""

import numpy as np

from fastsvgp.kernels.cpu import sparse_rows

from .common import Case


def sum_rows(rows, values):
    distinct, place = np.unique(np.concatenate(rows), return_inverse=True)
    out = np.zeros((len(distinct), *values[0].shape[1:]), values[0].dtype)
    np.add.at(out, place, np.concatenate(values))
    return distinct, out


def adagrad_rows(array, sums, rows, bar, size, epsilon):
    sums[rows] += bar * bar
    array[rows] += size * bar / (np.sqrt(sums[rows]) + epsilon)


def cases(dtype):
    rng, near = np.random.default_rng(0), 100 * np.finfo(dtype).eps
    number = dtype.type
    for N, r, k in (100_000, 1000, 1), (100_000, 1000, 100), (1_000_000, 10_000, 1):
        rows = [rng.choice(N, r, replace=False) for _ in range(2)]
        A, size = rng.standard_normal((N, k)).astype(dtype), f"{r} of {N} x {k}"
        bars = [rng.standard_normal((r, k)).astype(dtype) for _ in rows]
        sums = np.ones((N, k), dtype)
        yield Case(
            f"sum_rows, {size}",
            lambda: sparse_rows.sum_rows(rows, bars),
            lambda: sum_rows(rows, bars),
            near,
        )
        settings, start = (number(1e-3), number(1e-8)), A[rows[0]]

        def step(function, *more):
            A[rows[0]], sums[rows[0]] = start, 1
            function(A, sums, rows[0], bars[0], *settings, *more)
            return A[rows[0]], sums[rows[0]]

        yield Case(
            f"adagrad_rows, {size}",
            lambda: step(sparse_rows.adagrad_rows, False, 0),
            lambda: step(adagrad_rows),
            near,
        )
