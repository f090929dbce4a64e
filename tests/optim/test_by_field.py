"""Several optimisers with their own fields: each acts as it would alone; late ones start fresh."""

import re
from typing import Any

import numpy as np
import pytest
from support.own_optimiser import SignAscent

import fastsvgp as fs
from fastsvgp.optim.base import MEANT, check_offered
from fastsvgp.optim.fields import by_field
from fastsvgp.optim.schedules import plateau
from fastsvgp.records import leaf, leaves, record, replace
from fastsvgp.records.persistence import load, save


@record
class Place:
    """Maximum of -|east|^2/2 - |north|^2/2."""

    east: Any = leaf()
    north: Any = leaf()


@record
class Slope:
    """Maximum of -sum (log height)^2/2 - |place|^2/2."""

    height: Any = leaf("positive")
    place: Any


def start():
    return Slope(np.array([2.0, 0.5]), Place(np.array([1.0, -2.0, 0.5]), np.array([0.3])))


def value_and_grad(model):
    log = np.log(model.height)
    parts = (log, model.place.east, model.place.north)
    bars = Slope(-log / model.height, Place(-model.place.east, -model.place.north))
    return -0.5 * float(sum((p**2).sum() for p in parts)), bars


def climb(optimiser, steps, model=None, state=None):
    model = start() if model is None else model
    state = optimiser.init(model) if state is None else state
    for _ in range(steps):
        value, grad = value_and_grad(model)
        model, state = optimiser.step(model, grad, state, value)
    return model, state


