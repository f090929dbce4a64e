"""The search for a model: its result, its repetition by a plan, and failures."""

import logging

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.errors import Diverged
from fastsvgp.recipes.model_search import (
    plain_processes,
    search_models,
)
from fastsvgp.recipes.model_search.candidates import Deep
from fastsvgp.recipes.model_search.plan import SearchPlan
from fastsvgp.recipes.model_search.regression import Regression
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.recipes.scaling import Scale

SHORT = {"seconds": 4.0, "by_work": True}


def table(rng, N=320):
    X = np.c_[np.exp(rng.standard_normal(N)), rng.standard_normal((N, 2))]
    return X, 50 + 7 * np.sin(2 * np.log(X[:, 0])) + 3 * X[:, 1] + 0.3 * rng.standard_normal(N)


@pytest.fixture(scope="module")
def searched():
    X, y = table(np.random.default_rng(5))
    return X, y, fs.search(X, y, rng=1, **SHORT)


def test_search_finds_an_accurate_calibrated_model(searched):
    X, y, found = searched
    X_new, y_new = table(np.random.default_rng(6))
    mean, var = found.scale.back(*fs.predict_y(found.model, found.scale.X(X_new)))
    rmse = np.sqrt(np.mean((mean - y_new) ** 2))
    assert rmse < 0.25 * y.std()
    assert 0.7 < np.mean(np.abs(y_new - mean) < 1.645 * np.sqrt(var)) <= 1
    assert found.fit == {} and not found.interrupted
    tried = {look["candidate"] for look in found.looks}
    assert {"plain, raw inputs", "plain, rank inputs"} < tried
    assert any(name.startswith("network") for name in tried)
    assert found.chosen in tried and found.story[-1].startswith(f"model: {found.chosen}")
    assert "inputs, because their held-out log density is" in " ".join(found.story)


def test_a_plan_repeats_to_the_bit(searched):
    X, y, found = searched
    lines = []
    again = fs.search(X, y, 4.0, rng=1, plan=found.plan, tell=lines.append)
    assert again.plan["counts"] == found.plan["counts"] and again.chosen == found.chosen
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(found.model), fs.records.leaves(again.model), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=path)
    assert tuple(lines) == again.story
    with pytest.raises(ValueError, match="`plan` is not one of this search"):
        fs.search(X[:100], y[:100], 4.0, rng=1, plan=found.plan)


def test_no_score_is_of_rows_that_its_posterior_has_seen(rng):
    """Held-out targets of pure noise cannot be predicted, even if the other targets can."""
    X, y = table(rng, 300)
    scale = Scale.fit(X, y, True)
    y = (y - y.mean()) / y.std()
    held = SearchRows(X[:60], rng.standard_normal(60))
    rows, plan = SearchRows(X[60:], y[60:]), SearchPlan(4.0, by_work=True)
    given = scale, scale.add_column_maps(X), plan, 0, lambda line: None
    one = Regression(None, rows, rows, held, held, *given)
    one.run()
    assert len(one.looks) > 6
    assert min(look.rmse for look in one.looks) > 0.8
    assert max(look.score for look in one.looks) < -1.2


