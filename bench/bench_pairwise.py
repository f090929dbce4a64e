"""Stationary matrices and the contraction of their cotangents.

Error: eight rows against the definition in extended precision.

Flops per entry: 3 D for the squared distance by differences (difference, square, sum), or 2 D by a
product for many features, and 28 for the exponential and the variance. Backward pass: 5 D for one
side, 6 D for both, or 2 D and 4 D by products; 2 for the weights of an RBF whose matrix is given,
and for a Matern function the distance, the exponential and 8 more. Bytes: writing the matrix, and
in the backward pass reading its cotangent and, for an RBF, the matrix. The floor is the longer of
the two times.
"""

import device
import numpy as np
import pytest
from harness import record, relative_error

from fastsvgp import kernels
from fastsvgp.kernels.cpu.pairwise import DIRECT_BELOW

SIZES = [
    (100, 256, 8),
    (512, 1024, 8),
    (1000, 1000, 8),
    (256, 8192, 8),
    (1000, 1000, 40),
    (1000, 1000, 784),
]
sizes = pytest.mark.parametrize("N1, N2, D", SIZES)
families = pytest.mark.parametrize("family", ["rbf", "matern12", "matern32", "matern52"])
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
ROWS = 8


def distance_flops(D):
    return 3 * D if D < DIRECT_BELOW else 2 * D


def vjp_flops(family, D, sides):
    weights = 2 if family == "rbf" else distance_flops(D) + 36
    return weights + ((4 + sides) * D if D < DIRECT_BELOW else 2 * sides * D)


def problem(rng, N1, N2, D, dtype):
    X1, X2 = (rng.standard_normal((N, D)).astype(dtype) for N in (N1, N2))
    return X1, X2, np.dtype(dtype).type(1.3), (np.sqrt(D) * rng.uniform(0.7, 2.0, D)).astype(dtype)


def definition(family, X1, X2, variance, lengthscales):
    """Return K and q = -2 dk / d(r^2) of the first rows, in extended precision, for r > 0."""
    X1, X2, s, lengthscales = (
        np.asarray(a, np.longdouble) for a in (X1[:ROWS], X2, variance, lengthscales)
    )
    r = np.sqrt(
        sum(((X1[:, None, d] - X2[None, :, d]) / lengthscales[d]) ** 2 for d in range(X1.shape[1]))
    )
    if family == "rbf":
        return s * np.exp(-(r**2) / 2), s * np.exp(-(r**2) / 2)
    if family == "matern12":
        return s * np.exp(-r), s * np.exp(-r) / r
    if family == "matern32":
        t = np.sqrt(np.longdouble(3)) * r
        return s * (1 + t) * np.exp(-t), 3 * s * np.exp(-t)
    t = np.sqrt(np.longdouble(5)) * r
    return s * (1 + t + t**2 / 3) * np.exp(-t), s * 5 * (1 + t) * np.exp(-t) / 3


def X1_bar_error(X1_bar, K_bar, family, X1, X2, variance, lengthscales):
    w = K_bar[:ROWS].astype(np.longdouble) * definition(family, X1, X2, variance, lengthscales)[1]
    difference = (
        (w * (X2[None, :, d] - X1[:ROWS, None, d].astype(np.longdouble))).sum(1)
        for d in range(X1.shape[1])
    )
    return relative_error(
        X1_bar[:ROWS], np.stack(list(difference), 1) / lengthscales.astype(np.longdouble) ** 2
    )


@every_dtype
@families
@sizes
def bench_stationary(benchmark, rng, N1, N2, D, family, dtype):
    arguments = problem(rng, N1, N2, D, dtype)
    error = relative_error(
        kernels.stationary(family, *arguments)[:ROWS], definition(family, *arguments)[0]
    )
    flops, nbytes = N1 * N2 * (distance_flops(D) + 28), N1 * N2 * np.dtype(dtype).itemsize
    call = lambda: kernels.stationary(family, *arguments)  # noqa: E731
    record(benchmark, call, flops=flops, bytes=nbytes, error=error, gemm=(N1, N2, dtype))


@every_dtype
@sizes
def bench_stationary_symmetric(benchmark, rng, N1, N2, D, dtype):
    X, _, *parameters = problem(rng, N1, 1, D, dtype)
    call = lambda: kernels.stationary("matern32", X, None, *parameters)  # noqa: E731
    error = relative_error(call()[:ROWS], definition("matern32", X, X, *parameters)[0])
    flops, nbytes = N1 * N1 // 2 * (distance_flops(D) + 28), N1 * N1 * X.itemsize
    record(benchmark, call, flops=flops, bytes=nbytes, error=error, gemm=(N1, N1, dtype))


