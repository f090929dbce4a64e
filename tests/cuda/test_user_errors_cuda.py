"""An exception of user code on a device is raised unchanged, after at most two runs of it."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.records import record
from fastsvgp.runtime import deferred_checks
from tests.cuda.test_captured_steps import D, N, model_of

GOOD = 3  # calls before the first that fails
CALLS: list = []


@record
class Wrong(fs.Gaussian):
    """A likelihood with a bug."""

    def expected_log_prob(self, Y, f, rng=None, need=True, weights=None):
        CALLS.append(0)
        if len(CALLS) > GOOD:
            raise ZeroDivisionError("a bug of the user")
        return fs.Gaussian.expected_log_prob(self, Y, f, rng, need, weights)


@pytest.fixture
def problem(gpu, rng):
    CALLS.clear()
    model = fs.to_device(model_of(rng, likelihood=Wrong(np.float64(0.3))))
    return model, rng.standard_normal((N, D)), rng.standard_normal(N)


def failures(function, *args, **options):
    """Count the failing calls of the likelihood before the error was raised."""
    with pytest.raises(ZeroDivisionError, match="a bug of the user"):
        function(*args, **options)
    assert deferred_checks.pending() is None
    return len(CALLS) - GOOD


BOUNDS = (
    fs.elbo,
    fs.elbo_and_grad,
    fs.bounds.data_term_and_grad,
    fs.natural_step,
    fs.optim.natural_step_and_grad,
)


@pytest.mark.parametrize("function", BOUNDS, ids=lambda f: f.__name__)
def test_bounds(gpu, problem, function):
    model, X, Y = problem
    CALLS.extend([0] * GOOD)
    assert failures(function, model, gpu.there(X), gpu.there(Y)) == 2


def test_a_bound_in_a_step(gpu, problem):
    """The second bound of a monotone step is a public call inside another."""
    model, X, Y = problem
    CALLS.extend([0] * (GOOD - 1))
    X, Y = gpu.there(X), gpu.there(Y)
    assert failures(fs.natural_step, model, X, Y, monotone=True) <= 2


def test_natural_steps(gpu, problem):
    model, X, Y = problem
    assert failures(fs.sites.natural_steps, model, gpu.there(X), gpu.there(Y), steps=9) <= 2


WAYS = {
    "plain": {"graph": False},
    "captured": {"graph": True},
    "natural": {"natural_step_size": 0.1},
    "rounds": {"m_steps": 2},
    "adagrad": {"optimiser": fs.optim.adagrad(0.1)},
}


@pytest.mark.parametrize("way", WAYS)
def test_steps_of_fit(gpu, problem, way):
    model, X, Y = problem
    assert failures(fs.fit, model, X, Y, steps=9, batch_size=10, rng=0, **WAYS[way]) <= 2
