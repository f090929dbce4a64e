"""Labels, weights and probabilities of classes; units too small for the floating-point range."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

FEW = {"n_inducing": 10, "max_iter": 8}


@pytest.fixture
def rare(rng):
    """Rows of which a tenth have the label b, mixed with the others."""
    X = rng.standard_normal((60, 2))
    y = np.where(np.arange(60) % 10 == 0, "b", "a")
    X[y == "b"] += 0.8
    return X, y


@pytest.mark.parametrize("weights", ["balanced", {"a": 1.0, "b": 9.0}])
@pytest.mark.filterwarnings("ignore")
def test_weights_of_classes_are_those_of_their_rows(rare, weights):
    X, y = rare
    own = np.where(y == "b", 9.0, 1.0)
    if weights == "balanced":
        own = np.where(y == "b", 5.0, 5 / 9)
    one = SVGPClassifier(class_weight=weights, random_state=0, **FEW).fit(X, y, 2 * np.ones(60))
    other = SVGPClassifier(random_state=0, **FEW).fit(X, y, 2 * own)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-7)
    plain = SVGPClassifier(random_state=0, **FEW).fit(X, y)
    assert one.predict_proba(X)[:, 1].mean() > 1.3 * plain.predict_proba(X)[:, 1].mean()


def test_weights_of_classes_leave_a_search_on_and_suit_later_rows(rare):
    X, y = rare
    found = SVGPClassifier(class_weight="balanced", time_budget=0.5, random_state=0).fit(X, y)
    assert found.story_
    with pytest.raises(ValueError, match="give a dict of weights by label"):
        found.partial_fit(X, y)
    model = SVGPClassifier(class_weight={"a": 1, "b": 9}, random_state=0, **FEW)
    model.fit(X[:30], y[:30]).partial_fit(X[30:], y[30:])
    other = SVGPClassifier(random_state=0, **FEW).fit(X[:30], y[:30], 1 + 8 * (y[:30] == "b"))
    other.partial_fit(X[30:], y[30:], sample_weight=1.0 + 8 * (y[30:] == "b"))
    np.testing.assert_allclose(model.predict_proba(X), other.predict_proba(X), rtol=1e-7)


@pytest.mark.parametrize(
    "likelihood", ["bernoulli-probit", "bernoulli-logit", "softmax", "ordinal"]
)
@pytest.mark.filterwarnings("ignore")
def test_log_probabilities(rng, likelihood):
    X = rng.standard_normal((80, 1))
    y = np.digitize(X[:, 0], [0.0] if "bernoulli" in likelihood else [-0.5, 0.5])
    model = SVGPClassifier(likelihood=likelihood, random_state=0, **FEW).fit(X, y)
    p, logs = model.predict_proba(X), model.predict_log_proba(X)
    np.testing.assert_allclose(np.exp(logs), p, atol=2e-4)
    assert logs.shape == p.shape and np.isfinite(logs).all()


@pytest.mark.parametrize(
    "cells, message",
    [
        (["a", None, "b", "a"], "`y` holds None, which is no label, in row 1; leave such rows out"),
        (["a", "b", float("nan"), "a"], "`y` holds nan, which is no label, in row 2"),
        (["a", 1, "b", "a"], "`y` holds labels of several types, 'a' and 1; give one type"),
    ],
)
def test_what_is_no_label_is_refused(cells, message):
    X, y = np.arange(4.0)[:, None], np.array(cells, object)
    for labels in (y, list(y)):
        with pytest.raises(ValueError, match=message):
            SVGPClassifier().fit(X, labels)


def test_units_too_small_to_be_squared(rng):
    X = rng.standard_normal((30, 2))
    y = X[:, 0]
    for one, other, name in ((1e-300 * X, y, "X"), (X, 1e-300 * y, "y")):
        for fit in (SVGPRegressor().fit, SVGPRegressor(**FEW).fit, fs.recipes.regression):
            with pytest.raises(ValueError, match=f"`{name}` varies by .*e-300, too little"):
                fit(one, other)
    with pytest.raises(ValueError, match="`X` varies by"):
        SVGPClassifier().fit(1e-300 * X, y > 0)
    assert SVGPRegressor(random_state=0, **FEW).fit(1e-140 * X, 1e-140 * y).score(
        1e-140 * X, 1e-140 * y
    ) == pytest.approx(1, abs=0.05)
