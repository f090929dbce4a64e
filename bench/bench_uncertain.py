"""Predictions of f at uncertain inputs, by a predictor with an RBF of five columns, one thread.

Ways: ``array`` (exact inputs), ``var`` (independent errors), ``matrix`` (correlated ones),
``pullback`` (``predict_f_and_vjp``). Floor: M (M + 1) / 2 exponentials a row by ``numpy.exp``; of
``array`` M^2 N flops. Error: of ``var`` and ``matrix`` against each other.
"""

import time

import numpy as np
import pytest
from harness import record

import fastsvgp as fs

D, N, BUFFER = 5, 500, 1 << 15


def problem(rng, M):
    """Return a predictor, and the inputs of each way."""
    covariance, Z = fs.RBF(1.0, np.full(D, 1.5)), rng.standard_normal((M, D))
    q = fs.Whitened(rng.standard_normal(M), 0.5 * np.eye(M))
    X, var = rng.standard_normal((N, D)), rng.uniform(0.02, 0.2, (N, D))
    inputs = {
        "array": X,
        "var": fs.GaussianInputs(X, var),
        "matrix": fs.GaussianInputs(X, var[:, None] * np.eye(D)),
    }
    return fs.predictor(fs.SVGP(covariance, Z, q, fs.Gaussian(0.1))), inputs


def seconds_of_exponentials(numbers):
    """Return the time of this many exponentials, in a buffer that fits a cache."""
    x, out = np.linspace(-1, 0, BUFFER), np.empty(BUFFER)
    best = np.inf
    for _ in range(5):
        start = time.perf_counter()
        np.exp(x, out=out)
        best = min(best, time.perf_counter() - start)
    return best / BUFFER * numbers


@pytest.mark.parametrize("way", ["array", "var", "matrix", "pullback"])
@pytest.mark.parametrize("M", [50, 100, 256])
def bench_predict_f(benchmark, rng, M, way):
    model, inputs = problem(rng, M)
    bars = np.ones((2, N))
    with fs.set_num_threads(1):
        found = [fs.predict_f(model, inputs[name]) for name in ("var", "matrix")]
        error = max(np.abs(a - b).max() for a, b in zip(*found, strict=True))
        if way == "array":
            floor = {"flops": M**2 * N, "gemm": (M, N, np.float64)}
            error = None
        else:
            numbers = N * M * (M + 1) // 2
            floor = {"floor_seconds": lambda: seconds_of_exponentials(numbers)}
        if way == "pullback":
            call = lambda: fs.predict_f_and_vjp(model, inputs["var"])[2](*bars)  # noqa: E731
            error = None
        else:
            call = lambda: fs.predict_f(model, inputs[way])  # noqa: E731
        record(benchmark, call, error=error, **floor)
