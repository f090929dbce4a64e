"""Nesterov's ascent: its definition, rows that catch up, and falls of the objective."""

from typing import Any

import numpy as np
import pytest
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.optim.moving_average import Falls
from fastsvgp.records import leaf, record


@record
class Plain:
    """Two arrays."""

    a: Any = leaf()
    b: Any = leaf()


def plain(rng, dtype=np.float64):
    return Plain(rng.standard_normal(6).astype(dtype), rng.standard_normal((4, 2)).astype(dtype))


def sparse(rng, m, shape=(), dtype=np.float64):
    rows = np.sort(rng.choice(m, rng.integers(1, m), replace=False))
    return fs.SparseRows(rows, rng.standard_normal((len(rows), *shape)).astype(dtype))


@pytest.mark.parametrize("momentum", [0.0, 0.5, 0.9])
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_sparse_steps_follow_the_definition(rng, momentum, dtype, tolerance):
    """x and v of all rows in each step, by the definition; ours moves rows of the gradient only."""
    model, sizes = plain(rng, dtype), fs.schedules.log_linear(0.5, 0.05, 9)
    optimiser = fs.nesterov(sizes, momentum)
    state, there = optimiser.init(model), model
    x = {path: value.astype(float) for path, _, value in fs.leaves(model)}
    v = {path: np.zeros_like(value) for path, value in x.items()}
    for step in range(12):
        grad = Plain(sparse(rng, 6, (), dtype), sparse(rng, 4, (2,), dtype))
        size = sizes.size(step, sizes.init())
        assert optimiser.step_size_at(state) == size
        if step % 3 == 1:
            optimiser.catch_up(there, state)
            for path, _, found in fs.leaves(there):  # theta
                ahead = x[path] + momentum * v[path]
                np.testing.assert_allclose(found, ahead, rtol=tolerance, atol=tolerance)
        there, state = optimiser.step(there, grad, state)
        for path, _, bar in fs.leaves(grad):
            v[path] = momentum * v[path] + size * bar.dense(len(x[path]))
            x[path] = x[path] + v[path]
        before = fs.tree_map(np.copy, there)
        for path, _, found in fs.leaves(optimiser.settled(there, state)):
            np.testing.assert_allclose(found, x[path], rtol=tolerance, atol=tolerance)
            assert found.dtype == dtype
        for (_, _, one), (_, _, other) in zip(fs.leaves(there), fs.leaves(before), strict=True):
            np.testing.assert_array_equal(one, other)


def test_rows_catch_up_before_a_gradient(rng):
    model, optimiser = plain(rng), fs.nesterov(0.1, 0.8, fixed="b")
    state = optimiser.init(model)
    optimiser.catch_up(model, state)  # nothing before the first step
    first = Plain(fs.SparseRows(np.array([1, 4]), np.ones(2)), None)
    there, state = optimiser.step(model, first, state)
    none = Plain(fs.SparseRows(np.array([0]), np.zeros(1)), None)
    for _ in range(5):
        there, state = optimiser.step(there, none, state)
    late = there.a.copy()
    optimiser.catch_up(there, state, np.array([4, 4, 0]))  # repeats are allowed
    moved = late[4] + 0.8**2 * 0.1 * (1 - 0.8**5) / 0.2  # v was 0.1
    np.testing.assert_allclose(there.a[4], moved, rtol=1e-14)
    assert there.a[1] == late[1] and there.a[0] == late[0]
    again = there.a.copy()
    optimiser.catch_up(there, state, np.array([0, 4]))
    np.testing.assert_array_equal(there.a, again)


def test_what_is_linear_moves_by_the_same_recurrence(rng):
    """Values P theta at some points, without looking at rows that have no gradient."""
    P, optimiser = rng.standard_normal((3, 6)), fs.nesterov(0.2, 0.7, fixed="b")
    there = plain(rng)
    state = optimiser.init(there)
    values, velocity = P @ there.a, np.zeros(3)
    for _ in range(8):
        bar = sparse(rng, 6)
        there, state = optimiser.step(there, Plain(bar, None), state)
        values, velocity = optimiser.moved(values, velocity, P @ (0.2 * bar.dense(6)))
        optimiser.catch_up(there, state)
        np.testing.assert_allclose(values, P @ there.a, rtol=1e-12, atol=1e-12)
        np.testing.assert_allclose(velocity, P @ state.velocity.a, rtol=1e-12, atol=1e-12)