def test_each_part_steps_as_it_would_alone():
    rest, own = fs.adam(0.05), fs.adam(plateau(0.02, 0.9, 3), beta1=0.99)
    model, state = climb(by_field(rest, {"place.east": own}), 12)
    alone, _ = climb(rest, 12)
    np.testing.assert_array_equal(model.height, alone.height)
    np.testing.assert_array_equal(model.place.north, alone.place.north)
    assert not np.array_equal(model.place.east, alone.place.east)
    vector, m, v = start().place.east, 0.0, 0.0
    first = climb(by_field(rest, {"place.east": fs.adam(0.02, beta1=0.99)}), 5)[0].place.east
    for t in range(1, 6):
        m, v = 0.99 * m - 0.01 * vector, 0.999 * v + 0.001 * vector**2
        vector = vector + 0.02 * (m / (1 - 0.99**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    np.testing.assert_allclose(first, vector, rtol=1e-13)
    assert state.count == 12 and [part.count for part in state.parts] == [12, 12]


def test_a_late_start_is_a_fresh_start():
    """The gradient is not read before the start, so it may be None.

    Then Adam corrects its bias from its own first step.
    """
    optimiser = by_field(fs.sgd(0.1), {"place": fs.adam(0.02)}, after={"place": 4})
    model = start()
    state = optimiser.init(model)
    assert optimiser.paths(model) == ("height", "place.east", "place.north")
    for step in range(6):
        moving = ("height",) if step < 4 else ("height", "place.east", "place.north")
        assert optimiser.moving(model, state) == moving
        value, grad = value_and_grad(model)
        model, state = optimiser.step(
            model, replace(grad, place=None) if step < 4 else grad, state, value
        )
    expected = climb(fs.adam(0.02), 2)[0].place
    np.testing.assert_array_equal(model.place.east, expected.east)
    assert [part.count for part in state.parts] == [2, 6]
    assert optimiser.step_size_at(state) == 0.1


def test_fixed_fields_stay_and_parts_with_nothing_left_rest():
    optimiser = by_field(fs.adam(0.1), {"place": fs.adam(0.1)}).fixing("place")
    assert optimiser.fixed == ("place",) and optimiser.paths(start()) == ("height",)
    model, _ = climb(optimiser, 3)
    np.testing.assert_array_equal(model.place.east, start().place.east)
    assert not np.array_equal(model.height, start().height)
    all_but = by_field(fs.adam(0.1), {"place": fs.adam(0.1)}).fixing("height")
    model, _ = climb(all_but, 3)
    np.testing.assert_array_equal(model.height, start().height)


def test_a_saved_state_continues_bit_for_bit(tmp_path):
    optimiser = by_field(
        fs.adam(0.05), {"place": fs.adam(plateau(0.02, 0.5, 2), beta1=0.99)}, after={"place": 3}
    )
    whole, _ = climb(optimiser, 9)
    model, state = climb(optimiser, 5)
    save(tmp_path / "state.npz", state)
    again, _ = climb(optimiser, 4, model, load(tmp_path / "state.npz"))
    for (_, _, a), (_, _, b) in zip(leaves(whole), leaves(again), strict=True):
        np.testing.assert_array_equal(a, b)


def test_by_field_nests_in_by_field(tmp_path):
    """Equal to the same optimisers side by side; late starts count from the inner optimiser's."""
    inner = by_field(fs.adam(0.05), {"place.east": fs.sgd(0.1)}, after={"place.east": 2})
    nested = by_field(fs.adam(0.03), {"place": inner}, after={"place": 3})
    flat = by_field(
        fs.adam(0.03),
        {"place.east": fs.sgd(0.1), "place.north": fs.adam(0.05)},
        after={"place.east": 5, "place.north": 3},
    )
    for optimiser in (
        nested,
        by_field(by_field(fs.adam(0.03), {"place": inner}, after={"place": 3}), {}),
    ):
        model, state = climb(optimiser, 9)
        assert_same(model, climb(flat, 9)[0])
        assert (
            optimiser.fixed == ()
            and optimiser.paths(model) == flat.paths(model)
            and optimiser.step_size_at(state) == 0.03
        )
        half, state = climb(optimiser, 4)
        assert optimiser.moving(half, state) == ("height", "place.north")
        save(tmp_path / "state.npz", state)
        assert_same(climb(optimiser, 5, half, load(tmp_path / "state.npz"))[0], model)
        held, _ = climb(optimiser.fixing("place.north"), 9)
        assert_same(held, replace(model, place=replace(model.place, north=start().place.north)))


def test_the_outer_of_two_names_for_a_leaf_wins():
    rest = by_field(fs.adam(0.05), {"place": fs.sgd(0.5)})
    model, _ = climb(by_field(rest, {"place.east": fs.adam(0.02)}), 6)
    np.testing.assert_array_equal(
        model.place.east,
        climb(by_field(fs.sgd(0.5), {"place.east": fs.adam(0.02)}), 6)[0].place.east,
    )
    np.testing.assert_array_equal(model.place.north, climb(fs.sgd(0.5), 6)[0].place.north)
    np.testing.assert_array_equal(model.height, climb(fs.adam(0.05), 6)[0].height)


@pytest.mark.parametrize("which", ["rest", "fields"])
def test_a_user_defined_optimiser_can_be_a_part(which):
    own, ours = SignAscent(0.01), fs.adam(0.02)
    rest, named = (own, ours) if which == "rest" else (ours, own)
    model, state = climb(by_field(rest, {"place": named}, after={"place": 2}), 8)
    assert_same(model.place, climb(named, 6)[0].place)
    np.testing.assert_array_equal(model.height, climb(rest, 8)[0].height)
    assert [part.count for part in state.parts] == [6, 8]


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(leaves(a), leaves(b), strict=True):
        np.testing.assert_array_equal(x, y, err_msg=path)


def test_bad_arguments_of_by_field_are_rejected():
    with pytest.raises(ValueError, match="`fields` names 'west', which is no field"):
        by_field(fs.adam(), {"west": fs.adam()}).init(start())
    with pytest.raises(
        ValueError,
        match="field 'place.east' has two optimisers, under the names 'place' and 'place.east'",
    ):
        by_field(fs.adam(), {"place": fs.adam(), "place.east": fs.adam()}).init(start())
    with pytest.raises(
        ValueError, match="`after` names 'height', which has no optimiser in `fields`: place"
    ):
        by_field(fs.adam(), {"place": fs.adam()}, after={"height": 3})
    for wrong in (-1, 2.5, True):
        with pytest.raises(
            (ValueError, TypeError), match=r"`after\['place'\]` must be a whole number"
        ):
            by_field(fs.adam(), {"place": fs.adam()}, after={"place": wrong})
    for wrong in (0.1, None, fs.adam):
        with pytest.raises(
            TypeError,
            match=r"by_field: `rest` must be an optimiser: fs.adam.*object with init, step, paths",
        ):
            by_field(wrong, {"place": fs.adam()})
        with pytest.raises(
            TypeError,
            match=r"by_field: `fields\['place'\]` must be an optimiser: .*which has no init, step",
        ):
            by_field(fs.adam(), {"place": wrong})
    for text, first in (
        ("adam", "fs.adam(0.01)"),
        ("Adam", "fs.adam(0.01)"),
        ("fs.sgd(0.1)", "fs.sgd(0.01)"),
        ("adagrd", "fs.optim.adagrad(0.01)"),
        ("by-field", "fs.optim.by_field(fs.adam(0.01), "),
    ):
        with pytest.raises(
            TypeError, match=r"by_field: `rest` must be an optimiser: " + re.escape(first)
        ):
            by_field(text, {})
    for line in MEANT.values():
        check_offered("rest", eval(line, {"fs": fs}))
    with pytest.raises(
        TypeError,
        match=r"fs.optim.adagrad\(0.01\) or fs.optim.by_field\(...\); got the text 'l-bfgs'",
    ):
        by_field("l-bfgs", {})
    with pytest.raises(TypeError, match=r"got <class '\S*SignAscent'>, a class: make an instance"):
        by_field(SignAscent, {})

    class Half(SignAscent):
        step_size_at = property()

        def init(self, model):
            return {"count": 0}

    with pytest.raises(TypeError, match="which has no step_size_at$"):
        by_field(fs.adam(), {"place": Half(0.1)})
    Half.step_size_at = SignAscent.step_size_at
    with pytest.raises(
        TypeError, match=r"`init` of the optimiser Half must return a record .*got \{'count': 0\}"
    ):
        by_field(fs.adam(), {"place": Half(0.1)}).init(start())
