"""Quadruply stochastic training: steps in place, bitwise resuming, and refusals."""

import logging
import tracemalloc

import numpy as np
import pytest
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.records import leaves
from fastsvgp.train.kinds import qsgp

N, M = 60, 40


def problem(rng, name="fourier", likelihood=None, k=0, dtype=np.float64):
    X = rng.uniform(-2, 2, (N, 2)).astype(dtype)
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    likelihood = likelihood or fs.Gaussian(variance=0.1)
    if not isinstance(likelihood, fs.Gaussian):
        Y = Y > 0
    model = fs.QSGP(basis_of(rng, name, M), weights(rng, M, k), likelihood)
    return (
        fs.records.tree_map(
            lambda value: dtype(value) if np.ndim(value) == 0 else value.astype(dtype), model
        ),
        X,
        Y.astype(dtype),
    )


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


RUNS = {
    "gaussian": ({}, {"control": 12}),
    "no control": ({"k": 2}, {"control": 0}),
    "dense columns": ({"k": 2}, {"control": 12}),
    "float32": ({"dtype": np.float32, "k": 1}, {"control": 5}),
    "closed form": ({}, {"closed_form_every": 2, "control": 5}),
    "relevance": ({"name": "relevance"}, {"control": 5}),
    "relevance by closed forms": ({"name": "relevance", "k": 1}, {"closed_form_every": 3}),
    "inducing": ({"name": "inducing", "k": 1}, {"control": 5}),
    "inducing, a large jitter": ({"name": "inducing", "k": 1}, {"control": 5, "jitter": 0.3}),
    "probit": ({"likelihood": fs.BernoulliProbit(), "k": 1}, {}),
    "inducing logit": ({"name": "inducing", "likelihood": fs.likelihoods.BernoulliLogit()}, {}),
    "kriged logit": ({"likelihood": fs.likelihoods.BernoulliLogit()}, {"control": 12}),
    "logit": ({"likelihood": fs.likelihoods.BernoulliLogit()}, {}),
    "hyperparameters": (
        {},
        {
            "fixed": "posterior.columns",
            "optimiser": fs.optim.by_field(
                fs.optim.adagrad(0.1),
                {"basis": fs.adam(fs.optim.schedules.exponential(0.1, 0.9))},
                after={"basis": 3},
            ),
        },
    ),
    "posterior fixed": ({}, {"fixed": "posterior", "control": 5}),
}


@pytest.mark.parametrize("run", RUNS)
def test_resuming_is_bitwise_as_if_it_had_never_stopped(rng, run, tmp_path, monkeypatch):
    monkeypatch.setattr(qsgp, "RENEWAL", 3)  # a control is recomputed before and after the stop
    monkeypatch.setattr(qsgp, "SHARE", 1)
    about, options = RUNS[run]
    model, X, Y = problem(rng, **about)
    given, options = (
        fs.records.tree_map(np.copy, model),
        {"batch_size": 16, "basis_size": 10, "rng": 3} | options,
    )
    whole, info = fs.fit(model, X, Y, steps=9, **options)
    path = tmp_path / "state.npz"
    fs.fit(model, X, Y, steps=4, checkpoint=path, **options)
    resumed, also = fs.fit(model, X, Y, steps=9, resume=path, **options)
    assert_same(whole, resumed)
    np.testing.assert_array_equal(info.values, also.values)
    # what came is not written to
    assert_same(fs.records.tree_map(np.asarray, model), fs.records.tree_map(np.asarray, given))
    moved = {
        path
        for (path, _, x), (_, _, y) in zip(leaves(model), leaves(whole), strict=True)
        if not np.array_equal(x, y, True)
    }
    assert ("posterior.mean" in moved) != (run == "posterior fixed")
    assert ("basis.covariance.lengthscales" in moved) == (
        run in ("hyperparameters", "posterior fixed")
    )
    assert all(np.asarray(value).dtype == X.dtype for _, _, value in leaves(whole))


