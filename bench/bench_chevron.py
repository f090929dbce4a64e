"""Chevron products, limited by memory: the floor is the bytes at the copy rate.

Data that are read in two passes, because the second needs all of the first, count twice. The flops
do not limit: with four right-hand sides there are 8 per entry of C, in float32 2 per byte, and gemm
does about 6 in the time of a byte. Scattered rows are read in whole cache lines, so the bytes of
the lines count. Error: some of the results against sums in extended precision.
"""

import device
import numpy as np
import pytest
from harness import record, relative_error

from fastsvgp import kernels

sizes = pytest.mark.parametrize("m, k", [(10_000, 100), (300_000, 100), (3_000_000, 10)])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
SEEN = 1000  # number of compared rows, or sums over rows


def problem(rng, m, k, count, dtype):
    dense, diagonal = (
        rng.standard_normal((m, k)).astype(dtype),
        rng.uniform(0.5, 2, m - k).astype(dtype),
    )
    return dense, diagonal, rng.standard_normal((count, m)).astype(dtype)


def row_products(dense, diagonal, z):
    """Return the last rows of C z, below the triangle, in extended precision."""
    k = dense.shape[1]
    rows = dense[-SEEN:].astype(np.longdouble)
    return np.stack([(rows * line[:k]).sum(1) for line in z]) + diagonal[-SEEN:] * z[
        :, -SEEN:
    ].astype(np.longdouble)


def column_sum(column, k, x):
    """Return entry k - 1 of C' x in extended precision, from that column of the dense part."""
    return np.stack([(column[k - 1 :].astype(np.longdouble) * line[k - 1 :]).sum() for line in x])


def moved(*arrays):
    return sum(a.nbytes for a in arrays)


