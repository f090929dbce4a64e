"""Cholesky factors, inverses from them, reverse rules.

Error: largest residual of eight columns, in extended precision.
"""

import numpy as np
import pytest
from bench_triangular import COLUMNS, product_error
from harness import record, relative_error

from fastsvgp import kernels

every_size = pytest.mark.parametrize("M", [100, 512, 1000, 2000])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def spd(rng, M, dtype):
    """Return a correlation matrix with a condition number of about ten."""
    A = rng.standard_normal((M, 2 * M)) / np.sqrt(2 * M)
    return (A @ A.T + 0.1 * np.eye(M)).astype(dtype)


@every_dtype
@every_size
def bench_cholesky(benchmark, rng, M, dtype):
    A = spd(rng, M, dtype)
    L = kernels.cholesky(A)
    error = product_error(L, L.T, A)
    record(benchmark, lambda: kernels.cholesky(A), flops=M**3 / 3, error=error, gemm=(M, M, dtype))


@every_dtype
@every_size
def bench_cholesky_inverse(benchmark, rng, M, dtype):
    A = spd(rng, M, dtype)
    L = kernels.cholesky(A)
    error = product_error(A, kernels.cholesky_inverse(L), np.eye(M))
    record(
        benchmark,
        lambda: kernels.cholesky_inverse(L),
        flops=2 * M**3 / 3,
        error=error,
        gemm=(M, M, dtype),
    )


@every_dtype
@every_size
def bench_cholesky_of_inverse(benchmark, rng, M, dtype):
    A = spd(rng, M, dtype)
    W = kernels.cholesky_of_inverse(A)
    error = product_error(A, W @ W[:COLUMNS].T, np.eye(M))
    record(
        benchmark,
        lambda: kernels.cholesky_of_inverse(A),
        flops=2 * M**3 / 3,
        error=error,
        gemm=(M, M, dtype),
    )


@every_dtype
@every_size
def bench_whitening_vjp(benchmark, rng, M, dtype):
    """Floor: a symmetric congruence with a triangular factor, M^3."""
    L, C = kernels.cholesky(spd(rng, M, dtype)), rng.standard_normal((M, M)).astype(dtype)
    lower = np.tril(C).astype(np.float64)
    lower[np.diag_indices(M)] /= 2
    inverse = np.linalg.inv(L.astype(np.float64))
    error = relative_error(
        kernels.whitening_vjp(C, L), -0.5 * inverse.T @ (lower + lower.T) @ inverse
    )
    record(
        benchmark, lambda: kernels.whitening_vjp(C, L), flops=M**3, error=error, gemm=(M, M, dtype)
    )
