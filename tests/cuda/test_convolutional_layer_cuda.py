"""Layers on patches on device arrays: the results of the CPU, with one copy to the host."""

import numpy as np
import pytest
from support.device_models import Copies, assert_same, check_bound, moved
from support.feature_map_problems import problem
from support.posterior_problems import JITTER

import fastsvgp as fs

SETTINGS = {"num_data": 30.0, "jitter": JITTER}


@pytest.mark.parametrize("kind", ["plain", "places", "maps"])
def test_feature_maps(gpu, rng, kind):
    model, X, Y, _ = problem(rng, kind)
    here = (
        fs.records.tree_map(
            lambda leaf: np.float64(leaf) if isinstance(leaf, float) else leaf, model
        ),
        X,
        Y,
    )
    there = moved(gpu, *here)
    check_bound(gpu, fs.elbo_and_grad, here, there, rng=1, inputs=True, **SETTINGS)
    check_bound(gpu, fs.elbo_and_grad, here, there, rng=1, wrt=("layers.0",), **SETTINGS)
    with Copies(gpu, 1):
        found = fs.predict_f(*there[:2], jitter=JITTER, num_samples=4)
    assert_same(found, fs.predict_f(*here[:2], jitter=JITTER, num_samples=4))
    assert_same(
        fs.sample_f(*there[:2], 2, rng=0, jitter=JITTER),
        fs.sample_f(*here[:2], 2, rng=0, jitter=JITTER),
        1e-8,
    )
