"""Products with random Fourier features, compared with a stored feature matrix and its product.

The floor is the vectorised cosines and sines of all pairs of point and frequency, separately and in
the cache, plus the flops of the products at the rate of gemm, both measured between the timed
calls. Per pair these are 2 D for the phase, 4 R for a product with the features, and in the reverse
rule 4 R + 1 for the change with the phase and 2 D for its contraction with the frequencies. The
floor excludes drawing the frequencies, moving phases and cosines through the caches, and the
overhead of the threads. Error: of some of the results against features in extended precision.
"""

import time

import device
import numpy as np
import pytest
from harness import gemm_rate, record, relative_error
from numba import njit
from oracles import fourier as oracle
from scipy.linalg import blas

from fastsvgp import kernels
from fastsvgp.kernels.cpu.common.elementwise import cos_sin
from fastsvgp.kernels.cpu.common.thread_pool import over_rows

every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
sizes = pytest.mark.parametrize("N, n, D", [(500, 10_000, 8), (500, 10_000, 64), (500, 2_000, 784)])
sides = pytest.mark.parametrize("count", [1, 4])
SEEN, NUM = 10, 1_000_000  # compared points or frequencies; frequencies of the model
BARS = "X", "W", "variance", "lengthscales"


@njit(nogil=True)
def _waves(start, stop, t):
    """Compute cosines and sines of the same row repeatedly."""
    c, s = np.empty_like(t), np.empty_like(t)
    for _ in range(start, stop):
        for i in range(t.size):
            c[i], s[i] = cos_sin(t[i])
    return c[0] + s[0]


