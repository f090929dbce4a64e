"""Solves and products with triangular factors.

Error: largest residual of eight columns, in extended precision.
"""

import device
import numpy as np
import pytest
from harness import record

from fastsvgp import kernels

SIZES = [(100, 256), (512, 1024), (256, 8192), (1000, 1000), (2000, 1000)]
sizes = pytest.mark.parametrize("M, R", SIZES)
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
COLUMNS = 8


def problem(rng, M, R, dtype):
    """Return a factor like that of a covariance matrix: rows of norm 1, a diagonal well above 0."""
    L = np.tril(rng.standard_normal((M, M))) / np.sqrt(M)
    L[np.diag_indices(M)] = rng.uniform(0.5, 1.0, M)
    return L.astype(dtype), rng.standard_normal((M, R)).astype(dtype)


def product_error(A, X, Y):
    """Return max |A X - Y| over a few columns, relative to max |A| |X|."""
    A, X, Y = (np.asarray(a, np.longdouble) for a in (A, X[:, :COLUMNS], Y[:, :COLUMNS]))
    return float(np.abs(A @ X - Y).max() / (np.abs(A) @ np.abs(X)).max())


@every_dtype
@pytest.mark.parametrize("transpose", [False, True], ids=["plain", "transpose"])
@sizes
def bench_solve_triangular(benchmark, rng, M, R, transpose, dtype):
    L, B = problem(rng, M, R, dtype)
    X = kernels.solve_triangular(L, B, transpose)
    error = product_error(L.T if transpose else L, X, B)
    record(
        benchmark,
        lambda: kernels.solve_triangular(L, B, transpose),
        flops=M * M * R,
        error=error,
        gemm=(M, R, dtype),
    )


@every_dtype
@sizes
def bench_solve_triangular_vjp(benchmark, rng, M, R, dtype):
    L, B = problem(rng, M, R, dtype)
    X, X_bar = kernels.solve_triangular(L, B), rng.standard_normal((M, R)).astype(dtype)
    error = product_error(L.T, kernels.solve_triangular_vjp(X_bar, L, X)[1], X_bar)
    record(
        benchmark,
        lambda: kernels.solve_triangular_vjp(X_bar, L, X),
        flops=2 * M * M * R,
        error=error,
        gemm=(M, R, dtype),
    )


@every_dtype
@sizes
def bench_multiply_triangular(benchmark, rng, M, R, dtype):
    L, B = problem(rng, M, R, dtype)
    error = product_error(L, B, kernels.multiply_triangular(L, B))
    record(
        benchmark,
        lambda: kernels.multiply_triangular(L, B),
        flops=M * M * R,
        error=error,
        gemm=(M, R, dtype),
    )


@every_dtype
@sizes
def bench_tril_product(benchmark, rng, M, R, dtype):
    A, B = (rng.standard_normal((M, R)).astype(dtype) for _ in range(2))
    # whole rows of the triangle, except its last corner
    C = kernels.tril_product(A, B)[-COLUMNS:, : M - COLUMNS + 1]
    error = product_error(B[: M - COLUMNS + 1], A[-COLUMNS:].T, C.T)
    record(
        benchmark,
        lambda: kernels.tril_product(A, B),
        flops=M * M * R,
        error=error,
        gemm=(M, R, dtype),
    )


@every_dtype
@pytest.mark.parametrize("M", [100, 512, 1000, 2000])
def bench_inverse_triangular(benchmark, rng, M, dtype):
    L, _ = problem(rng, M, 1, dtype)
    error = product_error(L, kernels.inverse_triangular(L), np.eye(M))
    record(
        benchmark,
        lambda: kernels.inverse_triangular(L),
        flops=M**3 / 3,
        error=error,
        gemm=(M, M, dtype),
    )


# an operation on two lower factors L, W, and A, X, Y of A X = Y, whose lower triangle it solves
LOWER = {
    "solve": (kernels.solve_tril, lambda L, W, found: (L, found, W)),
    "multiply": (
        lambda L, W: kernels.tril_multiply(L, W, lower=True),
        lambda L, W, found: (L, W, found),
    ),
    "product": (
        lambda L, W: kernels.tril_product(L, W, lower=True),
        lambda L, W, found: (L[-COLUMNS:], W.T, found[-COLUMNS:]),
    ),
}


