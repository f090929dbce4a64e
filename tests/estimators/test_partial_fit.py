"""``partial_fit``: new rows in a fitted estimator, against all rows at its parameters."""

import dataclasses
import re
import warnings

import numpy as np
import pytest
from support.estimator_data import QUICK, classes, real

import fastsvgp as fs
from fastsvgp.errors import DataFileError
from fastsvgp.recipes.beyond_range import BeyondRange
from fastsvgp.recipes.new_data import take_in
from fastsvgp.recipes.scaling import Scale
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor, load, save

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
CLOSED = QUICK | {"solver": "lbfgs"}


def at_its_parameters(model, X, y, weights=None):
    """The estimator with the optimal q(u) of these rows, scaling and parameters as they are."""
    svgp = model.model_
    sgpr = fs.SGPR(svgp.covariance, svgp.inducing, svgp.likelihood.variance, svgp.mean)
    Xs, ys = model.scale_.X(X), model.scale_.y(y)
    return fs.optimal_svgp(sgpr, Xs, ys, jitter=model.jitter_, weights=weights)


@pytest.mark.parametrize("target", [None, "log"])
@pytest.mark.parametrize("P", [None, 1, 2])
def test_rows_in_any_batches_are_all_rows_at_once(rng, P, target):
    X, y = real(rng, 90)
    X[[0, 1]] = X.min(axis=0), X.max(axis=0)
    y = y if P is None else np.stack([y, -y][:P], axis=1)
    y = np.exp(y) if target else y
    w = None if P == 2 else rng.uniform(0.5, 2, 90)
    found = []
    for order in ([slice(30, 50), slice(50, 90)], [slice(50, 90), slice(30, 50)], [slice(30, 90)]):
        model = SVGPRegressor(target=target, **CLOSED)
        for rows in (slice(30), *order):
            weights = None if w is None else w[rows]
            assert model.partial_fit(X[rows], y[rows], sample_weight=weights) is model
        found.append(model)
    targets = y[:, 0] if P == 1 else y
    best = at_its_parameters(model, X, targets, w)
    for model in found:
        for one, other in zip(
            fs.predict_f(model.model_, model.scale_.X(X), jitter=model.jitter_),
            fs.predict_f(best, model.scale_.X(X), jitter=model.jitter_),
            strict=True,
        ):
            np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)
        assert model.predict(X).shape == y.shape


def test_a_first_call_is_fit(rng):
    X, y = real(rng)
    model, fitted = SVGPRegressor(**CLOSED).partial_fit(X, y), SVGPRegressor(**CLOSED).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), fitted.predict(X))
    before = fitted.model_.posterior.mean.copy(), fitted.lower_bound_, fitted.scale_
    old = fitted.model_
    fitted.partial_fit(X[:5], y[:5])
    np.testing.assert_array_equal(old.posterior.mean, before[0])
    assert (fitted.lower_bound_, fitted.scale_) == before[1:] and fitted.model_ is not old


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_of_another_dtype(rng, dtype):
    X, y = real(rng)
    model = SVGPRegressor(**CLOSED).fit(X.astype(dtype), y)
    other = np.float32 if dtype is np.float64 else np.float64
    model.partial_fit(X[:20].astype(other), y[:20].astype(other))
    assert model.model_.posterior.mean.dtype == dtype


@pytest.mark.parametrize("labels", [("no", "yes"), ("a", "b", "c")])
def test_classes(rng, labels):
    X, y = classes(rng, labels, 150)
    model = SVGPClassifier(**QUICK)
    with pytest.raises(ValueError, match="`classes` has z, which the first rows lack; begin with"):
        model.partial_fit(X, y, classes=[*labels, "z"])
    model.partial_fit(X[:50], y[:50], classes=labels)
    before = model.log_predictive_density(X[50:], y[50:]).mean()
    model.partial_fit(X[50:], y[50:], classes=labels).partial_fit(X[:1], y[:1])
    assert model.log_predictive_density(X[50:], y[50:]).mean() > before
    with pytest.raises(ValueError, match="`classes` has z"):
        model.partial_fit(X, y, classes=[*labels, "z"])
    with pytest.raises(ValueError, match="`y` holds the class z, which is none of"):
        model.partial_fit(X[:2], ["z", labels[0]])


def test_targets_of_two_columns(rng):
    X, f = real(rng)
    X[:2] = X.min(axis=0), X.max(axis=0)
    y = np.column_stack([rng.binomial(20, 1 / (1 + np.exp(-2 * f))), np.full(len(X), 20.0)])
    model = SVGPRegressor(likelihood="binomial", **QUICK).fit(X[:30], y[:30])
    before = model.log_predictive_density(X[30:], y[30:]).mean()
    model.partial_fit(X[30:], y[30:])
    assert model.log_predictive_density(X[30:], y[30:]).mean() > before
    with pytest.raises(ValueError, match=r"`y` has shape \(60,\), and the likelihood reads"):
        model.partial_fit(X, y[:, 0])


