"""Trainings with a time limit, and schedules that last as long as the training."""

import itertools

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.optim.schedules import lasting
from fastsvgp.train import by_time, loop


@pytest.fixture
def problem(rng):
    X = rng.uniform(-2, 2, (60, 1))
    Y = np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(60)
    Z = np.linspace(-2, 2, 6)[:, None]
    q = fs.Whitened(np.zeros(6), np.eye(6))
    return fs.SVGP(fs.RBF(1.0, np.ones(1)), Z, q, fs.Gaussian(0.1)), X, Y


@pytest.fixture
def ticking(monkeypatch):
    """A clock that advances by 0.01 s per reading."""
    clock = itertools.count()
    for module in (by_time, loop):
        monkeypatch.setattr(module.time, "perf_counter", lambda: next(clock) / 100)


def test_training_ends_when_the_time_is_over(problem, ticking):
    seen = []
    model, info = fs.fit(
        *problem, seconds=2.0, batch_size=20, rng=0, callback=lambda step, *_: seen.append(step)
    )
    assert info.reason == "seconds" and 20 < info.steps < 200
    assert seen == list(range(1, info.steps + 1))  # the first step that compiles is another one
    same, _ = fs.fit(*problem, steps=info.steps, batch_size=20, rng=0)
    np.testing.assert_array_equal(model.inducing, same.inducing)


def test_schedules_get_the_number_of_steps(problem, ticking):
    sizes = []
    falling = fs.adam(fs.optim.schedules.log_linear(0.1, 0.001, "all"))
    _, info = fs.fit(
        *problem,
        seconds=3.0,
        optimiser=falling,
        natural_step_size=fs.optim.schedules.cosine(0.1, 0.5, "all"),
        rng=0,
        callback=lambda step, value, info: sizes.append((info.step_size, info.natural_step_size)),
    )
    assert info.reason in ("steps", "seconds") and sizes[0] == (0.1, pytest.approx(0.1))
    assert sizes[-1][0] < 0.01 and sizes[-1][1] > 0.3


@pytest.mark.parametrize("length", [{"steps": 8}, {"epochs": 2, "batch_size": 15}])
def test_of_a_known_number_they_end_at_the_last_step(problem, length):
    sizes = []
    optimiser = fs.adam(
        fs.optim.schedules.log_linear(0.1, 0.001, "all"),
        step_sizes={"likelihood": fs.optim.schedules.cosine(0.3, 0.1, "all")},
    )
    given, _ = fs.fit(
        *problem,
        optimiser=optimiser,
        rng=0,
        callback=lambda step, value, info: sizes.append(info.step_size),
        **length,
    )
    assert len(sizes) == 8 and sizes[0] == 0.1 and sizes[-1] == pytest.approx(0.001)
    known = fs.adam(
        fs.optim.schedules.log_linear(0.1, 0.001, 8),
        step_sizes={"likelihood": fs.optim.schedules.cosine(0.3, 0.1, 8)},
    )
    other, _ = fs.fit(*problem, optimiser=known, rng=0, **length)
    assert given.likelihood.variance == other.likelihood.variance


def test_an_sgpr(problem, ticking):
    model, X, Y = problem
    start = fs.SGPR(model.covariance, model.inducing, 0.1)
    _, info = fs.fit(start, X, Y, seconds=0.2)
    assert info.reason in ("seconds", "converged") and info.svgp is not None
    _, info = fs.fit(start, X, Y, seconds=0.05)
    assert info.reason == "seconds" and info.steps < 8


def test_a_schedule_of_all_steps_is_of_fit_alone(problem):
    schedule = fs.optim.schedules.log_linear(0.1, 0.01, "all")
    with pytest.raises(ValueError, match="belongs to `fit`"):
        schedule.size(0, schedule.init())
    given = fs.adam(schedule), 3, None
    known = lasting(given, 5)
    assert known == (fs.adam(fs.optim.schedules.log_linear(0.1, 0.01, 5)), 3, None)
    assert known != given and lasting(known, 7) is known
    assert lasting(fs.adam(0.1), 5) == fs.adam(0.1)
    with pytest.raises((ValueError, TypeError), match="`steps`"):
        fs.optim.schedules.cosine(0.1, 0.01, "some")


@pytest.mark.parametrize(
    "seconds, error",
    [
        (0, ValueError),
        (-1, ValueError),
        (np.nan, ValueError),
        (np.inf, ValueError),
        ("a", TypeError),
    ],
)
def test_seconds_that_are_none(problem, seconds, error):
    with pytest.raises(error, match="`seconds`"):
        fs.fit(*problem, seconds=seconds)


def test_what_does_not_go_together(problem):
    with pytest.raises(ValueError, match="`seconds` and `steps` both say how long"):
        fs.fit(*problem, seconds=1, steps=3)
    with pytest.raises(ValueError, match="`seconds` is for one process"):
        fs.distributed.threads(2).run(lambda group: fs.fit(*problem, seconds=1, group=group))
    with pytest.raises(ValueError, match="one of `steps`, `epochs` and `seconds`"):
        fs.fit(*problem)
