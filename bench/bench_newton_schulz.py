"""The natural-gradient update towards chol(A^-1), compared with triangular BLAS and dense products.

The update needs 4/3 M^3 flops. All rows have this floor, on a device at the rate of cuBLAS. Error:
of the first eight columns of the new factor, against extended precision.
"""

import device
import numpy as np
import pytest
from harness import record, relative_error
from scipy.linalg import blas

from fastsvgp import kernels

every_size = pytest.mark.parametrize("M", [100, 512, 1000, 2000])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
COLUMNS = 8


def problem(rng, M, dtype):
    """Return a correlation matrix of condition about ten, and almost a factor of its inverse."""
    A = rng.standard_normal((M, 2 * M)) / np.sqrt(2 * M)
    A = (A @ A.T + 0.1 * np.eye(M)).astype(dtype)
    return A, kernels.cholesky_of_inverse(A) + np.tril(
        rng.standard_normal((M, M)) * 0.1 / M
    ).astype(dtype)


def error_of(stepped, A, L):
    A, L = A.astype(np.longdouble), L.astype(np.longdouble)
    phi = np.tril(L.T @ (A @ L[:, :COLUMNS]))
    for j in range(COLUMNS):
        phi[j, j] = (phi[j, j] - 1) / 2
    return relative_error(stepped[:, :COLUMNS], L[:, :COLUMNS] - L @ phi)


def recorded(benchmark, call, flops, A, L):
    M = len(A)
    record(
        benchmark,
        call,
        flops=flops,
        floor_flops=4 * M**3 / 3,
        error=error_of(call(), A, L),
        gemm=(M, M, A.dtype.name),
    )


@every_dtype
@every_size
def bench_newton_schulz_step(benchmark, rng, M, dtype):
    A, L = problem(rng, M, dtype)
    recorded(benchmark, lambda: kernels.newton_schulz_step(A, L, 1.0), 4 * M**3 / 3, A, L)


def shrunk(E):
    """Compute I - Phi(E - I), lower, in the memory of E."""
    M = len(E)
    E *= -1
    E[np.triu_indices(M, 1)] = 0
    E[np.diag_indices(M)] = 1.5 + E[np.diag_indices(M)] / 2
    return E


@every_dtype
@every_size
def bench_three_dense_products(benchmark, rng, M, dtype):
    """Time A L, L' (A L), L F by dense products, 6 M^3."""
    A, L = (np.asfortranarray(X) for X in problem(rng, M, dtype))
    gemm = blas.dgemm if dtype == "float64" else blas.sgemm
    recorded(
        benchmark,
        lambda: gemm(1.0, L, shrunk(gemm(1.0, L, gemm(1.0, A, L), trans_a=1))),
        6 * M**3,
        A,
        L,
    )


@every_dtype
@every_size
def bench_stock_triangular(benchmark, rng, M, dtype):
    """Time symm, trmm, trmm: 4 M^3, the fewest flops by whole BLAS calls."""
    A, L = (np.asfortranarray(X) for X in problem(rng, M, dtype))
    symm, trmm = (blas.dsymm, blas.dtrmm) if dtype == "float64" else (blas.ssymm, blas.strmm)

    def step():
        E = trmm(1.0, L, symm(1.0, A, L, lower=1), lower=1, trans_a=1, overwrite_b=1)
        return trmm(1.0, L, shrunk(E), lower=1, overwrite_b=1)

    recorded(benchmark, step, 4 * M**3, A, L)


# --- on a device, beside three products of cuBLAS -------------------------------------------------

every_device_size = pytest.mark.parametrize("M", [512, 1000, 2000, 4000])


def recorded_there(benchmark, call, flops, A, L):
    M, dtype = len(A), A.dtype.name
    # above this, extended precision takes minutes
    error = error_of(call().get(), A, L) if M <= 2000 else None
    device.record(benchmark, call, flops, error, (M, M, dtype), floor_flops=4 * M**3 / 3)


@device.needs_device
@every_dtype
@every_device_size
def bench_newton_schulz_step_on_device(benchmark, rng, M, dtype):
    A, L = problem(rng, M, dtype)
    there = device.moved(A, L)
    recorded_there(benchmark, lambda: kernels.newton_schulz_step(*there, 1.0), 4 * M**3 / 3, A, L)


@device.needs_device
@every_dtype
@every_device_size
def bench_three_dense_products_on_device(benchmark, rng, M, dtype):
    import cupy

    A, L = problem(rng, M, dtype)
    one, two = device.moved(A, L)
    half = cupy.eye(M, dtype=dtype) / 2

    def step():
        E = cupy.matmul(two.T, cupy.matmul(one, two))
        return two - cupy.matmul(two, cupy.tril(E) - half * (1 + E.diagonal()))

    recorded_there(benchmark, step, 6 * M**3, A, L)
