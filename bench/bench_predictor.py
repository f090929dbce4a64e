"""Predictions of y: a model, which factorises Kuu in each call, and its predictor.

Matern32 with 8 columns, a whitened posterior, one thread. Floor: M^2 N flops of the predictor, and
M^3 / 3 more of the model. Error: largest difference of means and variances of both.
"""

import numpy as np
import pytest
from harness import record

import fastsvgp as fs

D = 8


def models(rng, M):
    """Return a model and its predictor."""
    covariance = fs.Matern32(1.3, rng.uniform(1.0, 2.0, D))
    tril = np.tril(0.1 * rng.standard_normal((M, M))) / np.sqrt(M)
    tril[np.arange(M), np.arange(M)] = rng.uniform(0.3, 0.9, M)
    q = fs.Whitened(rng.standard_normal(M), tril)
    model = fs.SVGP(covariance, rng.standard_normal((M, D)), q, fs.Gaussian(0.1))
    return {"model": model, "predictor": fs.predictor(model)}


@pytest.mark.parametrize("way", ["model", "predictor"])
@pytest.mark.parametrize("N", [1, 1000])
@pytest.mark.parametrize("M", [100, 512, 1024])
def bench_predict_y(benchmark, rng, M, N, way):
    both, Xs = models(rng, M), rng.standard_normal((N, D))
    with fs.set_num_threads(1):
        found = [fs.predict_y(one, Xs) for one in both.values()]
        error = max(np.abs(a - b).max() for a, b in zip(*found, strict=True))
        flops = M**2 * N + (M**3 / 3 if way == "model" else 0)
        gemm = M, max(N, M) if way == "model" else N, np.float64
        record(benchmark, lambda: fs.predict_y(both[way], Xs), flops=flops, error=error, gemm=gemm)
