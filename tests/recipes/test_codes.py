"""Starts keep the columns of codes of a covariance in the units of the data."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.sklearn import SVGPRegressor


def table(rng, N=120):
    X = np.c_[rng.uniform(5, 9, N), rng.integers(0, 3, N)]
    return X, np.sin(X[:, 0]) + np.array([0.0, 2.0, -1.0])[X[:, 1].astype(int)]


def covariance():
    return fs.RBF().on(0) * fs.covariances.Categorical(1.0, 1.0).on(1)


@pytest.mark.parametrize("chosen", ["kmeans", "greedy", "random"])
def test_starts_keep_codes(rng, chosen):
    X, y = table(rng)
    start = fs.recipes.regression(X, y, 20, covariance(), chosen=chosen, solver="natural", rng=0)
    assert start.scale.x_mean[1] == 0 and start.scale.x_scale[1] == 1
    assert start.scale.x_mean[0] == pytest.approx(X[:, 0].mean())
    codes = start.model.inducing[:, 1]
    assert set(codes) <= {0.0, 1.0, 2.0}
    np.testing.assert_allclose(start.scale.X_back(start.scale.X(X)), X, rtol=1e-12)


def test_an_estimator_learns_from_codes(rng):
    X, y = table(rng)
    model = SVGPRegressor(covariance=covariance(), n_inducing=40, random_state=0).fit(X, y)
    assert model.score(X, y) > 0.95


def test_classes_beside_codes(rng):
    X, y = table(rng)
    start = fs.recipes.classification(X, y > 0, 15, covariance(), rng=0)
    assert set(start.model.inducing[:, 1]) <= {0.0, 1.0, 2.0}
