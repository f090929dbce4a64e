"""A cycle is not noise: short lengthscales, and cycles at the peaks of the spectrum."""

import numpy as np

import fastsvgp as fs
from fastsvgp.recipes.model_search.structures import cycles
from fastsvgp.sklearn import SVGPRegressor


def share(model, X, f):
    """Return the part of the variance of f that a model explains."""
    return 1 - np.mean(np.square(model.predict(X) - f)) / np.var(f)


def test_a_daily_cycle_is_found(rng, tune):
    tune(estimator_seconds=1.5)
    t = np.arange(300.0)
    f = np.sin(2 * np.pi * t / 24)
    model = SVGPRegressor(random_state=0).fit(t[:, None], f + 0.1 * rng.standard_normal(300))
    assert share(model, t[:, None], f) > 0.97


def test_cycles_at_random_places_are_found(rng, tune):
    tune(estimator_seconds=1.5)
    t = rng.uniform(0, 25, 300)
    f = np.sin(2 * np.pi * t)
    model = SVGPRegressor(random_state=0).fit(t[:, None], f + 0.1 * rng.standard_normal(300))
    assert share(model, t[:, None], f) > 0.97


def test_peaks_of_the_spectrum_become_cycles(rng):
    X = rng.uniform(-1.7, 1.7, (400, 2))
    y = np.sin(2 * np.pi * X[:, 1] / 0.1) + 0.1 * rng.standard_normal(400)
    plain = fs.covariances.Sum((fs.Linear(0.5), fs.Matern32(1.0, np.ones(2))))
    ((name, found),) = cycles(plain, X, y)
    assert name == "cycles" and found.parts[:2] == plain.parts
    assert abs(found.parts[2].part.period[0] - 0.1) < 0.002
    assert found.parts[2].columns == (1,)
    assert list(cycles(plain, X, rng.standard_normal(400))) == []
    assert list(cycles(plain, np.tile(X, 2), y)) == []  # too many inputs
