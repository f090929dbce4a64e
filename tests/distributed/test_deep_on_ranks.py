"""A deep GP on several ranks: draws, seeds, shards and checkpoints."""

import tracemalloc

import numpy as np
import pytest
from support.deep_problems import JITTER, draws_for
from support.rank_models import ROWS as N, layers_problem as problem, layers_to_train as trained
from support.rank_problems import (
    assert_ended_by,
    assert_same_on_all_and_close,
    distance,
    ends,
    on_ranks,
)

import fastsvgp as fs
from fastsvgp.distributed.reduce import RowPartition
from fastsvgp.layers.draws import hidden_draws


@pytest.mark.parametrize("rows", ["all", "own"])
def test_given_draws_belong_to_the_given_rows(rng, rows):
    model, X, Y = problem(rng, "three")
    draws = draws_for(rng, model, 3, N)
    options = {"wrt": ("layers.0", "likelihood"), "inputs": True, "jitter": JITTER}
    *expected, X_bar = fs.elbo_and_grad(model, X, Y, draws=draws, **options)
    cuts = [0, 2, 9, N]

    def work(group):
        at = slice(cuts[group.rank], cuts[group.rank + 1]) if rows == "own" else slice(None)
        return fs.elbo_and_grad(
            model, X[at], Y[at], draws=tuple(one[:, at] for one in draws), group=group, **options
        )

    found = on_ranks(3, work, rows)
    assert_same_on_all_and_close([one[:2] for one in found], expected, 1e-12)
    np.testing.assert_allclose(
        np.concatenate([one[2] for one in found]), X_bar, rtol=0, atol=1e-12 * np.abs(X_bar).max()
    )
    with pytest.raises(ValueError, match=r"draws\[0\]. must have shape"):
        on_ranks(
            3,
            lambda group: fs.elbo(
                model, X, Y, draws=tuple(one[:, :-1] for one in draws), group=group
            ),
        )


@pytest.mark.parametrize("seed", [None, "generator"])
def test_seed_is_that_of_rank_0_if_ranks_have_none(rng, seed):
    model, X, Y = problem(rng)
    seeds = [None, None] if seed is None else [np.random.default_rng(rank) for rank in range(2)]
    values = on_ranks(2, lambda group: fs.elbo(model, X, Y, rng=seeds[group.rank], group=group))
    assert values[0] == values[1]
    if seed is not None:
        expected = fs.elbo(model, X, Y, rng=int(np.random.default_rng(0).integers(2**53)))
        assert values[0] == pytest.approx(expected, rel=1e-12)


def test_batches_of_shards_raise_the_bound(rng):
    model, X, Y = trained(rng)
    cuts = [0, 4, 10, N]

    def in_batches(group):
        at = slice(cuts[group.rank], cuts[group.rank + 1])
        return fs.fit(
            model, X[at], Y[at], steps=30, batch_size=8, rng=3, natural_step_size=0.1, group=group
        )[0]

    found = on_ranks(3, in_batches, "own")
    assert all(distance(other, found[0]) == 0 for other in found)
    assert fs.elbo(found[0], X, Y, rng=0) > fs.elbo(model, X, Y, rng=0)


def test_training_resumes_on_another_number_of_ranks(rng, tmp_path):
    model, X, Y = trained(rng)
    options, path = {"batch_size": 11, "natural_step_size": 0.1, "rng": 5}, tmp_path / "state.npz"
    expected, _ = fs.fit(model, X, Y, steps=20, **options)
    on_ranks(3, lambda group: fs.fit(model, X, Y, steps=8, group=group, checkpoint=path, **options))
    found = on_ranks(
        2, lambda group: fs.fit(model, X, Y, steps=20, group=group, resume=path, **options)[0]
    )
    assert distance(*found) == 0 and distance(found[0], expected) < 1e-11


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_draws_of_a_rank_take_the_memory_of_its_rows(rng, samples):
    model, _, _ = trained(rng)
    X, rows = np.zeros((40_000, 2)), slice(9_990, 10_010)
    (all_of_them,) = hidden_draws(model, X, None, samples, 7)
    for chosen in (rows, np.r_[5, rows, 30_000]):
        own = X[chosen]
        tracemalloc.start()
        try:
            (found,) = hidden_draws(model, own, None, samples, 7, RowPartition(len(X), chosen))
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        np.testing.assert_array_equal(found, all_of_them[:, chosen])
        assert peak < 4 * 4096 * 2 * 8  # some chunks of rows, not all 40,000


def test_one_rank_that_fails_ends_all(rng):
    model, X, Y = trained(rng)
    X[20] = np.nan
    errors = ends(3, lambda group: fs.fit(model, X, Y, steps=10, batch_size=11, rng=0, group=group))
    assert_ended_by(errors, "index (20, 0)")