def line_bytes(array, rows, numbers):
    """Return the bytes of the cache lines of the first ``numbers`` entries of each row."""
    first = array.ctypes.data + rows * array.strides[0]
    return 64 * int(((first + numbers * array.itemsize - 1) // 64 - first // 64 + 1).sum())


@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@sizes
def bench_multiply(benchmark, rng, m, k, count, dtype):
    dense, diagonal, z = problem(rng, m, k, count, dtype)
    error = relative_error(
        kernels.chevron_multiply(dense, diagonal, z)[:, -SEEN:], row_products(dense, diagonal, z)
    )
    record(
        benchmark,
        lambda: kernels.chevron_multiply(dense, diagonal, z),
        bytes=moved(dense, diagonal, z, z),
        error=error,
    )


@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@sizes
def bench_multiply_transposed(benchmark, rng, m, k, count, dtype):
    dense, diagonal, x = problem(rng, m, k, count, dtype)
    call = lambda: kernels.chevron_multiply(dense, diagonal, x, transpose=True)  # noqa: E731
    error = relative_error(call()[:, k - 1], column_sum(dense[:, k - 1], k, x))
    record(benchmark, call, bytes=moved(dense, diagonal, x, x), error=error)


@every_dtype
@sizes
def bench_gram_vjp(benchmark, rng, m, k, dtype):
    dense, diagonal, x = problem(rng, m, k, 1, dtype)
    y_bar = rng.standard_normal(x.shape).astype(dtype)
    call = lambda: kernels.chevron_gram_vjp(y_bar, dense, diagonal, x)  # noqa: E731
    truth = row_products(
        dense, diagonal, kernels.chevron_multiply(dense, diagonal, y_bar, transpose=True)
    )
    error = relative_error(call()[2][:, -SEEN:], truth)
    # two reads of C, x and y_bar, one of the diagonal; one write of C's cotangent, of the
    # diagonal's and of x's
    record(
        benchmark,
        call,
        bytes=3 * moved(dense) + 2 * moved(diagonal, x, y_bar) + moved(x),
        error=error,
    )


@every_dtype
@pytest.mark.parametrize("m, k, n", [(300_000, 100, 20_000), (3_000_000, 10, 20_000)])
def bench_multiply_rows(benchmark, rng, m, k, n, dtype):
    dense, diagonal, z = problem(rng, m, k, 1, dtype)
    rows = rng.integers(0, m, n)
    arguments = rows, z[:, :k].copy(), z[:, rows]
    error = relative_error(
        kernels.chevron_multiply_rows(dense, diagonal, *arguments),
        kernels.chevron_multiply(dense, diagonal, z)[:, rows],
    )
    lines = line_bytes(dense, rows, k) + line_bytes(diagonal, rows[rows >= k] - k, 1)
    bytes = (
        lines + moved(*arguments) + arguments[2].nbytes
    )  # and the arrays that are read and written in order
    record(
        benchmark,
        lambda: kernels.chevron_multiply_rows(dense, diagonal, *arguments),
        bytes=bytes,
        error=error,
    )


@every_dtype
def bench_log_det(benchmark, rng, dtype):
    dense, diagonal, _ = problem(rng, 3_000_000, 1, 1, dtype)
    np.abs(dense, out=dense)
    truth = np.log(diagonal.astype(np.longdouble)).sum() + np.log(dense[0, 0].astype(np.longdouble))
    error = relative_error(kernels.chevron_log_det(dense, diagonal), truth)
    record(
        benchmark,
        lambda: kernels.chevron_log_det(dense, diagonal),
        bytes=diagonal.nbytes,
        error=error,
    )


# --- on a device: the floor is a copy of as many bytes --------------------------------------------

there_sizes = pytest.mark.parametrize("m, k", [(100_000, 100), (10_000_000, 10), (10_000_000, 100)])
# the rows of the host are repeated there, because drawing 10^9 numbers would dominate the time
TIMES = 10


def problem_there(rng, m, k, count, dtype):
    """Return dense rows (a tenth on the host), diagonal and z, on host and device."""
    import cupy

    tenth, diagonal, z = problem(rng, m // TIMES, k, count, dtype)
    diagonal, z = (
        rng.uniform(0.5, 2, m - k).astype(dtype),
        rng.standard_normal((count, m)).astype(dtype),
    )
    there = device.moved(tenth, diagonal, z)
    return (tenth, diagonal, z), (cupy.concatenate([there[0]] * TIMES), *there[1:])


def error_there(y, tenth, diagonal, z, transpose):
    k = tenth.shape[1]
    if transpose:
        return relative_error(y[:, k - 1], column_sum(np.tile(tenth[:, k - 1], TIMES), k, z))
    return relative_error(y[:, -SEEN:], row_products(tenth, diagonal, z))


@device.needs_device
@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("transpose", [False, True])
@there_sizes
def bench_multiply_on_device(benchmark, rng, m, k, transpose, count, dtype):
    here, there = problem_there(rng, m, k, count, dtype)
    call = lambda: kernels.chevron_multiply(*there, transpose=transpose)  # noqa: E731
    error = error_there(call().get(), *here, transpose)
    device.record_moving(benchmark, call, moved(*there, there[2]), error)


@device.needs_device
@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("transpose", [False, True])
@there_sizes
def bench_library_on_device(benchmark, rng, m, k, transpose, count, dtype):
    """Time the dense part, with full first k rows, by cuBLAS, and the diagonal by CuPy."""
    import cupy

    here, (dense, diagonal, z) = problem_there(rng, m, k, count, dtype)
    triangle = cupy.tril(dense[:k])
    dense[:k] = triangle

    def call():
        if transpose:
            y = z.copy()
            y[:, :k] = cupy.matmul(z, dense)
            y[:, k:] *= diagonal
            return y
        y = cupy.matmul(z[:, :k], dense.T)
        y[:, k:] += diagonal * z[:, k:]
        return y

    error = error_there(call().get(), *here, transpose)
    device.record_moving(benchmark, call, moved(dense, diagonal, z, z), error)


@device.needs_device
@every_dtype
@pytest.mark.parametrize("m, k, n", [(10_000_000, 100, 20_000), (10_000_000, 100, 1_000_000)])
def bench_multiply_rows_on_device(benchmark, rng, m, k, n, dtype):
    (tenth, _, z), (dense, diagonal, z_there) = problem_there(rng, m, k, 1, dtype)
    rows = rng.integers(k, m, n)
    indices = device.moved(rows)[0]
    arguments = indices, z_there[:, :k].copy(), z_there[:, indices]
    call = lambda: kernels.chevron_multiply_rows(dense, diagonal, *arguments)  # noqa: E731
    seen = rows[:SEEN]
    own = diagonal[indices[:SEEN] - k].get() * z[:, seen].astype(np.longdouble)
    truth = (tenth[seen % len(tenth)].astype(np.longdouble) * z[:, :k]).sum(1) + own
    error = relative_error(call()[:, :SEEN].get(), truth)
    device.record_moving(
        benchmark, call, n * (k + 1) * dense.itemsize + moved(*arguments, arguments[2]), error
    )


@device.needs_device
@every_dtype
@there_sizes
def bench_gram_vjp_on_device(benchmark, rng, m, k, dtype):
    (tenth, diagonal, x), there = problem_there(rng, m, k, 1, dtype)
    call = lambda: kernels.chevron_gram_vjp(there[2], *there)  # noqa: E731
    product = kernels.chevron_multiply(*there, transpose=True).get()
    error = relative_error(call()[2][:, -SEEN:].get(), row_products(tenth, diagonal, product))
    device.record_moving(benchmark, call, moved(*[there[0]] * 3, *there[1:] * 2, there[2]), error)
