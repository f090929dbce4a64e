"""Failures in a search, and the time of its looks."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.errors import Diverged
from fastsvgp.recipes.model_search import classes_and_counts, plain_processes, search_models
from fastsvgp.recipes.model_search.candidates import Deep
from fastsvgp.recipes.model_search.classes_and_counts import Candidate
from fastsvgp.recipes.model_search.plan import RATE, SearchPlan
from fastsvgp.recipes.model_search.race import FAILURES, Race
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.recipes.scaling import Scale

SINGULAR = fs.NotPositiveDefinite((), 3, 1e-6, 5, np.float64)
DIVERGED = Diverged("the bound is nan. Take smaller steps")
WORK = {"by_work": True, "rng": 1}


class Scripted:
    """A candidate whose looks have given scores; an error among these is raised in training."""

    share, steps, segments, model, scale = 1, 5, 6, None, None

    def __init__(self, name, *scores):
        self.name, self.seconds, self._scores = name, [], iter(scores)

    def take(self, plan, seconds, part=None):
        self.seconds.append(seconds)
        plan.did(seconds * RATE, calls=0)
        self.score = next(self._scores)
        if isinstance(self.score, Exception):
            raise self.score

    def get_state(self):
        return None, None, None, {}

    def restore(self, *state):
        self.restored = True


class ScriptedRace(Race):
    """A race whose looks take ``look_seconds``."""

    look_seconds = 0.0

    def _score_at(self, candidate):
        self._plan.did(self.look_seconds * RATE, calls=0)
        return candidate.score, 0.5, (1.0, 1.0)


def race(seconds=40.0, earlier=(), counts=()):
    rows, scale = SearchRows(np.zeros((1, 1)), np.zeros(1)), Scale(np.zeros(1), np.ones(1))
    plan = SearchPlan(seconds, by_work=True, given=counts)
    given = None, *[rows] * 4, scale, scale, plan, 0, lambda line: None
    return ScriptedRace(*given, earlier), plan


@pytest.mark.parametrize(
    "error, said", [(SINGULAR, "not positive definite"), (DIVERGED, "the bound is nan)")]
)
def test_a_winner_that_fails_is_replaced_by_one_that_had_dropped_out(error, said):
    one, _ = race()
    winner = Scripted("winner", -1.0, -0.5, error)
    second, third = Scripted("second", -2.0, -1.9, -1.2, *[-0.4] * 5), Scripted("third", -3.0)
    leaders = one._race([third, second, winner])
    assert leaders == [winner, second, third]  # the second and third have dropped out
    one._finish(leaders)
    assert [look.score for look in one.looks if look.candidate == "winner"] == [-1.0, -0.5]
    failed = [line for line in one.story if line.startswith("winner: failed, so it is out")]
    assert len(failed) == 1 and said in failed[0]
    assert len(second.seconds) > 2 and len(third.seconds) == 1
    assert (one.best.candidate, one.best.score) == ("second", -0.4)


def test_if_both_leaders_fail_in_the_race_the_third_wins():
    one, _ = race()
    failing = [Scripted("first", -1.0, SINGULAR), Scripted("second", -2.0, DIVERGED)]
    third = Scripted("third", -3.0, *[-2.9] * 6)
    leaders = one._race([*failing, third])
    assert leaders == [third]
    one._finish(leaders)
    assert len(third.seconds) > 1
    assert one.best.candidate == "first" and len(one.looks) == 2 + len(third.seconds)


def test_failures_of_all_winners_end_the_training():
    one, _ = race()
    leaders = [Scripted("one", SINGULAR), Scripted("other", DIVERGED)]
    one._finish(leaders)
    assert one.looks == [] and one.error is DIVERGED and len(one.story) == 2


@pytest.mark.parametrize("look_seconds", [0.0, 0.3])
def test_looks_are_part_of_the_time_of_the_winner(look_seconds):
    one, plan = race()
    one.look_seconds = look_seconds
    winner = Scripted("winner", *np.arange(7.0))
    one._go(winner, 1.0)
    before = plan.spent
    assert one._train_on(winner, 6.0)
    assert plan.spent - before == pytest.approx(6.0)
    np.testing.assert_allclose(winner.seconds[1:], 1.0 - look_seconds)


def test_looks_that_take_all_the_time_leave_none_for_training():
    one, _ = race()
    one.look_seconds = 2.0
    winner = Scripted("winner", *np.arange(7.0))
    one._go(winner, 1.0)
    one._train_on(winner, 6.0)
    assert winner.seconds[1:] == [0.0] * 6


def test_a_resumed_race_knows_how_long_looks_take():
    one, plan = race()
    one.look_seconds = 0.3
    plan.count("something", 3)
    whole = Scripted("winner", *np.arange(7.0))
    one._go(whole, 1.0)
    other, resumed = race(earlier=tuple(one.done), counts=list(plan.counts))
    other.look_seconds = 0.3
    winner = Scripted("winner", *np.arange(1.0, 7.0))
    assert other._go(winner, 1.0).to_json() == one.looks[0].to_json()
    assert winner.restored and winner.seconds == []
    assert resumed.spent == plan.spent and resumed.counts == plan.counts
    one._train_on(whole, 6.0)
    other._train_on(winner, 6.0)
    assert winner.seconds == whole.seconds[1:] and other.story == one.story


def _failing(calls):
    """Return a ``take`` that always fails, each time with a message of its own."""

    def take(self, *args):
        calls.append(self.name)
        raise FAILURES[len(calls) % 2 + 1](f"failure {len(calls)}")

    return take


def test_if_all_candidates_fail_the_last_error_is_raised(rng, monkeypatch):
    X = rng.standard_normal((260, 2))
    search_models._rehearse(None)
    calls, lines = [], []
    for kind in (Deep, plain_processes.Plain, plain_processes.Exact):
        monkeypatch.setattr(kind, "take", _failing(calls))
    monkeypatch.setattr(plain_processes.Scarce, "take", _failing(calls))
    with pytest.raises(FAILURES) as raised:
        fs.search(X, np.sin(X[:, 0]), 4.0, tell=lines.append, **WORK)
    assert str(raised.value) == f"failure {len(calls)}" and len(calls) > 5
    assert sum("failed, so it is out (failure" in line for line in lines) == len(calls)


@pytest.mark.parametrize("N, take", [(260, "take"), (60, "take_at_once")])
def test_if_all_candidates_for_classes_fail_the_last_error_is_raised(rng, monkeypatch, N, take):
    X = rng.standard_normal((N, 2))
    search_models._rehearse(fs.BernoulliProbit())
    calls = []
    monkeypatch.setattr(Candidate, take, _failing(calls))
    with pytest.raises(FAILURES) as raised:
        fs.search(X, X[:, 0] > 0, 4.0, likelihood="classes", **WORK)
    assert str(raised.value) == f"failure {len(calls)}" and len(calls) > 1


@pytest.mark.parametrize(
    "likelihood, error",
    [("bernoulli-logit", SINGULAR), ("softmax", DIVERGED), ("poisson", SINGULAR)],
)
def test_if_cross_validation_fails_the_temperature_is_one(rng, monkeypatch, likelihood, error):
    X = rng.standard_normal((60, 2))
    y = (X[:, 0] > 0).astype(int) + (likelihood == "softmax") * (X[:, 1] > 1)

    def found(temperature):
        monkeypatch.setattr(classes_and_counts, "cross_validated_temperature", temperature)
        return fs.search(X, y, 0.3, likelihood=likelihood, **WORK)

    def failing(*args):
        raise error

    failed, at_one, other = found(failing), found(lambda *_: 1.0), found(lambda *_: 2.0)
    assert any(line.startswith("cross-validation: failed (") for line in failed.story)
    assert failed.chosen == at_one.chosen
    differs = False
    for (path, _, one), (_, _, same), (_, _, hot) in zip(
        *(fs.records.leaves(each.model) for each in (failed, at_one, other)), strict=True
    ):
        np.testing.assert_array_equal(one, same, err_msg=path)
        differs |= not np.array_equal(one, hot)
    assert differs
