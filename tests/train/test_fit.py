"""Training: resuming bitwise, stopping, surviving, and reaching what theory says."""

import contextlib
import errno
import logging
import os
import signal
import weakref

import numpy as np
import pytest
from support.interruptions import at_call
from support.own_optimiser import SignAscent, SignState

import fastsvgp as fs
from fastsvgp.records import leaves, record
from fastsvgp.runtime import signals as interrupts
from fastsvgp.train import jitter_retries as jitters
from fastsvgp.train.batches import Batches
from fastsvgp.train.steps import lbfgs, minibatch

M = 5


def problem(rng, N=60, D=2, dtype=np.float64, likelihood=None, outputs=()):
    X = rng.uniform(-2, 2, (N, D)).astype(dtype)
    Y = (np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)).astype(dtype)
    if outputs:
        Y = np.stack([Y + i for i in range(outputs[0])], axis=1)
    posterior = fs.Whitened(
        np.zeros(outputs + (M,), dtype),
        np.broadcast_to(np.eye(M, dtype=dtype), outputs + (M, M)).copy(),
    )
    model = fs.SVGP(
        covariance=fs.RBF(variance=1.0, lengthscales=np.ones(D, dtype)), inducing=X[:M].copy(), posterior=posterior,
        likelihood=likelihood or fs.Gaussian(variance=0.1),
    )  # fmt: skip
    return model, X, Y


def classes(rng):
    model, X, _ = problem(rng, outputs=(3,))
    return fs.replace(model, likelihood=fs.Softmax(num_classes=3)), X, rng.integers(3, size=len(X))


def assert_same(a, b):
    for (path, _, x), (_, _, y) in zip(leaves(a), leaves(b), strict=True):
        assert (x is None) == (y is None), path
        if x is not None:
            np.testing.assert_array_equal(x, y, err_msg=path, strict=True)


class Series:
    """What matters of a pandas.Series with an index of its own: brackets look up labels."""

    iloc = None

    def __init__(self, values):
        self.values, self.shape, self.dtype = values, values.shape, values.dtype

    def __len__(self):
        return len(self.values)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, labels):
        return self.values[::-1][labels]


def test_rows_are_taken_by_number_not_by_label(rng):
    model, X, Y = problem(rng)
    expected = fs.fit(model, X, Y, steps=5, batch_size=10, rng=0)[0]
    assert_same(fs.fit(model, Series(X), Series(Y), steps=5, batch_size=10, rng=0)[0], expected)
    assert_same(fs.fit(model, X.tolist(), Y.tolist(), steps=5, batch_size=10, rng=0)[0], expected)


class Masking:
    """What netCDF4 does: rows come as masked arrays."""

    def __init__(self, values, hidden):
        self._values, self.shape, self.dtype = (
            np.ma.masked_array(values, hidden),
            values.shape,
            values.dtype,
        )

    def __len__(self):
        return len(self._values)

    def __array__(self, dtype=None, copy=None):
        return self._values

    def __getitem__(self, rows):
        return self._values[rows]


@pytest.mark.parametrize("batch_size", [16, 60])
@pytest.mark.parametrize("name", ["X", "Y"])
def test_what_a_mask_hides_and_what_is_no_number_is_refused_as_by_the_bound(rng, name, batch_size):
    model, X, Y = problem(rng)
    data = {"X": X, "Y": Y}
    hidden = np.zeros(data[name].shape, bool)
    hidden[7] = True
    masked = np.ma.masked_array(data[name], hidden)
    sgpr = fs.SGPR(model.covariance, model.inducing, 0.1)
    for bad, said in (
        (masked, "is a masked array"),
        (Masking(data[name], hidden), "is a masked array"),
        (list(masked), "is a masked array"),
        (data[name].astype(object), "must hold real numbers, got dtype object"),
        (data[name].astype(str), "must hold real numbers, got dtype <U"),
        (
            data[name].astype(object).tolist()[:-1] + [None if name == "Y" else [None, None]],
            "dtype object",
        ),
    ):
        for start, options in ((model, {"batch_size": batch_size}), (sgpr, {})):
            with pytest.raises(TypeError, match=f"`{name}` {said}|`{name}` .*{said}"):
                fs.fit(start, **data | {name: bad}, steps=4, **options)
    with pytest.raises(TypeError, match=f"`{name}` is a masked array"):
        fs.elbo(model, **data | {name: masked})
    expected = fs.fit(model, X, Y, steps=4, batch_size=batch_size, rng=0)[0]
    assert_same(
        fs.fit(model, **data | {name: masked.data}, steps=4, batch_size=batch_size, rng=0)[0],
        expected,
    )


