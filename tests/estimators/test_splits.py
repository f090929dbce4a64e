"""``fit(X, y, groups=...)`` and ``time=...``: the search judges by what will be new."""

import numpy as np
import pytest

from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor


@pytest.fixture
def brief(tune):
    tune(estimator_seconds=1.0)


def visits(rng, N=90):
    who = np.arange(N) % 15
    x = rng.standard_normal(N)
    return np.c_[who, x], np.sin(x) + rng.standard_normal(15)[who] + 0.1 * rng.standard_normal(N)


def test_groups_are_a_column_or_labels(rng, brief):
    X, y = visits(rng)
    by_column = SVGPRegressor(random_state=0).fit(X, y, groups=0)
    assert "for new groups: RMSE" in " ".join(by_column.story_)
    names = np.array([f"P{int(one)}" for one in X[:, 0]])
    by_label = SVGPRegressor(random_state=0).fit(X[:, 1:], y, groups=names)
    found = by_label.predict(X[:, 1:], return_std=True)
    assert np.all(found[1] > 0.3)  # new patients differ


def test_time_is_a_column_by_its_name(rng, brief):
    pandas = pytest.importorskip("pandas")
    t = np.arange(90.0)
    X = pandas.DataFrame({"day": t, "x": rng.standard_normal(90)})
    y = 0.02 * t + X["x"] + 0.1 * rng.standard_normal(90)
    model = SVGPRegressor(random_state=0).fit(X, y, time="day", sample_weight=np.ones(90))
    assert "for later times: RMSE" in " ".join(model.story_)
    with pytest.raises(ValueError, match="`time` is 'when', and `X` has no column of this name"):
        model.fit(X, y, time="when")


def test_settings_turn_the_search_off(rng):
    X, y = visits(rng)
    for estimator, targets in ((SVGPRegressor, y), (SVGPClassifier, y > 0)):
        with pytest.raises(ValueError, match="`groups` is for the search, which `max_iter` turns"):
            estimator(max_iter=5).fit(X, targets, groups=0)


def test_classes_of_new_groups(rng, brief):
    X, y = visits(rng)
    model = SVGPClassifier(random_state=0).fit(X[:, 1:], y > 0, groups=X[:, 0])
    assert model.predict_proba(X[:, 1:]).shape == (90, 2)


def test_signs_of_groups_and_of_time_give_a_warning(rng, brief):
    X, y = visits(rng, 120)
    with pytest.warns(UserWarning, match=r"column 0 has 15 values .* give fit\(..., groups=0\)"):
        SVGPRegressor(random_state=0).fit(X, 3 * y)
    X[:, 0] = np.arange(120)
    with pytest.warns(UserWarning, match=r"column 0 increases with the rows.* time=0"):
        SVGPRegressor(random_state=0).fit(X, y)
