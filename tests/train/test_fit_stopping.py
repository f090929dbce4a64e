"""Failures that a training survives or reports, and conditions that stop it."""

import errno
import logging
import os

import numpy as np
import pytest
from support.fit_problems import assert_same, failing, problem

import fastsvgp as fs
from fastsvgp.train.steps import MoreJitter, minibatch


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


def test_more_jitter_is_tried_and_logged(rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 0.9e-4))
    seen = []
    with caplog.at_level(logging.DEBUG, "fastsvgp"):
        _, info = fs.fit(
            model, X, Y, steps=3, callback=lambda step, value, info: seen.append(info.jitter)
        )
    assert info.retries == 3
    np.testing.assert_allclose(seen, [1e-4, 1e-4, 1e-4])
    messages = [r.getMessage() for r in caplog.records]
    assert len(messages) == 7 and messages[0].startswith(
        "step 1: the 5 x 5 matrix is not positive definite"
    )
    assert messages[0].endswith(
        "trying it again with jitter 1e-05 (further retries are logged at level DEBUG)"
    )
    assert messages[2].startswith("step 2") and messages[2].endswith("with jitter 1e-05")
    warned = [r.getMessage() for r in caplog.records if r.levelno >= logging.WARNING]
    assert warned == [messages[0]]
    assert messages[-1] == "3 of 3 steps needed more jitter than requested"


def test_a_single_step_with_more_jitter_is_one_line(rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 0.9e-4))
    for _ in range(2):  # one line for each training
        with caplog.at_level(logging.WARNING, "fastsvgp"):
            _, info = fs.fit(model, X, Y, steps=1)
        assert info.retries == 1
    assert [r.getMessage()[:7] for r in caplog.records] == ["step 1:"] * 2


def test_a_resumed_training_counts_its_own_steps(tmp_path, rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    monkeypatch.setattr(minibatch, "elbo_and_grad", failing(minibatch.elbo_and_grad, 0.9e-4))
    fs.fit(model, X, Y, steps=2, checkpoint=path)
    caplog.clear()
    with caplog.at_level(logging.INFO, "fastsvgp"):
        _, info = fs.fit(model, X, Y, steps=5, resume=path)
    assert info.retries == 5
    assert caplog.records[-1].getMessage() == "3 of 3 steps needed more jitter than requested"


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

    assert MoreJitter(0.0, np.dtype(np.float64))(compute, 1)[0] == "done"
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
