"""Matrix products of the one BLAS, and the fused passes between them.

Error: against float64 or extended precision.
"""

import numpy as np
import pytest
from harness import record, relative_error

from fastsvgp import kernels

every_size = pytest.mark.parametrize("M, N", [(100, 256), (512, 1024), (256, 8192), (1000, 1000)])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
ROWS = 8  # checked entries per result


def operands(rng, M, N, dtype):
    A = rng.standard_normal((M, N)).astype(dtype)
    return A, A.astype(np.longdouble), *(rng.standard_normal(n).astype(dtype) for n in (M, N, N))


@every_dtype
@every_size
def bench_weighted_gram(benchmark, rng, M, N, dtype):
    A, wide, _, _, w = operands(rng, M, N, dtype)
    w = -np.abs(w)
    truth = (wide * w) @ wide[:ROWS].T
    error = relative_error(np.tril(kernels.weighted_gram(A, w))[:, :ROWS], np.tril(truth))
    record(
        benchmark,
        lambda: kernels.weighted_gram(A, w),
        flops=M * M * N,
        error=error,
        gemm=(M, N, dtype),
    )


@every_dtype
@every_size
def bench_tril_product(benchmark, rng, M, N, dtype):
    A, wide, *_ = operands(rng, M, N, dtype)
    error = relative_error(kernels.tril_product(A, A)[:, :ROWS], np.tril(wide @ wide[:ROWS].T))
    record(
        benchmark,
        lambda: kernels.tril_product(A, A),
        flops=M * M * N,
        error=error,
        gemm=(M, N, dtype),
    )


@every_dtype
@every_size
def bench_column_moments(benchmark, rng, M, N, dtype):
    """Reads A once."""
    A, wide, x, _, _ = operands(rng, M, N, dtype)
    error = relative_error(
        np.stack(kernels.column_moments(A, x)), np.stack([x @ wide, (wide**2).sum(0)])
    )
    record(
        benchmark,
        lambda: kernels.column_moments(A, x),
        flops=4 * M * N,
        bytes=A.nbytes,
        error=error,
    )


@every_dtype
@every_size
def bench_add_outer_minus_scaled(benchmark, rng, M, N, dtype):
    """Reads T and A, writes T."""
    A, wide, x, a, w = operands(rng, M, N, dtype)
    T = A.copy()
    kernels.add_outer_minus_scaled(T, x, a, A, w)
    error = relative_error(T, wide + np.outer(x, a).astype(np.longdouble) - wide * w)
    w[:] = 0  # keeps T bounded over many calls
    a[:] = 0
    record(
        benchmark,
        lambda: kernels.add_outer_minus_scaled(T, x, a, A, w),
        flops=6 * M * N,
        bytes=3 * A.nbytes,
        error=error,
    )


@every_dtype
@every_size
def bench_scale_columns(benchmark, rng, M, N, dtype):
    """Reads A, writes a new array."""
    A, wide, _, _, w = operands(rng, M, N, dtype)
    error = relative_error(kernels.scale_columns(A, w), wide * w)
    record(
        benchmark, lambda: kernels.scale_columns(A, w), flops=M * N, bytes=2 * A.nbytes, error=error
    )
