"""Adam and SGD: definitions, ascent, fixed fields, step sizes by field, saved state."""

from typing import Any

import numpy as np
import pytest

from fastsvgp.optim.first_order import adam, sgd
from fastsvgp.optim.flat import ravel
from fastsvgp.optim.schedules import log_linear, plateau
from fastsvgp.records import leaf, leaves, record, replace, transforms
from fastsvgp.records.persistence import load, save


@record
class Hill:
    """Maximum of -|location|^2/2 - (log scale)^2/2 - |tril - target|^2/2."""

    scale: Any = leaf("positive")
    location: Any = leaf()
    tril: Any = leaf("tril")


TARGET = np.array([[2.0, 0.0], [-1.0, 0.5]])


def value_and_grad(model):
    value = -0.5 * (
        np.sum(model.location**2)
        + np.log(model.scale) ** 2
        + np.sum((np.tril(model.tril) - TARGET) ** 2)
    )
    tril_bar = np.tril(TARGET - model.tril)
    tril_bar[0, 1] = np.nan  # never read
    return float(value), Hill(-np.log(model.scale) / model.scale, -model.location, tril_bar)


def start(dtype=np.float64):
    return Hill(dtype(3.0), np.array([1.0, -2.0, 0.5], dtype), np.array([[1, 0], [0.3, 1]], dtype))


def climb(optimiser, steps, model=None):
    model = model or start()
    state = optimiser.init(model)
    for _ in range(steps):
        value, grad = value_and_grad(model)
        model, state = optimiser.step(model, grad, state, value)
    return model, state


def test_adam_follows_its_definition():
    model, vector = start(), ravel(start())[0]
    unravel = ravel(model)[1]
    m, v = np.zeros(vector.size), np.zeros(vector.size)
    for t in range(1, 6):
        at = unravel(vector)
        g = unravel.pullback(vector, value_and_grad(at)[1])
        m, v = 0.8 * m + 0.2 * g, 0.9 * v + 0.1 * g**2
        vector = vector + 0.05 * (m / (1 - 0.8**t)) / (np.sqrt(v / (1 - 0.9**t)) + 1e-6)
    model, state = climb(adam(0.05, beta1=0.8, beta2=0.9, epsilon=1e-6), 5)
    np.testing.assert_allclose(ravel(model)[0], vector, rtol=1e-13)
    np.testing.assert_allclose(state.first, m, rtol=1e-12)
    np.testing.assert_allclose(state.second, v, rtol=1e-12)
    assert state.count == 5


@pytest.mark.parametrize("momentum", [0.0, 0.7])
def test_sgd_follows_its_definition(momentum):
    vector, unravel = ravel(start())
    velocity = 0
    for _ in range(4):
        velocity = momentum * velocity + unravel.pullback(
            vector, value_and_grad(unravel(vector))[1]
        )
        vector = vector + 0.1 * velocity
    model, state = climb(sgd(0.1, momentum=momentum), 4)
    np.testing.assert_allclose(ravel(model)[0], vector, rtol=1e-13)
    assert (state.first is None) == (momentum == 0)


