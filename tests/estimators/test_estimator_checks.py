"""scikit-learn's checks of estimators: all pass, with any solver, likelihood or posterior."""

import operator
import pickle

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.utils import estimator_checks as checks

from fastsvgp import recipes
from fastsvgp.runtime import tuning
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

SMALL = {"n_inducing": 16, "max_iter": 30, "learning_rate": 0.05}


# estimators and solvers, which all checks concern
COMPLETE = [
    SVGPRegressor(),
    *(SVGPRegressor(**SMALL, solver=solver) for solver in ("lbfgs", "adam", "natural")),
    SVGPClassifier(),
    *(SVGPClassifier(**SMALL, solver=solver) for solver in ("adam", "natural")),
]
# likelihoods and posteriors, whose checks are below
REGRESSORS = [
    SVGPRegressor(**SMALL, target="log"),
    SVGPRegressor(**SMALL, likelihood="student-t", posterior="marginal"),
    SVGPRegressor(**SMALL, likelihood="laplace", posterior="absorbed_dual_sites"),
    SVGPRegressor(**SMALL, likelihood="heteroskedastic", n_latents=2),
    SVGPRegressor(**SMALL, likelihood="poisson", posterior="decoupled_weights"),
    SVGPRegressor(**SMALL, likelihood="negative-binomial"),
    *(SVGPRegressor(**SMALL, posterior=posterior) for posterior in ("likelihood_form", "relaxed")),
]
CLASSIFIERS = [
    SVGPClassifier(**SMALL, likelihood="bernoulli-probit", posterior="dual_sites"),
    SVGPClassifier(**SMALL, likelihood="bernoulli-logit", posterior="orthogonal"),
    SVGPClassifier(**SMALL, likelihood="softmax", posterior="inverse_free_whitened"),
    SVGPClassifier(**SMALL, likelihood="robustmax", posterior="decoupled"),
    SVGPClassifier(**SMALL, likelihood="ordinal"),
    SVGPClassifier(**SMALL, posterior="whitened_orthogonal"),
]


@pytest.fixture(autouse=True)
def _little_work():
    with tuning.override(estimator_seconds=0.1):
        yield


@checks.parametrize_with_checks(COMPLETE)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


def targets(rng, estimator, N):
    if is_classifier(estimator):
        return np.arange(N) % (2 if estimator.likelihood in recipes.BINARY else 3)
    if estimator.likelihood in ("poisson", "negative-binomial"):
        return rng.poisson(3.0, N).astype(float)
    return rng.uniform(0.1, 2.0, N) if estimator.target == "log" else rng.standard_normal(N)


@pytest.mark.parametrize("estimator", [*REGRESSORS, *CLASSIFIERS], ids=repr)
def test_checks_that_concern_the_model(rng, estimator):
    """Those of scikit-learn with less work: refits, copies, weights, subsets, float32, one row."""
    X, y = rng.standard_normal((24, 2)), targets(rng, estimator, 24)
    name = "predict_proba" if is_classifier(estimator) else "predict"
    predict, rows = operator.methodcaller(name, X), rng.permutation(24)

    def fit(*data):
        return clone(estimator).set_params(random_state=3).fit(*data)

    fitted = fit(X, y)
    expected = predict(fitted)
    for again in (fit(X, y), fitted.fit(X, y), pickle.loads(pickle.dumps(fitted))):
        np.testing.assert_array_equal(predict(again), expected)
    for part in (rows, rows[:1], rows[:7]):
        found = getattr(fitted, name)(X[part])
        np.testing.assert_allclose(found, expected[part], rtol=1e-9, atol=1e-12)
    counts = np.arange(24) // 3 % 3
    weighted = predict(fit(X, y, counts))
    repeated = predict(fit(np.repeat(X, counts, 0), np.repeat(y, counts)))
    np.testing.assert_allclose(weighted, repeated, rtol=1e-7, atol=1e-9)
    assert np.abs(weighted - expected).max() > 1e-6
    assert fit(X.astype(np.float32), y).predict(X.astype(np.float32)).shape == (24,)
    assert fit(X[:, :1], y).n_features_in_ == 1
    try:
        fit(X[:1], y[:1])
    except ValueError as error:
        assert "one class" in str(error) or "one sample" in str(error)


def test_no_name_of_a_setting_is_left_out():
    estimators = COMPLETE + REGRESSORS + CLASSIFIERS
    assert {estimator.posterior for estimator in estimators} == {*recipes.POSTERIORS}
    # the targets of the checks are real numbers, of one column
    own_targets = {
        *("binomial", "known-noise", "censored", "zero-inflated-poisson"),
        *("gamma", "exponential", "beta"),
    }
    assert {e.likelihood for e in estimators} == {
        *recipes.REGRESSION.keys() - own_targets,
        *recipes.BINARY,
        *recipes.MULTICLASS,
        *recipes.ORDERED,
        "auto",
    }
    assert {estimator.solver for estimator in estimators} == {*recipes.SOLVERS}