@pytest.mark.parametrize(
    "name, k, jitter",
    [("fourier", 0, None), ("inducing", 2, None), ("inducing", 1, 0.5), ("relevance", 3, None)],
)
def test_step_is_sampled_gradient_adagrad_and_control_update(rng, name, k, jitter, monkeypatch):
    # recomputed with the jitter of the steps, or updated with the posterior
    monkeypatch.setattr(qsgp, "RENEWAL", 2)
    monkeypatch.setattr(qsgp, "SHARE", 0)
    model, X, Y = problem(rng, name, k=k)
    control = fs.qsgp.kriging_control_variate(model, X[:7], jitter=jitter)
    seen = []
    options = {
        "control": control,
        "closed_form_every": 0,
        "basis_size": 10,
        "batch_size": N,
        "rng": 5,
        "jitter": jitter,
    }
    found, info = fs.fit(
        model, X, Y, steps=4, callback=lambda step, value, info: seen.append(info), **options
    )
    held = ("basis.covariance", "likelihood") + (() if name == "fourier" else ("basis.inducing",))
    optimiser, there = fs.optim.adagrad(0.1, fixed=held), model
    state = optimiser.init(model)
    for step in range(4):
        units = 10 // model.basis.width
        sample = fs.qsgp.draw_basis_sample(model.basis, units, rng=(5, step))
        exact = fs.qsgp.kriging_control_variate(there, X[:7], jitter=jitter)
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            there, X, Y, sample, jitter=jitter, control=exact, wrt=optimiser.paths(there)
        )
        np.testing.assert_allclose(info.values[step], value, rtol=1e-9)
        there, state = optimiser.step(there, grad, state, value)
    for (path, _, x), (_, _, y) in zip(leaves(found), leaves(there), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-9, atol=1e-11, err_msg=path)
    assert [one.epoch for one in seen] == [1, 2, 3, 4] and seen[0].step_size == 0.1


def test_checkpoint_holds_the_coefficient_of_a_paired_control(rng, tmp_path):
    model, X, Y = problem(rng, "relevance", k=1)
    control = fs.qsgp.paired_control_variate(model, X[:7], "running", targets=Y[:7])
    options = {"control": control, "batch_size": 16, "basis_size": 10, "rng": 3}
    whole, _ = fs.fit(model, X, Y, steps=6, **options)
    path = tmp_path / "state.npz"
    fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
    kept = fs.load(path).control
    assert not np.array_equal(kept.coefficient, control.coefficient) and not np.array_equal(
        kept.values, control.values
    )
    assert_same(fs.fit(model, X, Y, steps=6, resume=path, **options)[0], whole)


def test_data_in_a_file_and_batches_across_the_seam(rng, tmp_path):
    model, X, Y = problem(rng, likelihood=fs.likelihoods.BernoulliLogit())
    np.save(tmp_path / "X.npy", X)
    options = {"batch_size": 25, "basis_size": 10, "rng": 0, "epochs": 2.5}
    found, info = fs.fit(model, np.load(tmp_path / "X.npy", mmap_mode="r"), Y, **options)
    assert info.steps == 6
    assert_same(found, fs.fit(model, X, Y, **options)[0])


def test_callbacks_see_a_view_and_the_best_model_is_a_copy(rng):
    model, X, Y = problem(rng)
    options = {"batch_size": 16, "basis_size": 10, "rng": 3}
    third, _ = fs.fit(model, X, Y, steps=3, **options)
    views, scores = [], iter((1.0, 2.0, 3.0, 0.0, -1.0, -2.0))
    best, _ = fs.fit(
        model, X, Y, steps=6, validate=lambda there: next(scores), validate_every=1,
        callback=lambda step, value, info: views.append(info.model.posterior.mean), **options,
    )  # fmt: skip
    assert_same(best, third)
    assert all(np.shares_memory(view, views[0]) for view in views)
    assert not np.shares_memory(best.posterior.mean, views[0])


def test_memory_is_one_copy_of_model_and_optimiser_state(rng, tmp_path):
    _, X, Y = problem(rng)
    m = 10**6
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(fs.RBF(1.0, np.ones(2)), num_features=m), q, fs.Gaussian(0.1)
    )
    options = {"batch_size": 10, "basis_size": 100, "control": 0, "closed_form_every": 0}
    fs.fit(model, X, Y, steps=1, **options)  # compiles
    tracemalloc.start()
    try:
        _, info = fs.fit(
            model, X, Y, steps=3, checkpoint=tmp_path / "state.npz", checkpoint_every=1, **options
        )
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert info.steps == 3 and peak < 5.5 * 8 * m


