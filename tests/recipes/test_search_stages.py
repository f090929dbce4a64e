"""Each stage of a search, and the choice of the last posterior."""

from dataclasses import replace as changed

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes.model_search.candidates import WIDE, Deep, Hyper
from fastsvgp.recipes.model_search.collapsed_posterior import LARGE, score_posterior
from fastsvgp.recipes.model_search.plan import SearchPlan
from fastsvgp.recipes.model_search.race import Look
from fastsvgp.recipes.model_search.regression import RELEVANT, Regression
from fastsvgp.recipes.model_search.rows import SearchRows
from fastsvgp.recipes.scaling import Scale


def new_stages(rng, N=300, seconds=4.0, tell=lambda line: None):
    """Make a search for a smooth function of two inputs; nothing has run yet."""
    X = rng.uniform(-2, 2, (N + 200, 2))
    y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(len(X))
    raw = Scale.fit(X, y, True)
    parts = [SearchRows(X[at], raw.y(y)[at]) for at in np.split(np.arange(len(X)), [N, N + 100])]
    plan = SearchPlan(seconds, by_work=True)
    return Regression(None, parts[0], *parts, raw, raw.add_column_maps(X), plan, 0, tell)


def look(one, lengthscale, noise, name, score=0.0):
    """Make a look at a process with these hyperparameters."""
    hyper = Hyper(fs.RBF(1.0, np.full(2, lengthscale)), noise, None)
    return Look(name, 1.0, 5, score, 0.5, (1.0, 1.0), hyper, one._scales["raw"])


def test_a_start_by_relevance_races_where_it_is_quick(rng, tune):
    tune(relevance_rows=60, relevance_iterations=2, exact_rows=200)
    one = new_stages(rng)
    one.run()
    assert one.first.candidate == RELEVANT and one.first.steps > 25
    assert not any(line.startswith(f"{RELEVANT}: left out") for line in one.story)
    tune(relevance_iterations=10**6)
    one = new_stages(rng)
    one.run()
    assert one.first is None
    assert any(line.startswith(f"{RELEVANT}: left out") for line in one.story)


def test_where_lbfgs_finds_nothing_minibatches_get_a_quarter(rng, tune):
    tune(useless_density=np.inf)
    one = new_stages(rng)
    chosen, inputs = one._inputs(4.0)
    assert "L-BFGS found nothing, so minibatches get a quarter of the time" in one.story
    scarce = [seen for seen in one.looks if seen.candidate == f"minibatches, {inputs} inputs"]
    assert len(scarce) == 1 and np.shape(chosen.lengthscales()) == (2,)
    (plain,) = (seen for seen in one.looks if seen.candidate == f"plain, {inputs} inputs")
    assert (chosen.name == scarce[0].candidate) == (scarce[0].score > plain.score)


def test_long_search_has_larger_network_and_one_by_relevance(rng):
    one = new_stages(rng)
    plain, inputs = one._inputs(4.0)
    names = [network.name for network in one._networks(plain, inputs, 200.0)]
    assert names[0].startswith("network tanh 256") and len(names) == 3
    plain.lengthscales = lambda: np.array([1.0, 500.0])
    *_, last = one._networks(plain, inputs, 10.0)
    assert last.name.startswith("network tanh 128, by relevance")
    first = last._trainer.model.covariance.network.weights[0]
    assert np.abs(first[1]).max() < 0.05 * np.abs(first[0]).max()


def test_a_candidate_that_comes_nearer_stays(rng):
    one = new_stages(rng)
    candidate = Deep("behind", *one._data("raw"), rng, WIDE, M=8)
    one.looks = [look(one, 1.0, 0.1, "behind", score) for score in (-1.0, -0.6)]
    one.best = look(one, 1.0, 0.1, "leader", -0.3)  # 0.3 ahead, and it gained 0.4
    assert one._comes_nearer(candidate)
    one.best = look(one, 1.0, 0.1, "leader", -0.1)
    assert not one._comes_nearer(candidate)
    one.looks = one.looks[:1]
    assert not one._comes_nearer(candidate)