# --- resuming ---------------------------------------------------------------------------------------------------------------

RUNS = {
    "adam": (problem, {}),
    "momentum": (problem, {"optimiser": fs.sgd(1e-4, momentum=0.5)}),
    "plateau": (problem, {"optimiser": fs.adam(fs.schedules.plateau(0.1, patience=3, smoothing=0.5))}),
    "natural": (problem, {"natural_step_size": fs.schedules.log_linear(0.01, 0.3, 20), "fixed": "inducing"}),
    "natural plateau": (problem, {"natural_step_size": fs.schedules.plateau(0.5, patience=2, smoothing=0.5)}),
    "rounds": (problem, {"natural_step_size": 0.2, "e_steps": 3, "m_steps": 2}),
    "outputs": (lambda rng: problem(rng, outputs=(2,)), {"natural_step_size": 0.1}),
    "sampled": (classes, {}),
    "float32": (lambda rng: problem(rng, dtype=np.float32), {}),
    "validated": (problem, {"validate": lambda m: -float(m.likelihood.variance), "validate_every": 4}),
    "one's own": (problem, {"optimiser": SignAscent(0.01), "natural_step_size": 0.1}),
    "nested": (problem, {"optimiser": fs.by_field(
        fs.by_field(fs.adam(0.03), {"inducing": SignAscent(0.01)}, after={"inducing": 15}),
        {"covariance": fs.by_field(fs.sgd(1e-4), {"covariance.variance": fs.adam()}), "posterior": fs.adam(0.1)},
        after={"covariance": 5},
    )}),
}  # fmt: skip


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


def cast(tree, dtype):
    return fs.tree_map(lambda v: v.astype(dtype) if np.ndim(v) else v, tree)


def assert_mixed_dtypes_train_in_the_wide_one(tmp_path, model, X, Y, **options):
    """Model and data of different dtypes: all arrays are wide from the first step on, and resuming is bitwise."""
    narrow = cast(model, np.float32), X.astype(np.float32), Y.astype(np.float32)
    wide = tuple(
        cast(a, np.float64) if isinstance(a, type(model)) else a.astype(np.float64) for a in narrow
    )
    expected, expected_info = fs.fit(*wide, steps=6, **options)
    for which in ((0, 1, 1), (1, 0, 0), (0, 0, 1), (0, 1, 0)):
        model, X, Y = (
            pair[i] for pair, i in zip(zip(narrow, wide, strict=True), which, strict=True)
        )
        path = tmp_path / "half.npz"
        half, _ = fs.fit(model, X, Y, steps=3, checkpoint=path, **options)
        got, info = fs.fit(model, X, Y, steps=6, **options)
        resumed, _ = fs.fit(model, X, Y, steps=6, resume=path, **options)
        for result in (half, got):
            assert {v.dtype for _, _, v in leaves(result) if np.ndim(v)} == {np.dtype(np.float64)}
        assert_same(got, expected)
        np.testing.assert_array_equal(info.values, expected_info.values)
        if isinstance(model, fs.SVGP):  # an SGPR goes on with a new memory of curvature
            assert_same(resumed, got)


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


def signalling(monkeypatch, module, name, at, times):
    """Signals during one call of what a step computes."""
    real, calls = getattr(module, name), []

    def function(*args, **kwargs):
        calls.append(1)
        for _ in range(times if len(calls) == at else 0):
            signal.raise_signal(signal.SIGINT)
        return real(*args, **kwargs)

    monkeypatch.setattr(module, name, function)
    return calls


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
    """The step before it counts; a training resumed from there knows of all validations, and of no other."""
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
def test_an_interrupt_in_the_last_validation_keeps_what_was_trained(tmp_path, rng, signals):
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
def test_an_interrupt_before_the_first_step_leaves_an_older_checkpoint(
    tmp_path, rng, monkeypatch, start
):
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
def test_an_interrupt_that_python_drops_ends_the_training_all_the_same(rng):
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
    fs.fit(model, X, Y, steps=2, checkpoint=tmp_path / "d.npz", optimiser=fs.gentle_inducing())
    program = "import sys, fastsvgp as fs; print([fs.load(path).step for path in sys.argv[1:]])"
    command = [sys.executable, "-c", program, tmp_path / "c.npz", tmp_path / "d.npz"]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout == "[2, 2]\n"