def test_search_with_few_rows_or_little_time_has_no_race(rng):
    X, y = table(rng, 60)
    found = fs.search(X, y, 4.0, rng=0)
    assert found.chosen.startswith("exact") and "few distinct rows" in found.story[0]
    assert len(found.model.inducing) == 60
    X, y = table(rng)
    found = fs.search(X, y, 0.5, rng=0)
    assert found.chosen == "plain, raw inputs" and "less than 4 s" in found.story[0]
    assert np.isfinite(fs.predict_y(found.model, found.scale.X(X))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_degenerate_tables_give_finite_predictions(rng, dtype):
    X, y = table(rng, 40)
    for inputs, targets in (
        (X, np.full(40, 2.0)),
        (np.ones((40, 2)), y),
        (np.c_[X, np.zeros(40)], y),
        (X[:3], y[:3]),
        (X[:1], y[:1]),
        (rng.standard_normal((20, 50)), y[:20]),
        (np.c_[X, 1e30 * X[:, 0]], y),
    ):
        found = fs.search(inputs.astype(dtype), targets.astype(dtype), 1.0, rng=0)
        mean, var = fs.predict_y(found.model, found.scale.X(inputs.astype(dtype)))
        assert np.isfinite(mean).all() and (var > 0).all()
        far = fs.predict_y(found.model, found.scale.X(100 + 10 * inputs.astype(dtype)))
        assert np.isfinite(far).all()


def test_equal_targets_say_nothing_about_noise(rng):
    X, _ = table(rng)
    found = fs.search(X, np.full(len(X), 0.1), rng=0)
    mean, var = fs.predict_y(found.model, found.scale.X(X))
    np.testing.assert_allclose(found.scale.back(mean), 0.1)
    assert (var > 0.05).all() and "all targets are equal" in found.story[0]


def test_rows_of_weight_zero_are_not_there(rng):
    X, y = table(rng, 150)
    there = rng.random(150) < 0.7
    options = {"seconds": 1.0, "by_work": True, "rng": 0}
    one = fs.search(X, np.where(there, y, 1e9), weights=2.0 * there, **options)
    other = fs.search(X[there], y[there], weights=np.full(there.sum(), 2.0), **options)
    for (path, _, first), (_, _, second) in zip(
        fs.records.leaves(one.model), fs.records.leaves(other.model), strict=True
    ):
        np.testing.assert_array_equal(first, second, err_msg=path)


SINGULAR = fs.NotPositiveDefinite((), 3, 1e-6, 5, np.float64)


@pytest.mark.parametrize("error", [SINGULAR, Diverged("the bound is nan"), ValueError("no")])
def test_a_candidate_that_fails_loses_and_its_earlier_looks_stay(rng, monkeypatch, error):
    X, y = table(rng)
    search_models._rehearse(None)  # which takes steps too
    takes = []
    take = Deep.take

    def failing(self, *args):
        takes.append(self.name)
        if takes.count(self.name) > 1:
            raise error
        return take(self, *args)

    monkeypatch.setattr(Deep, "take", failing)
    found = fs.search(X, y, rng=0, **SHORT)
    assert any("failed, so it is out" in line for line in found.story)
    assert any(look["candidate"].startswith("network") for look in found.looks)


def test_where_all_fail_the_last_error_is_raised(rng, monkeypatch):
    X, y = table(rng)

    def failing(self, *args):
        raise SINGULAR

    search_models._rehearse(None)
    for kind in (
        Deep,
        plain_processes.Plain,
        plain_processes.Exact,
        plain_processes.Scarce,
    ):
        monkeypatch.setattr(kind, "take", failing)
    with pytest.raises(fs.NotPositiveDefinite):
        fs.search(X, y, rng=0, **SHORT)


@pytest.mark.parametrize("at", [1, 4])
def test_ctrl_c_returns_the_best_look(rng, monkeypatch, at):
    X, y = table(rng)
    search_models._rehearse(None)
    looks = []
    look_at = Regression._look_at

    def interrupted(*args):
        looks.append(args)
        if len(looks) == at:
            raise KeyboardInterrupt
        return look_at(*args)

    monkeypatch.setattr(Regression, "_look_at", interrupted)
    if at == 1:
        with pytest.raises(KeyboardInterrupt):
            fs.search(X, y, rng=0, **SHORT)
        return
    found = fs.search(X, y, rng=0, **SHORT)
    assert found.interrupted and len(found.looks) == at - 1
    assert any(line.startswith("interrupted") for line in found.story)
    assert np.isfinite(fs.predict_y(found.model, found.scale.X(X))).all()


@pytest.mark.parametrize(
    "seconds, error, message",
    [
        (0, ValueError, "`seconds` must be positive and finite, got 0"),
        (-1, ValueError, "`seconds` must be positive and finite, got -1"),
        (float("nan"), ValueError, "`seconds`"),
        ("a", TypeError, "`seconds` must be a number, got 'a'"),
    ],
)
def test_bad_seconds_are_refused(rng, seconds, error, message):
    with pytest.raises(error, match=message):
        fs.search(*table(rng, 20), seconds)


def test_bad_data_are_refused(rng):
    X, y = table(rng, 30)
    with pytest.raises(ValueError, match="one target for each row"):
        fs.search(X, np.c_[y, y])
    with pytest.raises(ValueError, match="nan"):
        fs.search(np.where(X > 2, np.nan, X), y)
    with pytest.raises(ValueError, match="too large to be squared"):
        fs.search(np.c_[X, np.full(30, 1e151)], y)


def test_search_finds_four_relevant_inputs_of_thirty_two(rng, caplog):
    """L-BFGS explains these data as pure noise; minibatches do not."""
    N = 2500
    X = rng.standard_normal((N, 32))
    y = np.sin(X[:, 0]) + X[:, 1] * X[:, 2] + 0.5 * X[:, 3] + 0.1 * rng.standard_normal(N)
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        found = fs.search(X[:2000], y[:2000], 8.0, by_work=True, rng=0)
    mean, _ = found.scale.back(*fs.predict_y(found.model, found.scale.X(X[2000:])))
    assert np.sqrt(np.mean((mean - y[2000:]) ** 2)) < 0.6 * y.std()
