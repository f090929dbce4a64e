"""Packed triangles and the fused Adam step: one pass each, memory-bound."""

import numpy as np
import pytest
from harness import record, relative_error

from fastsvgp import kernels

every_size = pytest.mark.parametrize("M", [100, 1000, 2000])


@every_size
def bench_pack_tril(benchmark, rng, M):
    A, out = rng.standard_normal((M, M)), np.empty(M * (M + 1) // 2)
    kernels.pack_tril(A, out)
    record(
        benchmark,
        lambda: kernels.pack_tril(A, out),
        bytes=2 * out.nbytes,
        error=relative_error(out, A[np.tril_indices(M)]),
    )


@every_size
def bench_unpack_tril(benchmark, rng, M):
    packed = rng.standard_normal(M * (M + 1) // 2)
    dtype = np.dtype(np.float64)
    error = relative_error(kernels.unpack_tril(packed, M, dtype)[np.tril_indices(M)], packed)
    record(
        benchmark,
        lambda: kernels.unpack_tril(packed, M, dtype),
        bytes=packed.nbytes + 8 * M * M,
        error=error,
    )


@every_size
def bench_adam(benchmark, rng, M):
    """Reads four vectors, writes three."""
    n = M * (M + 1) // 2
    x, g, first, second = rng.standard_normal(n), rng.standard_normal(n), np.zeros(n), np.zeros(n)
    out = np.empty((3, n))
    settings = {"step_size": 0.01, "beta1": 0.9, "beta2": 0.999, "epsilon": 1e-8, "count": 1}

    def call():
        kernels.adam(x, g, first, second, tuple(out), **settings)

    call()
    truth = x + 0.01 * g / (np.abs(g) + 1e-8)  # in the first step both corrections cancel the decay
    record(benchmark, call, flops=13 * n, bytes=7 * x.nbytes, error=relative_error(out[0], truth))
