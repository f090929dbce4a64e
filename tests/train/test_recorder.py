"""Recording of steps of any kind, for a model whose one array is updated in place."""

import signal
from typing import Any

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import models
from fastsvgp.records import leaf, record, replace
from fastsvgp.train.checkpoints import Checkpoints
from fastsvgp.train.loop import LoopOptions, Recorder
from fastsvgp.train.state import TrainingState, started
from fastsvgp.train.steps import Snapshot, Steps


@record
class Tally:
    """A model that counts steps."""

    count: Any = leaf()


class Torn(Exception):
    """The error of a step that was interrupted in the middle."""


class InPlace(Steps):
    """Steps that add one to each number of their array in turn; converged at step ``limit``."""

    unit = "round"

    def __init__(self, state, limit=100, during=lambda step: None):
        self._array, self._limit, self._during, self._whole = (
            np.array(state.model.count),
            limit,
            during,
            True,
        )
        self._kind = type(state.model)
        self.snapshot, self.copies = (
            Snapshot(self._model, lambda: {"natural": Tally(self._array[:1].copy())}),
            0,
        )

    def _model(self):
        if not self._whole:
            raise Torn
        self.copies += 1
        return self._kind(self._array.copy())

    def run(self, count, record):
        for step in range(min(count, self._limit)):
            self._whole = False
            self._array[0] += 1
            self._during(step)
            self._array[1:] += 1
            self._whole = True
            record(
                -(float(self._array[0] - 6) ** 2),
                step == 1,
                epoch=step,
                step_size=None,
                natural_step_size=None,
                jitter=0.0,
            )


def recorder(
    start=None, path=None, resume=None, every=None, limit=100, during=lambda step: None, **changes
):
    state = TrainingState(Tally(np.zeros(3))) if start is None else start
    checkpoints = Checkpoints(path, every, resume)
    plan = LoopOptions(steps=9, validate_every=2, checkpoints=checkpoints)
    steps = InPlace(state, limit, during)
    return Recorder(state, steps, replace(plan, **changes)), steps


def test_what_was_kept_is_not_written_over(tmp_path):
    seen, path = [], tmp_path / "c.npz"

    def callback(step, value, info):
        seen.append(info.model)
        if step == 7:
            written.append(fs.load(path))

    written = []
    training, _ = recorder(
        path=path, every=7, callback=callback, validate=lambda model: -abs(model.count[0] - 4.5)
    )
    best, info = training.run()
    np.testing.assert_array_equal(
        [model.count for model in seen], np.repeat(np.arange(1.0, 10)[:, None], 3, axis=1)
    )
    np.testing.assert_array_equal(best.count, [4, 4, 4])
    np.testing.assert_array_equal(
        info.scores, [[2, -2.5], [4, -0.5], [6, -1.5], [8, -3.5], [9, -4.5]]
    )
    np.testing.assert_array_equal(info.values, [-25, -16, -9, -4, -1, 0, -1, -4, -9])
    assert (info.steps, info.reason, info.retries) == (9, "steps", 1)
    for state, step in ((written[0], 7), (fs.load(path), 9)):
        np.testing.assert_array_equal(state.model.count, 3 * [step])
        np.testing.assert_array_equal(state.best.count, [4, 4, 4])
        np.testing.assert_array_equal(state.natural.count, [step])
        assert state.step == step == len(state.values)
    again, info = recorder(fs.load(path), steps=11, validate=lambda model: 0.0)[0].run()
    np.testing.assert_array_equal(again.count, [10, 10, 10])
    assert (info.steps, info.retries, len(info.values)) == (11, 2, 11)


def test_nothing_is_copied_that_nobody_asks_for():
    training, steps = recorder()
    training.run()
    assert steps.copies == 1


def test_steps_end_by_themselves_or_out_of_patience():
    assert [
        recorder(limit=3)[0].run()[1].reason,
        recorder(steps=3, limit=3)[0].run()[1].reason,
    ] == ["converged", "steps"]
    _, info = recorder(patience=2)[0].run()
    assert info.reason == "patience" and info.steps == 8
    assert recorder(patience=2, steps=8)[0].run()[1].reason == "steps"


@pytest.mark.parametrize("signals", [1, 2])
def test_the_first_ctrl_c_waits_and_a_torn_state_is_no_result(tmp_path, signals):
    def during(step):
        if step == 4:
            for _ in range(signals):
                signal.raise_signal(signal.SIGINT)

    path = tmp_path / "c.npz"
    training, _ = recorder(path=path, every=3, during=during)
    if signals == 1:
        model, info = training.run()
        np.testing.assert_array_equal(model.count, [5, 5, 5])
        assert info.interrupted and info.steps == 5 == fs.load(path).step
    else:
        with pytest.raises(Torn):
            training.run()
        np.testing.assert_array_equal(fs.load(path).model.count, [3, 3, 3])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_errors_name_the_unit(tmp_path):
    def during(step):
        if step == 2:
            raise RuntimeError("no more")

    class Mended(InPlace):
        """Steps that undo a half-done update."""

        def _model(self):
            if not self._whole:
                self._array[0] -= 1
                self._whole = True
            return super()._model()

    state = TrainingState(Tally(np.zeros(3)))
    training, _ = recorder(path=tmp_path / "c.npz", every=100)
    training = Recorder(state, Mended(state, during=during), training._plan)
    with pytest.raises(RuntimeError) as caught:
        training.run()
    assert caught.value.__notes__[0].startswith("fastsvgp.fit had done 2 of 9 rounds; ")
    np.testing.assert_array_equal(fs.load(tmp_path / "c.npz").model.count, [2, 2, 2])


@record
class Registered(Tally):
    """A user-defined kind of model."""


def test_fit_trains_a_kind_that_registers_steps(tmp_path, monkeypatch):
    def training(request):
        model, steps = request.model, int(request.epochs) * 3
        assert request.fixed == ("count",) and request.epochs == 2
        request.refuse("a tally counts", "batch_size", "optimiser", "weights")
        fresh = TrainingState(model, natural=Tally(model.count[:1]), **request.about)
        state = started(fresh, request.resume)
        return Recorder(state, InPlace(state), replace(request.plan, steps=steps))

    monkeypatch.setattr(models, "_IMPLEMENTATIONS", dict(models._IMPLEMENTATIONS))
    models.register(Registered, fit=training)
    data, path = (np.zeros((4, 1)), np.zeros(4)), tmp_path / "c.npz"
    options = {"epochs": 2, "fixed": "count", "checkpoint": path}
    seen = []
    stopped, info = fs.fit(
        Registered(np.zeros(2)),
        *data,
        callback=lambda step, *_: seen.append(step) or step == 4,
        **options,
    )
    assert info.reason == "callback" and seen == [1, 2, 3, 4]
    np.testing.assert_array_equal(stopped.count, [4, 4])
    model, info = fs.fit(Registered(np.zeros(2)), *data, resume=path, note="on", **options)
    np.testing.assert_array_equal(model.count, [6, 6])
    assert info.steps == 6 and fs.load(path).note == "on"
    with pytest.raises(ValueError, match="a tally counts; `batch_size` would have no effect"):
        fs.fit(Registered(np.zeros(2)), *data, batch_size=2, **options)