def test_wrong_checkpoints(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=2, batch_size=16, checkpoint=path)
    with pytest.raises(ValueError, match="was made with batch_size 16, here it is 17"):
        fs.fit(model, X, Y, steps=3, batch_size=17, resume=path)
    with pytest.raises(ValueError, match="was made with num_data 60, here it is 59"):
        fs.fit(model, X[:59], Y[:59], steps=3, batch_size=16, resume=path)
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


# --- surviving --------------------------------------------------------------------------------------------------------------


def test_a_full_disk_does_not_end_the_training(tmp_path, rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    fs.fit(model, X, Y, steps=4, batch_size=16, rng=0, checkpoint=path)
    before = path.read_bytes()

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        _, info = fs.fit(
            model, X, Y, steps=8, batch_size=16, resume=path, checkpoint=path, checkpoint_every=2
        )
    assert info.steps == 8 and path.read_bytes() == before and os.listdir(tmp_path) == ["c.npz"]
    assert (
        "could not write the checkpoint" in caplog.text
        and "step 6" in caplog.text
        and "No space left" in caplog.text
    )
    monkeypatch.undo()
    assert fs.load(path).step == 4


def failing(real, fails):
    """``real``, raising NotPositiveDefinite unless the jitter is enough."""

    def function(*args, jitter, **kwargs):
        if jitter < fails:
            raise fs.NotPositiveDefinite((), 3, jitter, M, np.float64)
        return real(*args, jitter=jitter, **kwargs)

    return function


def test_more_jitter_is_tried_and_logged(rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 0.9e-4))
    seen = []
    with caplog.at_level(logging.WARNING, "fastsvgp"):
        _, info = fs.fit(
            model, X, Y, steps=2, callback=lambda step, value, info: seen.append(info.jitter)
        )
    assert info.retries == 2
    np.testing.assert_allclose(seen, [1e-4, 1e-4])
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 4 and messages[0].startswith(
        "step 1: the 5 x 5 matrix is not positive definite"
    )
    assert messages[0].endswith("trying it again with jitter 1e-05") and messages[3].startswith(
        "step 2"
    )


def test_more_jitter_has_an_end(tmp_path, rng, monkeypatch):
    model, X, Y = problem(rng)
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 1.0))
    with pytest.raises(fs.NotPositiveDefinite, match="with jitter 0.001 ") as caught:
        fs.fit(model, X, Y, steps=2, checkpoint=tmp_path / "c.npz")
    # nothing was reached
    assert (
        caught.value.__notes__ == ["fastsvgp.fit had done 0 of 2 steps"]
        and os.listdir(tmp_path) == []
    )


def test_from_no_jitter_to_the_default():
    seen = []

    def compute(jitter):
        seen.append(jitter)
        if len(seen) < 4:
            raise fs.NotPositiveDefinite((), 0, jitter, 1, np.float64)
        return "done"

    assert jitters.with_more_jitter(compute, 0.0, np.dtype(np.float64), 1)[0] == "done"
    np.testing.assert_allclose(seen, [0, 1e-6, 1e-5, 1e-4])


def test_nan_is_an_error_that_keeps_the_last_checkpoint(tmp_path, rng, monkeypatch):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    real = minibatch.elbo_and_grad
    calls = []

    def spoiled(*args, **kwargs):
        value, grad = real(*args, **kwargs)
        calls.append(1)
        return (np.nan if len(calls) == 4 else value), grad

    monkeypatch.setattr(minibatch, "elbo_and_grad", spoiled)
    with pytest.raises(
        ValueError, match="the bound is nan at step 4.*step size.*standardise"
    ) as caught:
        fs.fit(model, X, Y, steps=9, checkpoint=path, checkpoint_every=2)
    assert fs.load(path).step == 2 and "holds the state after step 2," in caught.value.__notes__[0]
    calls.clear()
    with pytest.raises(ValueError, match="the bound is nan at step 4") as caught:
        fs.fit(model, X, Y, steps=9, checkpoint=tmp_path / "other.npz")
    assert (
        caught.value.__notes__ == ["fastsvgp.fit had done 3 of 9 steps"]
        and not (tmp_path / "other.npz").exists()
    )


