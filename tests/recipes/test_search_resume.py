"""An interrupted search goes on after its last look, to the bit."""

import itertools
import types

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes.model_search import plan as plan_module, search_models
from fastsvgp.recipes.model_search.candidates import WIDE, ByMinibatches, Deep
from fastsvgp.recipes.model_search.classes_and_counts import ClassesAndCounts, LinearModel
from fastsvgp.recipes.model_search.plain_processes import Exact, Plain, Relevant, Scarce
from fastsvgp.recipes.model_search.plan import (
    PlanMismatch,
    SavedSearch,
    SearchPlan,
    restore,
    stage_of,
)
from fastsvgp.recipes.model_search.regression import Regression
from fastsvgp.recipes.model_search.rows import SearchRows

SETTINGS = {"seconds": 1.0, "by_work": True, "rng": 1}


@pytest.fixture(autouse=True)
def brief(tune):
    """Searches of one second have a race."""
    tune(race_seconds=0.5)


def table(rng, N=260):
    X = np.c_[np.exp(rng.standard_normal(N)), rng.standard_normal((N, 2))]
    return X, np.sin(2 * np.log(X[:, 0])) + X[:, 1] + 0.3 * rng.standard_normal(N)


def interrupted_at(monkeypatch, kind, number, *data, **settings):
    """Search, and press Ctrl-C at the look of this number."""
    look_at, seen = kind._look_at, []

    def interrupted(*args):
        seen.append(args)
        if len(seen) == number:
            raise KeyboardInterrupt
        return look_at(*args)

    with monkeypatch.context() as patched:
        patched.setattr(kind, "_look_at", interrupted)
        return fs.search(*data, **settings)


def assert_equal(one, other):
    assert one.story == other.story and one.plan == other.plan and one.looks == other.looks
    for (path, _, first), (_, _, second) in zip(
        fs.records.leaves(one.model), fs.records.leaves(other.model), strict=True
    ):
        np.testing.assert_array_equal(first, second, err_msg=path)


@pytest.fixture
def all_kinds(tune):
    """Race every kind of candidate: a start by relevance, too, and minibatches alone."""
    tune(relevance_rows=60, relevance_iterations=2, useless_density=np.inf)


@pytest.mark.parametrize("exact", [200, 1500])
def test_resumed_search_equals_one_without_interruption(
    rng, monkeypatch, tmp_path, tune, all_kinds, exact
):
    tune(exact_rows=exact)
    X, y = table(rng)
    search_models._rehearse(None)
    whole = fs.search(X, y, **SETTINGS)
    assert whole.saved is None and len(whole.looks) > 6
    trained = []
    for kind in (ByMinibatches, Plain, Exact, Scarce):
        take = kind.take
        monkeypatch.setattr(
            kind, "take", lambda self, *a, take=take: trained.append(self.name) or take(self, *a)
        )
    for at in (4, len(whole.looks)):
        half = interrupted_at(monkeypatch, Regression, at, X, y, **SETTINGS)
        assert half.interrupted and len(half.saved.stages) == at - 1
        fs.save(tmp_path / "search.npz", half.saved)
        trained.clear()
        saved = half.saved if at == 4 else tmp_path / "search.npz"
        assert_equal(fs.search(X, y, **SETTINGS, resume=saved), whole)
        # the finished stages are not trained again
        assert trained == [look["candidate"] for look in whole.looks[at - 1 :]]


def _deep(rows, rng):
    return Deep("deep", None, rows, rng, WIDE, M=16, batch=64)


def _linear(rows, rng):
    labels = SearchRows(rows.X, (rows.y > 0).astype(int))
    return LinearModel("linear", None, labels, rng, fs.likelihoods.BernoulliLogit())


@pytest.mark.parametrize(
    "make",
    [
        _deep,
        _linear,
        lambda rows, rng: Scarce("scarce", None, rows, rng),
        lambda rows, rng: Plain("plain", None, rows, rng, rows_at_once=300),
        lambda rows, rng: Exact("exact", None, rows.some(slice(60))),
        lambda rows, rng: Relevant("relevant", None, rows, rng),
    ],
)
def test_a_candidate_goes_on_from_its_saved_state(rng, monkeypatch, tmp_path, tune, make):
    """More rows than a minibatch has: so the order of rows and the random state matter."""
    tune(relevance_rows=60, relevance_iterations=2)
    monkeypatch.setattr(Plain, "M", 20)
    rows = SearchRows(*table(rng, 700))
    one, plan = make(rows, np.random.default_rng(3)), SearchPlan(4.0, by_work=True)
    one.take(plan, 0.03, (0.0, 0.5))
    fs.save(tmp_path / "stage.npz", stage_of(one, None, "", plan, 0.0))
    other = make(rows, np.random.default_rng(3))
    again = SearchPlan(4.0, by_work=True, given=plan.counts)
    restore(fs.load(tmp_path / "stage.npz"), other, again)
    assert one.steps == other.steps and getattr(one, "part", 0) == getattr(other, "part", 0)
    for candidate, clock in ((one, plan), (other, again)):
        candidate.take(clock, 0.03, (0.5, 1.0))
    assert (again.counts, again.spent, other.steps) == (plan.counts, plan.spent, one.steps)
    models = [candidate.get_state()[0] for candidate in (one, other)]
    for (path, _, first), (_, _, second) in zip(*map(fs.records.leaves, models), strict=True):
        np.testing.assert_array_equal(first, second, err_msg=path)


