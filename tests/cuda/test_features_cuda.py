"""Features of covariances on device arrays: those of the CPU."""

import numpy as np
import pytest
from covariances.test_features import EVERY, D, points
from support.device_models import assert_same, moved


@pytest.mark.parametrize("name", EVERY)
def test_features(gpu, rng, name):
    covariance = EVERY[name](rng)
    X, bar = points(rng, covariance, 4), rng.standard_normal((2, 2, 4))
    for seeds in (3, np.array([3, 4], np.uint64)):
        here = covariance.features(6, seeds, D)
        w = rng.standard_normal((2, 2, here.size))
        k, X_there, w_there, bar_there = moved(gpu, covariance, X, w, bar)
        there = k.features(6, seeds, D)
        found = there.multiply(X_there, w_there), there.multiply_vjp(bar_there, X_there, w_there)
        assert_same(found, (here.multiply(X, w), here.multiply_vjp(bar, X, w)))