def test_rows_far_outside_the_range_of_the_first_rows_are_named(rng):
    X, y = real(rng)
    model = SVGPRegressor(**CLOSED).fit(X, y)
    np.testing.assert_array_equal(model.scale_.x_ends, [X.min(axis=0), X.max(axis=0)])
    low, high = model.scale_.x_ends
    near = np.stack([low - 0.09 * (high - low), high + 0.09 * (high - low)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(near, [0.0, 0.0])
    far = np.array([[0.0, 0.0], [0.0, high[1] + 1], [low[0] - 1, 0.0], [high[0] + 1, high[1] + 1]])
    message = (
        "3 of 4 rows are far outside the training range of column 0, column 1, where"
        " the model has no inducing inputs; fit old and new rows together"
    )
    with pytest.warns(UserWarning, match=re.escape(message)) as caught:
        model.partial_fit(far, np.zeros(4))
    assert caught[0].filename == __file__


def held(X, y):
    """Return a model that holds its value at the border of the range of X, and its scaling."""
    scale = Scale.fit(X, y, True)
    ends = scale.X(np.stack([X.min(axis=0), np.zeros(2), X.max(axis=0)])).tolist()
    low, middle, high = map(tuple, ends)
    covariance = BeyondRange(
        fs.RBF(1.0, np.ones(2)), low=low, middle=middle, high=high, variance=6.0
    )
    sgpr = fs.SGPR(covariance, fs.inducing.kmeans(scale.X(X), 12, rng=0), 0.05)
    return fs.optimal_svgp(sgpr, scale.X(X), scale.y(y)), scale


def test_a_model_that_holds_its_border_leaves_rows_beyond_out(rng):
    X, y = real(rng)
    model, scale = held(X, y)
    more, values = np.concatenate([X[:5], X[:5] + [9, 0]]), np.concatenate([y[:5], y[:5] + 50])
    Xs, ys, w = scale.X(more), scale.y(values), rng.uniform(1, 2, 10)
    message = (
        "5 of 10 rows are far outside the training range of a, and are left out; fit old and new"
        " rows together"
    )
    with pytest.warns(UserWarning, match=re.escape(message)):
        ours = take_in(model, Xs, ys, scale, "ab", weights=w)
    truth = fs.condition(model, Xs[:5], ys[:5], weights=w[:5])
    np.testing.assert_array_equal(ours.posterior.mean, truth.posterior.mean)
    with pytest.raises(ValueError, match="5 of 5 rows are far .* of a, and none is inside; fit"):
        take_in(model, Xs[5:], ys[5:], scale, "ab")
    free = fs.replace(model, covariance=fs.replace(model.covariance, held=False))
    with pytest.warns(UserWarning, match="of a, where the model has no inducing inputs"):
        take_in(free, Xs, ys, scale, "ab")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        take_in(free, Xs, ys, dataclasses.replace(scale, x_ends=None), "ab")


def test_a_column_that_was_constant(rng):
    X, y = real(rng)
    X[:, 1] = 1e6
    model = SVGPRegressor(**CLOSED).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.partial_fit(X, y)
    with pytest.warns(UserWarning, match="60 of 60 rows are far .* column 1"):
        model.partial_fit(X + [0, 5], y)


def test_a_file_in_between_changes_nothing(rng, tmp_path):
    X, y = real(rng)
    X[:2] = X.min(axis=0), X.max(axis=0)
    model = SVGPRegressor(**CLOSED).fit(X[:40], y[:40])
    save(tmp_path / "gp.npz", model)
    loaded = load(tmp_path / "gp.npz").partial_fit(X[40:], y[40:])
    np.testing.assert_array_equal(loaded.scale_.x_ends, model.scale_.x_ends)
    np.testing.assert_array_equal(loaded.predict(X), model.partial_fit(X[40:], y[40:]).predict(X))
    record, extra = fs.records.load_with_extra(tmp_path / "gp.npz")
    for ends, what in (
        ([[0.0, 0.0]], "ends of another number"),
        ([[0.0, np.inf], [1.0, 1.0]], "`x_ends` of the scaling must hold finite numbers"),
    ):
        extra["estimator"]["scale"]["x_ends"] = {"array": ends, "dtype": "<f8"}
        fs.save(tmp_path / "gp.npz", record, estimator=extra["estimator"])
        with pytest.raises(DataFileError, match=what):
            load(tmp_path / "gp.npz")


def test_bad_input(rng):
    X, y = real(rng)
    model = SVGPRegressor(**CLOSED).fit(X, y)
    shared = SVGPRegressor(n_latents=1, **QUICK).fit(X, np.stack([y, -y], 1))
    relaxed = SVGPRegressor(posterior="relaxed", **QUICK).fit(X, y)
    cases = [
        (model, (X[:, :1], y), ValueError, "X has 1 features, but SVGPRegressor is expecting 2"),
        (model, (X, np.stack([y, y], 1)), ValueError, r"`y` has shape \(60, 2\); the model was"),
        (model, (X, y, -np.ones(60)), ValueError, "Negative values"),
        (model, (X, y, np.zeros(60)), ValueError, "at least one non-zero number"),
        (model, (X[:0], y[:0]), ValueError, "0 sample"),
        (shared, (X, np.stack([y, -y], 1)), TypeError, "a MultiGP with a `mixing`"),
        (relaxed, (X, y), TypeError, "a Relaxed posterior cannot hold sites of new rows"),
    ]
    for estimator, arguments, kind, message in cases:
        before = estimator.model_
        with pytest.raises(kind, match=message):
            estimator.partial_fit(*arguments)
        assert estimator.model_ is before
