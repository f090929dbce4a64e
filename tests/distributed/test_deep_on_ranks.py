"""A deep GP on several ranks: the draws that one process makes for their rows, and its bound, gradient, steps and trajectory."""

import tracemalloc

import numpy as np
import pytest
from support import deep_problems
from support.deep_problems import CHAINS, JITTER, draws_for
from support.rank_problems import (
    assert_ended_by,
    assert_same_on_all_and_close,
    distance,
    ends,
    on_ranks,
    uneven,
)

import fastsvgp as fs
from fastsvgp.distributed.reduce import RowPartition
from fastsvgp.layers.draws import hidden_draws

N = 23
STEPPING = [
    name
    for name, (rows, _) in CHAINS.items()
    if rows[-1][0] in ("whitened", "marginal", "absorbed-sites", "dual-sites")
]


def problem(rng, name="two"):
    """``(model, X, Y)`` of N rows."""
    model, _, Y = deep_problems.problem(rng, name)
    return model, rng.uniform(-2, 2, (N, 2)), Y[rng.integers(0, len(Y), N)]


def shares(size, *arrays):
    """A function of a group: its rows of the arrays, the first ranks with one row each; None stays."""
    ends = uneven(size, N)

    def own(group):
        at = slice(ends[group.rank], ends[group.rank + 1])
        return [None if array is None else array[at] for array in arrays]

    return own


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_bound_and_gradient(rng, name, size):
    """As near as rounding leaves them, which the second layer multiplies by the condition of its Kuu."""
    model, X, Y = problem(rng, name)
    options = {"rng": 4, "num_samples": 2 + size % 2, "num_data": 2.5 * N, "jitter": JITTER}
    expected = fs.elbo_and_grad(model, X, Y, **options)
    found = on_ranks(size, lambda group: fs.elbo_and_grad(model, X, Y, group=group, **options))
    assert_same_on_all_and_close(found, expected, 1e-11)
    own = shares(size, X, Y)
    found = on_ranks(
        size, lambda group: fs.elbo_and_grad(model, *own(group), group=group, **options), "own"
    )
    assert_same_on_all_and_close(found, expected, 1e-11)
    values = on_ranks(size, lambda group: fs.elbo(model, X, Y, group=group, **options))
    assert len(set(values)) == 1 and values[0] == pytest.approx(expected[0], rel=1e-11)


@pytest.mark.parametrize("rows", ["all", "own"])
def test_draws_that_are_given_belong_to_the_rows_that_are(rng, rows):
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


def test_float32_stays_float32(rng):
    model, X, Y = problem(rng)
    model, X, Y = fs.tree_map(np.float32, model), X.astype(np.float32), Y.astype(np.float32)
    options = {"rng": 4, "num_data": 2.5 * N, "jitter": JITTER}
    expected = fs.elbo_and_grad(model, X, Y, **options)
    found = on_ranks(3, lambda group: fs.elbo_and_grad(model, X, Y, group=group, **options))
    assert_same_on_all_and_close(found, expected, 1e-4)


def test_weights_that_leave_out_all_rows_of_a_part(rng):
    model, X, Y = problem(rng)
    weights = np.r_[np.zeros(9), np.ones(N - 9)]
    Y[:9] = np.nan
    expected = fs.elbo_and_grad(model, X, Y, weights=weights, rng=3)
    found = on_ranks(
        3, lambda group: fs.elbo_and_grad(model, X, Y, weights=weights, rng=3, group=group)
    )
    assert_same_on_all_and_close(found, expected, 1e-12)


@pytest.mark.parametrize("seed", [None, "generator"])
def test_a_seed_of_rank_0_where_ranks_have_none(rng, seed):
    model, X, Y = problem(rng)
    seeds = [None, None] if seed is None else [np.random.default_rng(rank) for rank in range(2)]
    values = on_ranks(2, lambda group: fs.elbo(model, X, Y, rng=seeds[group.rank], group=group))
    assert values[0] == values[1]
    if seed is not None:
        expected = fs.elbo(model, X, Y, rng=int(np.random.default_rng(0).integers(2**53)))
        assert values[0] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("monotone", [False, True])
@pytest.mark.parametrize("name", STEPPING)
def test_natural_steps(rng, name, monotone):
    model, X, Y = problem(rng, name)
    options = {"step_size": 0.5, "rng": 2, "num_samples": 4, "jitter": JITTER, "monotone": monotone}
    expected, info = fs.natural_step(model, X, Y, **options)
    own = shares(3, X, Y)
    for rows in ("all", "own"):

        def step(group):
            x, y = own(group) if group.rows == "own" else (X, Y)
            return fs.natural_step(model, x, y, group=group, **options)

        found = on_ranks(3, step, rows)
        assert all(one[1] == found[0][1] and one[1].step_size == info.step_size for one in found)
        assert (
            found[0][1].value == pytest.approx(info.value, rel=1e-12)
            and found[0][1].negative == info.negative
        )
        assert all(distance(one[0], found[0][0]) == 0 for one in found)
        assert distance(found[0][0], expected) < 1e-10 * max(
            np.max(np.abs(leaf)) for _, _, leaf in fs.leaves(expected)
        )