def test_default_diagonal_is_the_closed_form_and_bound_rises(rng):
    model, X, Y = problem(rng)
    found, _ = fs.fit(model, X, Y, steps=150, batch_size=N, basis_size=M, rng=0)
    np.testing.assert_allclose(
        found.posterior.diagonal, fs.qsgp.optimal_diagonal(model, X).posterior.diagonal, rtol=1e-12
    )
    exact, _ = fs.qsgp.optimal_weights(model, X, Y)
    gap = fs.qsgp.bound(exact, X, Y) - fs.qsgp.bound(found, X, Y)
    assert (
        0
        <= gap
        < 0.2
        * (fs.qsgp.bound(exact, X, Y) - fs.qsgp.bound(fs.qsgp.optimal_diagonal(model, X), X, Y))
    )


def test_a_closed_form_has_the_jitter_of_the_steps(rng):
    model, X, Y = problem(rng, "inducing", k=1)
    options = {"closed_form_every": 1, "optimiser": fs.optim.adagrad(1e-12), "jitter": 0.5}
    found, _ = fs.fit(model, X, Y, steps=1, rng=0, **options)
    expected = fs.qsgp.optimal_diagonal(model, X, jitter=0.5).posterior.diagonal
    np.testing.assert_allclose(found.posterior.diagonal, expected, rtol=1e-9)


def test_closed_forms_of_precisions_too(rng):
    model, X, Y = problem(rng, "relevance", k=1)
    found, _ = fs.fit(
        model, X, Y, steps=1, closed_form_every=1, optimiser=fs.optim.adagrad(1e-12), rng=0
    )
    diagonal = fs.qsgp.optimal_diagonal(model, X)
    np.testing.assert_allclose(found.posterior.diagonal, diagonal.posterior.diagonal, rtol=1e-9)
    np.testing.assert_allclose(
        found.basis.precision, fs.qsgp.optimal_precision(diagonal).basis.precision, rtol=1e-9
    )
    held, _ = fs.fit(
        model, X, Y, steps=1, closed_form_every=1, fixed=("basis", "likelihood"), rng=0
    )
    np.testing.assert_array_equal(held.basis.precision, model.basis.precision)


def test_spread_of_f_is_updated_for_the_tangent_bound(rng, tmp_path):
    model, X, Y = problem(rng, likelihood=fs.likelihoods.BernoulliLogit())
    path = tmp_path / "state.npz"
    fs.fit(
        model,
        X,
        Y,
        steps=4,
        batch_size=20,
        basis_size=M,
        optimiser=fs.optim.adagrad(1e-9),
        checkpoint=path,
        rng=0,
    )
    _, var = fs.predict_f(model, X)
    # all functions each time, and a posterior that stays: variances as they are
    spread = fs.load(path).spread
    np.testing.assert_allclose(spread, var, rtol=1e-6)


def test_learning_hyperparameters_is_warned_of(rng, caplog):
    model, X, Y = problem(rng)
    options = {"steps": 1, "batch_size": 16, "basis_size": 10}
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        fs.fit(model, X, Y, **options)
        assert not caplog.records
        fs.fit(model, X, Y, fixed="likelihood", **options)
    (message,) = (record.getMessage() for record in caplog.records)
    assert (
        "basis.covariance.variance, basis.covariance.lengthscales are learned" in message
        and "0 of 40 columns" in message
    )


def test_torn_step_raises_and_a_failed_step_is_saved(rng, tmp_path, monkeypatch):
    model, X, Y = problem(rng)
    options = {"steps": 5, "batch_size": 16, "basis_size": 10, "rng": 0}
    path, taken = tmp_path / "state.npz", []
    optimiser = fs.optim.adagrad(0.1)
    step = type(optimiser).step

    def torn(self, model, grad, state, value=None):
        if len(taken) == 3:
            raise KeyboardInterrupt
        taken.append(value)
        return step(self, model, grad, state, value)

    monkeypatch.setattr(type(optimiser), "step", torn)
    with pytest.raises(RuntimeError, match="during an in-place step"):
        fs.fit(model, X, Y, checkpoint=path, checkpoint_every=2, **options)
    assert fs.load(path).step == 2

    def failing(self, model, grad, state, value=None):
        if state.count == 3:
            raise ValueError("no such gradient")
        return step(self, model, grad, state, value)

    monkeypatch.setattr(type(optimiser), "step", failing)
    with pytest.raises(ValueError, match="no such gradient"):
        fs.fit(model, X, Y, checkpoint=path, **options)
    assert fs.load(path).step == 3
    monkeypatch.setattr(type(optimiser), "step", step)
    assert_same(fs.fit(model, X, Y, resume=path, **options)[0], fs.fit(model, X, Y, **options)[0])


