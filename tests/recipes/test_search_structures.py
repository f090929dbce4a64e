"""Structures of a covariance, leave-one-out densities, shares of a mixture, and repeated rows."""

import numpy as np
import pytest
from scipy.optimize import minimize

import fastsvgp as fs
from fastsvgp.recipes.model_search import left_out, regression, structures
from fastsvgp.recipes.model_search.candidates import Hyper
from fastsvgp.recipes.model_search.held_out_density import factors_of, mix, stack
from fastsvgp.recipes.model_search.plan import RATE, SearchPlan
from fastsvgp.recipes.model_search.race import Look
from fastsvgp.recipes.model_search.regression import Regression
from fastsvgp.recipes.model_search.rows import SearchRows, pooled_variance
from fastsvgp.recipes.scaling import Scale
from fastsvgp.sklearn import SVGPRegressor


@pytest.fixture(autouse=True)
def constant_noise(monkeypatch):
    """Noise that varies is left to its own tests."""
    monkeypatch.setattr("fastsvgp.recipes.model_search.regression_answer.FEWEST", np.inf)


def gaussian(monkeypatch):
    """Score by Gaussian densities, which references have."""

    def log_densities(mean, var, y, weights=None):
        return -0.5 * (np.log(2 * np.pi * var) + (y - mean) ** 2 / var)

    monkeypatch.setattr(left_out, "log_densities", log_densities)


@pytest.mark.parametrize("weighted", [False, True])
def test_each_row_is_predicted_from_all_others(rng, monkeypatch, weighted):
    gaussian(monkeypatch)
    X, y = rng.standard_normal((12, 2)), rng.standard_normal(12)
    w = rng.integers(1, 4, 12).astype(float) if weighted else None
    covariance, noise = fs.Matern32(1.3, np.array([0.8, 1.5])), 0.2
    hyper = Hyper(covariance, noise, None)
    left = left_out.leave_out(hyper, SearchRows(X, y, w), SearchPlan(1.0, True))
    found, var_f, density_of = left.mean, left.var_f, left.density
    D = noise / (np.ones(12) if w is None else w)
    for i in range(12):
        rest = np.arange(12) != i
        K = covariance.matrix(X[rest]) + np.diag(D[rest])
        k = covariance.matrix(X[rest], X[i : i + 1])[:, 0]
        mean = k @ np.linalg.solve(K, y[rest])
        var = 1.3 + D[i] - k @ np.linalg.solve(K, k)
        density = -0.5 * (np.log(2 * np.pi * var) + (y[i] - mean) ** 2 / var)
        assert found[i] == pytest.approx(mean, rel=1e-9, abs=1e-12)
        assert var_f[i] == pytest.approx(var - D[i], rel=1e-7)
        assert density_of[i] == pytest.approx(density, rel=1e-9)


def test_structures_begin_at_the_plain_covariance(rng):
    X = rng.standard_normal((60, 4))
    X[:, 1], X[:, 3] = 0.7, np.repeat([0.0, 1.5, 3.0], 20)
    smooth = fs.Matern32(2.0, np.array([1.0, 2.0, 3.0, 4.0]))
    for covariance in (smooth, fs.covariances.Sum((fs.Linear(0.25), smooth))):
        found = dict(structures.structures(covariance, X))
        assert list(found) == [
            "Matern12 + Matern52", "column 3 as codes", "one-dimensional Matern12",
            "one-dimensional Matern32",
        ]  # fmt: skip
        for one in found.values():
            one.check_dim(4)
            assert one.matrix(X).shape == (60, 60)
            assert (type(one.parts[0]) is fs.Linear) == (covariance is not smooth)
        shared, apart = found["column 3 as codes"].parts[-2:]
        assert shared.columns == (0, 1, 2) and apart.lengthscales[3] == pytest.approx(0.5)
        singles = [one for one in found["one-dimensional Matern12"].parts if hasattr(one, "part")]
        assert [one.columns for one in singles] == [(0,), (2,), (3,)]  # column 1 is constant
    many = fs.Matern32(1.0, np.ones(40))
    assert list(dict(structures.structures(many, rng.standard_normal((9, 40))))) == [
        "Matern12 + Matern52"
    ]
    assert structures.code_columns(X[:, 3:]) == []  # nothing is left to share