def test_a_search_can_be_interrupted_twice_and_ends_by_its_plan(rng, monkeypatch):
    X, y = table(rng)
    readings = itertools.count()  # a clock that is as fast on every machine
    clock_of = types.SimpleNamespace(perf_counter=lambda: 2e-2 * next(readings))
    monkeypatch.setattr(plan_module, "time", clock_of)
    clock = {"seconds": 1.0, "rng": 1}
    once = interrupted_at(monkeypatch, Regression, 3, X, y, **clock)
    twice = interrupted_at(monkeypatch, Regression, 3, X, y, **clock, resume=once.saved)
    assert len(once.saved.stages) == 2 and len(twice.saved.stages) == 4
    assert twice.saved.stages[1].spent == once.saved.stages[1].spent
    # the clock goes on where it stopped, and the seed is that of the first search
    found = fs.search(X, y, 1.0, resume=twice.saved)
    assert found.looks[:4] == twice.looks[:4] and len(found.looks) > 4
    assert found.looks[4]["seconds"] >= found.looks[3]["seconds"]
    again = fs.search(X, y, **clock, plan=found.plan)
    for (path, _, first), (_, _, second) in zip(
        fs.records.leaves(found.model), fs.records.leaves(again.model), strict=True
    ):
        np.testing.assert_array_equal(first, second, err_msg=path)


def test_failed_candidates_stay_out(rng, monkeypatch):
    X, y = table(rng)
    settings = SETTINGS | {"seconds": 3.0}  # networks have their turns
    take = Deep.take
    search_models._rehearse(None)

    def failing(self, *args):
        take(self, *args)
        if "tanh 128," in self.name:  # the first network: looks at others follow
            raise ArithmeticError("no. Really")

    monkeypatch.setattr(Deep, "take", failing)
    whole = fs.search(X, y, **settings)
    half = interrupted_at(monkeypatch, Regression, len(whole.looks), X, y, **settings)
    assert {stage.failure for stage in half.saved.stages if stage.failure} == {"no"}
    monkeypatch.setattr(Deep, "take", take)
    assert_equal(fs.search(X, y, **settings, resume=half.saved), whole)


@pytest.mark.parametrize("likelihood", ["softmax", "poisson"])
def test_resumed_search_for_classes_and_counts(rng, monkeypatch, tmp_path, likelihood):
    X = rng.standard_normal((300, 2))
    y = (X[:, 0] > 0).astype(int) + (X[:, 1] > 0.5)
    settings = SETTINGS | {"likelihood": likelihood}
    whole = fs.search(X, y, **settings)
    half = interrupted_at(monkeypatch, ClassesAndCounts, len(whole.looks) - 1, X, y, **settings)
    fs.save(tmp_path / "search.npz", half.saved)
    assert_equal(fs.search(X, y, **settings, resume=tmp_path / "search.npz"), whole)


def test_the_stages_of_another_search_are_refused(rng, monkeypatch, tmp_path):
    X, y = table(rng)
    half = interrupted_at(monkeypatch, Regression, 4, X, y, **SETTINGS)
    for other, message in (
        ({"rng": 2}, "the seed was 1, here it is 2"),
        ({"y": y + 1.0 * (X[:, 0] > 1)}, "the numbers in `y` are others"),
        ({"X": X[:-1], "y": y[:-1]}, "`X` had shape"),
        ({"y": np.abs(y).round(), "likelihood": "poisson"}, "the likelihood is another one"),
    ):
        given = {"X": X, "y": y} | SETTINGS | other
        with pytest.raises(ValueError, match=f"`resume` is of another search: .*{message}"):
            fs.search(**given, resume=half.saved)
    stages_ = half.saved.stages
    swapped = fs.replace(half.saved, stages=(stages_[1], stages_[0], stages_[2]))
    with pytest.raises(PlanMismatch, match="there 'plain, rank inputs' came next"):
        fs.search(X, y, **SETTINGS, resume=swapped)
    with pytest.raises(PlanMismatch, match="`plan` is shorter"):
        fs.search(X, y, **SETTINGS, resume=half.saved, plan={"counts": half.plan["counts"][:1]})
    fs.save(tmp_path / "model.npz", half.model)
    with pytest.raises(fs.DataFileError, match="holds a SVGP, not an interrupted search"):
        fs.search(X, y, **SETTINGS, resume=tmp_path / "model.npz")
    assert isinstance(half.saved, SavedSearch)