@every_dtype
@pytest.mark.parametrize("M", [100, 512, 1000, 2000])
@pytest.mark.parametrize("operation", LOWER)
def bench_lower_factors(benchmark, rng, operation, M, dtype):
    """``L^-1 W``, ``L W`` and the lower triangle of ``L W'``."""
    (L, _), (W, _) = (problem(rng, M, 1, dtype) for _ in range(2))
    call, equation = LOWER[operation]
    record(
        benchmark,
        lambda: call(L, W),
        flops=M**3 / 3,
        error=product_error(*equation(L, W, call(L, W))),
        gemm=(M, M, dtype),
    )


@every_dtype
@pytest.mark.parametrize("batch, M, R", [(64, 17, 65), (8, 100, 256)])
def bench_solve_triangular_batch(benchmark, rng, batch, M, R, dtype):
    L, B = (
        np.stack(parts)
        for parts in zip(*(problem(rng, M, R, dtype) for _ in range(batch)), strict=True)
    )
    error = product_error(L[-1], kernels.solve_triangular(L, B)[-1], B[-1])
    record(
        benchmark,
        lambda: kernels.solve_triangular(L, B),
        flops=batch * M * M * R,
        error=error,
        gemm=(M, R, dtype),
    )


# --- on a device, beside cuBLAS's trsmBatched and trsm --------------------------------------------

batches = pytest.mark.parametrize(
    "batch, M, R", [(4096, 32, 256), (1024, 64, 256), (528, 128, 256), (64, 512, 512)]
)
MEASURED = 4  # checked items of a batch


def batch_of(rng, batch, M, R, dtype):
    L, B = (
        np.stack(parts)
        for parts in zip(*(problem(rng, M, R, dtype) for _ in range(MEASURED)), strict=True)
    )
    return np.tile(L, (batch // MEASURED, 1, 1)), np.tile(B, (batch // MEASURED, 1, 1))


def recorded_there(benchmark, call, L, B):
    batch, M, R = B.shape
    error = product_error(L[-1], call()[-1].get(), B[-1])
    device.record(benchmark, call, batch * M * M * R, error, (2048, 2048, L.dtype.name))


@device.needs_device
@every_dtype
@batches
def bench_solve_triangular_batch_on_device(benchmark, rng, batch, M, R, dtype):
    L, B = batch_of(rng, batch, M, R, dtype)
    there = device.moved(L, B)
    recorded_there(benchmark, lambda: kernels.solve_triangular(*there), L, B)


@device.needs_device
@every_dtype
@batches
def bench_trsm_batched(benchmark, rng, batch, M, R, dtype):
    """Time cuBLAS on the same row-major arrays, transposed to it: X L' = B from the right."""
    import cupy
    from cupy_backends.cuda.libs import cublas

    L, B = batch_of(rng, batch, M, R, dtype)
    there = device.moved(L, B)
    one = np.array(1, dtype)
    trsm = cublas.dtrsmBatched if dtype == "float64" else cublas.strsmBatched

    def solve():
        A, X = there[0], there[1].copy()
        places = [
            Y.data.ptr + cupy.arange(batch, dtype=np.uint64) * np.uint64(Y.strides[0])
            for Y in (A, X)
        ]
        trsm(
            cupy.cuda.device.get_cublas_handle(),
            cublas.CUBLAS_SIDE_RIGHT,
            cublas.CUBLAS_FILL_MODE_UPPER,
            cublas.CUBLAS_OP_N,
            cublas.CUBLAS_DIAG_NON_UNIT,
            R,
            M,
            one.ctypes.data,
            places[0].data.ptr,
            M,
            places[1].data.ptr,
            R,
            batch,
        )
        return X

    recorded_there(benchmark, solve, L, B)


@device.needs_device
@every_dtype
@pytest.mark.parametrize("name", ["multiply_triangular", "solve_triangular", "tril_product"])
@pytest.mark.parametrize("M, R", [(128, 8192), (1000, 1000), (2000, 1000), (4000, 1000)])
def bench_triangular_on_device(benchmark, rng, M, R, name, dtype):
    L, B = problem(rng, M, R, dtype)
    there = device.moved(
        *(rng.standard_normal((2, M, R)).astype(dtype) if name == "tril_product" else (L, B))
    )
    call = lambda: getattr(kernels, name)(*there)  # noqa: E731
    if name == "solve_triangular":
        error = product_error(L, call().get(), B)
    elif name == "multiply_triangular":
        error = product_error(L, B, call().get())
    else:
        A, C = (a.get() for a in there)
        error = product_error(
            C[: M - COLUMNS + 1], A[-COLUMNS:].T, call().get()[-COLUMNS:, : M - COLUMNS + 1].T
        )
    device.record(benchmark, call, M * M * R, error, (M, R, dtype))
