"""Starts with ``DecoupledWeights``: step sizes of the weights, and columns per step."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.cli import training as of_cli
from fastsvgp.recipes import routine
from fastsvgp.runtime.thresholds import COLUMNS, columns_by_default
from fastsvgp.sklearn import SVGPRegressor

PATH = "posterior.weights_v"


def sizes(fit, name=PATH):
    """Return the step sizes of a field at the first and the last step, and the number of steps."""
    schedule = dict(fit["optimiser"].step_sizes)[name]
    return schedule.size(0, None), schedule.size(fit["steps"] - 1, None), fit["steps"]


def problem(rng, N=60):
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)


def start(data, posterior="decoupled_weights", **choices):
    choices |= {"max_iter": 8, "batch_size": 20, "rng": 0}
    return fs.recipes.regression(*data, inducing=(6, 12), posterior=posterior, **choices)


def test_weights_move_faster_at_first_and_slower_in_the_end(rng):
    found = start(problem(rng), learning_rate=0.02).fit
    first, last, steps = sizes(found)
    assert steps == 24 and "sampled" not in found and found["natural_step_size"] == 0.1
    assert (first, last) == pytest.approx((0.6, 0.06))
    assert found["optimiser"].step_size.value == 0.02
    rest = start(problem(rng), "whitened_orthogonal", solver="natural").fit
    assert rest["optimiser"].step_sizes == () and "sampled" not in rest


def test_weights_arrive(rng):
    """In 24 steps of 0.01 a weight moves by at most about 0.24."""
    X, y = problem(rng)
    initial = start((X, y))
    data = initial.scale.X(X), initial.scale.y(y)
    model, info = fs.fit(initial.model, *data, **initial.fit)
    slow = initial.fit | {"optimiser": fs.adam(0.01, transform="log")}
    other, _ = fs.fit(initial.model, *data, **slow)
    far, near = (np.abs(m.posterior.weights_v).max() for m in (model, other))
    assert near < 0.3 < far and info.steps == 24


def test_every_latent_function_has_its_own_weights(rng):
    model = start(problem(rng), latents="separate")
    names = [name for name, _ in model.fit["optimiser"].step_sizes]
    assert names == ["latents.0.posterior.weights_v"] and "sampled" not in model.fit


@pytest.mark.parametrize(
    ("first", "second", "batch", "columns"),
    [
        (64, 506, 1024, None),
        (10, COLUMNS, 10, None),
        (10, COLUMNS + 1, 10, COLUMNS),
        (1024, 4096, 1024, None),
        (1024, 4097, 1024, COLUMNS),
    ],
)
def test_columns_are_sampled_if_all_are_most_of_a_step(first, second, batch, columns):
    assert columns_by_default(first, second, batch) == columns


def test_recipes_sample_columns_of_large_sets(rng, monkeypatch):
    monkeypatch.setattr(routine, "columns_by_default", lambda *given: given[2] - given[0])
    found = start(problem(rng)).fit
    assert found["sampled"] == 20 - 6


def test_a_warm_start_of_an_estimator_moves_them_too(rng, monkeypatch):
    plain, seen = routine.fit, []
    monkeypatch.setattr(routine, "fit", lambda *a, **k: seen.append(k) or plain(*a, **k))
    X, y = problem(rng)
    settings = {"posterior": "decoupled_weights", "n_inducing": 12, "max_iter": 2}
    SVGPRegressor(**settings, warm_start=True, random_state=0).fit(X, y).fit(X, y)
    assert [sizes(fit)[0] for fit in seen] == pytest.approx([0.3, 0.3])


def test_the_command_line_samples_where_it_is_asked_to(rng):
    class Given:
        orthogonal, sampled = 12, 12
        method, likelihood, choice = "odvgp", "gaussian", type("Choice", (), {"at_data": False})
        e_steps = m_steps = natural_step = learning_rate = batch_size = jitter = None
        solver, seed, patch_shape, layers = "natural", 0, None, None
        periodic = within = None

    model = start(problem(rng)).model
    assert of_cli._options(Given, model, 10)["sampled"] is None
    Given.sampled = 5
    found = of_cli._options(Given, model, 10)
    assert found["sampled"] == 5 and sizes(found) == pytest.approx((0.3, 0.03, 10))
