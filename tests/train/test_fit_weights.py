"""Training with weights: batches, rows of weight 0, and checkpoints."""

import numpy as np
import pytest
from support.fit_problems import assert_same, problem

import fastsvgp as fs
from fastsvgp.train.batches import Batches, OnDevice
from tests.train.test_batches import OnDisk

N = 60


def weighted(rng, outputs=(), **fields):
    """Return ``(model, X, Y, weights, equivalent repeated rows)``; entries of weight 0 are NaN."""
    model, X, Y = problem(rng, N, outputs=outputs, **fields)
    w = rng.permutation(np.arange(N) % 4)
    Y[w == 0] = np.nan
    return model, X, Y, w, np.repeat(np.arange(N), w)


def deep(model):
    layers = (fs.layers.Layer(model.covariance, model.inducing, model.posterior),)
    return fs.DeepGP(layers, model.likelihood)


MOVES = [
    {},
    {"natural_step_size": 0.3},
    {"natural_step_size": 0.3, "e_steps": 3},
    {"natural_step_size": 0.3, "m_steps": 2},
]
ids = "adam", "natural", "e-steps", "m-steps"


@pytest.mark.parametrize("moves", MOVES, ids=ids)
@pytest.mark.parametrize("kind", ["svgp", "deep"])
@pytest.mark.parametrize("outputs", [(), (2,)])
def test_all_data_at_once_are_the_repeated_rows(rng, outputs, kind, moves):
    model, X, Y, w, rows = weighted(rng, outputs)
    model = deep(model) if kind == "deep" else model
    options = {"steps": 15, "rng": 0, "jitter": 1e-3, **moves}
    ours, info = fs.fit(model, X, Y, weights=w, batch_size=N, **options)
    due, other = fs.fit(model, X[rows], Y[rows], batch_size=len(rows), **options)
    np.testing.assert_allclose(info.values, other.values, rtol=1e-9)
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(ours), fs.records.leaves(due), strict=True
    ):
        np.testing.assert_allclose(a, b, rtol=1e-6, atol=1e-6, err_msg=path)