def floor_of(N, n, D, count, dtype, reverse=False):
    """Return a timer of the floor: waves, best of three, and products at the gemm rate."""
    t = np.linspace(-3, 3, 2048 // np.dtype(dtype).itemsize, dtype=dtype)
    flops = N * n * (2 * D + 4 * count + (2 * D + 4 * count + 1 if reverse else 0))
    over_rows(_waves, 1, 1, t)

    def measure():
        times = []
        for _ in range(3):
            start = time.perf_counter()
            over_rows(_waves, N * n // t.size, N * n, t)
            times.append(time.perf_counter() - start)
        return min(times) + flops / gemm_rate(1000, 1000, dtype)

    return measure


def problem(rng, N, n, D, count, dtype):
    X, W, U = (
        rng.standard_normal(shape).astype(dtype) for shape in ((N, D), (count, 2 * n), (count, N))
    )
    return (
        X,
        W,
        U,
        ("rbf", 1, rng.integers(0, NUM, n), NUM, 1.0, np.full(D, np.sqrt(D)).astype(dtype)),
    )


def seen(X, model, points, frequencies):
    """Return rows and columns of the feature matrix, in extended precision."""
    family, seed, indices, num, variance, lengthscales = model
    omega = kernels.fourier_frequencies(family, seed, indices[frequencies], X.shape[1]).astype(
        np.longdouble
    )
    return oracle.features(
        omega, X[points].astype(np.longdouble), num, variance, lengthscales.astype(np.longdouble)
    )


def forward_error(result, X, W, model):
    return relative_error(
        np.sqrt(NUM) * result[:, :SEEN],
        np.sqrt(NUM) * (W @ seen(X, model, slice(SEEN), slice(None)).T),
    )


def backward_error(result, X, U, model):
    return relative_error(
        np.sqrt(NUM) * result[:, : 2 * SEEN],
        np.sqrt(NUM) * (U @ seen(X, model, slice(None), slice(SEEN))),
    )


@every_dtype
@sides
@sizes
def bench_multiply(benchmark, rng, N, n, D, count, dtype):
    X, W, _, model = problem(rng, N, n, D, count, dtype)
    call = lambda: kernels.fourier_multiply(X, W, *model)  # noqa: E731
    record(
        benchmark,
        call,
        error=forward_error(call(), X, W, model),
        floor_seconds=floor_of(N, n, D, count, dtype),
        seconds=0.5,
    )


@every_dtype
@sides
@sizes
def bench_multiply_transposed(benchmark, rng, N, n, D, count, dtype):
    X, _, U, model = problem(rng, N, n, D, count, dtype)
    call = lambda: kernels.fourier_multiply(X, U, *model, transpose=True)  # noqa: E731
    record(
        benchmark,
        call,
        error=backward_error(call(), X, U, model),
        floor_seconds=floor_of(N, n, D, count, dtype),
        seconds=0.5,
    )


@every_dtype
@sides
@sizes
def bench_multiply_vjp(benchmark, rng, N, n, D, count, dtype):
    X, W, U, model = problem(rng, N, n, D, count, dtype)
    call = lambda: kernels.fourier_sweep(X, *model, W=W, U=U, need=BARS)  # noqa: E731
    floor = floor_of(N, n, D, count, dtype, reverse=True)
    record(
        benchmark,
        call,
        error=backward_error(call()[2], X, U, model),
        floor_seconds=floor,
        seconds=0.5,
    )


@every_dtype
@sides
@sizes
def bench_feature_matrix(benchmark, rng, N, n, D, count, dtype):
    """Time NumPy's cosines and sines of a matrix of phases, and gemm, for given frequencies."""
    X, W, _, model = problem(rng, N, n, D, count, dtype)
    omega = np.asfortranarray(kernels.fourier_frequencies(*model[:3], D, dtype).T)
    gemm = blas.dgemm if dtype == "float64" else blas.sgemm
    scaled, weights = (
        np.asfortranarray(X / model[-1]),
        np.asfortranarray(np.concatenate([W[:, ::2], W[:, 1::2]], axis=1).T),
    )

    def call():
        phases, Phi = gemm(1, scaled, omega), np.empty((N, 2 * n), dtype, order="F")
        np.cos(phases, out=Phi[:, :n])
        np.sin(phases, out=Phi[:, n:])
        return gemm(1 / np.sqrt(NUM), Phi, weights).T

    record(
        benchmark,
        call,
        error=forward_error(call(), X, W, model),
        floor_seconds=floor_of(N, n, D, count, dtype),
        seconds=0.5,
    )


# --- on a device: the floor is its own cosines and sines, in registers, and the products by cuBLAS

there_sizes = pytest.mark.parametrize(
    "N, n, D", [(500, 20_000, 8), (500, 20_000, 64), (500, 20_000, 784), (8192, 20_000, 8)]
)


def floor_there(N, n, D, count, dtype, reverse=False):
    import cupy

    body = (
        "T s, c, t = i * (T)1e-7; y = 0; for (int r = 0; r < rounds; ++r) { sincospi(t, &s, &c); y"
        " += s * c; t += (T)1e-3; }"
    )
    waves, values = (
        cupy.ElementwiseKernel("int32 rounds", "T y", body, "waves"),
        cupy.empty(1 << 18, dtype),
    )
    in_registers = device.repeated(lambda: waves(max(1, N * n // values.size), values))
    flops = N * n * (2 * D + 4 * count + (2 * D + 4 * count + 1 if reverse else 0))
    products = device.gemm_seconds(flops, 4096, 4096, dtype)
    return lambda: in_registers() + products()


def problem_there(rng, N, n, D, count, dtype):
    """Return ``(host X, W, U, model), (the same on the device)``."""
    X, W, U, model = problem(rng, N, n, D, count, dtype)
    there = device.moved(X, W, U, model[2], model[-1])
    return (X, W, U, model), (*there[:3], (*model[:2], there[3], *model[3:5], there[4]))


@device.needs_device
@every_dtype
@sides
@there_sizes
@pytest.mark.parametrize("transpose", [False, True])
def bench_multiply_on_device(benchmark, rng, N, n, D, transpose, count, dtype):
    (X, W, U, model), there = problem_there(rng, N, n, D, count, dtype)
    call = lambda: kernels.fourier_multiply(  # noqa: E731
        there[0], there[2 if transpose else 1], *there[3], transpose=transpose
    )
    error = (
        backward_error(call().get(), X, U, model)
        if transpose
        else forward_error(call().get(), X, W, model)
    )
    device.record_beside(benchmark, call, floor_there(N, n, D, count, dtype), error=error)


@device.needs_device
@every_dtype
@sides
@there_sizes
def bench_multiply_vjp_on_device(benchmark, rng, N, n, D, count, dtype):
    (X, W, U, model), there = problem_there(rng, N, n, D, count, dtype)
    call = lambda: kernels.fourier_sweep(  # noqa: E731
        there[0], *there[3], W=there[1], U=there[2], need=BARS
    )
    error = backward_error(call()[2].get(), X, U, model)
    device.record_beside(
        benchmark, call, floor_there(N, n, D, count, dtype, reverse=True), error=error
    )


@device.needs_device
@every_dtype
@sides
@there_sizes
def bench_feature_matrix_on_device(benchmark, rng, N, n, D, count, dtype):
    """Time phases by cuBLAS, one elementwise pass, and cuBLAS again, for given frequencies."""
    import cupy

    (X, W, U, model), there = problem_there(rng, N, n, D, count, dtype)
    omega = device.moved(kernels.fourier_frequencies(*model[:3], D, dtype).T.copy())[0]
    weights = device.moved(np.concatenate([W[:, ::2], W[:, 1::2]], axis=1))[0]
    features = cupy.ElementwiseKernel("T t", "T c, T s", "sincos(t, &s, &c)", "features")
    root = 1 / np.sqrt(NUM)

    def call():
        Phi = cupy.empty((N, 2 * n), dtype)
        features(cupy.matmul(there[0] / there[3][-1], omega), Phi[:, :n], Phi[:, n:])
        return root * cupy.matmul(weights, Phi.T)

    error = forward_error(call().get(), X, W, model)
    device.record_beside(benchmark, call, floor_there(N, n, D, count, dtype), error=error)
