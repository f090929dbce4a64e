"""Training with a factor of an inverse: updates, resuming, and L-SVGP as the limit."""

import logging

import numpy as np
import pytest
from oracles import inverse_factor as oracle
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.train.steps import minibatch

M = 6


def problem(rng, kind="Relaxed", dtype=np.float64, likelihood=None):
    X = rng.uniform(-2, 2, (60, 2)).astype(dtype)
    Y = (np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)).astype(dtype)
    eye = np.eye(M, dtype=dtype)
    pseudo = np.zeros(M, dtype), np.full(M, 0.05, dtype)
    posterior = {
        "LikelihoodForm": lambda: fs.posteriors.LikelihoodForm(*pseudo),
        "Relaxed": lambda: fs.posteriors.Relaxed(*pseudo, 1e-3 * eye),
        "InverseFreeWhitened": lambda: fs.posteriors.InverseFreeWhitened(
            pseudo[0], 0.8 * eye, 1e-3 * eye
        ),
        "Whitened": lambda: fs.Whitened(pseudo[0], 0.8 * eye),
    }[kind]()
    covariance = fs.RBF(variance=1.0, lengthscales=np.ones(2, dtype))
    return (
        fs.SVGP(covariance, X[:M].copy(), posterior, likelihood or fs.Gaussian(variance=0.1)),
        X,
        Y,
    )


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(fs.records.leaves(a), fs.records.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


def residual(model):
    A, _ = model.posterior.inverse_of(model.covariance.matrix(model.inducing), 1e-6)
    return oracle.residual(
        A.astype(float), getattr(model.posterior, model.posterior.inverse_field).astype(float)
    )


def late_inducing(after, step_size=1e-3, patience=100):
    """The optimiser of R-SVGP's authors: inducing inputs that start late and move slowly."""
    slow = fs.adam(fs.optim.schedules.plateau(step_size, 0.95, patience), beta1=0.99)
    return fs.optim.by_field(fs.adam(0.02), {"inducing": slow}, after={"inducing": after})


GENTLE = {"optimiser": late_inducing(8, step_size=5e-3, patience=4)}
RUNS = {
    "alternating": ({}, {}),
    "gentle": ({}, GENTLE),
    "whitened": ({"kind": "InverseFreeWhitened"}, GENTLE),
    "probes": ({}, {"probes": 4}),
    "direction": ({}, {"inverse_updates": fs.optim.inverse_updates(direction="likelihood")}),
    "nats": ({}, {"inverse_updates": fs.optim.inverse_updates(nats=1e-3)}),
    "one unit step": (
        {},
        {"inverse_updates": fs.optim.inverse_updates(step_size=1.0, max_steps=1)},
    ),
    "factor by adam": ({}, {"inverse_updates": False}),
    "float32": ({"dtype": np.float32}, GENTLE),
}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_is_bitwise_the_same(tmp_path, rng, name):
    settings, options = RUNS[name]
    model, X, Y = problem(rng, **settings)
    options = {"batch_size": 16, "rng": 3, **options}
    straight, info = fs.fit(model, X, Y, steps=20, **options)
    path = tmp_path / "half.npz"
    for steps in (5, 13):  # before and after the inducing inputs begin to move
        fs.fit(model, X, Y, steps=steps, checkpoint=path, **options)
        resumed, again = fs.fit(model, X, Y, steps=20, resume=path, **{**options, "rng": None})
        assert_same(straight, resumed)
        np.testing.assert_array_equal(info.values, again.values)
    assert np.isfinite(info.values).all() and info.values[-5:].mean() > info.values[:5].mean()


@pytest.mark.parametrize("kind", ["Relaxed", "InverseFreeWhitened"])
def test_a_step_is_a_refreshed_factor_and_an_adam_step(rng, kind):
    model, X, Y = problem(rng, kind)
    got, info = fs.fit(
        model,
        X,
        Y,
        steps=4,
        optimiser=fs.adam(0.05),
        inverse_updates=fs.optim.inverse_updates(1e-4),
    )
    field = f"posterior.{model.posterior.inverse_field}"
    optimiser = fs.adam(0.05, fixed=field)
    state = optimiser.init(model)
    model, _ = fs.optim.update_inverse_factor(model, tolerance=1e-4)
    for value in info.values:
        now, grad = fs.elbo_and_grad(model, X, Y, wrt=optimiser.paths(model))
        assert now == value
        model, state = optimiser.step(model, grad, state)
        model, _ = fs.optim.update_inverse_factor(model, tolerance=1e-4)
    assert_same(got, model)
    assert residual(got) < 1.1e-4


def test_converged_inner_loop_gives_the_trajectory_of_l_svgp(rng):
    """Proposition 2: equal gradients at the exact inverse, and therefore the same trajectory."""
    model, X, Y = problem(rng, "LikelihoodForm")
    options = {"steps": 15, "batch_size": 20, "rng": 1, "optimiser": fs.adam(0.02)}
    exact, info = fs.fit(model, X, Y, **options)
    relaxed, _, _ = problem(generator(0), "Relaxed")
    relaxed = fs.replace(model, posterior=relaxed.posterior)
    errors = {}
    for direction in ("exact", "likelihood"):
        for tolerance in (1e-3, 1e-10):
            updates = fs.optim.inverse_updates(tolerance, direction=direction)
            got, again = fs.fit(relaxed, X, Y, inverse_updates=updates, **options)
            errors[direction, tolerance] = (
                np.abs(again.values - info.values).max() / np.abs(info.values).max()
            )
            if tolerance == 1e-10:
                np.testing.assert_allclose(got.inducing, exact.inducing, atol=1e-7)
                np.testing.assert_allclose(got.posterior.mean, exact.posterior.mean, atol=1e-7)
    assert errors["exact", 1e-10] < 1e-8 and errors["likelihood", 1e-10] < 1e-8
    assert errors["likelihood", 1e-3] < errors["exact", 1e-3] < 0.05


def test_inducing_inputs_are_fixed_at_first_without_gradients(rng, monkeypatch):
    model, X, Y = problem(rng)
    calls, real = [], minibatch.elbo_and_grad
    monkeypatch.setattr(
        minibatch, "elbo_and_grad", lambda *a, wrt, **k: calls.append(wrt) or real(*a, wrt=wrt, **k)
    )
    places = []
    optimiser = late_inducing(3)
    fs.fit(
        model,
        X,
        Y,
        steps=5,
        optimiser=optimiser,
        callback=lambda step, value, info: places.append(info.model.inducing) and 0,
    )
    assert ["inducing" in wrt for wrt in calls] == [False, False, False, True, True]
    assert not any("posterior.inverse_tril" in wrt for wrt in calls)
    assert [np.array_equal(Z, model.inducing) for Z in places] == [True, True, True, False, False]


def test_nothing_moves_yet(rng):
    model, X, Y = problem(rng, "Whitened")
    names = ("covariance", "inducing", "posterior", "likelihood")
    everything = fs.optim.by_field(
        fs.adam(), dict.fromkeys(names, fs.adam()), after=dict.fromkeys(names, 2)
    )
    got, info = fs.fit(model, X, Y, steps=3, optimiser=everything)
    value = fs.elbo(model, X, Y)
    np.testing.assert_allclose(info.values, [value, value, value], rtol=1e-12)
    assert fs.elbo(got, X, Y) > value
    assert_same(fs.fit(model, X, Y, steps=2, optimiser=everything)[0], model)


@pytest.mark.parametrize("kind", ["Relaxed", "InverseFreeWhitened"])
def test_a_factor_may_be_held_or_left_to_the_optimiser(rng, kind):
    model, X, Y = problem(rng, kind)
    model, _ = fs.optim.update_inverse_factor(model)
    field = model.posterior.inverse_field
    before = getattr(model.posterior, field)
    held, _ = fs.fit(model, X, Y, steps=2, fixed=("inducing", "covariance", f"posterior.{field}"))
    np.testing.assert_array_equal(getattr(held.posterior, field), before)
    with pytest.raises(
        ValueError, match=f"asks for updates, but 'posterior.{field}' is fixed; leave"
    ):
        fs.fit(model, X, Y, steps=2, fixed="posterior", inverse_updates=fs.optim.inverse_updates())
    moved, _ = fs.fit(model, X, Y, steps=2, inverse_updates=False, fixed="posterior.mean")
    assert not np.array_equal(getattr(moved.posterior, field), before)


def test_the_inner_loop_is_logged(rng, caplog):
    model, X, Y = problem(rng)
    seen = []
    fs.fit(model, X, Y, steps=4, callback=lambda step, value, info: seen.append(info.inverse) and 0)
    assert all(info.converged and info.residual <= 5e-3 for info in seen) and not caplog.records
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        fs.fit(model, X, Y, steps=4, inverse_updates=fs.optim.inverse_updates(1e-9, max_steps=2))
    assert [r.getMessage().split(":")[0] for r in caplog.records] == ["step 1"]
    assert "not reached its tolerance: steps after 2 updates, normalised residual" in caplog.text
    plain, X, Y = problem(rng, "Whitened")
    fs.fit(plain, X, Y, steps=2, callback=lambda step, value, info: seen.append(info.inverse) and 0)
    assert seen[-2:] == [None, None]


def test_bad_arguments(rng):
    model, X, Y = problem(rng)
    whitened, _, _ = problem(rng, "Whitened")
    with pytest.raises(
        TypeError, match="`inverse_updates` must be made by fs.optim.inverse_updates"
    ):
        fs.fit(model, X, Y, steps=1, inverse_updates=1e-3)
    with pytest.raises(ValueError, match="kind Whitened holds no factor of an inverse"):
        fs.fit(whitened, X, Y, steps=1, inverse_updates=fs.optim.inverse_updates())
    with pytest.raises(ValueError, match="`nats` needs"):
        labels = fs.replace(model, likelihood=fs.likelihoods.BernoulliLogit())
        fs.fit(
            labels,
            X,
            (Y > 0).astype(int),
            steps=1,
            inverse_updates=fs.optim.inverse_updates(nats=1.0),
        )
    with pytest.raises(
        TypeError,
        match=(
            "`probes` is no random quantity of a Whitened posterior, which has none: leave it out"
        ),
    ):
        fs.fit(whitened, X, Y, steps=1, probes=4)
    with pytest.raises(
        ValueError,
        match="`probes` estimate the gradient, but .* asks for direction 'likelihood'; drop one",
    ):
        fs.fit(
            model,
            X,
            Y,
            steps=1,
            probes=4,
            inverse_updates=fs.optim.inverse_updates(direction="likelihood"),
        )
    free, _, _ = problem(rng, "InverseFreeWhitened")
    with pytest.raises(
        ValueError, match="a InverseFreeWhitened posterior has no direction 'likelihood'"
    ):
        fs.fit(
            free, X, Y, steps=1, inverse_updates=fs.optim.inverse_updates(direction="likelihood")
        )
    with pytest.raises(ValueError, match="`probes` must be a whole number"):
        fs.fit(model, X, Y, steps=1, probes=0)
    with pytest.raises(TypeError, match="natural_step: .* Relaxed"):
        fs.fit(model, X, Y, steps=1, natural_step_size=0.1)
    sgpr = fs.SGPR(model.covariance, model.inducing, noise_variance=0.1)
    with pytest.raises(ValueError, match="`batch_size`, `probes` would have no effect"):
        fs.fit(sgpr, X, Y, steps=1, batch_size=3, probes=3)