@pytest.mark.parametrize("row", [0, 17, 42])
@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 16},
        {"batch_size": 16, "natural_step_size": 0.1},
        {"batch_size": 60},
        {"batch_size": 8, "natural_step_size": 0.1, "e_steps": 2, "m_steps": 2},
    ],
)
def test_bad_data_are_found_by_the_bound_and_named_by_their_row(tmp_path, rng, row, options):
    def refused(model, X, Y, message):
        for seed in range(3):  # in the batch of another step
            with pytest.raises(ValueError, match=message):
                fs.fit(model, X, Y, epochs=2, rng=seed, **options)

    def spoiled(array, index, value):
        file = np.memmap(tmp_path / "data", array.dtype, "w+", shape=array.shape)
        file[...] = array
        file[index] = value
        return file

    model, X, Y = problem(rng)
    bad = spoiled(X, (row, 1), np.nan)
    refused(model, bad, Y, rf"`X` contains nan at index \({row}, 1\);")
    refused(model, np.array(bad), Y, rf"`X` contains nan at index \({row}, 1\);")
    refused(model, X, spoiled(Y, row, np.inf), rf"`Y` contains inf at index {row};")
    model, X, labels = classes(rng)
    refused(model, X, spoiled(labels, row, 3), rf"integer labels .* got 3 at index {row}\. Number")
    model, X, Y = problem(rng, outputs=(2,), likelihood=fs.Poisson())
    refused(
        model,
        X,
        spoiled(np.ones(Y.shape), (row, 1), -1),
        rf"counts; got -1\.0 at index \({row}, 1\)\.",
    )


def test_bad_entries_of_what_a_callback_computes_are_its_own(rng):
    model, X, Y = problem(rng)
    bad = np.where(np.arange(60) == 3, np.nan, Y)
    with pytest.raises(ValueError, match="`Y` contains nan at index 3;"):
        fs.fit(
            model,
            X,
            Y,
            epochs=1,
            batch_size=16,
            callback=lambda step, value, info: fs.elbo(info.model, X, bad),
        )


# --- stopping ---------------------------------------------------------------------------------------------------------------


def test_the_callback(rng):
    model, X, Y = problem(rng)
    seen = []

    def callback(step, value, info):
        seen.append((step, value, info))
        return step == 3

    got, info = fs.fit(
        model,
        X,
        Y,
        steps=10,
        batch_size=20,
        callback=callback,
        natural_step_size=0.25,
        optimiser=fs.adam(0.02),
    )
    assert [s for s, _, _ in seen] == [1, 2, 3] and info.reason == "callback" and info.steps == 3
    np.testing.assert_array_equal(info.values, [v for _, v, _ in seen])
    last = seen[-1][2]
    assert_same(last.model, got)
    assert (last.epoch, last.step_size, last.natural_step_size, last.jitter) == (
        1.0,
        0.02,
        0.25,
        1e-6,
    )
    assert last.smoothed == info.smoothed and 0 < last.seconds <= info.seconds


def test_patience(rng):
    model, X, Y = problem(rng)
    still = fs.adam(0.0)
    _, info = fs.fit(
        model, X, Y, steps=100, optimiser=still, patience=7, smoothing=0.0, tolerance=1e-9
    )
    assert info.reason == "patience" and info.steps == 8
    _, info = fs.fit(model, X, Y, steps=5, optimiser=still, patience=7)
    assert info.reason == "steps"


def test_validation_keeps_the_best_model(rng):
    model, X, Y = problem(rng)
    scores = iter([1.0, 5.0, 2.0, 3.0, 4.0, 4.5])
    models = []

    def validate(m):
        models.append(m)
        return next(scores)

    best, info = fs.fit(
        model, X, Y, steps=100, batch_size=16, validate=validate, validate_every=3, patience=3
    )
    assert info.reason == "patience" and info.steps == 15
    np.testing.assert_array_equal(info.scores, [[3, 1], [6, 5], [9, 2], [12, 3], [15, 4]])
    assert_same(best, models[1])


