"""Tables whose rows fit into one batch are trained as a whole, under any likelihood."""

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

import fastsvgp as fs
from fastsvgp.cli.settings.defaults import BATCH_SIZE, choose
from fastsvgp.recipes import POSTERIORS, routine, solver_for
from fastsvgp.sklearn import SVGPClassifier, SVGPRegressor

COLUMNS = {
    "known-noise": lambda y: np.stack([y, np.full(len(y), 0.01)], axis=1),
    "censored": lambda y: np.stack([np.minimum(y, 0.5), (y > 0.5) * 1.0], axis=1),
    "binomial": lambda y: np.stack([np.round(5 + 4 * np.tanh(y)), np.full(len(y), 10.0)], axis=1),
}
COUNTS = "poisson", "negative-binomial", "zero-inflated-poisson"
OF_NUMBERS = (
    "student-t", "laplace", "heteroskedastic", *COUNTS, "gamma", "exponential", "beta", *COLUMNS
)  # fmt: skip
OF_CLASSES = "bernoulli-probit", "bernoulli-logit", "softmax", "ordinal"


def table(rng, likelihood, N=30):
    """Inputs, and targets of a likelihood that depend on them."""
    X = np.sort(rng.uniform(-2, 2, (N, 1)), axis=0)
    f = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)
    if likelihood in OF_CLASSES:
        return X, np.digitize(f, [0.0] if "bernoulli" in likelihood else [-0.5, 0.5])
    if likelihood in COUNTS:
        return X, rng.poisson(np.exp(1 + f)).astype(float)
    if likelihood in ("gamma", "exponential"):
        return X, np.exp(f)
    if likelihood == "beta":
        return X, 1 / (1 + np.exp(-f))
    return X, COLUMNS.get(likelihood, lambda y: y)(f)


def estimator(likelihood, **settings):
    kind = SVGPClassifier if likelihood in OF_CLASSES else SVGPRegressor
    return kind(likelihood=likelihood, random_state=0, **settings)


@pytest.mark.parametrize("likelihood", [*OF_NUMBERS, *OF_CLASSES])
def test_the_bound_converges(rng, likelihood):
    X, y = table(rng, likelihood)
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = estimator(likelihood).fit(X, y)
    assert model.n_iter_ < routine.ITERATIONS
    slow = estimator(likelihood, solver="natural", max_iter=300, learning_rate=0.03)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        slow.fit(X, y)
    assert model.lower_bound_ > slow.lower_bound_ - 0.5


@pytest.mark.parametrize("latents", [2, "separate"])
def test_several_functions_converge(rng, latents):
    X, f = table(rng, "gaussian")
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        model = SVGPRegressor(n_latents=latents, random_state=0).fit(X, np.stack([f, -f], axis=1))
    assert isinstance(model.model_, fs.MultiGP)
    assert model.n_iter_ < routine.ITERATIONS


@pytest.mark.parametrize("extra", [True, False])
def test_known_noise_has_the_intervals_of_an_exact_gp(rng, extra):
    x = np.linspace(0, 1, 30)
    sd = 0.02 + 0.1 * x
    y = np.sin(6 * x) + sd * rng.standard_normal(30)
    likelihood = "known-noise" if extra else fs.likelihoods.KnownNoise(extra=False)
    model = SVGPRegressor(likelihood=likelihood, random_state=0)
    model.fit(x[:, None], np.stack([y, sd**2], axis=1))
    _, found = model.predict(x[:, None], return_std=True, include_noise=False)
    c, scale = model.model_.covariance, model.scale_.y_scale
    r = np.sqrt(3) * np.abs(x[:, None] - x) / (c.lengthscales * model.scale_.x_scale)
    K = c.variance * (1 + r) * np.exp(-r)
    noise = model.model_.likelihood.excess + (sd / scale) ** 2
    exact = scale * np.sqrt(np.diag(K - K @ np.linalg.solve(K + np.diag(noise), K)))
    np.testing.assert_allclose(found, exact, rtol=0.01)
    assert np.median(found / sd) < 1.2  # a training that ended early has wider ones
    if not extra:
        assert model.model_.likelihood.excess == 0


