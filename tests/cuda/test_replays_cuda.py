"""Kernels in CUDA graphs: replays after the inputs have changed equal direct calls bit for bit.

A number that a capture has kept, or memory that it leaves to others, would show here. The sizes are
those of sums in several slices.
"""

import numpy as np
import pytest

from fastsvgp import kernels
from fastsvgp.kernels.cuda.common import graphs

M, N, m = 200, 90, 300


def positive(rng):
    A = rng.standard_normal((M, M))
    return A @ A.T / M + np.eye(M)


def lower(rng):
    return np.tril(0.1 * rng.standard_normal((M, M))) + np.eye(M)


def matrix(*shape):
    return lambda rng: rng.standard_normal(shape)


FOURIER = "rbf", 7, np.arange(m), m, 1.3, np.array([0.8, 1.1, 1.4])
CALLS = {
    "newton_schulz_step": (kernels.newton_schulz_step, (positive, lower, lambda rng: 0.3)),
    "solve_triangular": (kernels.solve_triangular, (lower, matrix(M, N))),
    "tril_product": (kernels.tril_product, (matrix(M, N), matrix(M, N))),
    "fourier_multiply": (kernels.fourier_multiply, (matrix(N, 3), matrix(2, 2 * m), *FOURIER)),
    "chevron_multiply": (
        kernels.chevron_multiply,
        (matrix(m, 20), matrix(m - 20), matrix(3, m)),
    ),
    "chevron_log_det": (kernels.chevron_log_det, (matrix(m, 20), matrix(m - 20))),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("name", CALLS)
def test_replays_equal_direct_calls(gpu, rng, name, dtype):
    function, makers = CALLS[name]

    def drawn():
        values = [make(rng) if callable(make) else make for make in makers]
        return [
            a.astype(dtype) if isinstance(a, np.ndarray) and a.dtype.kind == "f" else a
            for a in values
        ]

    arguments = [gpu.there(a) if isinstance(a, np.ndarray) else a for a in drawn()]
    recorded = graphs.Recorded(lambda: function(*arguments))
    for _ in range(4):  # the first run, the capture with its launch, and two launches
        for here, new in zip(arguments, drawn(), strict=True):
            if isinstance(new, np.ndarray):
                here[...] = gpu.there(new)
        found = gpu.back(recorded())
        np.testing.assert_array_equal(found, gpu.back(function(*arguments)))
