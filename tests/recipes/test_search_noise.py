"""Noise that varies with the inputs: its process, the rows weighted by it, and the search."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes.model_search import left_out
from fastsvgp.recipes.model_search.candidates import Hyper
from fastsvgp.recipes.model_search.plan import SearchPlan
from fastsvgp.recipes.model_search.race import Look
from fastsvgp.recipes.model_search.regression import Regression
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.recipes.model_search.varying_noise import (
    cross_fit,
    fit_log_factor,
    precisions,
    weigh,
    with_varying_noise,
)
from fastsvgp.recipes.scaling import Scale
from fastsvgp.sklearn import SVGPRegressor

PLAN = SearchPlan(1e3, True)


def squares(rng, N, slope):
    X = rng.uniform(-2, 2, (N, 2))
    z = np.exp(0.5 * slope * X[:, 0]) * rng.standard_normal(N)
    return SearchRows(X, np.maximum(z**2, 1e-6)), np.exp(slope * X[:, 0])


def test_the_factor_of_the_noise_is_found_from_squares(rng):
    rows, factor = squares(rng, 800, 1.2)
    model = fit_log_factor(rows, PLAN)
    found = np.log(cross_fit(model, rows, PLAN))
    assert np.corrcoef(found, np.log(factor))[0, 1] > 0.85
    density = -0.5 * (found + rows.y / np.exp(found))
    assert density.mean() > -0.5 * (1 + np.log(rows.y.mean())) + 0.1  # of one factor for all
    g, u = fs.predict_f(model, rows.X)
    np.testing.assert_allclose(precisions(model, rows.X), np.exp(u / 2 - g))
    rows, _ = squares(rng, 800, 0.0)
    found = np.log(cross_fit(fit_log_factor(rows, PLAN), rows, PLAN))
    assert abs(found).mean() < 0.35


def test_rows_of_a_fold_do_not_see_their_own_squares(rng):
    rows, _ = squares(rng, 200, 1.0)
    model = fit_log_factor(rows, PLAN)
    found, fold = cross_fit(model, rows, PLAN), np.random.default_rng(0).permutation(200)[:40]
    other = rows.y.copy()
    other[fold] *= 100
    changed = cross_fit(model, SearchRows(rows.X, other), PLAN)
    np.testing.assert_array_equal(found[fold], changed[fold])
    assert (found != changed).any()


@pytest.mark.parametrize("weighted", [False, True])
def test_rows_are_weighted_by_their_noise(rng, weighted):
    rows, _ = squares(rng, 50, 1.0)
    h = fit_log_factor(rows, PLAN)
    w = rng.uniform(0.5, 2.0, 50) if weighted else np.ones(50)
    y = rng.standard_normal(50)
    rows = weigh(SearchRows(rows.X, y, w if weighted else None), precisions(h, rows.X))
    k, noise = fs.RBF(1.5, np.ones(2)), 0.3
    sgpr = fs.SGPR(k, rows.X, noise)
    model = with_varying_noise(fs.optimal_svgp(sgpr, rows.X, y, weights=rows.weights), h)
    assert type(model.likelihood) is fs.likelihoods.HeteroskedasticGaussian
    mean, var = fs.predict_y(model, rows.X)
    g, u = fs.predict_f(h, rows.X)
    K = k.matrix(rows.X)
    A = K + np.diag(noise / (w * np.exp(u / 2 - g)))
    np.testing.assert_allclose(mean, K @ np.linalg.solve(A, y), atol=1e-4)
    var_f = np.diag(K - K @ np.linalg.solve(A, K))
    np.testing.assert_allclose(var, var_f + noise * np.exp(g + u / 2), rtol=1e-4, atol=1e-5)


def answer_of(rng, slope, N=300):
    X = rng.uniform(-2, 2, (N, 2))
    y = np.sin(2 * X[:, 1]) + 0.3 * np.exp(slope * X[:, 0]) * rng.standard_normal(N)
    rows, scale = SearchRows(X, y), Scale.fit(X, y, True)
    held, last = rows.some(np.arange(N - 60, N - 30)), rows.some(np.arange(N - 30, N))
    part = rows.some(np.arange(N - 60))
    race = Regression(
        None, rows, part, held, last, scale, scale, SearchPlan(9.0, True), 0, lambda line: None
    )
    hyper = Hyper(fs.RBF(1.0, np.array([3.0, 0.8])), 0.09 * (1 + 2 * slope**2), None)
    look = Look("exact", 1.0, 1, 1.0, 0.1, (1.0, 1.0), hyper, scale)
    race.looks, race.best, race.first = [look], look, look
    left = left_out.leave_out(hyper, SearchRows(scale.X(part.X), part.y), race._plan)
    race._exact_looks = {"exact": left}
    return race.answer(False)[0], race, X


def test_an_exact_process_gets_noise_that_varies_where_rows_left_out_prefer_it(rng):
    model, race, X = answer_of(rng, 1.0)
    assert type(model) is fs.MultiGP and "noise that varies, all rows" in race.story[-1]
    assert any("noise that varies: taken" in line for line in race.story)
    _, var = fs.predict_y(model, race.whole.X)
    assert np.corrcoef(np.log(var), X[:, 0])[0, 1] > 0.8


def test_constant_noise_stays(rng):
    model, race, _ = answer_of(rng, 0.0)
    assert type(model) is fs.SVGP
    assert any("noise that varies: not taken" in line for line in race.story)


def test_an_estimator_predicts_with_noise_that_varies(rng, tune, monkeypatch, tmp_path):
    tune(race_seconds=0.5, estimator_seconds=1.0)
    where = "fastsvgp.recipes.model_search.regression_answer."
    monkeypatch.setattr(f"{where}BETTER", -np.inf)
    X = rng.uniform(-2, 2, (260, 2))
    y = np.sin(2 * X[:, 1]) + 0.3 * np.exp(X[:, 0]) * rng.standard_normal(260)
    model = SVGPRegressor(random_state=0).fit(X, y)
    assert type(model.model_) is fs.MultiGP
    mean, std = model.predict(X[:5], return_std=True)
    levels = model.predict_quantiles(X[:5], [0.1, 0.9])
    assert (levels[0] < mean).all() and (mean < levels[1]).all()
    assert model.sample_y(X[:5], 3).shape == (5, 3) and np.isfinite(model.lower_bound_)
    left, right = np.array([[-1.8, 0.0]]), np.array([[1.8, 0.0]])
    stds = [model.predict(at, return_std=True)[1][0] for at in (left, right)]
    assert stds[1] > 2 * stds[0]
    with pytest.warns(UserWarning, match="far outside"):
        assert model.predict(X[:1] + 100, return_std=True)[1] > 3 * stds[0]
    fs.sklearn.save(tmp_path / "model.npz", model)
    again = fs.sklearn.load(tmp_path / "model.npz")
    np.testing.assert_array_equal(again.predict(X), model.predict(X))
    again = model.set_params(warm_start=True, max_iter=2)
    with pytest.warns(UserWarning, match="short of convergence"):
        assert type(again.fit(X, y).model_) is fs.MultiGP
