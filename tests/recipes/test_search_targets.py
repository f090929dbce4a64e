"""Searches for models of classes and counts."""

import numpy as np
import pytest
from scipy.stats import poisson

import fastsvgp as fs
from fastsvgp.recipes.model_search import classes_and_counts, rows as rows_module
from fastsvgp.recipes.model_search.candidates import start_at_prior
from fastsvgp.recipes.model_search.classes_and_counts import (
    ClassesAndCounts,
    PlainSVGP,
    cross_validated_temperature,
    ramp,
)
from fastsvgp.recipes.model_search.plan import SearchPlan
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.recipes.scaling import Scale
from fastsvgp.records import Marginals

WORK = {"by_work": True, "rng": 1}


@pytest.fixture(autouse=True)
def brief(tune):
    """Searches of two seconds have a race."""
    tune(race_seconds=1.5)


def classes(rng, N, C):
    """Make inputs and labels of C classes, given by the angle of two inputs plus noise."""
    X = rng.standard_normal((N, 3))
    angle = np.arctan2(X[:, 1], X[:, 0]) + 0.3 * rng.standard_normal(N)
    return X, np.floor((angle % (2 * np.pi)) * C / (2 * np.pi)).astype(int) % C


def log_density(found, X, y):
    Xs = found.scale.X(X)
    return np.mean(fs.predict_log_density(found.model, Xs, found.scale.y(y)))


@pytest.mark.parametrize("C", [2, 4])
def test_search_for_classes_beats_their_frequencies(rng, C):
    X, y = classes(rng, 600, C)
    labels = np.array(["a", "b", "c", "d"])[y]
    lines = []
    found = fs.search(X, labels, 2.0, likelihood="classes", tell=lines.append, **WORK)
    assert type(found.model.likelihood) is (fs.BernoulliProbit if C == 2 else fs.Softmax)
    assert found.scale.classes.tolist() == list("abcd")[:C]
    X_new, y_new = classes(rng, 2000, C)
    gain = log_density(found, X_new, np.array(["a", "b", "c", "d"])[y_new]) + np.log(C)
    assert gain > 0.4
    assert tuple(lines) == found.story and found.chosen in found.story[-1]
    assert {"accuracy", "log_density"} < found.looks[0].keys() and "rmse" not in found.looks[0]
    tried = {look["candidate"].partition(",")[0] for look in found.looks}
    assert {"plain", "linear", "network tanh 128"} <= tried


def test_search_for_counts_is_near_their_rate(rng):
    X = rng.uniform(-2, 2, (400, 2))
    rate = np.exp(1 + np.sin(2 * X[:, 0]))
    y = rng.poisson(rate)
    found = fs.search(X[:300], y[:300], 2.0, likelihood="poisson", **WORK)
    density = fs.predict_log_density(found.model, found.scale.X(X[300:]), y[300:].astype(float))
    best, trivial = poisson.logpmf(y[300:], rate[300:]), poisson.logpmf(y[300:], y[:300].mean())
    assert density.mean() > 0.3 * trivial.mean() + 0.7 * best.mean()
    assert "rmse" in found.looks[0]


def test_plan_of_a_search_for_classes_repeats_to_the_bit(rng):
    X, y = classes(rng, 300, 2)
    found = fs.search(X, y, 2.0, likelihood="bernoulli-logit", **WORK)
    again = fs.search(X, y, 2.0, likelihood="bernoulli-logit", rng=1, plan=found.plan)
    assert again.story[-1] == found.story[-1]
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(found.model), fs.records.leaves(again.model), strict=True
    ):
        np.testing.assert_array_equal(one, other, err_msg=path)


def test_few_rows_are_compared_by_bounds(rng):
    X = rng.standard_normal((60, 3))
    y = X @ [1.0, -2.0, 0.5] > 0.3 * rng.standard_normal(60)
    found = fs.search(X, y, 1.0, likelihood="classes", **WORK)
    assert found.looks == () and found.chosen == "linear, raw inputs"  # a linear rule made y
    assert sum("bound" in line for line in found.story) == 3
    ring = np.hypot(X[:, 0], X[:, 1]) > 1.2
    found = fs.search(X, ring, 1.0, likelihood="classes", **WORK)
    assert found.chosen == "plain, raw inputs"


@pytest.mark.parametrize(
    "likelihood",
    [fs.likelihoods.BernoulliLogit(), fs.Softmax(num_classes=3), fs.Poisson(exposure=2.0)],
)
def test_tempered_model_has_the_marginals_of_its_temperature(rng, likelihood):
    X = rng.standard_normal((40, 2))
    covariance = fs.covariances.Sum(
        (fs.Linear(0.5), fs.RBF(2.0, np.ones(2)) * fs.Matern32(1.5, 1.0))
    )
    Z = np.stack(np.meshgrid(*[[-1.5, 0.0, 1.5]] * 2), axis=-1).reshape(9, 2)  # the jitter is small
    model = start_at_prior(covariance, Z, likelihood)
    q = fs.replace(model.posterior, mean=rng.standard_normal(model.posterior.mean.shape))
    constant = fs.means.ConstantMean(rng.standard_normal(q.mean.shape[:-1]))
    model = fs.replace(model, posterior=q, mean=constant)
    for T in (0.3, 4.0):
        expected = classes_and_counts.temper_marginals(
            classes_and_counts.latent(model, X), classes_and_counts.constant_of(model), T
        )
        found = classes_and_counts.latent(classes_and_counts.temper(model, T), X)
        np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(found.var, expected.var, rtol=1e-4, atol=1e-5)


