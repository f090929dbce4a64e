"""New rows on device arrays: the same results as on the CPU."""

import numpy as np
import pytest
from support.device_models import assert_same, moved
from support.posterior_problems import EVERY, JITTER

import fastsvgp as fs

M, N, D = 5, 11, 2
KINDS = ["whitened", "marginal", "absorbed-sites", "dual-sites"]


def problem(rng, name="whitened", P=None, likelihood=None, mean=None):
    covariance, Z = fs.Matern52(1.1, np.array([0.9, 1.4])), rng.uniform(-2, 2, (M, D))
    batch = () if P is None else (P,)
    K = covariance.Kuu(Z) + JITTER * np.eye(M)
    q = EVERY[name].make(rng, K, batch)
    likelihood = likelihood or fs.Gaussian(np.float64(0.3))
    model = fs.SVGP(fs.replace(covariance, variance=np.float64(1.1)), Z, q, likelihood, mean)
    return model, rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, *batch))


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", KINDS)
def test_condition(gpu, rng, name, P):
    model, X, Y = problem(rng, name, P)
    more = np.concatenate([model.inducing, rng.uniform(2, 4, (3, D))])
    w = rng.uniform(0.5, 2, N)
    for options in ({}, {"weights": w}, {"inducing": more}):
        there = {option: gpu.there(value) for option, value in options.items()}
        here = fs.condition(model, X, Y, jitter=JITTER, **options)
        found = fs.condition(*moved(gpu, model, X, Y), jitter=JITTER, **there)
        assert_same(found, here, 1e-7)


def test_likelihoods_that_take_steps(gpu, rng):
    model, X, Y = problem(rng, likelihood=fs.Poisson())
    counts = rng.poisson(np.exp(Y)).astype(float)
    here = fs.condition(model, X, counts, jitter=JITTER)
    assert_same(fs.condition(*moved(gpu, model, X, counts), jitter=JITTER), here, 1e-7)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", KINDS)
def test_streaming(gpu, rng, name, P):
    old, X, Y = problem(rng, name, P, mean=fs.means.ConstantMean(np.float64(0.3)))
    old = fs.condition(old, X, Y, jitter=JITTER)
    new = fs.SGPR(
        fs.Matern52(np.float64(1.3), np.array([0.8, 1.5])),
        np.concatenate([old.inducing[1:], rng.uniform(-2, 2, (2, D))]),
        np.float64(0.2),
        fs.means.ConstantMean(np.float64(0.1)),
    )
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal(Y.shape)
    given = *moved(gpu, old), *moved(gpu, new, X, Y)
    value, grad = fs.bounds.streaming_bound_and_grad(old, new, X, Y, jitter=JITTER)
    found, there = fs.bounds.streaming_bound_and_grad(*given, jitter=JITTER)
    assert found == pytest.approx(value, rel=1e-7)
    assert_same(there, grad, 1e-6)
    here = fs.bounds.streaming_svgp(old, new, X, Y, jitter=JITTER)
    assert_same(fs.bounds.streaming_svgp(*given, jitter=JITTER), here, 1e-6)
