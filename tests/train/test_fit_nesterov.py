"""``fit`` with ``nesterov`` for the mean of a QSGP: steps, control variates, resuming, refusals."""

import logging

import numpy as np
import pytest
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.train.kinds import qsgp as kind
from fastsvgp.train.steps import qsgp
from fastsvgp.weight_space.curvature import (
    GROWTH,
    SampleSizes,
    largest_curvature,
    largest_step_size,
)

N, M = 60, 40
MEAN = "posterior.mean"


def problem(rng, name="fourier", k=0, dtype=np.float64):
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    model = fs.QSGP(basis_of(rng, name, M), weights(rng, M, k), fs.Gaussian(variance=0.1))
    model = fs.tree_map(lambda value: np.asarray(value, dtype)[()], model)
    return model, X.astype(dtype), Y.astype(dtype)


def of_mean(**options):
    return fs.by_field(fs.adagrad(0.1), {MEAN: fs.nesterov(**options)})


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(fs.leaves(a), fs.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


LATE = fs.by_field(fs.adagrad(0.1), {MEAN: fs.nesterov()}, after={MEAN: 3})
RUNS = {
    "mean alone": ({}, {"optimiser": fs.nesterov(), "control": 12}),
    "no control": ({}, {"optimiser": fs.nesterov(), "control": 0}),
    "dense columns": ({"k": 2}, {"optimiser": of_mean(), "control": 12}),
    "float32": ({"k": 1, "dtype": np.float32}, {"optimiser": of_mean(), "control": 5}),
    "diagonal too": ({}, {"optimiser": of_mean(), "closed_form_every": 0, "control": 5}),
    "relevance": (
        {"name": "relevance", "k": 1},
        {"optimiser": of_mean(step_size=1e-3), "closed_form_every": 2, "control": 5},
    ),
    "late": ({}, {"optimiser": LATE, "closed_form_every": 0, "control": 5}),
    "falls": ({}, {"optimiser": fs.nesterov(0.05), "control": 5}),
}


@pytest.mark.parametrize("run", RUNS)
def test_resuming_is_bitwise_as_if_it_had_never_stopped(rng, run, tmp_path, monkeypatch):
    monkeypatch.setattr(qsgp, "RENEWAL", 4)
    monkeypatch.setattr(qsgp, "SHARE", 1)
    about, options = RUNS[run]
    model, X, Y = problem(rng, **about)
    given = fs.tree_map(np.copy, model)
    options = {"batch_size": 16, "basis_size": 10, "rng": 3} | options
    whole, info = fs.fit(model, X, Y, steps=13, **options)
    path, seen = tmp_path / "state.npz", []

    def stop(step, value, info):
        seen.append(info.model)
        return step == 6

    half, _ = fs.fit(model, X, Y, steps=13, checkpoint=path, callback=stop, **options)
    assert_same(fs.load(path).model, half)
    assert_same(seen[-1], half)
    resumed, also = fs.fit(model, X, Y, steps=13, resume=path, **options)
    assert_same(resumed, whole)
    np.testing.assert_array_equal(info.values, also.values)
    assert_same(fs.tree_map(np.asarray, model), fs.tree_map(np.asarray, given))
    assert whole.posterior.mean.dtype == X.dtype


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("control", ["kriged", "paired"])
def test_steps_are_those_with_an_exact_control(rng, k, control, monkeypatch):
    """The definition on all rows, and a new control in each step in place of the recurrence."""
    monkeypatch.setattr(qsgp, "RENEWAL", 5)
    monkeypatch.setattr(qsgp, "SHARE", 0)
    model, X, Y = problem(rng, k=k)
    make = {"kriged": fs.kriged_control, "paired": fs.paired_control}[control]
    found, info = fs.fit(
        model, X, Y, steps=8, control=make(model, X[:7]), optimiser=of_mean(step_size=2e-4),
        closed_form_every=0, basis_size=10, batch_size=N, rng=5,
    )  # fmt: skip
    optimiser, there = fs.adagrad(0.1, fixed=("basis", "likelihood", MEAN)), model
    state, velocity, x = optimiser.init(model), np.zeros(M), model.posterior.mean
    for step in range(8):
        ahead = fs.replace_at(there, MEAN, x + 0.9 * velocity)
        sample = fs.draw_basis_sample(model.basis, 5, rng=(5, step))
        value, grad, _ = fs.sampled_bound_and_grad(
            ahead, X, Y, sample, control=make(ahead, X[:7]), wrt="posterior"
        )
        np.testing.assert_allclose(info.values[step], value, rtol=1e-8)
        velocity = 0.9 * velocity + 2e-4 * grad.posterior.mean.dense(M)
        x = x + velocity
        there, state = optimiser.step(ahead, grad, state, value)
    np.testing.assert_allclose(found.posterior.mean, x, rtol=1e-8, atol=1e-10)
    np.testing.assert_allclose(found.posterior.diagonal, there.posterior.diagonal, rtol=1e-8)


def test_training_goes_back_after_falls(rng, caplog):
    model, X, Y = problem(rng)
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        found, _ = fs.fit(
            model, X, Y, steps=300, batch_size=30, basis_size=20, rng=3, control=30,
            optimiser=fs.nesterov(0.05),
        )  # fmt: skip
    assert any("the bound fell" in record.getMessage() for record in caplog.records)
    start = fs.replace_at(model, MEAN, np.zeros(M))
    exact, _ = fs.optimal_weights(model, X, Y)
    bounds = [fs.weight_bound(fs.optimal_diagonal(one, X), X, Y) for one in (start, found, exact)]
    assert bounds[0] < bounds[1] <= bounds[2]


def test_estimated_step_sizes_are_the_inverse_of_the_largest_curvature(rng, monkeypatch):
    X, covariance, noise = rng.uniform(-1, 1, (200, 2)), fs.RBF(1.3, 0.8), 0.05
    basis = fs.RandomFourier(covariance, num_features=6000, seed=1)
    phi = basis.features(X)
    exact = np.linalg.eigvalsh(phi @ phi.T / noise)[-1] + 1
    found = largest_curvature(covariance, X, noise, 200)
    np.testing.assert_allclose(found, exact, rtol=0.15)
    np.testing.assert_allclose(largest_curvature(covariance, X[:100], noise, 200), exact, rtol=0.4)
    step = largest_step_size(covariance, X, noise, SampleSizes(200, 50, 6000, 6000), 0.9)
    np.testing.assert_allclose(step, 1 / found)
    model = fs.QSGP(basis, weights(rng, 6000, 0), fs.Gaussian(noise))
    seen = []
    monkeypatch.setattr(kind, "CURVATURE_ROWS", 200)
    fs.fit(
        model, X, rng.standard_normal(200), steps=3, batch_size=50, rng=0, control=0,
        optimiser=fs.nesterov(), callback=lambda step, value, info: seen.append(info.step_size),
    )  # fmt: skip
    np.testing.assert_allclose(seen, [step, step / 2, 0.0], rtol=1e-12, atol=1e-20)


def test_few_functions_limit_the_step_size_unless_a_control_explains_them(rng):
    X, covariance, noise = rng.uniform(-1, 1, (200, 2)), fs.RBF(1.3, 0.8), 0.05
    model = fs.QSGP(
        fs.RandomFourier(covariance, num_features=6000), weights(rng, 6000, 0), fs.Gaussian(noise)
    )
    sizes = SampleSizes(200, 50, 20, 6000)
    limited = largest_step_size(covariance, X, noise, sizes, 0.9)
    rate = (6000 / 20 - 1) * (200 * 1.3 / noise) ** 2 / (50 * 20)
    np.testing.assert_allclose(limited, 0.1 * np.sqrt(GROWTH / rate))
    paired = fs.paired_control(model, X[::4])
    assert largest_step_size(covariance, X, noise, sizes, 0.9, paired) == limited
    points = X[::50]
    kriged = largest_step_size(
        covariance, X, noise, sizes, 0.9, fs.kriged_control(model, points, jitter=1e-8)
    )
    K, cross = covariance.matrix(points), covariance.matrix(points, X)
    left = 1 - np.mean(np.sum(cross * np.linalg.solve(K, cross), axis=0)) / 1.3
    np.testing.assert_allclose(kriged, limited / np.sqrt(left), rtol=1e-4)


def test_training_finds_the_optimum_of_the_exact_bound(rng):
    model, X, Y = problem(rng)
    found, _ = fs.fit(
        model, X, Y, steps=400, batch_size=N, basis_size=20, rng=0, optimiser=fs.nesterov()
    )
    exact, _ = fs.optimal_weights(model, X, Y)
    bounds = [fs.weight_bound(one, X, Y) for one in (fs.optimal_diagonal(model, X), found, exact)]
    assert 0 <= bounds[2] - bounds[1] < 0.2 * (bounds[2] - bounds[0])


def test_seconds_and_the_best_validated_model(rng):
    model, X, Y = problem(rng)
    options = {"batch_size": 16, "basis_size": 10, "rng": 3, "optimiser": fs.nesterov()}
    _, info = fs.fit(model, X, Y, seconds=0.3, **options)
    assert info.reason in ("seconds", "steps") and info.steps >= 1
    scores, seen = iter((1.0, 2.0, 3.0, 0.0, -1.0, -2.0)), []
    best, _ = fs.fit(
        model, X, Y, steps=6, validate=lambda there: next(scores), validate_every=1,
        callback=lambda step, value, info: seen.append(info.model), **options,
    )  # fmt: skip
    np.testing.assert_array_equal(best.posterior.mean, seen[2].posterior.mean)
    assert not np.shares_memory(best.posterior.mean, seen[-1].posterior.mean)


def test_other_fields_bases_and_likelihoods_are_refused(rng):
    model, X, Y = problem(rng, k=1)
    for options in ({}, {"closed_form_every": 0}):
        with pytest.raises(ValueError, match="nesterov is for 'posterior.mean' of a QSGP, not"):
            fs.fit(model, X, Y, steps=1, optimiser=fs.nesterov(), **options)
    held = {"fixed": ("basis", "likelihood")}
    for name in ("inducing", "relevance"):
        model, X, Y = problem(rng, name)
        with pytest.raises(ValueError, match="estimates its step size for a RandomFourier"):
            fs.fit(model, X, Y, steps=1, optimiser=fs.nesterov(), **held)
        fs.fit(model, X, Y, steps=2, optimiser=fs.nesterov(1e-5), **held)
    model, X, Y = problem(rng)
    logit = fs.replace(model, likelihood=fs.BernoulliLogit())
    with pytest.raises(ValueError, match="Gaussian noise, not for RandomFourier and BernoulliLog"):
        fs.fit(logit, X, (Y > 0) * 1.0, steps=1, optimiser=of_mean())


def test_an_odd_input_is_named_by_its_row_of_the_data(rng):
    model, X, Y = problem(rng)
    X[-1, 1] = np.nan
    held = ("basis", "likelihood", "posterior.diagonal")
    for seed in range(3):
        with pytest.raises(ValueError, match=rf"`X` contains nan at index \({N - 1}, 1\)"):
            fs.fit(
                model, X, Y, steps=1, batch_size=7, control=0, fixed=held, rng=seed,
                optimiser=fs.nesterov(),
            )  # fmt: skip


def test_the_default_is_adagrad(rng):
    """It wins on some of the data: see bench/results/qsgp_mean.md."""
    model, X, Y = problem(rng)
    options = {"steps": 3, "batch_size": 16, "basis_size": 10, "rng": 3}
    assert_same(
        fs.fit(model, X, Y, **options)[0],
        fs.fit(model, X, Y, optimiser=fs.adagrad(0.1), **options)[0],
    )
