"""Restarts of the estimators."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import routine
from fastsvgp.sklearn import SVGPRegressor, base
from fastsvgp.sklearn.training import scatter


def test_restarts_begin_at_widely_different_lengthscales(rng):
    lengthscales = rng.uniform(1, 2, 32)
    model = fs.SGPR(
        fs.RBF(2.0, lengthscales) + fs.Matern32(3.0, 0.5), rng.standard_normal((3, 32)), 0.1
    )
    fixed = ("covariance.parts.1.variance", "inducing")
    ratios, alone = [], []
    for seed in range(200):
        one = scatter(model, np.random.default_rng(seed), fixed)
        again = scatter(model, np.random.default_rng(seed), fixed)
        first, second = one.covariance.parts
        ratio = first.lengthscales / lengthscales
        np.testing.assert_array_equal(ratio, again.covariance.parts[0].lengthscales / lengthscales)
        assert np.mean(ratio**-2.0) == pytest.approx(1, rel=0.2)  # distances are as before
        ratios.append(ratio / ratio.min())
        alone.append(float(second.lengthscales) / 0.5)
        assert second.variance == 3.0 and first.variance != 2.0 and one.noise_variance != 0.1
        np.testing.assert_array_equal(one.inducing, model.inducing)
    assert np.mean(np.max(ratios, axis=1) > 50) > 0.9 and np.max(ratios) < 100
    # log-uniform from 1 / 10 to 10
    assert 0.1 <= min(alone) < 0.12 and 8 < max(alone) <= 10
    assert abs(np.median(np.log(alone))) < 0.3


def test_restarts_find_relevant_inputs_where_the_first_start_finds_none(monkeypatch):
    """From equal lengthscales of 32 inputs, L-BFGS explains a function of 4 as noise."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((1000, 32))
    y = np.sin(4 * X[:, 0]) + np.cos(2 * X[:, 1]) * X[:, 2] + 0.3 * X[:, 3] ** 2
    y += 0.1 * rng.standard_normal(1000)
    monkeypatch.setattr(routine, "second_try", lambda *_: None)
    bounds = []
    train = base.train
    monkeypatch.setattr(base, "train", lambda *given: bounds.append(train(*given)) or bounds[-1])
    settings = {"n_inducing": 64, "max_iter": 50, "solver": "lbfgs", "random_state": 0}
    model = SVGPRegressor(n_restarts_optimizer=6, **settings).fit(X, y)
    bounds = [one.bound for one in bounds]
    noise = -0.5 * 1000 * (np.log(2 * np.pi) + 1)
    assert abs(bounds[0] - noise) < 3
    assert max(bounds) == model.lower_bound_ > noise + 40
    assert len({round(bound) for bound in bounds}) >= 2