def trained(rng, name="two"):
    """``(model, X, Y)`` to train."""
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    hidden = fs.Layer(fs.RBF(1.0, np.ones(2)), X[:5].copy(), fs.Whitened(np.zeros((2, 5)), 0.3 * np.stack([np.eye(5)] * 2)),
                      fs.IdentityMean())  # fmt: skip
    top = fs.Layer(fs.RBF(1.0, np.ones(2)), X[5:10].copy(), fs.Whitened(np.zeros(5), np.eye(5)))
    return fs.DeepGP((hidden, top), fs.Gaussian(0.1)), X, Y


WAYS = {
    "adam": {},
    "natural": {"natural_step_size": 0.1},
    "rounds": {"natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 3])
def test_the_trajectory_is_that_of_one_process(rng, way, size):
    model, X, Y = trained(rng)
    options = {"steps": 40, "batch_size": 11, "rng": 5, **WAYS[way]}
    expected, info = fs.fit(model, X, Y, **options)
    found = on_ranks(size, lambda group: fs.fit(model, X, Y, group=group, **options))
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert distance(found[0][0], expected) < 1e-11
    np.testing.assert_allclose(found[-1][1].values, info.values, rtol=1e-11)


def test_shards_of_their_own(rng):
    model, X, Y = trained(rng)
    own, options = (
        shares(3, X, Y),
        {
            "steps": 20,
            "batch_size": N,
            "rng": 3,
            "natural_step_size": 0.1,
        },
    )
    expected, _ = fs.fit(model, X, Y, **options)
    found = on_ranks(3, lambda group: fs.fit(model, *own(group), group=group, **options), "own")
    assert all(distance(other, found[0][0]) == 0 for other, _ in found)
    assert distance(found[0][0], expected) < 1e-11
    cuts = [0, 4, 10, N]

    def in_batches(group):
        at = slice(cuts[group.rank], cuts[group.rank + 1])
        return fs.fit(
            model, X[at], Y[at], steps=30, batch_size=8, rng=3, natural_step_size=0.1, group=group
        )[0]

    found = on_ranks(3, in_batches, "own")
    assert all(distance(other, found[0]) == 0 for other in found)
    assert fs.elbo(found[0], X, Y, rng=0) > fs.elbo(model, X, Y, rng=0)


def test_resuming_on_another_number_of_ranks(rng, tmp_path):
    model, X, Y = trained(rng)
    options, path = {"batch_size": 11, "natural_step_size": 0.1, "rng": 5}, tmp_path / "state.npz"
    expected, _ = fs.fit(model, X, Y, steps=20, **options)
    on_ranks(3, lambda group: fs.fit(model, X, Y, steps=8, group=group, checkpoint=path, **options))
    found = on_ranks(
        2, lambda group: fs.fit(model, X, Y, steps=20, group=group, resume=path, **options)[0]
    )
    assert distance(*found) == 0 and distance(found[0], expected) < 1e-11


def test_layers_with_a_factor_of_an_inverse(rng):
    model, X, Y = trained(rng)
    q = fs.Relaxed(np.zeros((2, 5)), np.ones(5), np.eye(5))
    model = fs.replace(model, layers=(fs.replace(model.layers[0], posterior=q), model.layers[1]))
    options = {"steps": 10, "batch_size": 11, "rng": 5}
    expected, _ = fs.fit(model, X, Y, **options)
    found = on_ranks(2, lambda group: fs.fit(model, X, Y, group=group, **options)[0])
    assert distance(*found) == 0 and distance(found[0], expected) < 1e-11


def test_layers_on_patches(rng):
    q = fs.Whitened(rng.standard_normal((2, 5)), np.stack([np.eye(5)] * 2))
    layer = fs.ConvolutionalLayer(
        fs.RBF(), rng.standard_normal((5, 4)), q, image_shape=(3, 3), patch_shape=(2, 2)
    )
    top = fs.ConvolutionalLayer(
        fs.RBF(), rng.standard_normal((5, 8)), q, image_shape=(2, 2, 2), patch_shape=(2, 2)
    )
    model, X, Y = (
        fs.DeepGP((layer, top), fs.Gaussian(0.2)),
        rng.standard_normal((N, 9)),
        rng.standard_normal((N, 2)),
    )
    expected = fs.elbo_and_grad(model, X, Y, rng=1)
    found = on_ranks(2, lambda group: fs.elbo_and_grad(model, X, Y, rng=1, group=group))
    assert_same_on_all_and_close(found, expected, 1e-12)
    stepped, _ = fs.natural_step(model, X, Y, rng=1)
    found = on_ranks(2, lambda group: fs.natural_step(model, X, Y, rng=1, group=group)[0])
    assert distance(*found) == 0 and distance(found[0], stepped) < 1e-11


@pytest.mark.parametrize("samples", [1, 2, 3])
def test_a_rank_has_the_draws_of_its_rows_in_the_memory_of_these(rng, samples):
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
        assert peak < 4 * 4096 * 2 * 8  # some runs of rows, and not all 40,000


def test_one_rank_that_fails_ends_all(rng):
    model, X, Y = trained(rng)
    X[20] = np.nan
    errors = ends(3, lambda group: fs.fit(model, X, Y, steps=10, batch_size=11, rng=0, group=group))
    assert_ended_by(errors, "index (20, 0)")