CASES = [
    (
        {"natural_step_size": 0.1},
        TypeError,
        "fit: `natural_step_size` is an option of BasisSVGP, DeepGP, .*VIF, not of QSGP",
    ),
    ({"probes": 3}, ValueError, "on samples of its basis; `probes` would have no effect"),
    ({"basis_size": 0}, ValueError, "`basis_size`"),
    ({"control": -1}, ValueError, "`control`"),
    ({"control": 61}, ValueError, "asks for 61 points, but there are 60 rows"),
    ({"control": "kriged"}, (TypeError, ValueError), "`control`"),
    (
        {"closed_form_every": 5, "fixed": "posterior.diagonal"},
        ValueError,
        "`posterior.diagonal` is fixed",
    ),
    ({"fixed": ("basis", "posterior", "likelihood")}, ValueError, "all fields are fixed"),
    ({"optimiser": "adam"}, TypeError, "`optimiser` must be an optimiser"),
    (
        {"optimiser": fs.adam()},
        TypeError,
        "'posterior.mean' has a gradient for some rows only: use fastsvgp.optim.adagrad",
    ),
]


@pytest.mark.parametrize("options, error, said", CASES)
def test_bad_arguments(rng, options, error, said):
    model, X, Y = problem(rng)
    with pytest.raises(error, match=said):
        fs.fit(model, X, Y, steps=1, **options)


@pytest.mark.parametrize("control", [0, N - 5])
def test_an_odd_input_is_named_by_its_row_of_the_data(rng, control, monkeypatch):
    """A batch, a closed form or a control variate sees it first."""
    monkeypatch.setattr(qsgp, "ROWS", N - 5)
    model, X, Y = problem(rng)
    X[-1, 1] = np.nan
    for seed in range(4):
        with pytest.raises(ValueError, match=rf"`X` contains nan at index \({N - 1}, 1\)"):
            fs.fit(model, X, Y, epochs=1, batch_size=7, basis_size=10, rng=seed, control=control)


def test_options_of_other_kinds_and_changed_settings_are_refused(rng, tmp_path):
    model, X, Y = problem(rng, likelihood=fs.likelihoods.BernoulliLogit())
    with pytest.raises(ValueError, match="not known for a BernoulliLogit"):
        fs.fit(model, X, Y, steps=1, closed_form_every=5)
    model, X, Y = problem(rng, "inducing")
    for fixed in ((), "posterior.mean", ("basis.covariance", "likelihood")):
        with pytest.raises(
            ValueError, match=r"samples do not determine log\|S\|.*name 'basis' in `fixed`"
        ):
            fs.fit(model, X, Y, steps=1, fixed=fixed)
    model, X, Y = problem(rng)
    bad = Y.copy()
    bad[17] = np.nan
    with pytest.raises(ValueError, match=r"`Y` contains nan at index 17"):
        fs.fit(model, X, bad, epochs=1, batch_size=7, basis_size=10)
    path = tmp_path / "state.npz"
    fs.fit(model, X, Y, steps=2, basis_size=10, control=5, checkpoint=path)
    for options, said in (
        ({"basis_size": 12, "control": 5}, "`basis_size` 10 then, 12 now"),
        ({"basis_size": 10, "control": 6}, "`control` 5 then, 6 now"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.fit(model, X, Y, steps=4, resume=path, **options)
    svgp = fs.SVGP(
        fs.RBF(1.0, 1.0), X[:4].copy(), fs.Whitened(np.zeros(4), np.eye(4)), fs.Gaussian(0.1)
    )
    sgpr = fs.SGPR(fs.RBF(1.0, 1.0), X[:4].copy(), 0.1)
    for other in (svgp, sgpr):
        said = (
            f"fit: `basis_size` is an option of QSGP, not of {type(other).__name__}; leave it out"
        )
        with pytest.raises(TypeError, match=said):
            fs.fit(other, X, Y, steps=1, basis_size=10)
