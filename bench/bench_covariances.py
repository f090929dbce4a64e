"""A training step, value and all gradients, of each covariance, as a multiple of the same with RBF.

One thread, M = 200 inducing inputs, a batch of 500. Times are of the processor, so that other load
on the machine counts little. Floor: the step with an RBF of four columns, timed between the calls.
Error: of the gradient along a random direction, against five-point differences of the bound.
"""

import time

import numpy as np
import pytest
from harness import record
from support.numerics import five_point

import fastsvgp as fs

M, B, D, CODES = 200, 500, 4, 5
JITTER = 1e-3


def numbers(rng, N, D=D):
    return rng.uniform(-2, 2, (N, D))


def codes(rng, N):
    return np.column_stack([numbers(rng, N, D - 1), rng.integers(0, CODES, N)])


def wide(rng, N):
    return numbers(rng, N, 8)


ONES = np.ones(D)
# name: a covariance, and its inputs
COVARIANCES = {
    "RationalQuadratic": (fs.covariances.RationalQuadratic(1.0, ONES, 0.7), numbers),
    "Periodic": (fs.Periodic(fs.RBF(1.0, ONES), 3 * ONES), numbers),
    "Polynomial": (fs.covariances.Polynomial(0.3 * ONES, 1.0), numbers),
    "ArcCosine": (fs.covariances.ArcCosine(1.0, ONES, 1.0), numbers),
    "ArcCosine-of-order-2": (fs.covariances.ArcCosine(1.0, ONES, 1.0, order=2), numbers),
    "spectral-mixture-of-4": (
        fs.covariances.spectral_mixture(
            np.ones(4), np.linspace(0.0, 0.3, 16).reshape(4, D), np.full((4, D), 0.2)
        ),
        numbers,
    ),
    "On-On": (fs.RBF(1.0, ONES[:2]).on(0, 1) * fs.RBF(1.0, ONES[:2]).on(2, 3), numbers),
    "RBF-Coregion": (
        fs.RBF(1.0, ONES[:3]).on(0, 1, 2)
        * fs.covariances.Coregion(
            np.linspace(-1, 1, 2 * CODES).reshape(CODES, 2), np.ones(CODES)
        ).on(3),
        codes,
    ),
    "RBF-Categorical": (
        fs.RBF(1.0, ONES[:3]).on(0, 1, 2) * fs.covariances.Categorical().on(3),
        codes,
    ),
    "ChangePoints": (fs.covariances.ChangePoints((fs.RBF(1.0, ONES), fs.RBF()), [0.0]), numbers),
    "Additive-of-8-columns": (fs.covariances.Additive(np.ones(2), np.ones(8)), wide),
}


def model_and_batch(rng, covariance, inputs):
    posterior = fs.Whitened(
        rng.standard_normal(M), np.eye(M) + np.tril(rng.uniform(0, 0.01, (M, M)))
    )
    X = inputs(rng, B)
    return fs.SVGP(covariance, inputs(rng, M), posterior, fs.Gaussian(0.1)), X, np.sin(X[:, 0])


def error_of_gradient(rng, model, X, y):
    """Return the error along a random direction of the covariance's fields."""
    grad = fs.elbo_and_grad(model, X, y, jitter=JITTER)[1].covariance
    direction = fs.records.tree_map(
        lambda a: a * rng.standard_normal(np.shape(a)), model.covariance
    )

    def value(s):
        moved = fs.records.tree_map(lambda a, d: a + s * d, model.covariance, direction)
        return fs.elbo(fs.replace(model, covariance=moved), X, y, jitter=JITTER)

    pairs = zip(fs.records.leaves(grad), fs.records.leaves(direction), strict=True)
    pairs = [(bar, d) for (_, _, bar), (_, _, d) in pairs]
    slope = sum(np.vdot(bar, d) for bar, d in pairs)
    size = sum(np.linalg.norm(bar) * np.linalg.norm(d) for bar, d in pairs)
    return abs(float(slope - five_point(value, 1e-4))) / size


@pytest.mark.benchmark(timer=time.process_time)
@pytest.mark.parametrize("name", COVARIANCES)
def bench_step_of_covariance(benchmark, rng, name):
    fs.set_num_threads(1)
    covariance, inputs = COVARIANCES[name]
    model, X, y = model_and_batch(rng, covariance, inputs)
    plain = model_and_batch(rng, fs.RBF(1.0, ONES), numbers)

    def with_rbf():
        fs.elbo_and_grad(*plain, jitter=JITTER)
        start = time.process_time()
        fs.elbo_and_grad(*plain, jitter=JITTER)
        return time.process_time() - start

    record(
        benchmark,
        lambda: fs.elbo_and_grad(model, X, y, jitter=JITTER),
        error=error_of_gradient(rng, model, X, y),
        floor_seconds=with_rbf,
    )