def test_step_sizes_fall_from_the_best_look(rng, monkeypatch):
    one = new_stages(rng)
    network = Deep("network", *one._data("raw"), rng, WIDE, M=8)
    look_at, scores = Regression._look_at, iter([1.0, 0.5, 0.4, 2.0])

    def scored(*args):
        return changed(look_at(*args), score=next(scores))

    monkeypatch.setattr(Regression, "_look_at", scored)
    one._go(network, 0.05, (0.0, 0.5))
    best = one.best
    one._go(network, 0.05, (0.5, 1.0))
    went = []
    go_back = Deep.go_back
    monkeypatch.setattr(
        Deep, "go_back", lambda self, state: went.append(state) or go_back(self, state)
    )
    one._settle({"network": network})
    assert [state is best.state for state in went] == [True, True]
    assert network.part == 1.0 and one.best.score == 2.0
    assert sum("with step sizes that fall" in line for line in one.story) == 2
    one._settle({"network": network})  # the best look is the last one
    assert len(went) == 2


@pytest.mark.parametrize("better", [True, False])
def test_the_last_word_is_of_rows_seen_once(rng, better):
    """The winner replaces the first candidate only if these rows clearly prefer it."""
    one = new_stages(rng)
    good, other = look(one, 0.8, 0.02, "winner"), look(one, 30.0 if better else 0.8, 0.02, "first")
    one.first, one.looks = other, [good]
    chosen, _ = one._final(good, one._best(True)[1])  # both with M inducing inputs
    assert chosen.candidate == ("winner" if better else "first")
    assert f"{chosen.candidate}, because on 100 rows seen once" in one.story[-1]


def test_of_two_exact_processes_the_clearly_better_one_is_first(rng):
    one = new_stages(rng)
    one.first = look(one, 30.0, 0.02, "raw")
    ranks = one._scales["rank"]
    assert one._replaces(changed(look(one, 0.8, 0.02, "rank"), scale=ranks))
    one.first = look(one, 0.8, 0.02, "raw")
    assert not one._replaces(changed(look(one, 30.0, 0.02, "rank"), scale=ranks))
    assert "standard errors on 200 held-out rows" in one.story[-1]


def test_unusual_factors_are_reported(rng, tune):
    tune(unusual_factor=1.0)
    one = new_stages(rng)
    one.looks = [look(one, 0.8, 0.02, "winner")]
    one.answer(False)
    assert any(line.startswith("held-out rows multiply the variance of f by") for line in one.story)
    assert any(line.startswith("held-out rows multiply the noise by") for line in one.story)


def test_ctrl_c_at_the_end_keeps_the_best_look(rng, monkeypatch):
    best, calls = Regression._best, []

    def interrupted(self, already):
        calls.append(already)
        if len(calls) == 1:
            raise KeyboardInterrupt
        return best(self, already)

    monkeypatch.setattr(Regression, "_best", interrupted)
    X = rng.uniform(-2, 2, (300, 2))
    found = fs.search(X, np.sin(X[:, 0]), 4.0, by_work=True, rng=0)
    assert found.interrupted and calls == [False, True]


def test_overfitted_network_gets_more_noise(rng):
    """The bound is largest at almost no noise, but held-out rows require more."""
    X = rng.standard_normal((200, 2))
    y = rng.standard_normal(200)
    scale = Scale.fit(X, y, True)
    hyper = Hyper(fs.RBF(1.0, np.full(2, 0.05)), 1e-6, X.copy())
    held = SearchRows(X[:60] + 0.01, rng.standard_normal(60))
    found = score_posterior(hyper, scale, SearchRows(scale.X(X), y), held, 200)
    assert max(found.factors) < LARGE and found.collapsed.noise > 1e-5
