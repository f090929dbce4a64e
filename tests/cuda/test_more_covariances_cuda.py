"""Further covariances on device arrays: the bound and the gradients of the CPU."""

import numpy as np
import pytest
from support.covariance_problems import MORE, TABLE, cast
from support.device_models import B, M, assert_same, check_bound, moved, small_model

import fastsvgp as fs

D = 3
CODES = {
    "coregion": lambda rng: (
        fs.covariances.Coregion(rng.standard_normal((4, 2)), rng.uniform(0.3, 1, 4)).on(2)
        * fs.RBF(1.0, 1.2).on(0, 1)
    ),
    "categorical": lambda rng: (
        fs.covariances.Categorical(1.2, np.array([0.7])).on(2) * fs.Linear(0.4).on(0)
    ),
}


def device_and_host(gpu, rng, covariance):
    Z, X = rng.standard_normal((M, D)), rng.standard_normal((B, D))
    if covariance.code_columns(D):
        for inputs in (Z, X):
            inputs[:, 2] = rng.integers(0, 4, len(inputs))
    model = small_model(rng, covariance=cast(covariance + 0.1, np.float64), inducing=Z)
    here = model, X, rng.standard_normal(B)
    return here, moved(gpu, *here)


@pytest.mark.parametrize("name", [*MORE, "rational quadratic", *CODES])
def test_bounds(gpu, rng, name):
    covariance = CODES[name](rng) if name in CODES else TABLE[name](rng, D)
    here, there = device_and_host(gpu, rng, covariance)
    check_bound(gpu, fs.elbo_and_grad, here, there, inputs=True)
    found = fs.predict_f(*there[:2])
    assert_same(tuple(found), tuple(fs.predict_f(*here[:2])))


def test_codes_are_checked_on_the_device(gpu, rng):
    here, there = device_and_host(gpu, rng, CODES["coregion"](rng))
    X = here[1].copy()
    X[5, 2] = 1.5
    for function in (fs.elbo, fs.elbo_and_grad):
        with pytest.raises(ValueError, match=r"`X` contains 1.5 in a column of codes.*\(5, 2\)"):
            function(there[0], gpu.there(X), there[2])