@pytest.mark.parametrize(
    "optimiser", [adam(0.05), sgd(0.3), sgd(0.1, momentum=0.5), adam(0.05, transform="log")]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_optimisers_climb(optimiser, dtype):
    model, _ = climb(optimiser, 800, start(dtype))
    assert type(model.scale) is dtype and model.location.dtype == model.tril.dtype == dtype
    assert value_and_grad(model)[0] > -1e-4


def test_fixed_fields_stay_and_need_no_gradient():
    model, optimiser = start(), adam(0.1, fixed=("location",)).fixing("tril")
    assert optimiser.paths(model) == ("scale",)
    grad = replace(value_and_grad(model)[1], location=None, tril=None)
    moved, state = optimiser.step(model, grad, optimiser.init(model))
    assert (
        moved.location is model.location and moved.tril is model.tril and moved.scale != model.scale
    )
    assert state.first.shape == (1,)


def test_step_sizes_differ_by_field():
    optimiser = adam(0.1, step_sizes={"location": 0.01, "tril": log_linear(1e-3, 1e-2, 10)})
    before = ravel(start())[0]
    after = ravel(climb(optimiser, 1)[0])[0]
    moved = np.abs(after - before)  # the first step of Adam moves every coordinate by its step size
    np.testing.assert_allclose(moved, [0.1] + [0.01] * 3 + [1e-3] * 3, rtol=1e-5)


def test_the_most_specific_name_wins():
    @record
    class Nest:
        hill: Any

    model = Nest(start())
    optimiser = sgd(1.0, step_sizes={"hill.location": 0.25, "hill": 0.5})
    unravel = ravel(model)[1]
    assert optimiser._segments(unravel) == [(slice(0, 1), 2), (slice(1, 4), 1), (slice(4, 7), 2)]


def test_steps_leave_their_arguments_unchanged():
    model, optimiser = start(), adam(0.1)
    state = optimiser.init(model)
    value, grad = value_and_grad(model)
    before = [np.copy(v) for tree in (model, grad, state) for _, _, v in leaves(tree)]
    first = optimiser.step(model, grad, state)
    again = optimiser.step(model, grad, state)
    for a, b in zip(
        before, [v for tree in (model, grad, state) for _, _, v in leaves(tree)], strict=True
    ):
        np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(first[0].location, again[0].location)


def test_optimiser_state_is_saved(tmp_path):
    optimiser = adam(plateau(0.1, patience=3), step_sizes={"tril": 0.02})
    straight, _ = climb(optimiser, 30)
    model, state = climb(optimiser, 13)
    save(tmp_path / "m.npz", model)
    save(tmp_path / "s.npz", state)
    model, state = load(tmp_path / "m.npz"), load(tmp_path / "s.npz")
    for _ in range(17):
        value, grad = value_and_grad(model)
        model, state = optimiser.step(model, grad, state, value)
    for (_, _, a), (_, _, b) in zip(leaves(straight), leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_positive_numbers_stay_positive_after_a_wild_step():
    model = start()
    grad = Hill(-1e12, np.zeros(3), np.array([[-1e12, np.nan], [0.0, -1e12]]))
    for transform in ("softplus", "log"):
        moved, _ = sgd(1.0, transform=transform).step(
            model, grad, sgd(1.0, transform=transform).init(model)
        )
        assert 0 < moved.scale < 1e-300 and (np.diag(moved.tril) > 0).all()
    assert transforms.softplus.forward(-1e12) > 0


def test_bad_arguments_of_optimisers_are_rejected():
    model = start()
    value, grad = value_and_grad(model)
    optimiser = adam(0.1)
    with pytest.raises(ValueError, match="NaN or infinity in 'location' at step 1.*wild scale"):
        optimiser.step(
            model, replace(grad, location=np.array([0.0, np.nan, 0.0])), optimiser.init(model)
        )
    with pytest.raises(ValueError, match="made for 4 free numbers and this model has 7"):
        optimiser.step(model, grad, optimiser.fixing("tril").init(model))
    with pytest.raises(ValueError, match="'location' is free here, but None came"):
        optimiser.step(model, replace(grad, location=None), optimiser.init(model))
    with pytest.raises(ValueError, match="`step_sizes` names 'inducing', which is no field"):
        adam(0.1, step_sizes={"inducing": 0.1}).init(model)
    with pytest.raises(ValueError, match="`fixed` names 'inducing'"):
        adam(0.1, fixed="inducing").init(model)
    with pytest.raises(ValueError, match="a plateau schedule needs `value="):
        adam(plateau(0.1)).step(model, grad, adam(plateau(0.1)).init(model))
    with pytest.raises(ValueError, match="beta2"):
        adam(beta2=1.0)
    with pytest.raises(ValueError, match="epsilon"):
        adam(epsilon=0)
    with pytest.raises(ValueError, match="`step_sizes\\['scale'\\]` must not be negative"):
        adam(step_sizes={"scale": -1})
    with pytest.raises(ValueError, match="softplus"):
        sgd(0.1, transform="exp")
