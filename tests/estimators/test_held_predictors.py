"""Estimators factorise at the first prediction, and then never again."""

import copy
import gc
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.bounds.predictor import HELD
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor


@pytest.fixture
def data(rng):
    X = rng.uniform(-3, 3, (60, 2))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(60)


def fitted(kind, X, y, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a training that is short
        return kind(max_iter=5, n_inducing=8, random_state=0, **settings).fit(X, y)


CASES = {
    "svgp": (SVGPRegressor, {}),
    "laplace": (SVGPRegressor, {"likelihood": "laplace"}),
    "two functions": (SVGPRegressor, {"likelihood": "heteroskedastic"}),
    "classes": (SVGPClassifier, {}),
    "near rows": (SVGPRegressor, {"neighbours": 5}),
}


def predictions(estimator, X, y):
    """Return all that an estimator predicts of single rows."""
    if isinstance(estimator, SVGPClassifier):
        found = [estimator.predict_proba(X)]
    else:
        found = [*estimator.predict(X, return_std=True), estimator.predict(X)]
        found.append(estimator.predict_quantiles(X, [0.1, 0.9]))
    return [*found, estimator.log_predictive_density(X, y)]


@pytest.mark.parametrize("case", CASES)
def test_a_second_prediction_factorises_nothing(data, monkeypatch, case):
    kind, settings = CASES[case]
    X, y = data
    y = y > 0 if kind is SVGPClassifier else y
    estimator = fitted(kind, X, y, **settings)
    first = predictions(estimator, X, y)
    if case == "near rows":  # they are conditioned on in each call
        assert estimator._predictor is estimator.model_
        return
    assert HELD[estimator.model_][1] is estimator._predictor is not estimator.model_

    def refuse(*args, **options):
        raise AssertionError("a matrix is factorised")

    monkeypatch.setattr(kernels, "cholesky", refuse)
    for one, other in zip(first, predictions(estimator, X, y), strict=True):
        np.testing.assert_array_equal(one, other)


def test_predictions_are_those_of_the_model(data):
    X, y = data
    estimator = fitted(SVGPRegressor, X, y)
    mean, sd = estimator.predict(X, return_std=True)
    options = {"jitter": estimator.jitter_}
    want = fs.predict_y(estimator.model_, estimator.scale_.X(X), **options)
    want = estimator.scale_.moments(*want)
    np.testing.assert_allclose([mean, sd], want, rtol=1e-9)


def test_new_rows_and_another_fit_make_another(data):
    X, y = data
    estimator = fitted(SVGPRegressor, X[:40], y[:40])
    first = estimator.predict(X)
    other = estimator._predictor
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rows outside the range of the first ones
        estimator.partial_fit(X[40:], y[40:])
    assert estimator._predictor is not other and np.abs(estimator.predict(X) - first).max() > 1e-6
    other, estimator.jitter_ = estimator._predictor, 1e-2
    assert estimator._predictor is not other and HELD[estimator.model_][0] == 1e-2


def test_it_lives_as_long_as_the_model(data):
    X, y = data
    estimator = fitted(SVGPRegressor, X, y)
    plain = len(pickle.dumps(estimator))
    before = vars(estimator).copy()
    estimator.predict(X)
    assert len(pickle.dumps(estimator)) == plain and vars(estimator).keys() == before.keys()
    twin = copy.deepcopy(estimator)
    np.testing.assert_array_equal(twin.predict(X), estimator.predict(X))
    gc.collect()
    count = len(HELD)
    del twin
    gc.collect()
    assert len(HELD) == count - 1


def test_threads_share_it(data):
    X, y = data
    estimator = fitted(SVGPRegressor, X, y)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: estimator.predict(X), range(8)))
    for one in found:
        np.testing.assert_array_equal(one, found[0])
