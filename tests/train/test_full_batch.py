"""L-BFGS-B on the collapsed bound."""

import logging
import signal

import numpy as np
import pytest
from support.fit_problems import (
    assert_mixed_dtypes_train_in_the_wide_one,
    assert_same,
    failing,
    signalling,
)

import fastsvgp as fs
from fastsvgp.train.kinds import sgpr as lbfgs


def problem(rng, dtype=np.float64):
    X = rng.uniform(-2, 2, (50, 1)).astype(dtype)
    Y = (np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(50)).astype(dtype)
    return fs.SGPR(fs.RBF(1.0, np.ones(1, dtype)), X[:6].copy(), 0.5), X, Y


def test_lbfgs_converges_and_every_iteration_improves(rng):
    model, X, Y = problem(rng)
    start = fs.collapsed_bound(model, X, Y)
    got, info = fs.fit(model, X, Y)
    assert info.reason == "converged" and not info.interrupted
    assert (np.diff([start, *info.values]) >= 0).all() and len(info.values) == info.steps
    value, grad = fs.collapsed_bound_and_grad(got, X, Y)
    assert value == info.values[-1] == info.smoothed
    vector, unravel = fs.ravel(got)
    assert (
        np.abs(unravel.pullback(vector, grad)).max() < 1e-2
        and 0.05 < got.noise_variance**0.5 < 0.15
    )


@pytest.mark.parametrize("options", [{"steps": 0}, {"steps": 4}, {"steps": 4, "jitter": 1e-3}, {}])
@pytest.mark.parametrize("kind", [fs.SGPR, fs.bounds.OrthogonalSGPR])
def test_the_svgp_to_predict_with_comes_along(rng, monkeypatch, kind, options):
    model, X, Y = problem(rng)
    if kind is fs.bounds.OrthogonalSGPR:
        model = kind(model.covariance, fs.posteriors.InducingPair(X[:4].copy(), X[4:7].copy()), 0.5)
    passes, plain, reached = [], lbfgs.optimal_svgp, []
    monkeypatch.setattr(
        lbfgs, "optimal_svgp", lambda *a, **o: passes.append(len(reached)) or plain(*a, **o)
    )
    weights = rng.integers(0, 3, len(X)).astype(float)
    for more in ({}, {"weights": weights}):
        got, info = fs.fit(
            model, X, Y, callback=lambda step, *_: reached.append(step), **options, **more
        )
        jitter = {"jitter": options["jitter"]} if "jitter" in options else {}
        assert_same(info.svgp, fs.optimal_svgp(got, X, Y, **jitter, **more))
        np.testing.assert_allclose(
            fs.elbo(info.svgp, X, Y, **jitter, **more),
            fs.collapsed_bound(got, X, Y, **jitter, **more),
            rtol=1e-9,
        )
        assert passes == [len(reached)]  # one, when all steps are done
        passes.clear()
        reached.clear()
    for call in (fs.predict_f, fs.predict_y):
        assert np.isfinite(call(info.svgp, X)).all()


