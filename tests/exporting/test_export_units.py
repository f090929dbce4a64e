"""Exported files in the units of the data: scalings, estimators, and rows that are refused."""

import warnings

import numpy as np
import pytest
from support.exported import FromC, difference, from_python

import fastsvgp as fs
from fastsvgp import covariances as cs
from fastsvgp.recipes.scaling import Scale
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

D = 3
LEVELS = [0.05, 0.5, 0.9]


@pytest.fixture
def data(rng):
    """Columns with a level, of a skewed distribution, and of two values; y is positive."""
    X = np.stack(
        [5 + 3 * rng.standard_normal(90), np.exp(2 * rng.standard_normal(90)), np.arange(90) % 2], 1
    )
    return X, np.exp(2 + np.sin(X[:, 0]) + 0.1 * np.log(X[:, 1]) + 0.1 * rng.standard_normal(90))


def far(X):
    """The rows, rows beyond the training range, and its corners."""
    return np.concatenate([X, X * 20, -X * 1e3, [X.min(0), X.max(0)]])


def both(estimator, folder, outputs=()):
    for path in ("gp.c", "gp.py"):
        estimator.export(folder / path)
    return FromC(folder / "gp.c", outputs), from_python(folder / "gp.py")


REGRESSORS = {
    "lbfgs": {},
    "log": {"target": "log"},
    "matern": {"covariance": "matern32", "normalize_y": False},
    "laplace": {"likelihood": "laplace"},
    "two": {},
    "search": {"time_budget": 0.2},
}


@pytest.mark.parametrize("name", REGRESSORS)
def test_a_regressor(data, tmp_path, name):
    X, y = data
    settings = {"random_state": 0} | REGRESSORS[name]
    settings |= {} if name == "search" else {"max_iter": 10, "n_inducing": 10}
    y = np.stack([y, -y], axis=1) if name == "two" else y
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a poor fit, and of rows far outside
        estimator = SVGPRegressor(**settings).fit(X, y)
        mean, sd = estimator.predict(far(X), return_std=True)
        want = mean, sd**2, estimator.predict_quantiles(far(X), LEVELS)
    for source in both(estimator, tmp_path, y.shape[1:]):
        found = *source.predict_y(far(X)), source.predict_quantiles(far(X), LEVELS)
        assert difference(found, want) < 1e-10  # also of a predictor from its model


@pytest.mark.parametrize("classes", [2, 3])
def test_a_classifier(data, tmp_path, classes):
    X, y = data
    labels = np.array(["low", "*/ middle", "high"])[np.digitize(y, [8, 12][: classes - 1])]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = SVGPClassifier(max_iter=10, n_inducing=10).fit(X, labels)
        want = estimator.predict_proba(far(X))
    for source in both(estimator, tmp_path, (3,) if classes == 3 else ()):
        p, var = source.predict_y(far(X))
        np.testing.assert_allclose(p, want if classes == 3 else want[:, 1], rtol=1e-10)
        np.testing.assert_allclose(var, p * (1 - p), rtol=1e-9, atol=1e-300)
    assert source.CLASSES == list(estimator.classes_)
    assert " class 0: __ middle\n" in (tmp_path / "gp.c").read_text()


def test_columns_have_their_names(data, tmp_path):
    """A name in a comment of C neither ends it nor begins another."""
    X, y = data
    names = ["temperature", "what?\\ /* */", "größe"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        estimator = SVGPRegressor(max_iter=2, n_inducing=5).fit(X, y)
    estimator.feature_names_in_ = np.array(names, object)  # as of a data frame
    _, module = both(estimator, tmp_path)
    assert module.INPUTS == names
    lines = (tmp_path / "gp.c").read_text(encoding="utf-8").splitlines()
    assert [f" *     x[{d}] {one}" in lines for d, one in enumerate(names)] == [True, False, True]
    assert " *     x[1] what__ __ __" in lines


def test_maps_of_columns(data, tmp_path, rng):
    """Between knots, beyond them, and as far as a map goes."""
    X, y = data
    scale = Scale.fit(X, y, scale_target=True).add_column_maps(X)
    assert [one is None for one in scale.x_map] == [False, False, True]
    Xs = scale.X(X)
    model = fs.SGPR(fs.Matern32(1.0, np.ones(D)), Xs[:8], 0.1)
    predictor = fs.predictor(model, Xs, scale.y(y), jitter=1e-4)
    rows = np.concatenate([far(X), [[1e9, -1e9, 0.0], [-1e300, 1e300, 1.0]]])
    mean, var = fs.predict_y(predictor, scale.X(rows))
    quantiles = scale.back(fs.predict_quantiles(predictor, scale.X(rows), LEVELS))
    for path, load in (("gp.c", FromC), ("gp.py", from_python)):
        fs.export(predictor, tmp_path / path, scale=scale)
        source = load(tmp_path / path)
        found = *source.predict_y(rows), source.predict_quantiles(rows, LEVELS)
        assert difference(found, (*scale.back(mean, var), quantiles)) < 1e-12


# --- rows that are refused ------------------------------------------------------------------------


@pytest.fixture
def coded(rng, tmp_path):
    """Both files of a model whose last column holds codes."""
    Z = rng.standard_normal((6, 2))
    Z[:, 1] = np.arange(6) % 3
    q = fs.Whitened(rng.standard_normal(6), np.eye(6) / 2)
    covariance = fs.RBF().on(0) * cs.Categorical().on(1)
    predictor = fs.predictor(fs.SVGP(covariance, Z, q, fs.Gaussian(0.1)))
    for path in ("gp.c", "gp.py"):
        fs.export(predictor, tmp_path / path)
    return FromC(tmp_path / "gp.c"), from_python(tmp_path / "gp.py")


@pytest.mark.parametrize(
    "row, code, message",
    [
        ([np.nan, 1.0], 1, r"`X` must be finite and \(N, 2\), got shape \(1, 2\)"),
        ([0.0, -np.inf], 1, "`X` must be finite"),
        ([0.0, 0.5], 2, "column 1 of `X` must hold whole numbers from 0 on"),
        ([0.0, -1.0], 2, "column 1 of `X` must hold whole numbers from 0 on"),
    ],
)
def test_bad_rows_have_codes(coded, row, code, message):
    compiled, module = coded
    x = np.array(row)
    for got, out in (compiled.moments(x), compiled.quantiles(x, LEVELS)):
        assert got == code and (out == -7.0).all()  # nothing was written
    with pytest.raises(ValueError, match=message):
        module.predict_y(x[None])


@pytest.mark.parametrize("level", [0.0, 1.0, np.nan, -0.1])
def test_bad_levels_have_codes(coded, level):
    compiled, module = coded
    got, out = compiled.quantiles(np.zeros(2), [0.5, level])
    assert got == 3 and (out == -7.0).all()
    with pytest.raises(ValueError, match="`levels` must lie strictly between 0 and 1, got"):
        module.predict_quantiles(np.zeros((1, 2)), [0.5, level])


def test_other_shapes_and_no_rows(coded):
    _, module = coded
    for X in (np.zeros(2), np.zeros((3, 1))):
        with pytest.raises(ValueError, match=r"must be finite and \(N, 2\), got shape"):
            module.predict_y(X)
    assert module.predict_y(np.zeros((0, 2)))[0].shape == (0,)
    assert module.predict_quantiles(np.zeros((0, 2)), LEVELS).shape == (3, 0)