@every_dtype
@pytest.mark.parametrize("need", ["all", "X1"])
@pytest.mark.parametrize("family", ["rbf", "matern32"])
@sizes
def bench_stationary_vjp(benchmark, rng, N1, N2, D, family, need, dtype):
    """Time the reverse rule with the matrix given, as in a training step.

    "X1": inducing inputs against a batch that needs no gradient.
    """
    arguments = problem(rng, N1, N2, D, dtype)
    K, K_bar = kernels.stationary(family, *arguments), rng.standard_normal((N1, N2)).astype(dtype)
    names = (
        ("X1", "X2", "variance", "lengthscales")
        if need == "all"
        else ("X1", "variance", "lengthscales")
    )
    call = lambda: kernels.stationary_vjp(K_bar, family, *arguments, need=names, K=K)  # noqa: E731
    error = X1_bar_error(call()[0], K_bar, family, *arguments)
    flops = N1 * N2 * vjp_flops(family, D, 2 if need == "all" else 1)
    nbytes = K_bar.nbytes + (K.nbytes if family == "rbf" else 0)
    record(benchmark, call, flops=flops, bytes=nbytes, error=error, gemm=(N1, N2, dtype))


@every_dtype
@sizes
def bench_inner(benchmark, rng, N1, N2, D, dtype):
    X1, X2, _, weights = problem(rng, N1, N2, D, dtype)
    truth = (X1[:ROWS].astype(np.longdouble) * weights) @ X2.astype(np.longdouble).T
    error = relative_error(kernels.inner(X1, X2, weights)[:ROWS], truth)
    call = lambda: kernels.inner(X1, X2, weights)  # noqa: E731
    nbytes = N1 * N2 * X1.itemsize
    record(benchmark, call, flops=2 * N1 * N2 * D, bytes=nbytes, error=error, gemm=(N1, N2, dtype))


# --- on a device: the floor is to write K ---------------------------------------------------------

THERE = [(1000, 1000, 8), (8192, 8192, 3), (8192, 8192, 8), (8192, 8192, 16), (8192, 8192, 100)]
there_sizes = pytest.mark.parametrize("N1, N2, D", THERE)


@device.needs_device
@every_dtype
@families
@there_sizes
def bench_stationary_on_device(benchmark, rng, N1, N2, D, family, dtype):
    arguments = problem(rng, N1, N2, D, dtype)
    X1, X2, lengthscales = device.moved(arguments[0], arguments[1], arguments[3])
    call = lambda: kernels.stationary(family, X1, X2, arguments[2], lengthscales)  # noqa: E731
    error = relative_error(call()[:ROWS].get(), definition(family, *arguments)[0])
    device.record_writing(benchmark, call, N1 * N2 * X1.itemsize, error)


@device.needs_device
@every_dtype
@there_sizes
def bench_elementwise_on_device(benchmark, rng, N1, N2, D, dtype):
    """Time the same RBF matrix by CuPy: norms, a product of cuBLAS, and one fused pass."""
    import cupy

    arguments = problem(rng, N1, N2, D, dtype)
    X1, X2, lengthscales = device.moved(arguments[0], arguments[1], arguments[3])
    operation = "T r2 = n1 + n2 - 2 * k; k = s * exp(r2 > 0 ? -r2 / 2 : (T)0)"
    finish = cupy.ElementwiseKernel("T n1, T n2, T s", "T k", operation, "finish")

    def call():
        A, B = X1 / lengthscales, X2 / lengthscales
        K = cupy.matmul(A, B.T)
        return finish((A * A).sum(1)[:, None], (B * B).sum(1), arguments[2], K)

    error = relative_error(call()[:ROWS].get(), definition("rbf", *arguments)[0])
    device.record_writing(benchmark, call, N1 * N2 * X1.itemsize, error)


@device.needs_device
@every_dtype
@pytest.mark.parametrize("need", ["all", "X1"])
@pytest.mark.parametrize("family", ["rbf", "matern32"])
@there_sizes
def bench_stationary_vjp_on_device(benchmark, rng, N1, N2, D, family, need, dtype):
    """Time the reverse rule as in a training step: K_bar and K are given."""
    arguments = problem(rng, N1, N2, D, dtype)
    K_bar = rng.standard_normal((N1, N2)).astype(dtype)
    X1, X2, lengthscales, bar = device.moved(arguments[0], arguments[1], arguments[3], K_bar)
    K = kernels.stationary(family, X1, X2, arguments[2], lengthscales)
    names = (
        ("X1", "X2", "variance", "lengthscales")
        if need == "all"
        else ("X1", "variance", "lengthscales")
    )
    call = lambda: kernels.stationary_vjp(  # noqa: E731
        bar, family, X1, X2, arguments[2], lengthscales, need=names, K=K
    )
    error = X1_bar_error(call()[0][:ROWS].get(), K_bar, family, *arguments)
    device.record_writing(benchmark, call, N1 * N2 * X1.itemsize, error)