def test_only_a_collapsed_bound_has_an_svgp_beside_its_model(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    _, info = fs.fit(fs.optimal_svgp(model, X, Y), X, Y, steps=1, rng=0)
    assert info.svgp is None
    got, info = fs.fit(model, X, Y, steps=2, checkpoint=path)
    assert_same(fs.load(path).model, got)  # the file holds no more than it did
    assert not [name for name in np.load(path).files if "posterior" in name]
    found, again = fs.fit(model, X, Y, steps=2, resume=path)  # already done
    assert_same(found, got)
    assert_same(again.svgp, info.svgp)


def test_last_pass_takes_more_jitter_and_may_fail_without_loss(rng, monkeypatch, caplog):
    model, X, Y = problem(rng)
    plain = lbfgs.optimal_svgp
    monkeypatch.setattr(lbfgs, "optimal_svgp", failing(plain, 0.9e-4))
    got, info = fs.fit(model, X, Y, steps=2)
    assert_same(info.svgp, plain(got, X, Y, jitter=1e-4))
    assert "step 2: " in caplog.text and "trying it again with jitter 1e-05" in caplog.text
    monkeypatch.setattr(lbfgs, "optimal_svgp", failing(plain, 1.0))
    got, info = fs.fit(model, X, Y, steps=2)
    assert info.svgp is None and info.reason == "steps" and info.steps == 2
    assert "so info.svgp is None" in caplog.text and "more `jitter` may help" in caplog.text


def test_an_interrupt_of_the_last_pass_keeps_the_model(rng, monkeypatch):
    model, X, Y = problem(rng)
    expected, _ = fs.fit(model, X, Y, steps=3)

    def interrupted(*args, **options):
        raise KeyboardInterrupt

    def stop(step, value, info):
        if step == 3:
            signal.raise_signal(signal.SIGINT)

    _, info = fs.fit(model, X, Y, steps=9, callback=stop)
    assert info.interrupted and info.steps == 3
    # a first Ctrl-C ends the iterations only
    assert_same(info.svgp, fs.optimal_svgp(expected, X, Y))
    monkeypatch.setattr(lbfgs, "optimal_svgp", interrupted)
    got, info = fs.fit(model, X, Y, steps=3)
    assert info.interrupted and info.steps == 3 and info.svgp is None
    assert_same(got, expected)


def test_float32(rng):
    model, X, Y = problem(rng, np.float32)
    got, _ = fs.fit(model, X, Y, steps=20)
    assert got.inducing.dtype == np.float32
    assert fs.collapsed_bound(got, X, Y) > fs.collapsed_bound(model, X, Y) + 10


def test_mixed_dtypes_train_in_the_wide_one(tmp_path, rng):
    assert_mixed_dtypes_train_in_the_wide_one(tmp_path, *problem(rng))


def test_fixed_and_steps(rng):
    model, X, Y = problem(rng)
    got, info = fs.fit(model, X, Y, steps=3, fixed=("inducing", "noise_variance"))
    assert info.steps == 3 and info.reason == "steps"
    np.testing.assert_array_equal(got.inducing, model.inducing)
    assert got.noise_variance == 0.5 and got.covariance.variance != 1.0
    assert_same(fs.fit(model, X, Y, steps=0)[0], model)


def test_callback_and_interrupt(rng):
    model, X, Y = problem(rng)
    seen = []

    def third(step, value, info):
        seen.append((step, value, info))
        return step == 3

    got, info = fs.fit(model, X, Y, callback=third)
    assert info.reason == "callback" and info.steps == 3 and [s for s, _, _ in seen] == [1, 2, 3]
    assert_same(got, seen[-1][2].model)
    np.testing.assert_array_equal(info.values, [v for _, v, _ in seen])

    def interrupt(step, value, info):
        if step == 2:
            raise KeyboardInterrupt

    got, info = fs.fit(model, X, Y, callback=interrupt)
    assert info.interrupted and info.steps == 2
    assert_same(got, seen[1][2].model)


@pytest.mark.parametrize("times", [1, 2])
def test_the_first_ctrl_c_waits_for_the_end_of_the_iteration(rng, monkeypatch, times):
    model, X, Y = problem(rng)
    models, ends = [], []
    calls = signalling(monkeypatch, lbfgs, "collapsed_bound_and_grad", 0, 0)

    def callback(step, value, info):
        models.append(info.model)
        ends.append(len(calls))

    fs.fit(model, X, Y, steps=6, callback=callback)
    monkeypatch.undo()
    # the first of the fifth iteration
    signalling(monkeypatch, lbfgs, "collapsed_bound_and_grad", ends[3] + 1, times)
    got, info = fs.fit(model, X, Y)
    assert info.interrupted and info.steps == 6 - times == len(info.values)
    assert_same(got, models[info.steps - 1])


def test_checkpoint_and_resume(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"
    part, info = fs.fit(model, X, Y, steps=5, checkpoint=path)
    assert_same(fs.load(path).model, part)
    got, more = fs.fit(model, X, Y, resume=path, checkpoint=path, checkpoint_every=1)
    np.testing.assert_array_equal(more.values[:5], info.values)
    assert more.steps > 5 and fs.load(path).step == more.steps
    np.testing.assert_allclose(more.values[-1], fs.fit(model, X, Y)[1].values[-1], rtol=1e-4)


def test_an_error_keeps_what_was_reached(tmp_path, rng):
    model, X, Y = problem(rng)
    path = tmp_path / "c.npz"

    def crash(step, value, info):
        if step == 4:
            raise RuntimeError("crash")

    with pytest.raises(RuntimeError, match="crash") as caught:
        fs.fit(model, X, Y, checkpoint=path, callback=crash)
    (note,) = caught.value.__notes__
    assert note.startswith(
        f"fastsvgp.fit had done 4 of 1000 iterations; {path} holds the state after iteration 4, "
    )
    assert fs.load(path).step == 4


def test_line_search_backtracks_from_points_without_a_bound(rng, monkeypatch, caplog):
    """Beyond noise 0.1 the factorisation fails for any jitter."""
    model, X, Y = problem(rng)
    real = lbfgs.collapsed_bound_and_grad

    def walled(model, *args, jitter, **kwargs):
        if model.noise_variance < 0.1:
            raise fs.NotPositiveDefinite((), 0, jitter, 6, np.float64)
        return real(model, *args, jitter=jitter, **kwargs)

    monkeypatch.setattr(lbfgs, "collapsed_bound_and_grad", walled)
    with caplog.at_level(logging.INFO, "fastsvgp"):
        got, info = fs.fit(model, X, Y, steps=60)
    assert "comes back" in caplog.text
    assert 0.1 <= got.noise_variance < 0.2 and (np.diff(info.values) >= 0).all()
    with pytest.raises(fs.NotPositiveDefinite):
        fs.fit(fs.replace(model, noise_variance=0.05), X, Y)


def test_messages(rng):
    model, X, Y = problem(rng)
    with pytest.raises(
        ValueError,
        match="an SGPR is trained on all data.*`batch_size`, `patience` would have no effect",
    ):
        fs.fit(model, X, Y, batch_size=10, patience=3)
    with pytest.raises(ValueError, match="nothing to train"):
        fs.fit(model, X, Y, fixed=("covariance", "inducing", "noise_variance"))
    with pytest.raises(ValueError, match="`Y` contains nan"):
        fs.fit(model, X, np.where(np.arange(50) == 3, np.nan, Y))
