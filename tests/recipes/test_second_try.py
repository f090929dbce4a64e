"""A training of the collapsed bound that found nothing is repeated from another start."""

import logging

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.recipes import routine, second_try


def problem(rng, N=120):
    X = rng.uniform(-2, 2, (N, 2))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(N)


def trained(start, X, Y, **settings):
    return routine.train(start, X, Y, {"steps": 50, **settings}, lambda *_: None)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_bound_of_pure_noise_is_recognised(rng, shape):
    X = rng.standard_normal((200, 2))
    Y = 1.7 * rng.standard_normal((200, *shape))
    model = fs.SGPR(fs.RBF(1.0, np.full(2, 1e-3)), X[:5] + 0.5, 0.5)
    weights = rng.uniform(0.5, 2, 200)
    for w in (None, weights):
        variance = np.average(np.square(Y).reshape(200, -1).mean(axis=1), weights=w)
        alone = fs.replace(model, covariance=fs.RBF(1e-12, np.ones(2)), noise_variance=variance)
        options = {} if w is None else {"weights": w}
        value = fs.collapsed_bound(alone, X, Y, **options)
        assert second_try.explains_nothing(model, value, X, Y, w)
        assert not second_try.explains_nothing(model, value + 2 * second_try.NATS, X, Y, w)
    assert not second_try.explains_nothing(model, 0.0, X, np.zeros(200), None)


def test_few_rows_become_the_inducing_inputs(rng, caplog):
    """From an inducing input far from all rows, L-BFGS explains the data as pure noise."""
    X, Y = problem(rng)
    with caplog.at_level(logging.INFO, "fastsvgp"):
        model, info, _ = trained(
            fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:1] + 40, 0.5), X, Y, fixed="inducing"
        )
    assert "once more with all 120 distinct rows" in caplog.text
    assert len(model.inducing) == 120 and not second_try.explains_nothing(
        model, info.values[-1], X, Y, None
    )


def test_of_more_rows_minibatches_come_first(rng, caplog, monkeypatch, tune):
    X, Y = problem(rng)
    tune(retry_rows=50)
    start = fs.SGPR(fs.RBF(1.0, np.full(2, 30.0)), X[:15].copy(), 0.5)
    monkeypatch.setattr(routine, "explains_nothing", lambda *_: True)
    calls = []
    fit = second_try.fit
    monkeypatch.setattr(
        second_try, "fit", lambda *args, **named: calls.append(named) or fit(*args, **named)
    )
    first = fs.fit(start, X, Y, steps=50)[1].values[-1]
    with caplog.at_level(logging.INFO, "fastsvgp"):
        _, info, _ = trained(start, X, Y, checkpoint=None)
    assert "after 200 steps on minibatches" in caplog.text and len(calls) == 2
    assert calls[0]["natural_step_size"] == 0.1 and "checkpoint" not in calls[1]
    assert info.values[-1] >= first - 1.0  # the better of both


def test_training_that_found_something_is_not_repeated(rng, monkeypatch):
    X, Y = problem(rng)
    monkeypatch.setattr(routine, "second_try", lambda *_: pytest.fail("trained again"))
    trained(fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:20].copy(), 0.5), X, Y)


def test_a_worse_second_training_is_dropped(rng, monkeypatch):
    X, Y = problem(rng)
    monkeypatch.setattr(routine, "explains_nothing", lambda *_: True)
    start = fs.SGPR(fs.RBF(1.0, np.ones(2)), X[:20].copy(), 0.5)
    monkeypatch.setattr(
        second_try, "fit", lambda model, *_, **__: (model, fs.fit(model, X, Y, steps=1)[1])
    )
    model, info, _ = trained(start, X, Y)
    assert len(model.inducing) == 20 and len(info.values) > 1
