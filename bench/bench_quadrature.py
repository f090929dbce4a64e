"""Quadrature kernels.

Error: against the rule written out with SciPy's special functions in float64. Flops: counted by
hand.
"""

import numpy as np
import pytest
from harness import record, relative_error
from scipy.special import log_expit, log_ndtr, logsumexp, ndtr

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
every_length = pytest.mark.parametrize("N", [256, 8192])
GEMM = 512, 512

# function, and the flops of one value with its slope: polynomials of exp (26), log (28), erfcx
# (52), and the operations between them
FUNCTIONS = {
    "log_ndtr": (log_ndtr, 130),
    "log_sigmoid": (log_expit, 62),
    "log1p_square": (lambda f: np.log1p(f * f), 36),
}


def gaussians(rng, shape, dtype):
    return rng.standard_normal(shape).astype(dtype), rng.gamma(1.0, 1.0, shape).astype(dtype)


def plain_rule(g, mean, var, num=20):
    z, w = np.polynomial.hermite_e.hermegauss(num)
    return sum(wk * g(mean + np.sqrt(var) * zk) for wk, zk in zip(w / w.sum(), z, strict=True))


@every_dtype
@every_length
@pytest.mark.parametrize("function", FUNCTIONS)
def bench_expectation(benchmark, rng, function, N, dtype):
    mean, var = gaussians(rng, N, dtype)
    g, flops = FUNCTIONS[function]
    error = relative_error(
        kernels.expectation(function, mean, var)[0],
        plain_rule(g, mean.astype(float), var.astype(float)),
    )
    record(
        benchmark,
        lambda: kernels.expectation(function, mean, var),
        flops=20 * N * (flops + 8),
        error=error,
        gemm=(*GEMM, "float64"),  # the arithmetic is float64 for every dtype
    )


@every_length
@pytest.mark.parametrize("C", [3, 10])
def bench_largest(benchmark, rng, C, N):
    mean, var = gaussians(rng, (C, N), np.float64)
    Y, n = rng.integers(0, C, N), np.arange(N)

    def product(f):
        P = ndtr((f - mean) / np.sqrt(var))
        P[Y, n] = 1
        return P.prod(axis=0)

    error = relative_error(
        kernels.largest(Y, mean, var)[0], plain_rule(product, mean[Y, n], var[Y, n])
    )
    record(
        benchmark,
        lambda: kernels.largest(Y, mean, var),
        flops=20 * C * N * 105,
        error=error,
        gemm=(*GEMM, "float64"),
    )


@every_length
@pytest.mark.parametrize("C", [3, 10])
def bench_expected_logsumexp(benchmark, rng, C, N):
    mean, var = gaussians(rng, (C, N), np.float64)
    z = kernels.normal_points(C, 128)
    plain = np.mean(
        [logsumexp(mean + np.sqrt(var) * point[:, None], axis=0) for point in z], axis=0
    )
    error = relative_error(kernels.expected_logsumexp(mean, var, z)[0], plain)
    record(
        benchmark,
        lambda: kernels.expected_logsumexp(mean, var, z),
        flops=128 * C * N * 36,
        error=error,
        gemm=(*GEMM, "float64"),
    )
