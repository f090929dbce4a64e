"""scikit-learn's checks of estimators: all pass, with any solver, likelihood or posterior."""

import numpy as np
import pytest
from sklearn.base import is_classifier
from sklearn.utils import estimator_checks as checks

from fastsvgp import recipes
from fastsvgp.runtime import tuning
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

SMALL = {"n_inducing": 16, "max_iter": 30, "learning_rate": 0.05}


class Counting(SVGPRegressor):
    """A regressor of counts, which it makes of the real numbers in the checks."""

    def fit(self, X, y, sample_weight=None):
        if y is not None and np.asarray(y).dtype.kind in "fiu":
            y = np.abs(np.round(np.asarray(y)))
        return super().fit(X, y, sample_weight)


class Positive(SVGPRegressor):
    """A regressor of positive numbers, which it makes of the real numbers in the checks."""

    def fit(self, X, y, sample_weight=None):
        if y is not None and np.asarray(y).dtype.kind in "fiu":
            y = np.abs(np.asarray(y)) + 0.1
        return super().fit(X, y, sample_weight)


# estimators and solvers, which all checks concern
COMPLETE = [
    SVGPRegressor(),
    *(SVGPRegressor(**SMALL, solver=solver) for solver in ("lbfgs", "adam", "natural")),
    SVGPClassifier(),
    *(SVGPClassifier(**SMALL, solver=solver) for solver in ("adam", "natural")),
]
# likelihoods and posteriors, which the checks below concern
REGRESSORS = [
    Positive(**SMALL, target="log"),
    SVGPRegressor(**SMALL, likelihood="student-t", posterior="marginal"),
    SVGPRegressor(**SMALL, likelihood="laplace", posterior="absorbed_dual_sites"),
    SVGPRegressor(**SMALL, likelihood="heteroskedastic", n_latents=2),
    Counting(**SMALL, likelihood="poisson", posterior="decoupled_weights"),
    Counting(**SMALL, likelihood="negative-binomial"),
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
CHECKS_OF_MODELS = {
    "check_classifiers_train",
    "check_estimators_dtypes",
    "check_estimators_pickle",
    "check_fit2d_1feature",
    "check_fit2d_1sample",
    "check_fit_idempotent",
    "check_methods_subset_invariance",
    "check_regressors_train",
    "check_sample_weight_equivalence_on_dense_data",
}


@pytest.fixture(autouse=True)
def _little_work():
    with tuning.override(estimator_seconds=0.1):
        yield


@checks.parametrize_with_checks(COMPLETE)
def test_scikit_learn_checks(estimator, check):
    check(estimator)


@pytest.mark.parametrize("estimator", [*REGRESSORS, *CLASSIFIERS], ids=repr)
def test_checks_that_concern_the_model(estimator):
    passed, failed = set(), []
    for one, check in checks.estimator_checks_generator(estimator):
        name = getattr(check, "func", check).__name__
        if name in CHECKS_OF_MODELS:
            try:
                check(one)
            except Exception as error:
                failed.append(f"{check}: {error!r}")
            else:
                passed.add(name)
    assert not failed
    of_others = "check_classifiers_train", "check_regressors_train"
    assert CHECKS_OF_MODELS - passed == {of_others[is_classifier(estimator)]}


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
