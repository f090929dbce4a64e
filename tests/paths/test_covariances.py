"""Functions of composed covariances, also where inducing variables are not their values."""

import numpy as np
import pytest
from covariances.test_features import EVERY, IMAGES, D, points
from support.gp_problems import assert_moments, lower_factor
from support.path_problems import FEW, assert_slopes
from support.posterior_problems import JITTER

import fastsvgp as fs

S, M = 4000, 5
SOME = [
    "sum and linear",
    "rational quadratic",
    "of an output",
    "change points of rbf",
    "rbf on features",
    "rbf of patches",
]


def model_of(rng, name):
    covariance = EVERY[name](rng)
    Z = points(rng, covariance, M)
    if name == "rbf on features":
        Z = rng.standard_normal((M, 2))
    if name == "rbf of patches":
        Z = rng.standard_normal((M, IMAGES["patch_shape"][1]))
    q = fs.Whitened(rng.standard_normal(M), lower_factor(rng, M, off=0.1))
    return fs.SVGP(covariance, Z, q, fs.Gaussian(0.2))


@pytest.mark.parametrize("name", SOME)
def test_moments_and_slopes(rng, name):
    model = model_of(rng, name)
    X = points(rng, model.covariance, 3)
    paths = fs.sample_paths(model, S, rng=rng, **FEW)
    assert_moments(paths(X), *fs.predict_f(model, X, full_cov=True, jitter=JITTER))
    if not model.covariance.code_columns(D):
        assert_slopes(paths[:2], X, rng)


def test_the_same_functions_after_save_and_load(rng, tmp_path):
    model = model_of(rng, "rbf on features")
    X, paths = points(rng, model.covariance, 3), fs.sample_paths(model, 2, rng=3, **FEW)
    fs.save(tmp_path / "paths.npz", paths)
    np.testing.assert_array_equal(fs.load(tmp_path / "paths.npz")(X), paths(X))