def test_an_sgpr(rng):
    model, X, Y, w, rows = weighted(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    _, info = fs.fit(sgpr, X, Y, weights=w, steps=8)
    _, other = fs.fit(sgpr, X[rows], Y[rows], steps=8)
    np.testing.assert_allclose(info.values, other.values, rtol=1e-5)
    pair = fs.bounds.OrthogonalSGPR(
        model.covariance, fs.posteriors.InducingPair(X[:4].copy(), X[4:8].copy()), 0.1
    )
    trained, info = fs.fit(pair, X, Y, weights=w, steps=8)
    assert fs.collapsed_bound(trained, X, Y, weights=w) == pytest.approx(info.values[-1], rel=1e-12)
    with pytest.raises(ValueError, match="share one covariance of q"):
        fs.fit(sgpr, X, np.stack([Y, Y], 1), weights=np.stack([w, w], 1), steps=1)


@pytest.mark.parametrize("moves", MOVES[:3], ids=ids[:3])
def test_rows_that_count_nowhere_are_no_data(rng, moves):
    """Also on minibatches: the trajectory is bitwise that without these rows."""
    model, X, Y, w, _ = weighted(rng)
    left, options = w > 0, {"steps": 25, "batch_size": 16, "rng": 3, **moves}
    ours, info = fs.fit(model, X, Y, weights=w, **options)
    due, other = fs.fit(model, X[left], Y[left], weights=w[left], **options)
    np.testing.assert_array_equal(info.values, other.values)
    assert_same(ours, due)


def test_a_weight_for_each_target(rng):
    """Some rows lack outputs: a batch can have an output without any positive weight."""
    model, X, Y = problem(rng, N, outputs=(2,))
    W = (rng.uniform(size=Y.shape) < 0.3).astype(float)
    W[:3] = 0
    Y[W == 0] = np.nan
    trained, info = fs.fit(
        model, X, Y, weights=W, steps=200, batch_size=8, rng=0, optimiser=fs.adam(0.05)
    )
    assert np.isfinite(info.values).all()
    assert fs.elbo(trained, X, Y, weights=W) > fs.elbo(model, X, Y, weights=W) + 10


def test_weights_of_one_change_nothing(rng):
    model, X, Y = problem(rng, N)
    options = {"steps": 10, "batch_size": 16, "rng": 0}
    ours, info = fs.fit(model, X, Y, weights=np.ones(N), **options)
    due, other = fs.fit(model, X, Y, **options)
    np.testing.assert_allclose(info.values, other.values, rtol=1e-11)


def batch_rows(batches, steps):
    for step in range(steps):
        X, Y, w = batches.at(step)
        np.testing.assert_array_equal(X[:, 0].astype(int), batches.rows(step))
        np.testing.assert_array_equal(Y, 10 * X[:, 0])
        np.testing.assert_array_equal(w, X[:, 0] % 3)
        yield X[:, 0].astype(int)


@pytest.mark.parametrize("size", [1, 4, 7, 20, 100])
@pytest.mark.parametrize(
    "make", [lambda batches: batches, lambda batches: OnDevice(batches, np.zeros(1))]
)
def test_batches_bring_the_weights_of_their_rows(size, make):
    rows = np.arange(30)
    counting = rows[rows % 3 > 0]
    batches = make(
        Batches(OnDisk(rows[:, None].astype(float)), OnDisk(10.0 * rows), size, 3, rows % 3)
    )
    assert batches.num_data == len(counting) and batches.size == min(size, len(counting))
    seen = np.concatenate(list(batch_rows(batches, 2 * len(counting))))
    found, often = np.unique(seen, return_counts=True)
    np.testing.assert_array_equal(found, counting)
    assert (often == 2 * batches.size).all()


def test_a_bad_entry_is_found_in_the_data(rng):
    model, X, Y, w, _ = weighted(rng)
    bad = int(np.flatnonzero(w > 0)[-1])
    Y[bad] = np.nan
    for size in (8, N):
        with pytest.raises(ValueError, match=rf"`Y` contains nan at index {bad}\b"):
            fs.fit(model, X, Y, weights=w, epochs=2, batch_size=size, rng=0)


@pytest.mark.parametrize("kind", ["svgp", "sgpr"])
def test_resuming_with_the_weights(rng, tmp_path, kind):
    model, X, Y, w, _ = weighted(rng)
    options = {"batch_size": 16, "rng": 0} if kind == "svgp" else {}
    model = model if kind == "svgp" else fs.SGPR(model.covariance, model.inducing, 0.1)
    path, end = tmp_path / "part.npz", 9
    whole, info = fs.fit(model, X, Y, weights=w, steps=end, **options)
    fs.fit(model, X, Y, weights=w, steps=4, checkpoint=path, **options)
    again, other = fs.fit(model, X, Y, weights=w, steps=end, resume=path, **options)
    if kind == "svgp":
        assert_same(again, whole)
        np.testing.assert_array_equal(info.values, other.values)
    assert other.steps == end
    filled = np.where(w > 0, Y, 0.0)
    cases = {
        "the numbers in `weights` are others": w + (w > 0),
        "`weights` had dtype int64 then, float64 now": w.astype(float),
        "there were `weights` then, there are none now": None,
    }
    for words, weights in cases.items():
        with pytest.raises(ValueError, match=f"was made with other data: .*{words}"):
            fs.fit(
                model,
                X,
                filled if weights is None else Y,
                weights=weights,
                steps=end,
                resume=path,
                **options,
            )
    fs.fit(model, X, filled, steps=4, checkpoint=tmp_path / "plain.npz", **options)
    with pytest.raises(ValueError, match="there were no `weights` then, there are now"):
        fs.fit(
            model,
            X,
            filled,
            weights=np.ones(N),
            steps=end,
            resume=tmp_path / "plain.npz",
            **options,
        )


def test_updates_of_an_inverse(rng):
    model, X, Y, w, rows = weighted(rng)
    q = fs.posteriors.Relaxed(np.zeros(5), np.ones(5), np.eye(5))
    model = fs.replace(model, posterior=q)
    for updates in (None, fs.optim.inverse_updates(1e-3, direction="likelihood")):
        options = {"steps": 5, "rng": 0, "inverse_updates": updates, "jitter": 1e-3}
        _, info = fs.fit(model, X, Y, weights=w, batch_size=N, **options)
        _, other = fs.fit(model, X[rows], Y[rows], batch_size=len(rows), **options)
        np.testing.assert_allclose(info.values, other.values, rtol=1e-9)
    with pytest.raises(
        ValueError, match="`nats` of `inverse_updates` count each row once, and there are `weights`"
    ):
        fs.fit(model, X, Y, weights=w, steps=5, inverse_updates=fs.optim.inverse_updates(nats=0.1))