def test_validation_at_the_end_and_by_epoch(rng):
    model, X, Y = problem(rng)
    _, info = fs.fit(model, X, Y, steps=10, batch_size=16, validate=lambda m: 0.0)
    np.testing.assert_array_equal(info.scores[:, 0], [4, 8, 10])
    with pytest.raises(ValueError, match="`validate` returned NaN at step 4"):
        fs.fit(model, X, Y, steps=10, batch_size=16, validate=lambda m: np.nan)


def test_epochs(rng):
    model, X, Y = problem(rng)
    assert fs.fit(model, X, Y, epochs=2.5, batch_size=16)[1].steps == 10  # 2.5 * 60 / 16 = 9.4
    assert fs.fit(model, X, Y, steps=0)[1].steps == 0


# --- what is trained, and how well ------------------------------------------------------------------------------------------


def test_fixed_fields_stay_and_are_never_differentiated(rng, monkeypatch):
    model, X, Y = problem(rng)
    asked = []
    real = minibatch.natural_step_and_grad
    monkeypatch.setattr(
        minibatch,
        "natural_step_and_grad",
        lambda *a, wrt, **k: asked.append(wrt) or real(*a, wrt=wrt, **k),
    )
    got, _ = fs.fit(
        model, X, Y, steps=3, fixed=("inducing", "covariance.variance"), natural_step_size=0.1
    )
    assert asked == [("covariance.lengthscales", "likelihood.variance")] * 3
    np.testing.assert_array_equal(got.inducing, model.inducing)
    assert got.covariance.variance == 1.0 and (got.covariance.lengthscales != 1.0).all()
    assert (got.posterior.mean != 0).all()


def test_natural_steps_alone_reach_the_collapsed_bound(rng):
    model, X, Y = problem(rng)
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    best, _ = fs.collapsed_bound_and_grad(sgpr, X, Y)
    everything = ("covariance", "inducing", "likelihood")
    got, _ = fs.fit(model, X, Y, steps=3, natural_step_size=1.0, fixed=everything)
    np.testing.assert_allclose(fs.elbo(got, X, Y), best, rtol=1e-9)
    falling = fs.schedules.exponential(0.5, 0.97)
    got, info = fs.fit(
        model, X, Y, steps=150, natural_step_size=falling, fixed=everything, batch_size=20
    )
    assert best - 0.05 * abs(best) < fs.elbo(got, X, Y) < best


@pytest.mark.parametrize(
    "natural, e_steps, m_steps", [(0.2, 3, 2), (0.2, 1, 3), (0.2, 4, 1), (None, 1, 3)]
)
@pytest.mark.parametrize(
    "kind",
    [fs.Whitened, fs.AbsorbedDualSites, fs.WhitenedOrthogonal],
    ids=lambda kind: kind.__name__,
)
def test_rounds_of_natural_steps_and_of_the_optimiser(rng, kind, natural, e_steps, m_steps):
    """As written out: a batch for each natural step, the optimiser's first step on the last of them, others on new ones."""
    model, X, Y = problem(rng)
    if kind is fs.WhitenedOrthogonal:
        pair = fs.InducingPair(model.inducing, X[:4])
        model = fs.replace(
            model, inducing=pair, posterior=fs.at_prior(kind, model.covariance, pair)
        )
    elif kind is fs.AbsorbedDualSites:
        model = fs.convert(model, kind)
    sites = () if kind is not fs.AbsorbedDualSites else ("posterior",)
    if sites and natural is None:
        natural = 0.1  # unasked
    options = {"batch_size": 16, "rng": 3, "optimiser": fs.adam(0.02)}
    got, info = fs.fit(
        model, X, Y, steps=4, natural_step_size=natural, e_steps=e_steps, m_steps=m_steps, **options
    )
    batches, optimiser = (
        Batches(X, Y, 16, 3),
        fs.adam(0.02, fixed=() if natural is None else ("posterior",)),
    )
    state, values, at = optimiser.init(model), [], 0
    for _ in range(4):
        for i in range(e_steps if natural else 0):
            model, told = fs.natural_step(
                model, *batches.at(at + i), step_size=natural, num_data=60
            )
        at += e_steps - 1
        for i in range(m_steps):
            value, grad = fs.elbo_and_grad(
                model, *batches.at(at + i), num_data=60, wrt=optimiser.paths(model)
            )
            model, state = optimiser.step(model, grad, state, value)
        at += m_steps
        values.append(value)
    np.testing.assert_allclose(info.values, values, rtol=1e-9)
    for (path, _, one), (_, _, other) in zip(fs.leaves(got), fs.leaves(model), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7, err_msg=path)


