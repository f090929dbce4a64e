"""Resumed trainings are bitwise those that never stopped; signals and interrupts."""

import contextlib
import os
import signal
import weakref

import numpy as np
import pytest
from support.fit_problems import (
    assert_mixed_dtypes_train_in_the_wide_one,
    assert_same,
    cast,
    classes,
    problem,
    signalling,
)
from support.interruptions import at_call
from support.own_optimiser import SignAscent

import fastsvgp as fs
from fastsvgp.records import leaves
from fastsvgp.runtime import signals as interrupts
from fastsvgp.train.kinds import sgpr as lbfgs
from fastsvgp.train.steps import minibatch

RUNS = {
    "adam": (problem, {}),
    "momentum": (problem, {"optimiser": fs.sgd(1e-4, momentum=0.5)}),
    "plateau": (
        problem,
        {"optimiser": fs.adam(fs.optim.schedules.plateau(0.1, patience=3, smoothing=0.5))},
    ),
    "natural": (
        problem,
        {"natural_step_size": fs.optim.schedules.log_linear(0.01, 0.3, 20), "fixed": "inducing"},
    ),
    "natural plateau": (
        problem,
        {"natural_step_size": fs.optim.schedules.plateau(0.5, patience=2, smoothing=0.5)},
    ),
    "rounds": (problem, {"natural_step_size": 0.2, "e_steps": 3, "m_steps": 2}),
    "outputs": (lambda rng: problem(rng, outputs=(2,)), {"natural_step_size": 0.1}),
    "sampled": (classes, {}),
    "float32": (lambda rng: problem(rng, dtype=np.float32), {}),
    "validated": (
        problem,
        {"validate": lambda m: -float(m.likelihood.variance), "validate_every": 4},
    ),
    "one's own": (problem, {"optimiser": SignAscent(0.01), "natural_step_size": 0.1}),
    "nested": (
        problem,
        {
            "optimiser": fs.optim.by_field(
                fs.optim.by_field(
                    fs.adam(0.03), {"inducing": SignAscent(0.01)}, after={"inducing": 15}
                ),
                {
                    "covariance": fs.optim.by_field(
                        fs.sgd(1e-4), {"covariance.variance": fs.adam()}
                    ),
                    "posterior": fs.adam(0.1),
                },
                after={"covariance": 5},
            )
        },
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_resumed_is_bitwise_the_same(tmp_path, rng, name):
    make, options = RUNS[name]
    model, X, Y = make(rng)
    options = {"batch_size": 16, "rng": 3, **options}
    straight, info = fs.fit(model, X, Y, steps=30, checkpoint=tmp_path / "straight.npz", **options)
    path = tmp_path / "half.npz"
    fs.fit(model, X, Y, steps=13, checkpoint=path, **options)
    resumed, again = fs.fit(
        model, X, Y, steps=30, resume=path, checkpoint=path, **{**options, "rng": None}
    )
    assert_same(straight, resumed)
    np.testing.assert_array_equal(info.values, again.values)
    np.testing.assert_array_equal(info.scores, again.scores)
    assert again.steps == 30 and again.smoothed == info.smoothed
    a, b = fs.load(tmp_path / "straight.npz"), fs.load(path)
    assert_same(fs.replace(a, values=None), fs.replace(b, values=None))
    assert (a.step, a.seed) == (b.step, b.seed) == (30, 3)


@pytest.mark.parametrize("name", ["adam", "natural", "natural plateau", "outputs"])
def test_mixed_dtypes_train_in_the_wide_one(tmp_path, rng, name):
    make, options = RUNS[name]
    assert_mixed_dtypes_train_in_the_wide_one(tmp_path, *make(rng), batch_size=16, rng=3, **options)


def test_labels_have_no_say_in_the_dtype(rng):
    model, X, Y = classes(rng)
    got, _ = fs.fit(
        cast(model, np.float32), X.astype(np.float32), Y, steps=2, natural_step_size=0.1
    )
    assert {v.dtype for _, _, v in leaves(got) if np.ndim(v)} == {np.dtype(np.float32)}


def test_resume_after_an_interrupt_and_a_crash(tmp_path, rng):
    model, X, Y = problem(rng)
    straight, _ = fs.fit(model, X, Y, steps=12, batch_size=16, rng=0)
    path = tmp_path / "c.npz"

    def stop(step, value, info):
        if step == 5:
            raise KeyboardInterrupt
        if step == 9:
            raise RuntimeError("crash")

    _, info = fs.fit(model, X, Y, steps=12, batch_size=16, rng=0, checkpoint=path, callback=stop)
    assert info.interrupted and info.reason == "interrupted" and info.steps == 5 == len(info.values)
    with pytest.raises(RuntimeError, match="crash") as caught:
        fs.fit(model, X, Y, steps=12, batch_size=16, resume=path, checkpoint=path, callback=stop)
    (note,) = caught.value.__notes__
    assert (
        note
        == f"fastsvgp.fit had done 9 of 12 steps; {path} holds the state after step 9, from which"
        " training can be resumed"
    )
    resumed, _ = fs.fit(model, X, Y, steps=12, batch_size=16, resume=path)
    assert_same(straight, resumed)


def test_an_interrupt_inside_a_step_loses_only_that_step(rng):
    model, X, Y = problem(rng)
    expected, _ = fs.fit(model, X, Y, steps=3, batch_size=16, rng=0)
    with at_call(minibatch, "elbo_and_grad", 4):
        got, info = fs.fit(model, X, Y, steps=10, batch_size=16, rng=0)
    assert info.interrupted and info.steps == 3
    assert_same(expected, got)


@pytest.mark.parametrize("times, steps", [(1, 4), (2, 3), (3, 3)])
@pytest.mark.parametrize("name", ["elbo_and_grad", "natural_step_and_grad"])
@pytest.mark.parametrize("total", [10, 4])  # the signal may come in the last step
def test_the_first_ctrl_c_waits_for_the_end_of_the_step(
    tmp_path, rng, monkeypatch, name, times, steps, total
):
    model, X, Y = problem(rng)
    options = {
        "batch_size": 16,
        "rng": 0,
        "natural_step_size": 0.1 if name == "natural_step_and_grad" else None,
    }
    expected, _ = fs.fit(model, X, Y, steps=steps, **options)
    signalling(monkeypatch, minibatch, name, 4, times)
    # as on the command line
    with interrupts.collect_signals(ending=True) if total == 4 else contextlib.nullcontext():
        got, info = fs.fit(model, X, Y, steps=total, checkpoint=tmp_path / "c.npz", **options)
    assert (
        info.interrupted
        and info.steps == steps == len(info.values) == fs.load(tmp_path / "c.npz").step
    )
    assert_same(expected, got)
    monkeypatch.undo()
    resumed, _ = fs.fit(model, X, Y, steps=12, resume=tmp_path / "c.npz", **options)
    assert_same(resumed, fs.fit(model, X, Y, steps=12, **options)[0])
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_an_interrupted_validation_is_made_up_for(tmp_path, rng):
    """The step before it counts; a resumed training repeats exactly this validation."""
    model, X, Y = problem(rng)
    options = {"batch_size": 16, "rng": 0, "validate_every": 4}

    def score(m):
        return float(np.sin(1e3 * m.likelihood.variance))

    straight, all_info = fs.fit(model, X, Y, steps=18, validate=score, **options)
    path = tmp_path / "c.npz"
    for raised, ended in (
        (KeyboardInterrupt, contextlib.nullcontext()),
        (RuntimeError, pytest.raises(RuntimeError)),
    ):
        calls = []

        def validate(m, raised=raised, calls=calls):
            calls.append(1)
            if len(calls) == 2:
                raise raised
            return score(m)

        with ended:
            _, info = fs.fit(model, X, Y, steps=18, validate=validate, checkpoint=path, **options)
            assert info.interrupted and info.steps == 8 and len(info.scores) == 1
        assert fs.load(path).step == 8 and fs.load(path).scores[:, 0].tolist() == [4]
        resumed, again = fs.fit(model, X, Y, steps=18, validate=score, resume=path, **options)
        assert_same(resumed, straight)
        np.testing.assert_array_equal(again.scores, all_info.scores)
        path.unlink()


@pytest.mark.parametrize("signals", [0, 1, 2])
def test_interrupt_in_last_validation_keeps_the_trained_model(tmp_path, rng, signals):
    model, X, Y = problem(rng)

    def validate(m):
        for _ in range(signals):
            signal.raise_signal(signal.SIGINT)
        if not signals:
            raise KeyboardInterrupt
        return 1.0

    options = {"batch_size": 16, "rng": 0}
    got, info = fs.fit(
        model, X, Y, steps=3, validate=validate, checkpoint=tmp_path / "c.npz", **options
    )
    assert (
        info.interrupted
        and info.steps == 3 == fs.load(tmp_path / "c.npz").step
        and len(info.scores) == (signals == 1)
    )
    assert_same(got, fs.fit(model, X, Y, steps=3, **options)[0])


@pytest.mark.parametrize("start", ["svgp", "sgpr"])
def test_interrupt_before_first_step_keeps_an_older_checkpoint(tmp_path, rng, monkeypatch, start):
    model, X, Y = problem(rng)
    model, options = (
        (model, {"batch_size": 16})
        if start == "svgp"
        else (fs.SGPR(model.covariance, model.inducing, 0.1), {})
    )
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=2, checkpoint=path, **options)
    before = path.read_bytes()

    def interrupted(*args, **kwargs):
        raise KeyboardInterrupt

    monkeypatch.setattr(minibatch, "elbo_and_grad", interrupted)
    monkeypatch.setattr(lbfgs, "collapsed_bound_and_grad", interrupted)
    for more, steps in (({}, 0), ({"resume": path}, 2)):
        _, info = fs.fit(model, X, Y, steps=9, checkpoint=path, **more, **options)
        assert info.interrupted and info.steps == steps
        assert path.read_bytes() == before and os.listdir(tmp_path) == ["c.npz"]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_interrupt_that_python_drops_still_ends_the_training(rng):
    def in_the_callback_of_a_weak_reference(step, value, info):
        if step == 3:
            thing = type("Thing", (), {})()
            reference = weakref.ref(thing, lambda _: signal.raise_signal(signal.SIGINT))
            del thing
            assert reference() is None

    model, X, Y = problem(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    for start, options in ((model, {"batch_size": 16, "rng": 0}), (sgpr, {})):
        _, info = fs.fit(
            start, X, Y, steps=10, callback=in_the_callback_of_a_weak_reference, **options
        )
        assert info.interrupted and info.steps == 3
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_resume_a_finished_training_does_nothing(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    done, _ = fs.fit(model, X, Y, steps=4, checkpoint=path)
    again, info = fs.fit(model, X, Y, steps=4, resume=path)
    assert_same(done, again)
    assert info.steps == 4


def test_checkpoints_are_models_to_load_anywhere(tmp_path, rng):
    import subprocess
    import sys

    model, X, Y = problem(rng)
    trained, _ = fs.fit(model, X, Y, steps=2, checkpoint=tmp_path / "c.npz")
    assert_same(trained, fs.load(tmp_path / "c.npz").model)
    optimiser = fs.optim.by_field(fs.adam(), {"inducing": fs.adam(1e-3)}, after={"inducing": 1000})
    fs.fit(model, X, Y, steps=2, checkpoint=tmp_path / "d.npz", optimiser=optimiser)
    program = "import sys, fastsvgp as fs; print([fs.load(path).step for path in sys.argv[1:]])"
    command = [sys.executable, "-c", program, tmp_path / "c.npz", tmp_path / "d.npz"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[2, 2]\n"


def test_wrong_checkpoints(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=2, batch_size=16, checkpoint=path)
    with pytest.raises(ValueError, match="made with other settings: `batch_size` 16 then, 17 now"):
        fs.fit(model, X, Y, steps=3, batch_size=17, resume=path)
    with pytest.raises(ValueError, match="made with other data: `X` had shape"):
        fs.fit(model, X[:59], Y[:59], steps=3, batch_size=16, resume=path)
    with pytest.raises(FileNotFoundError, match="`resume`: no such file; .*leave `resume` out"):
        fs.fit(model, X, Y, steps=3, batch_size=16, resume=tmp_path / "none.npz")
    with pytest.raises(TypeError, match="fit: give `model` with `resume` too"):
        fs.fit(None, X, Y, steps=3, batch_size=16, resume=path)
    with pytest.raises(
        ValueError,
        match="was made with other settings: the optimiser moves inducing then and not now",
    ):
        fs.fit(model, X, Y, steps=3, batch_size=16, resume=path, fixed="inducing")
    with pytest.raises(
        ValueError, match="`optimiser` Adam then, SGD now; `optimiser.step_size` 0.01 then, 0.1 now"
    ):
        fs.fit(model, X, Y, steps=3, batch_size=16, resume=path, optimiser=fs.sgd(0.1))
    fs.save(path, model)
    with pytest.raises(fs.DataFileError, match="holds a SVGP, not a checkpoint"):
        fs.fit(model, X, Y, steps=3, resume=path)
    with pytest.raises(FileNotFoundError):
        fs.fit(model, X, Y, steps=3, resume=tmp_path / "none.npz")
    with pytest.raises(
        ValueError, match="`checkpoint` is to be written to .*which is not a folder"
    ):
        fs.fit(model, X, Y, steps=3, checkpoint=tmp_path / "no" / "c.npz")