def test_only_tables_of_one_batch_are_trained_as_a_whole(rng):
    for rows, batch, solver in ((30, 30, "lbfgs"), (31, 30, "natural"), (1001, 2000, "natural")):
        given = "auto", fs.StudentT(1.0), fs.Whitened, rows, 10, None, batch
        assert solver_for(*given) == solver
    X, y = table(rng, "laplace")
    for batch, whole in ((30, True), (29, False)):
        start = fs.recipes.regression(X, y, 10, likelihood="laplace", batch_size=batch, rng=0)
        assert start.fit.get("collapsed", False) is whole
        assert start.fit["steps"] == (routine.ITERATIONS if whole else routine.STEPS)
    for rows, whole in ((BATCH_SIZE, True), (BATCH_SIZE + 1, False)):
        assert choose("laplace", rows, rows).whole is whole
        assert choose("laplace", rows, rows, minibatch="--learning-rate").whole is False
        assert choose("laplace", rows, rows, alone=False).whole is False
        assert choose("laplace", rows, rows, method="svgp").whole is False
        assert choose("gaussian", rows, rows, without="--latents").whole is whole


SIZES = {"learning_rate": 0.1, "natural_step_size": 0.5, "batch_size": 29}


@pytest.mark.parametrize("likelihood", ["gaussian", "laplace"])
@pytest.mark.parametrize("name", SIZES)
def test_settings_of_minibatches_ask_for_them(rng, likelihood, name):
    X, y = table(rng, likelihood)
    model = estimator(likelihood, warm_start=True, max_iter=1, **{name: SIZES[name]})
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        for _ in range(2):  # the second one is a warm start
            fit = model._start(X, y, None, 0)[0].fit
            assert fit["batch_size"] == (29 if name == "batch_size" else 512)
            model.fit(X, y)
    for same in ({"learning_rate": 0.01}, {"natural_step_size": "auto"}, {"batch_size": 30}):
        fit = estimator(likelihood, max_iter=1, **same)._start(X, y, None, 0)[0].fit
        assert "batch_size" not in fit
    schedule = fs.optim.schedules.log_linear(1e-3, 0.1, 10)
    fit = estimator(likelihood, natural_step_size=schedule)._start(X, y, None, 0)[0].fit
    assert "batch_size" in fit


@pytest.mark.parametrize("solver, unused", [("lbfgs", [*SIZES]), ("adam", ["natural_step_size"])])
def test_a_setting_that_a_solver_does_not_use_warns(rng, solver, unused):
    X, y = table(rng, "laplace")
    for name, size in SIZES.items():
        model = estimator("laplace", solver=solver, warm_start=True, max_iter=1, **{name: size})
        for _ in range(2):
            with warnings.catch_warnings(record=True) as found:
                warnings.simplefilter("always")
                model.fit(X, y)
            said = [str(one.message) for one in found if "does not use" in str(one.message)]
            assert [f"`{name}`" in line for line in said] == [True] * (name in unused)


def test_every_posterior_without_natural_steps_of_all_its_fields_keeps_minibatches():
    for name, kind in POSTERIORS.items():
        wholly = name not in (
            "likelihood_form", "relaxed", "inverse_free_whitened", "decoupled_weights"
        )  # fmt: skip
        found = solver_for("auto", fs.StudentT(1.0), kind, 30, 10, None, 512)
        assert (found == "lbfgs") is wholly, name
        if not wholly:
            with pytest.raises(ValueError, match="natural steps do not move all of a"):
                solver_for("lbfgs", fs.StudentT(1.0), kind, 30, 10)


def test_a_default_length_is_at_least_that_of_the_command_line():
    assert routine.steps_of("natural", None, 600, 512) == 2000
    assert routine.steps_of("natural", None, 51_200, 512) == 10_000
    assert routine.steps_of("natural", 100, 600, 512) == 118
    assert routine.steps_of("lbfgs", None, 600, 512) == 200
    assert routine.steps_of("lbfgs", 7, 600, 512) == 7


@pytest.mark.parametrize("solver", ["auto", "natural"])
def test_a_training_that_ends_short_warns(rng, solver):
    X, y = table(rng, "laplace")
    model = estimator("laplace", solver=solver, max_iter=3)
    unit = "iterations" if solver == "auto" else "steps"
    said = f"ended short of convergence, after 3 {unit}; try a larger max_iter"
    with pytest.warns(ConvergenceWarning, match=said):
        model.fit(X, y)
    assert model.n_iter_ == 3


def test_equal_targets_keep_their_noise(rng, caplog):
    X, _ = table(rng, "laplace")
    model = estimator("laplace").fit(X, np.full(len(X), 3.0))
    assert "says nothing about their noise" in caplog.text
    assert model.model_.likelihood.scale == pytest.approx(0.1**0.5)
    np.testing.assert_allclose(model.predict(X), 3.0)