def test_epochs_of_rounds(rng):
    model, X, Y = problem(rng)
    told = []
    options = {"e_steps": 2, "m_steps": 2, "natural_step_size": 0.1, "batch_size": 10}
    _, info = fs.fit(
        model, X, Y, epochs=2, callback=lambda step, value, info: told.append(info.epoch), **options
    )
    assert info.steps == 4 and told == [0.5, 1.0, 1.5, 2.0]
    with pytest.raises(
        ValueError,
        match="fit: `e_steps` of 2 are natural steps of the posterior; give `natural_step_size`",
    ):
        fs.fit(model, X, Y, steps=1, e_steps=2)
    for name in ("e_steps", "m_steps"):
        with pytest.raises(
            ValueError, match=f"`{name}` must be a whole number of at least 1, got 0"
        ):
            fs.fit(model, X, Y, steps=1, natural_step_size=0.1, **{name: 0})
        with pytest.raises(
            TypeError, match=f"fit: `{name}` is an option of DeepGP and SVGP, not of SGPR"
        ):
            fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y, **{name: 2})


def test_natural_and_adam_together_reach_the_optimised_collapsed_bound(rng):
    model, X, Y = problem(rng, D=1)
    best, found = fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y)
    assert found.reason == "converged"
    got, info = fs.fit(model, X, Y, steps=300, natural_step_size=1.0, optimiser=fs.adam(0.1))
    np.testing.assert_allclose(info.values[-1], found.values[-1], rtol=1e-6)
    np.testing.assert_allclose(got.covariance.lengthscales, best.covariance.lengthscales, rtol=1e-3)


def test_a_natural_step_that_backs_off_is_logged(rng, caplog):
    """Outliers far from the model make Student-t convex there: a full step would leave the positive definite precisions."""
    model, X, Y = problem(rng, likelihood=fs.StudentT(scale=0.05, df=2))
    taken = []
    with caplog.at_level(logging.INFO, "fastsvgp"):
        fs.fit(
            model, X, Y + 3, steps=2, natural_step_size=30.0, fixed="inducing",
            callback=lambda step, value, info: taken.append(info.natural_step_size),
        )  # fmt: skip
    assert min(taken) < 30 and "the natural step of 30 would leave the cone; took" in caplog.text


@pytest.mark.parametrize(
    "make",
    [problem, classes, lambda rng: problem(rng, outputs=(2,))],
    ids=["one", "classes", "two"],
)
def test_adam_climbs(rng, make):
    model, X, Y = make(rng)
    start = fs.elbo(model, X, Y)
    got, info = fs.fit(model, X, Y, steps=100, batch_size=30, optimiser=fs.adam(0.05), rng=1)
    assert fs.elbo(got, X, Y) > start + 0.1 * abs(start)


def test_memmap(tmp_path, rng):
    model, X, Y = problem(rng, N=500)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "Y.npy", Y)
    mapped = [np.load(tmp_path / name, mmap_mode="r") for name in ("X.npy", "Y.npy")]
    a, _ = fs.fit(model, X, Y, steps=5, batch_size=64, rng=0)
    b, _ = fs.fit(model, *mapped, steps=5, batch_size=64, rng=0)
    assert_same(a, b)


def test_seeds(rng):
    model, X, Y = problem(rng)
    a, b, c = (
        fs.fit(model, X, Y, steps=3, batch_size=16, rng=seed)[1].values
        for seed in (1, np.random.default_rng(5), 2)
    )
    assert (a != c).any()
    np.testing.assert_array_equal(
        b, fs.fit(model, X, Y, steps=3, batch_size=16, rng=np.random.default_rng(5))[1].values
    )


@record
class RenamedState(SignState):
    pass


class Renamed(SignAscent):
    """One whose state has the same shapes."""

    def init(self, model):
        return RenamedState(super().init(model).average, count=0)


