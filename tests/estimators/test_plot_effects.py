"""``plot_effects``: curves in the units of the data, for every kind of estimator."""

import numpy as np
import pytest
from support.numerics import generator

from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

pyplot = pytest.importorskip("matplotlib.pyplot")
pytestmark = pytest.mark.filterwarnings("ignore:the training ended short")
QUICK = {"n_inducing": 15, "max_iter": 20, "random_state": 0}


@pytest.fixture(autouse=True)
def closing():
    yield
    pyplot.close("all")


@pytest.fixture
def data():
    rng = generator(3)
    X = rng.uniform(5, 9, (80, 3))
    X[:, 2] = rng.integers(0, 3, 80)
    return X, 100 + 7 * X[:, 0] + 20 * X[:, 2] + rng.standard_normal(80)


def test_curves_have_the_units_of_the_data(data):
    X, y = data
    first, second, third = (
        SVGPRegressor("rbf", n_inducing=30, random_state=0).fit(X, y).plot_effects(X)
    )
    assert first.get_xlabel() == "column 0" and first.get_ylabel() == "y, mean effect (95 % band)"
    x, mean = first.lines[0].get_data()
    assert (x[0], x[-1]) == pytest.approx((X[:, 0].min(), X[:, 0].max()))
    np.testing.assert_allclose(mean, 100 + 7 * x + 20 * X[:, 2].mean(), atol=2.5)
    x, mean = third.containers[0].lines[0].get_data()
    np.testing.assert_allclose(x, [0, 1, 2], atol=1e-6)
    np.testing.assert_allclose(np.diff(mean), 20, atol=1.5)
    assert second.get_ylim() == first.get_ylim()


def test_few_columns_by_name_number_and_share(data):
    pandas = pytest.importorskip("pandas")
    X, y = data
    frame = pandas.DataFrame(X, columns=list("abc"))
    model = SVGPRegressor(**QUICK).fit(frame, y)
    assert [ax.get_xlabel() for ax in model.plot_effects(frame, ["c", 0])] == ["c", "a"]
    for columns, message in ((["d"], "'d', which is no column"), ([3], "3, but X has columns 0")):
        with pytest.raises(ValueError, match=message):
            model.plot_effects(frame, columns)
    with pytest.raises(ValueError, match="`axes` has 1 axes for 3 columns"):
        model.plot_effects(frame, axes=pyplot.subplots()[1])


def test_the_strongest_of_many_columns_are_drawn(data):
    X, y = data
    many = np.concatenate([generator(5).standard_normal((80, 6)), X], axis=1)
    labels = [ax.get_xlabel() for ax in SVGPRegressor(**QUICK).fit(many, y).plot_effects(many)]
    assert len(labels) == 6 and set(labels[:2]) == {"column 6", "column 8"}


@pytest.mark.parametrize("likelihood", ["heteroskedastic", "poisson", "student-t"])
def test_other_likelihoods(data, likelihood):
    X, y = data
    (ax,) = SVGPRegressor(likelihood=likelihood, **QUICK).fit(X, y.round()).plot_effects(X, [0])
    assert 0.5 * y.min() < ax.lines[0].get_ydata().mean() < 1.5 * y.max()


def test_logarithms_several_targets_and_float32(data):
    X, y = data
    (ax,) = SVGPRegressor(target="log", **QUICK).fit(X, y).plot_effects(X, [0])
    assert y.min() < ax.lines[0].get_ydata().mean() < y.max()
    Y = np.stack([y, -y], axis=1).astype(np.float32)
    for settings in ({}, {"n_latents": 1}):
        model = SVGPRegressor(**settings, **QUICK).fit(X.astype(np.float32), Y)
        (ax,) = model.plot_effects(X.astype(np.float32), [0])
        assert [text.get_text() for text in ax.get_legend().get_texts()] == ["y0", "y1"]


def test_effects_of_a_classifier_are_on_probabilities(data):
    X, y = data
    cuts = np.quantile(y, [1 / 3, 2 / 3])
    labels = np.array(["low", "middle", "high"])[np.digitize(y, cuts)]
    (ax,) = SVGPClassifier(**QUICK).fit(X, labels).plot_effects(X, [0])
    assert ax.get_ylabel() == "probability of each class (95 % band)"
    total = sum(line.get_ydata() for line in ax.lines[:3])
    np.testing.assert_allclose(total, 1, atol=0.02)
    (ax,) = SVGPClassifier(**QUICK).fit(X, y > cuts[0]).plot_effects(X, [0])
    assert ax.get_ylabel() == "probability of True (95 % band)"
    grades = SVGPClassifier(likelihood="ordinal", **QUICK).fit(X, np.digitize(y, cuts))
    assert "number of the grade" in grades.plot_effects(X, [0])[0].get_ylabel()
