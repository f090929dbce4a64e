"""Sums and updates of rows, against NumPy; units from counters, against one counter at a time."""

import numpy as np

from fastsvgp.kernels.cpu import sparse_rows

from .common import Case, plain

LOW, SHIFT = np.uint64(0xFFFFFFFF), np.uint64(32)
M0, M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
W0, W1 = np.uint64(0x9E3779B9), np.uint64(0xBB67AE85)


def sum_rows(rows, values):
    distinct, place = np.unique(np.concatenate(rows), return_inverse=True)
    out = np.zeros((len(distinct), *values[0].shape[1:]), values[0].dtype)
    np.add.at(out, place, np.concatenate(values))
    return distinct, out


def adagrad_rows(array, sums, rows, bar, size, epsilon):
    sums[rows] += bar * bar
    array[rows] += size * bar / (np.sqrt(sums[rows]) + epsilon)


@plain
def random_pair(c0, c1, c2, c3, k0, k1):
    for _ in range(10):
        p0, p1 = M0 * c0, M1 * c2
        c0, c1, c2, c3 = (p1 >> SHIFT) ^ c1 ^ k0, p1 & LOW, (p0 >> SHIFT) ^ c3 ^ k1, p0 & LOW
        k0, k1 = (k0 + W0) & LOW, (k1 + W1) & LOW
    return c0, c1


@plain
def stratified_units(num, size, seed, step, stream, units, widths):
    each, rest = num // size, num % size
    for b in range(size):
        first, last = b * each + b * rest // size, (b + 1) * each + (b + 1) * rest // size
        width = np.uint64(last - first)
        high, low = random_pair(
            np.uint64(b), step & LOW, step >> SHIFT, stream, seed & LOW, seed >> SHIFT
        )
        units[b] = first + np.int64((high * width + (low * width >> SHIFT)) >> SHIFT)
        widths[b] = last - first
    return units, widths


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
    for num, size in (100_000, 500), (10_000_000, 10_000):
        numbers = num, size, np.uint64(7), np.uint64(11), np.uint64(2)
        units, widths = np.empty(size, np.int64), np.empty(size)
        yield Case(
            f"stratified_units, {size} of {num}",
            lambda: sparse_rows.stratified_units(*numbers, dtype.type(0)),
            lambda: stratified_units(*numbers, units, widths),
            0,
        )
