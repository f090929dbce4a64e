"""Step-size schedules, and the smoothed average of plateau and early stopping."""

import math

import numpy as np
import pytest

from fastsvgp.optim import schedules
from fastsvgp.optim.schedules import Trend
from fastsvgp.records.persistence import load, save


def sizes(schedule, counts):
    state = schedule.init()
    return [schedule.size(count, state) for count in counts]


def test_a_number_keeps_its_size():
    assert sizes(schedules.as_schedule(0.3), (0, 5, 10**6)) == [0.3] * 3


def test_log_linear_schedule_ends_at_its_last_step():
    """The ramp ends at its last step, as in the authors' program: ten updates from 1e-5 to 1."""
    got = sizes(schedules.log_linear(1e-4, 1e-1, 4), (0, 1, 2, 3, 4, 1000))
    np.testing.assert_allclose(got, [1e-4, 1e-3, 1e-2, 1e-1, 1e-1, 1e-1], rtol=1e-14)
    assert got[3:] == [1e-1] * 3
    ten = sizes(schedules.log_linear(1e-5, 1.0, 10), range(12))
    np.testing.assert_allclose(ten, [*np.geomspace(1e-5, 1.0, 10), 1.0, 1.0], rtol=1e-13)
    assert ten[8] < 0.5 and ten[9:] == [1.0] * 3
    assert sizes(schedules.log_linear(1e-5, 1.0, 1), (0, 1)) == [1.0, 1.0]
    falling = sizes(schedules.log_linear(1.0, 1e-2, 3), range(4))
    np.testing.assert_allclose(falling, [1.0, 0.1, 1e-2, 1e-2], rtol=1e-14)


def test_cosine_schedule_falls_along_half_a_cosine():
    got = sizes(schedules.cosine(1.0, 0.2, 5), (0, 1, 2, 3, 4, 5, 1000))
    half = 0.4 * math.sqrt(0.5)
    np.testing.assert_allclose(got, [1.0, 0.6 + half, 0.6, 0.6 - half, 0.2, 0.2, 0.2], rtol=1e-14)
    assert got[4:] == [0.2] * 3
    assert sizes(schedules.cosine(0.5, 1e-5, 1), (0, 1)) == [1e-5] * 2


def test_exponential_schedule_stops_at_the_smallest_size():
    got = sizes(schedules.exponential(1.0, 0.5, steps=10, smallest=0.2), (0, 10, 20, 30))
    np.testing.assert_allclose(got, [1.0, 0.5, 0.25, 0.2], rtol=1e-14)


def test_plateau_falls_and_rests():
    plateau = schedules.plateau(1.0, factor=0.1, patience=3, smoothing=0.0, smallest=0.05)
    state, seen = plateau.init(), []
    for value in [1.0, 2.0, 2.0, 2.0, 2.0, 1.0, 3.0, 0.0, 0.0, 0.0, 0.0]:
        state = plateau.observe(state, value)
        seen.append(plateau.size(len(seen), state))
    assert seen == [1.0] * 4 + [0.1] * 5 + [0.05] * 2


def test_plateau_state_is_saved(tmp_path):
    plateau = schedules.plateau(0.3, patience=2)
    values = np.random.default_rng(0).standard_normal(40)
    straight = plateau.init()
    for value in values:
        straight = plateau.observe(straight, value)
    state = plateau.init()
    for i, value in enumerate(values):
        if i == 17:
            save(tmp_path / "state.npz", state)
            state = load(tmp_path / "state.npz")
        state = plateau.observe(state, value)
    assert state.now == straight.now < 0.3
    assert (state.trend.total, state.trend.waited) == (straight.trend.total, straight.trend.waited)


def test_trend_counts_values_since_its_best():
    trend = Trend()
    assert math.isnan(trend.smoothed)
    for value in (4.0, 4.0, 4.0):
        trend = trend.observe(value, 0.9, 0.0)
    assert trend.smoothed == pytest.approx(4.0, rel=1e-14)
    # five is not more than a tenth of a hundred
    trend = Trend().observe(-100.0, 0.0, 0.1).observe(-95.0, 0.0, 0.1)
    assert (trend.best, trend.waited) == (-100.0, 1.0)
    assert trend.observe(-89.0, 0.0, 0.1).waited == 0.0


def test_numbers_and_functions_become_schedules():
    assert sizes(schedules.as_schedule(0.2), (0, 1)) == [0.2, 0.2]
    assert sizes(schedules.as_schedule(lambda count: 1 / (1 + count)), (0, 1)) == [1.0, 0.5]
    ramp = schedules.log_linear(0.1, 1, 5)
    assert schedules.as_schedule(ramp) is ramp
    with pytest.raises(
        TypeError, match="`step_size` must be a number, a schedule or a function.*got str"
    ):
        schedules.as_schedule("fast")
    with pytest.raises(ValueError, match="`step_size` must be finite, got nan"):
        schedules.as_schedule(math.nan)
    with pytest.raises(ValueError, match="returned -1.0 at step 3"):
        schedules.as_schedule(lambda count: -1).size(3, None)


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: schedules.log_linear(0, 1, 5), "`start` must be positive"),
        (
            lambda: schedules.log_linear(1, 1, 0.5),
            "`steps` must be a whole number of at least 1, got 0.5",
        ),
        (lambda: schedules.cosine(1, 0, 5), "cosine: `end` must be positive and finite, got 0"),
        (lambda: schedules.exponential(1, 1.5), "`rate` must lie between 0 and 1"),
        (lambda: schedules.exponential(1, 0.5, smallest=2), "`smallest` must lie between 0 and 1"),
        (lambda: schedules.plateau(1, patience=0), "`patience` must be a whole number"),
        (
            lambda: schedules.exponential(1, 0.5, math.nan),
            "`steps` must be a whole number of at least 1, got nan",
        ),
        (
            lambda: schedules.plateau(1, smoothing=1),
            "`smoothing` must be at least 0 and less than 1, got 1",
        ),
    ],
)
def test_bad_arguments_of_schedules_are_rejected(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    "make, name",
    [
        (lambda: schedules.log_linear("1e-4", 1, 5), "start"),
        (lambda: schedules.exponential(1, "0.5"), "rate"),
        (lambda: schedules.exponential(1, 0.5, smallest="0"), "smallest"),
        (lambda: schedules.plateau(1, smoothing="0.9"), "smoothing"),
        (lambda: schedules.as_schedule(True), "step_size"),
        (lambda: schedules.as_schedule("0.1"), "step_size"),
    ],
)
def test_text_and_truth_values_are_not_step_sizes(make, name):
    with pytest.raises(TypeError, match=f"`{name}` must be a number"):
        make()


def test_numpy_scalars_are_step_sizes():
    ramp = schedules.log_linear(np.float32(0.25), np.array(1.0), np.int64(3))
    assert sizes(ramp, range(4)) == [0.25, 0.5, 1.0, 1.0]
    assert sizes(schedules.as_schedule(np.float64(0.5)), [0]) == [0.5]