def test_steps_are_in_place_after_one_copy(rng, tmp_path):
    model, optimiser = plain(rng), fs.nesterov(0.1, fixed="b")
    kept, state = fs.tree_map(np.copy, model), optimiser.init(model)
    assert state.velocity.b is None and state.kept.b is None and state.seen.b is None
    one = Plain(fs.SparseRows(np.array([2]), np.ones(1)), None)
    first, state = optimiser.step(model, one, state)
    np.testing.assert_array_equal(model.a, kept.a)
    assert first.b is model.b and list(np.flatnonzero(first.a != kept.a)) == [2]
    second, state = optimiser.step(first, one, state)
    assert second.a is first.a
    fs.save(tmp_path / "state", state)
    loaded = fs.load(tmp_path / "state")
    other, _ = optimiser.step(fs.tree_map(np.copy, second), one, loaded)
    third, _ = optimiser.step(second, one, state)
    np.testing.assert_array_equal(other.a, third.a)
    before = third.a.copy()
    with pytest.raises(ValueError, match="NaN or infinity in 'a'"):
        optimiser.step(third, Plain(fs.SparseRows(np.array([1]), np.array([np.nan])), None), state)
    with pytest.raises(IndexError, match="names rows 0 to 6, but there are 6"):
        optimiser.step(third, Plain(fs.SparseRows(np.array([0, 6]), np.ones(2)), None), state)
    np.testing.assert_array_equal(third.a, before)


@pytest.mark.parametrize("times", [1.0, 3.0, 30.0])
def test_steps_that_are_too_long_go_back_and_get_shorter(rng, times):
    """A quadratic with a noisy value: three times the inverse curvature diverges."""
    curvature = np.geomspace(1.0, 100.0, 6)
    optimiser = fs.nesterov(times / 100, fixed="b")
    there = plain(rng)
    state = optimiser.init(there)
    for _ in range(800):
        optimiser.catch_up(there, state)
        value = -0.5 * curvature @ there.a**2 + 0.01 * rng.standard_normal()
        there, state = optimiser.step(there, Plain(-curvature * there.a, None), state, value)
    assert (state.factor == 1) == (times == 1) and state.factor >= 2.0**-8
    assert np.abs(optimiser.settled(there, state).a).max() < 1e-3


def test_rows_go_back_to_where_they_were_kept(rng):
    optimiser = fs.nesterov(0.01, fixed="b")
    there, kept = plain(rng), []
    state, start = optimiser.init(there), there.a
    for step in range(260):
        value = -0.5 * there.a @ there.a if step < 225 else -1e6
        there, state = optimiser.step(there, Plain(-there.a, None), state, value)
        kept.append(state.kept.a)
        if state.factor < 1:
            break
    assert kept[0] is start and kept[150] is not start and kept[210] is not kept[150]
    np.testing.assert_array_equal(there.a, kept[-1])
    assert not state.velocity.a.any() and step == 225
    np.testing.assert_array_equal(optimiser.settled(there, state).a, kept[-1])


def test_noise_is_not_a_fall_and_a_drift_is(rng):
    falls = Falls()
    for value in 10 + rng.standard_normal(1000):
        falls, fell = falls.observe(value)
        assert not fell
    for drift in range(1000):
        falls, fell = falls.observe(10 + rng.standard_normal() - 0.1 * drift)
        if fell:
            break
    assert fell and not falls.count and drift < 150


def test_bad_settings_and_fields_are_refused(rng):
    for options, said in (
        ({"momentum": 1.0}, "`momentum` must be at least 0 and less than 1"),
        ({"step_size": -1.0}, "`step_size` must not be negative"),
    ):
        with pytest.raises(ValueError, match=said):
            fs.nesterov(**options)
    with pytest.raises(TypeError, match="`step_size` must be a number, a schedule or a function"):
        fs.nesterov("fast")
    model = fs.QSGP(basis_of(rng, "fourier", 8), weights(rng, 8, 1), fs.Gaussian(0.2))
    with pytest.raises(TypeError, match=r"'likelihood.variance' is positive: fix it, or give it"):
        fs.nesterov(0.1, fixed=("basis", "posterior")).init(model)
    optimiser, there = fs.nesterov(fixed="b"), plain(rng)
    with pytest.raises(ValueError, match="`step_size` of None is estimated by `fit`"):
        optimiser.step(there, Plain(there.a, None), optimiser.init(there))