def test_shares_maximise_the_score_of_the_mixture(rng):
    densities = rng.standard_normal((3, 50)) - [[0.0], [0.3], [4.0]]
    w = rng.integers(1, 4, 50).astype(float)
    for weights in (None, w):
        shares = stack(densities, weights)

        def loss(z, weights=weights):
            s = np.exp(z) / np.exp(z).sum()
            return -np.average(mix(densities, s), weights=weights)

        best = minimize(loss, np.zeros(3), method="Nelder-Mead", options={"fatol": 1e-12})
        assert -np.average(mix(densities, shares), weights=weights) < best.fun + 1e-6
        assert shares.sum() == pytest.approx(1) and (shares >= 0).all()
    np.testing.assert_allclose(stack(np.array([[0.0] * 9, [-50.0] * 9])), [1, 0], atol=1e-12)


def test_rows_with_equal_inputs_show_the_least_noise(rng):
    X = np.repeat(rng.standard_normal((40, 2)), 2, axis=0)
    y = rng.standard_normal(80)
    pairs = y.reshape(40, 2)
    expected = np.sum((pairs[:, 0] - pairs[:, 1]) ** 2 / 2) / 40
    assert pooled_variance(SearchRows(X, y)) == pytest.approx(expected)
    assert pooled_variance(SearchRows(X[:20], y[:20])) == 0  # ten pairs say little
    whole = SearchRows(X[::2], y[::2], np.full(40, 3.0))  # merged rows have equal targets
    assert pooled_variance(whole) == pytest.approx(0, abs=1e-25)
    mean, var_f, residuals = np.zeros(200), np.full(200, 1e-4), 0.01 * rng.standard_normal(200)
    assert factors_of(mean, var_f, 1.0, residuals)[1] < 0.06
    least = factors_of(mean, var_f, 1.0, residuals, least_noise=0.5)
    assert least[1] == pytest.approx(0.5)
    large = factors_of(mean, var_f, 0.1, rng.standard_normal(200), least_noise=0.05)
    assert large[1] == pytest.approx(factors_of(mean, var_f, 0.1, residuals * 100)[1], rel=0.3)


def race_of(rng, N=140, scale=None):
    X = rng.standard_normal((N, 2))
    rows = SearchRows(X, np.sin(3 * X[:, 0]) + np.abs(X[:, 1]) + 0.1 * rng.standard_normal(N))
    scale = Scale.fit(rows.X, rows.y, True) if scale is None else scale
    part = rows.some(np.arange(N - 40))
    held, last = rows.some(np.arange(N - 40, N - 20)), rows.some(np.arange(N - 20, N))
    lines = []
    race = Regression(
        None, rows, part, held, last, scale, scale, SearchPlan(9.0, True), 0, lines.append
    )
    return race, scale


def look_of(race, scale, name, covariance, score):
    model = Hyper(covariance, 0.02, None)
    look = Look(name, 1.0, 1, score, 0.1, (1.0, 1.0), model, scale)
    race.looks.append(look)
    return look


def test_exact_processes_that_complement_each_other_end_as_a_mixture(rng):
    race, scale = race_of(rng)
    one = look_of(race, scale, "one", fs.Matern32(1.0, np.ones(2)), 1.0)
    look_of(race, scale, "other", fs.RBF(1.0, np.ones(2)), 0.9)
    race.first = one
    first = np.where(np.arange(100) % 2, 1.0, -2.0)

    def left(density):
        return left_out.LeftOut(race.rows, race.rows.y, np.full(100, 0.1), density, None)

    race._exact_looks = {"one": left(first), "other": left(-1.0 - first)}
    model, chosen = race.answer(False)
    assert chosen is one and type(model) is fs.Mixture
    assert sum(model.shares) == pytest.approx(1) and model.shares[0] >= model.shares[1] > 0.1
    assert {type(m.covariance) for m in model.models} == {fs.Matern32, fs.RBF}
    assert any("mixture of" in line for line in race.story)
    race._exact_looks["other"] = left(first - 3.0)
    model, _ = race.answer(False)
    assert type(model) is fs.SVGP


def test_what_cannot_be_factorised_leaves_a_search_running(rng, monkeypatch):
    race, scale = race_of(rng)

    def fail(*_, **__):
        raise fs.NotPositiveDefinite((), 3, 0.0, 100, np.float64)

    exact = regression.Exact("exact, raw inputs", scale, race.rows, fs.RBF(1.0, np.ones(2)))
    monkeypatch.setattr(regression, "leave_out", fail)
    race._structures(9.0, exact, None)  # without leave-one-out densities there is no comparison
    assert "no row can be left out" in race.story[-1] and not race._exact_looks
    one = look_of(race, scale, "one", fs.Matern32(1.0, np.ones(2)), 1.0)
    look_of(race, scale, "other", fs.RBF(1.0, np.ones(2)), 0.9)
    race.first = one
    score = race._score_look
    monkeypatch.setattr(
        race, "_score_look", lambda look: fail() if look.candidate == "other" else score(look)
    )
    model, chosen = race.answer(False)
    assert chosen is one and type(model) is fs.SVGP


