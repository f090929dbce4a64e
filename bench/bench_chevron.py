"""Chevron products, bound by the pass over the dense columns: the floor is the bytes that must move, at the copy rate.

What is read in two passes, because the second needs all of the first, counts twice. The flops are far below their own floor: with
four right-hand sides 8 for every number of C, in float32 2 a byte, where gemm does some 6 in the time of a byte. Rows here and
there come in whole cache lines, so these count. Error: some of the results against sums in extended precision.
"""

import numpy as np
import pytest
from harness import record, relative_error

from fastsvgp import kernels

sizes = pytest.mark.parametrize("m, k", [(10_000, 100), (300_000, 100), (3_000_000, 10)])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
SEEN = 1000  # rows, or sums over rows, that are compared


def problem(rng, m, k, count, dtype):
    dense, diagonal = rng.standard_normal((m, k)).astype(dtype), rng.uniform(0.5, 2, m - k).astype(dtype)
    return dense, diagonal, rng.standard_normal((count, m)).astype(dtype)


def row_products(dense, diagonal, z):
    """The last rows of C z in extended precision: beyond the triangle at the top."""
    k = dense.shape[1]
    rows = dense[-SEEN:].astype(np.longdouble)
    return np.stack([(rows * line[:k]).sum(1) for line in z]) + diagonal[-SEEN:] * z[:, -SEEN:].astype(np.longdouble)


def column_sum(dense, x):
    """Entry k - 1 of C' x in extended precision."""
    k = dense.shape[1]
    return np.stack([(dense[k - 1 :, k - 1].astype(np.longdouble) * line[k - 1 :]).sum() for line in x])


def moved(*arrays):
    return sum(a.nbytes for a in arrays)


def line_bytes(array, rows, numbers):
    """Bytes of the cache lines that hold ``numbers`` entries from the start of each of these rows on."""
    first = array.ctypes.data + rows * array.strides[0]
    return 64 * int(((first + numbers * array.itemsize - 1) // 64 - first // 64 + 1).sum())


@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@sizes
def bench_multiply(benchmark, rng, m, k, count, dtype):
    dense, diagonal, z = problem(rng, m, k, count, dtype)
    error = relative_error(kernels.chevron_multiply(dense, diagonal, z)[:, -SEEN:], row_products(dense, diagonal, z))
    record(benchmark, lambda: kernels.chevron_multiply(dense, diagonal, z), bytes=moved(dense, diagonal, z, z), error=error)


@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@sizes
def bench_multiply_transposed(benchmark, rng, m, k, count, dtype):
    dense, diagonal, x = problem(rng, m, k, count, dtype)
    call = lambda: kernels.chevron_multiply(dense, diagonal, x, transpose=True)  # noqa: E731
    error = relative_error(call()[:, k - 1], column_sum(dense, x))
    record(benchmark, call, bytes=moved(dense, diagonal, x, x), error=error)


@every_dtype
@sizes
def bench_gram_vjp(benchmark, rng, m, k, dtype):
    dense, diagonal, x = problem(rng, m, k, 1, dtype)
    y_bar = rng.standard_normal(x.shape).astype(dtype)
    call = lambda: kernels.chevron_gram_vjp(y_bar, dense, diagonal, x)  # noqa: E731
    truth = row_products(dense, diagonal, kernels.chevron_multiply(dense, diagonal, y_bar, transpose=True))
    error = relative_error(call()[2][:, -SEEN:], truth)
    # two reads of C, x and y_bar, one of the diagonal; one write of C's cotangent, of the diagonal's and of x's
    record(benchmark, call, bytes=3 * moved(dense) + 2 * moved(diagonal, x, y_bar) + moved(x), error=error)


@every_dtype
@pytest.mark.parametrize("m, k, n", [(300_000, 100, 20_000), (3_000_000, 10, 20_000)])
def bench_multiply_rows(benchmark, rng, m, k, n, dtype):
    dense, diagonal, z = problem(rng, m, k, 1, dtype)
    rows = rng.integers(0, m, n)
    arguments = rows, z[:, :k].copy(), z[:, rows]
    error = relative_error(
        kernels.chevron_multiply_rows(dense, diagonal, *arguments), kernels.chevron_multiply(dense, diagonal, z)[:, rows]
    )
    lines = line_bytes(dense, rows, k) + line_bytes(diagonal, rows[rows >= k] - k, 1)
    bytes = lines + moved(*arguments) + arguments[2].nbytes  # and what is read and written in order
    record(benchmark, lambda: kernels.chevron_multiply_rows(dense, diagonal, *arguments), bytes=bytes, error=error)


@every_dtype
def bench_log_det(benchmark, rng, dtype):
    dense, diagonal, _ = problem(rng, 3_000_000, 1, 1, dtype)
    np.abs(dense, out=dense)
    truth = np.log(diagonal.astype(np.longdouble)).sum() + np.log(dense[0, 0].astype(np.longdouble))
    error = relative_error(kernels.chevron_log_det(dense, diagonal), truth)
    record(benchmark, lambda: kernels.chevron_log_det(dense, diagonal), bytes=diagonal.nbytes, error=error)