def test_an_optimiser_of_ones_own(tmp_path, rng):
    model, X, Y = problem(rng)
    options = {"batch_size": 16, "rng": 0, "checkpoint": tmp_path / "c.npz"}
    seen = []
    got, _ = fs.fit(
        model,
        X,
        Y,
        steps=60,
        optimiser=SignAscent(0.01),
        callback=lambda step, value, i: seen.append(i.step_size),
        **options,
    )
    assert fs.elbo(got, X, Y) > fs.elbo(model, X, Y) + 5 and seen == [0.01] * 60
    # it moves no such thing
    np.testing.assert_array_equal(got.posterior.scale_tril, model.posterior.scale_tril)
    assert type(fs.load(tmp_path / "c.npz").optimiser).__name__ == "SignState"
    for other, kind in (
        (fs.adam(), "Adam"),
        (fs.by_field(SignAscent(0.01), {}), "ByField"),
        (Renamed(0.01), "Renamed"),
    ):
        with pytest.raises(ValueError, match=f"`optimiser` SignAscent then, {kind} now"):
            fs.fit(model, X, Y, steps=61, optimiser=other, resume=tmp_path / "c.npz", **options)
    with pytest.raises(ValueError, match="all fields are fixed"):
        fs.fit(
            model,
            X,
            Y,
            steps=1,
            optimiser=SignAscent(0.1),
            fixed=("covariance", "inducing", "likelihood", "posterior.mean"),
        )

    class Stateless(SignAscent):
        def init(self, model):
            return None

    with pytest.raises(
        TypeError, match="`init` of the optimiser Stateless must return a record .* got None"
    ):
        fs.fit(model, X, Y, steps=1, optimiser=Stateless(0.1))


@record
class WithHeldFactor(fs.Whitened):
    held_fields = ("scale_tril",)


@record
class WithNaturalMean(fs.Whitened):
    natural_fields = ("mean",)


def test_the_posterior_says_which_fields_which_steps_move(rng, monkeypatch):
    model, X, Y = problem(rng)
    asked = []
    for name in ("elbo_and_grad", "natural_step_and_grad"):
        real = getattr(minibatch, name)
        monkeypatch.setattr(
            minibatch,
            name,
            lambda *a, wrt, real=real, **k: asked.append(wrt) or real(*a, wrt=wrt, **k),
        )
    fields = model.posterior.mean, model.posterior.scale_tril
    held, _ = fs.fit(fs.replace(model, posterior=WithHeldFactor(*fields)), X, Y, steps=2)
    np.testing.assert_array_equal(held.posterior.scale_tril, np.eye(M))
    assert (held.posterior.mean != 0).all()
    start = fs.replace(model, posterior=WithNaturalMean(*fields))
    fs.fit(start, X, Y, steps=1, natural_step_size=0.1)
    fs.fit(model, X, Y, steps=1, natural_step_size=0.1)
    assert [[name for name in wrt if name.startswith("posterior")] for wrt in asked[1:]] == [
        ["posterior.mean"], ["posterior.scale_tril"], []
    ]  # fmt: skip
    for fixed in ("posterior", "posterior.mean"):
        with pytest.raises(ValueError, match=f"'{fixed}' is fixed, but `natural_step_size`"):
            fs.fit(start, X, Y, steps=1, natural_step_size=0.1, fixed=fixed)
    fs.fit(start, X, Y, steps=1, natural_step_size=0.1, fixed="posterior.scale_tril")


def test_the_model_that_came_in_is_not_modified(rng):
    model, X, Y = problem(rng)
    before = [np.copy(v) for _, _, v in leaves(model)]
    fs.fit(model, X, Y, steps=3, natural_step_size=0.1)
    for a, (_, _, b) in zip(before, leaves(model), strict=True):
        np.testing.assert_array_equal(a, b)