def test_temperature_finds_functions_that_are_too_small(rng):
    f = 4 * rng.standard_normal(4000)
    y = (rng.uniform(size=4000) < 1 / (1 + np.exp(-f))).astype(int)
    model = start_at_prior(
        fs.RBF(1.0, 1.0),
        np.zeros((1, 1)),
        fs.likelihoods.BernoulliLogit(),
        fs.means.ConstantMean(0.0),
    )
    small = Marginals(f / 4, np.full(4000, 1e-6))
    assert classes_and_counts.temperature_of(model, small, y, None) == pytest.approx(4.0, rel=0.15)
    few = Marginals(f[:3] / 4, np.full(3, 1e-6))  # three rows hardly move the prior
    assert 0.6 < classes_and_counts.temperature_of(model, few, y[:3], None) < 1.7


def test_held_out_labels_of_pure_noise_promise_nothing(rng):
    X, y = rng.standard_normal((1500, 3)), rng.integers(0, 2, 1500)
    raw = Scale.fit(X, y.astype(float), False)
    parts = [SearchRows(X[at], y[at]) for at in np.split(np.arange(1500), [280, 890])]
    plan = SearchPlan(2.0, by_work=True)
    given = None, *parts, raw, raw, plan, 0, lambda line: None
    race = ClassesAndCounts(fs.likelihoods.BernoulliLogit(), *given)
    race.run()
    assert max(look.score for look in race.looks) < np.log(0.5) + 0.08


def test_cross_validation_keeps_equal_rows_together(rng):
    # labels are noise, and each row comes three times: if copies of held-out rows were in the
    # training folds, the temperature would be too high
    X = np.repeat(rng.standard_normal((40, 1)), 3, axis=0)
    y = np.repeat(rng.integers(0, 2, 40), 3)
    rows = SearchRows(X, y)
    plain = PlainSVGP("plain", None, rows, rng, fs.likelihoods.BernoulliLogit())
    plain.take_at_once(SearchPlan(1.0, by_work=True), 0.5, 60)
    ample, spent = SearchPlan(9.0, by_work=True), SearchPlan(0.0, by_work=True)
    groups = rows_module.groups_of(X, np.random.default_rng(0))
    assert cross_validated_temperature(plain.model, rows, groups, ample, 1e-3) < 1
    assert cross_validated_temperature(plain.model, rows, groups, spent, 1e-3) == 1.0  # no time
    assert len(np.unique(groups)) == 40 and (groups[::3] == groups[2::3]).all()


def test_weights_count_as_repeated_rows(rng):
    X, y = classes(rng, 50, 2)
    weights = rng.integers(1, 3, 50)
    one = fs.search(X, y, 1.0, likelihood="classes", weights=weights, **WORK)
    twice = np.repeat(np.arange(50), weights)
    other = fs.search(X[twice], y[twice], 1.0, likelihood="classes", **WORK)
    assert one.chosen == other.chosen
    p = [fs.predict_y(found.model, found.scale.X(X))[0] for found in (one, other)]
    np.testing.assert_allclose(*p, atol=2e-3)


def test_natural_steps_begin_small():
    assert ramp(0) == pytest.approx(0.01) and ramp(20) == ramp(500) == pytest.approx(0.2)


@pytest.mark.parametrize(
    "likelihood, y, message",
    [
        (
            "laplace",
            np.arange(40.0),
            "`likelihood` must be one of 'gaussian', 'poisson', 'classes'",
        ),
        ("classes", np.zeros(40, int), "`y` has one class only, 0"),
        ("bernoulli-logit", np.arange(40) % 3, "'bernoulli-logit' has 2 classes, but `y` has 3"),
        ("poisson", np.arange(40) - 1.0, "`y`"),
        ("poisson", np.arange(40) + 0.5, "`y`"),
    ],
)
def test_bad_targets_of_a_search_are_named(likelihood, y, message):
    X = np.random.default_rng(0).standard_normal((40, 2))
    with pytest.raises(ValueError, match=message):
        fs.search(X, y, 1.0, likelihood=likelihood)


def test_brief_search_trains_on_all_rows(rng, monkeypatch, tune):
    tune(race_seconds=4.0)
    X, y = classes(rng, 240, 2)
    seen = []
    monkeypatch.setattr(
        ClassesAndCounts,
        "_run_without_race",
        lambda self: seen.append((len(self.rows), self.held_out)),
    )
    with pytest.raises(AttributeError):  # nothing was trained
        fs.search(X, y, 1.0, likelihood="classes", **WORK)
    assert seen == [(240, None)]


def test_plan_of_a_longer_search_is_refused(rng, monkeypatch):
    X, y = classes(rng, 240, 2)
    plan = {"seconds": 60, "counts": [["plain, raw inputs: steps", 30], ["has time", 1]]}
    with pytest.raises(ValueError, match="`plan` is not one of this search"):
        fs.search(X, y, 1.0, likelihood="classes", rng=1, plan=plan)


def test_ctrl_c_whose_exception_was_lost_ends_a_search():
    plan = SearchPlan(1.0, by_work=True)
    plan.did(1e9)
    plan.signals = [2]
    with pytest.raises(KeyboardInterrupt):
        plan.did(1e9)


def test_an_input_that_most_rows_share_stays_in_the_training(rng):
    X = np.r_[np.zeros((480, 1)), rng.standard_normal((200, 1))]
    for seed in range(5):
        train, held = rows_module.hold_out(
            SearchRows(X, np.zeros(680)), 50, np.random.default_rng(seed)
        )  # fmt: skip
        assert len(held) == 50 and (train.X == 0).sum() == 480
