"""Covariances of a network's features on device arrays: the CPU's results, one copy to the host."""

import numpy as np
import pytest
from support.device_models import B, D, M, assert_same, check_bound, moved, small_model

import fastsvgp as fs


@pytest.mark.parametrize("activation", ["tanh", "relu"])
def test_bounds_predictions_and_steps(gpu, rng, activation):
    network = fs.covariances.Network.random((D, 6, 4, 2), activation, rng)
    covariance = fs.covariances.OnFeatures(fs.RBF(np.float64(1.3), np.ones(2)), network)
    # relu makes the features of many rows equal, so inducing ones are perturbed
    Z = network(rng.standard_normal((M, D))) + rng.standard_normal((M, 2))
    model = small_model(rng, covariance=covariance, inducing=Z)
    here = model, rng.standard_normal((B, D)), rng.standard_normal(B)
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, inputs=True)
    check_bound(gpu, fs.elbo_and_grad, here, there, wrt=("covariance.network.weights.1",))
    check_bound(gpu, fs.elbo_and_grad, here, there, wrt=("covariance.covariance", "inducing"))
    for full_cov in (False, True):
        found = fs.predict_f(*there[:2], full_cov=full_cov)
        assert_same(tuple(found), tuple(fs.predict_f(*here[:2], full_cov=full_cov)))
    settings = dict(steps=2, batch_size=B, rng=0, natural_step_size=0.3)
    assert_same(fs.fit(*there, **settings)[0], fs.fit(*here, **settings)[0], 1e-8)