def test_messages(rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="one of `steps`, `epochs` and `seconds`"):
        fs.fit(model, X, Y)
    with pytest.raises(ValueError, match="one of `steps`, `epochs` and `seconds`"):
        fs.fit(model, X, Y, steps=1, epochs=1)
    with pytest.raises(ValueError, match="same number of rows, at least one, got 60 and 59"):
        fs.fit(model, X, Y[:-1], steps=1)
    for wrong, name in (
        (model.covariance, "RBF"),
        (X, "ndarray"),
        (None, "NoneType"),
        (fs.SVGP, "type"),
    ):
        kinds = "DeepGP, OrthogonalSGPR, QSGP, SGPR or SVGP"
        with pytest.raises(TypeError, match=f"fit: `model` must be a fastsvgp.{kinds}, got {name}"):
            fs.fit(wrong, X, Y, steps=1)
    with pytest.raises(
        TypeError,
        match="`posterior` of the model must be a record such as fastsvgp.Whitened.*, got NoneType",
    ):
        fs.fit(fs.replace(model, posterior=None), X, Y, steps=1)
    with pytest.raises(
        ValueError, match="`batch_size` must be a whole number of at least 1, got 0"
    ):
        fs.fit(model, X, Y, steps=1, batch_size=0)
    for name in ("steps", "batch_size", "patience", "validate_every", "checkpoint_every"):
        for wrong in ("many", 2.5, True, [1]):
            with pytest.raises(
                (ValueError, TypeError),
                match=f"`{name}` must be a whole number of at least [01], got",
            ):
                fs.fit(model, X, Y, **{"steps": 1, name: wrong})
    with pytest.raises(TypeError, match="`epochs` must be a number, got 'many'"):
        fs.fit(model, X, Y, epochs="many")
    with pytest.raises(TypeError, match="`rng` must be None, a seed .*, got 'a'"):
        fs.fit(model, X, Y, steps=1, rng="a")
    with pytest.raises(ValueError, match="nothing to train"):
        fs.fit(model, X, Y, steps=1, fixed=("covariance", "inducing", "posterior", "likelihood"))
    with pytest.raises(ValueError, match="'posterior.mean' is fixed, but `natural_step_size`"):
        fs.fit(model, X, Y, steps=1, fixed="posterior.mean", natural_step_size=0.1)
    with pytest.raises(ValueError, match="`fixed` names 'kernel'"):
        fs.fit(model, X, Y, steps=1, fixed="kernel")
    with pytest.raises(ValueError, match="the seed `rng` must be zero or more, got -1"):
        fs.fit(model, X, Y, steps=1, rng=-1)
    with pytest.raises(ValueError, match="`smoothing`"):
        fs.fit(model, X, Y, steps=1, smoothing=1.0)
    for name in ("steps", "batch_size", "patience", "validate_every", "checkpoint_every"):
        for much in (10**22, 10**400):
            with pytest.raises(ValueError, match=rf"fit: `{name}` must be at most 10\*\*15"):
                fs.fit(model, X, Y, **{"steps": 1, name: much})
    with pytest.raises(
        ValueError, match=r"`epochs` of 1e\+300 are 6e\+301 steps; at most 10\*\*15"
    ):
        fs.fit(model, X, Y, epochs=1e300, batch_size=1)
    with pytest.raises(ValueError, match="`epochs` must be finite, got inf"):
        fs.fit(model, X, Y, epochs=10**400)
    with pytest.raises(ValueError, match="`tolerance` must be finite, got inf"):
        fs.fit(model, X, Y, steps=1, tolerance=10**400)
    with pytest.raises(ValueError, match=r"fit: `steps` must be at most 10\*\*15"):
        fs.fit(fs.SGPR(model.covariance, model.inducing, 0.1), X, Y, steps=10**22)
    stopped = fs.fit(model, X, Y, steps=10**15, callback=lambda step, value, info: step == 2)[1]
    assert stopped.reason == "callback" and stopped.steps == 2
    with pytest.raises(TypeError, match="`callback` must be a function, got 3"):
        fs.fit(model, X, Y, steps=1, callback=3)
    with pytest.raises(
        TypeError,
        match=r"fit: `optimiser` must be an optimiser: fs.adam\(0.01\); got the text 'adam'",
    ):
        fs.fit(model, X, Y, steps=1, optimiser="adam")


def test_a_checkpoint_must_be_a_file_in_a_folder(tmp_path, rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="is a folder; name a file in it"):
        fs.fit(model, X, Y, steps=1, checkpoint=tmp_path)
    with pytest.raises(ValueError, match="which is not a folder; make it first"):
        fs.fit(model, X, Y, steps=1, checkpoint=tmp_path / "absent" / "model.npz")
