"""Chevron products, limited by memory: the floor is the bytes at the copy rate.

The flops do not limit: with four right-hand sides there are 8 per entry of C, in float32 2 per
byte, and gemm does about 6 in the time of a byte. Error: some of the results against sums in
extended precision.
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


def moved(*arrays):
    return sum(a.nbytes for a in arrays)


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


def error_there(y, tenth, diagonal, z):
    return relative_error(y[:, -SEEN:], row_products(tenth, diagonal, z))


@device.needs_device
@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@there_sizes
def bench_multiply_on_device(benchmark, rng, m, k, count, dtype):
    here, there = problem_there(rng, m, k, count, dtype)
    call = lambda: kernels.chevron_multiply(*there)  # noqa: E731
    error = error_there(call().get(), *here)
    device.record_moving(benchmark, call, moved(*there, there[2]), error)


@device.needs_device
@every_dtype
@pytest.mark.parametrize("count", [1, 4])
@there_sizes
def bench_library_on_device(benchmark, rng, m, k, count, dtype):
    """Time the dense part, with full first k rows, by cuBLAS, and the diagonal by CuPy."""
    import cupy

    here, (dense, diagonal, z) = problem_there(rng, m, k, count, dtype)
    dense[:k] = cupy.tril(dense[:k])

    def call():
        y = cupy.matmul(z[:, :k], dense.T)
        y[:, k:] += diagonal * z[:, k:]
        return y

    device.record_moving(
        benchmark, call, moved(dense, diagonal, z, z), error_there(call().get(), *here)
    )
