"""``fit(sgpr, ..., within=)``: inducing inputs are doubled until the certificate is narrow."""

import logging

import numpy as np
import pytest
from support.fit_problems import assert_same
from support.rank_problems import on_ranks

import fastsvgp as fs
from fastsvgp.collapsed.certificate import Certificate
from fastsvgp.train.kinds import growing


def problem(rng, N=120, M=4, dtype=np.float64):
    X = np.sort(rng.uniform(-3, 3, (N, 1)), axis=0).astype(dtype)
    Y = (np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(N)).astype(dtype)
    Z = np.linspace(-3, 3, M, dtype=dtype)[:, None]
    return fs.SGPR(fs.RBF(1.0, np.full(1, 0.7, dtype)), Z, 0.1), X, Y


def test_the_number_doubles_until_it_is_enough(rng, caplog):
    model, X, Y = problem(rng)
    caplog.set_level(logging.INFO)
    steps = []
    got, info = fs.fit(
        model, X, Y, within=0.01, fixed="inducing", callback=lambda step, *_: steps.append(step)
    )
    M = len(got.inducing)
    assert M in (8, 16, 32) and info.certificate.enough and info.certificate.within == 0.01
    assert info.certificate == fs.certificate(got, X, Y, within=0.01)
    assert f"with {M} inducing inputs the evidence is within" in caplog.text
    assert "with 4 inducing inputs" in caplog.text and "; taking 8" in caplog.text
    assert steps == list(range(1, info.steps + 1)) and len(info.values) == info.steps
    assert fs.collapsed_bound(got, X, Y) == info.values[-1]
    assert_same(info.svgp, fs.optimal_svgp(got, X, Y))
    # the bound is near that of all rows
    full, _ = fs.fit(fs.replace(model, inducing=X), X, Y, fixed="inducing")
    exact = fs.collapsed_bound(fs.replace(got, inducing=X), X, Y)
    assert info.certificate.lower <= exact + 0.01 <= info.certificate.upper + 0.02
    assert abs(info.values[-1] - fs.collapsed_bound(full, X, Y)) < 0.02 * len(X)


def test_a_narrow_interval_alone_is_not_enough(rng, monkeypatch):
    """Few inducing inputs see noise alone, for which they are enough; the bound must not rise."""
    model, X, Y = problem(rng)

    def narrow(model, X, Y, *, within, **options):
        lower = fs.collapsed_bound(model, X, Y)
        return Certificate(lower, lower + 1e-6, len(X), within)

    monkeypatch.setattr(growing, "certificate", narrow)
    seen = {}
    got, info = fs.fit(
        model, X, Y, fixed="inducing", within=0.01,
        callback=lambda step, value, info: seen.update({len(info.model.inducing): value}),
    )  # fmt: skip
    numbers = list(seen)
    assert numbers[:2] == [4, 8] and len(got.inducing) == numbers[-1] and info.certificate.enough
    rises = np.diff(list(seen.values())) / len(X)
    assert rises[-1] <= 0.01 and (rises[:-1] > 0.01).all()


def test_all_rows_from_the_start_are_a_training_as_any(rng):
    model, X, Y = problem(rng, N=30)
    model = fs.replace(model, inducing=X)
    expected, alone = fs.fit(model, X, Y, fixed="inducing")
    got, info = fs.fit(model, X, Y, fixed="inducing", within=0.01)
    assert_same(got, expected)
    np.testing.assert_array_equal(info.values, alone.values)


def test_steps_end_all_trainings(rng, caplog):
    model, X, Y = problem(rng)
    got, info = fs.fit(model, X, Y, within=1e-7, steps=3)
    assert info.steps == 3 and info.reason == "steps" and not info.certificate.enough
    assert len(got.inducing) == 4
    assert "the training ended before it reached `within`" in caplog.text
    _, info = fs.fit(model, X, Y, within=1e-7, callback=lambda step, *_: step == 2)
    assert info.reason == "callback" and info.certificate is not None


def test_all_rows_may_not_reach_it(rng, caplog):
    """Of two equal rows one is chosen, and rows of weight 0 are not."""
    model, X, Y = problem(rng, N=20)
    X, Y, weights = np.r_[X, X[:5]], np.r_[Y, Y[:5]], np.r_[np.ones(23), 0, 0]
    Y[-1] = np.nan
    got, info = fs.fit(
        model, X, Y, within=1e-9, fixed="inducing", weights=weights, jitter=1e-3, steps=4000
    )
    assert len(got.inducing) == 20 and not info.certificate.enough
    assert len(np.unique(got.inducing)) == 20
    assert "all rows of X do not reach `within`; lower `jitter`" in caplog.text


def test_a_checkpoint_of_a_later_training_resumes(rng, tmp_path):
    model, X, Y = problem(rng)
    path, options = tmp_path / "c.npz", {"within": 0.01, "fixed": "inducing", "rng": 0}
    expected, whole = fs.fit(model, X, Y, **options)

    def stop(step, value, info):
        return len(info.model.inducing) == 8 and step % 2 == 0

    got, info = fs.fit(model, X, Y, **options, checkpoint=path, callback=stop)
    assert len(got.inducing) == 8 and len(fs.load(path).model.inducing) == 8
    resumed, again = fs.fit(model, X, Y, **options, resume=path)
    assert len(resumed.inducing) == len(expected.inducing) and again.certificate.enough
    np.testing.assert_array_equal(again.values[: info.steps], info.values)
    assert abs(again.values[-1] - whole.values[-1]) < 0.05
    with pytest.raises(FileNotFoundError, match="`resume`: no such file"):
        fs.fit(model, X, Y, **options, resume=tmp_path / "other.npz")


def test_float32_and_time(rng):
    model, X, Y = problem(rng, dtype=np.float32)
    got, info = fs.fit(model, X, Y, within=0.05, seconds=20, fixed="inducing")
    assert got.inducing.dtype == np.float32 and info.certificate.enough


def test_bad_input(rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="`within` must be above 0, got -1"):
        fs.fit(model, X, Y, within=-1)
    with pytest.raises(TypeError, match="`within` must be a number"):
        fs.fit(model, X, Y, within="narrow")
    with pytest.raises(TypeError, match="`within` is an option of SGPR, not of SVGP"):
        fs.fit(fs.optimal_svgp(model, X, Y), X, Y, steps=1, within=0.1)
    with pytest.raises(TypeError, match="`within` is an option of SGPR, not of OrthogonalSGPR"):
        pair = fs.posteriors.InducingPair(X[:4], X[4:8])
        fs.fit(fs.bounds.OrthogonalSGPR(model.covariance, pair, 0.1), X, Y, within=0.1)
    with pytest.raises(ValueError, match="`within` is for one process; leave out `group`"):
        on_ranks(1, lambda group: fs.fit(model, X, Y, within=0.1, group=group))
    images = fs.covariances.Convolutional(
        fs.RBF(1.0, np.ones(4)), np.ones(4), image_shape=(3, 3), patch_shape=(2, 2)
    )
    of_images = fs.SGPR(images, rng.standard_normal((3, 4)), 0.1)
    with pytest.raises(TypeError, match="inducing inputs, and those of this Convolutional are"):
        fs.fit(of_images, rng.standard_normal((9, 9)), Y[:9], within=0.1)
    with pytest.raises(ValueError, match="`epochs` would have no effect"):
        fs.fit(model, X, Y, within=0.1, epochs=3)