def test_no_time_is_spent_on_structures_and_mixtures_that_is_not_there(rng):
    race, scale = race_of(rng)
    exact = regression.Exact("exact, raw inputs", scale, race.rows, fs.RBF(1.0, np.ones(2)))
    race.first = one = look_of(race, scale, "one", fs.Matern32(1.0, np.ones(2)), 1.0)
    race._plan.did(8.9 * RATE)  # of 9 s
    race._structures(9.0, exact, None)
    assert len(race.looks) == 1
    look_of(race, scale, "other", fs.RBF(1.0, np.ones(2)), 0.9)
    first = np.where(np.arange(100) % 2, 1.0, -2.0)
    for name, density in (("one", first), ("other", -1.0 - first)):
        race._exact_looks[name] = left_out.LeftOut(
            race.rows, race.rows.y, np.full(100, 0.1), density, None
        )
    race._plan.did(RATE)
    model, chosen = race.answer(False)
    assert chosen is one and type(model) is fs.SVGP
    assert any("mixture of" in line for line in race.story)  # which would have been better


def test_a_process_close_behind_a_network_is_judged_at_its_last_size(rng, monkeypatch):
    race, scale = race_of(rng)
    network = fs.covariances.OnFeatures(
        fs.RBF(1.0, np.ones(3)), fs.covariances.Network.random((2, 5, 3), rng=rng)
    )
    ahead = look_of(race, scale, "network", network, 1.0)
    process = look_of(race, scale, "process", fs.Matern32(1.0, np.ones(2)), 0.8)
    scores = {"network": 1.0, "process": 1.1}
    seen = []

    def at_its_end(look, interrupted):
        seen.append(look.candidate)
        return held_out_density_of(scores[look.candidate])

    monkeypatch.setattr(race, "_at_its_end", at_its_end)
    assert race._best(False)[0] is process and seen == ["network", "process"]
    assert race._best(True)[0] is ahead  # Ctrl-C
    race.looks[1] = look_of(race, scale, "process", fs.Matern32(1.0, np.ones(2)), 0.5)
    race.looks.pop()
    assert race._best(False)[0] is ahead and seen[-1] == "network"


def held_out_density_of(score):
    class Scored:
        pass

    found = Scored()
    found.score = score
    return found


def test_codes_are_found_by_the_default_of_an_estimator(rng, tune):
    tune(race_seconds=0.5, estimator_seconds=2.0)
    codes = rng.integers(0, 8, 400)
    X = np.column_stack([rng.uniform(-2, 2, 400), codes])
    effect = rng.permutation(8).astype(float)
    y = effect[codes] * np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(400)
    model = SVGPRegressor(random_state=0).fit(X[:300], y[:300])
    assert any("column 1 as codes" in line for line in model.story_)
    assert model.score(X[300:], y[300:]) > 0.9


def test_an_estimator_predicts_by_a_mixture(rng, tune, monkeypatch):
    tune(race_seconds=0.5, estimator_seconds=1.0)
    where = "fastsvgp.recipes.model_search.regression_answer."
    monkeypatch.setattr(f"{where}BETTER", -np.inf)
    monkeypatch.setattr(f"{where}stack", lambda each, *_: np.full(len(each), 1 / len(each)))
    X = rng.uniform(-2, 2, (230, 2))
    y = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + 0.1 * rng.standard_normal(230)
    model = SVGPRegressor(random_state=0).fit(X, y)
    if type(model.model_) is not fs.Mixture:  # of some tables a single candidate remains
        model.model_ = fs.Mixture((model.model_, model.model_), shares=(0.4, 0.6))
    mean, std = model.predict(X[:5], return_std=True)
    _, cov = model.predict(X[:5], return_cov=True)
    np.testing.assert_allclose(np.sqrt(np.diag(cov)), std, rtol=1e-9)
    levels = model.predict_quantiles(X[:5], [0.1, 0.9])
    assert (levels[0] < mean).all() and (mean < levels[1]).all()
    assert model.sample_y(X[:5], 3).shape == (5, 3) and np.isfinite(model.lower_bound_)
    assert model.log_predictive_density(X, y).mean() > -1
    with pytest.warns(UserWarning, match="far outside"):
        assert model.predict(X[:1] + 100, return_std=True)[1] > 10 * std[0]
    again = model.set_params(warm_start=True, max_iter=2)
    with pytest.warns(UserWarning):
        assert type(again.fit(X, y).model_) is fs.SVGP
