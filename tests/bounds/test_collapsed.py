"""The collapsed bound by its definition, its gradient, and the SVGP that attains it."""

import numpy as np
import pytest
from support import definitions
from support.derivatives import assert_gradient, assert_restricted

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.collapsed import forward_pass

JITTER = 1e-3


def problem(rng, M, N, P=None, D=2, mean=None, dtype=np.float64):
    X = rng.standard_normal((N, D))
    Y = np.sin(X.sum(axis=1)) + 0.2 * rng.standard_normal(N)
    Y = Y if P is None else np.stack([Y + p * X[:, 0] for p in range(P)], axis=1)
    covariance = fs.Matern52(1.2, np.linspace(0.9, 1.4, D).astype(dtype))
    return (
        fs.SGPR(covariance, rng.standard_normal((M, D)).astype(dtype), 0.3, mean),
        X.astype(dtype),
        Y.astype(dtype),
    )


SHAPES = [(1, 1, None), (3, 20, None), (6, 4, None), (5, 30, 1), (4, 25, 3), (70, 100, 2)]


@pytest.mark.parametrize("M, N, P", SHAPES)
@pytest.mark.parametrize("with_mean", [False, True])
def test_value_gradient_and_optimum(rng, M, N, P, with_mean):
    mean = fs.means.LinearMean(np.ones(2), 0.3) if with_mean else None
    sgpr, X, Y = problem(rng, M, N, P, mean=mean)
    value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, jitter=JITTER)
    np.testing.assert_allclose(value, definitions.collapsed(sgpr, X, Y, JITTER), rtol=1e-10)
    np.testing.assert_allclose(value, fs.collapsed_bound(sgpr, X, Y, jitter=JITTER), rtol=1e-13)
    assert_gradient(lambda m: definitions.collapsed(m, X, Y, JITTER), sgpr, grad, rng)
    best = fs.optimal_svgp(sgpr, X, Y, jitter=JITTER)
    np.testing.assert_allclose(fs.elbo(best, X, Y, jitter=JITTER), value, rtol=1e-10)
    _, at_best = fs.elbo_and_grad(best, X, Y, jitter=JITTER, wrt=("posterior",))
    for _, _, bar in fs.records.leaves(at_best.posterior):
        assert np.abs(bar).max() <= 1e-8 * max(1.0, N)


@pytest.mark.parametrize(
    "dtype, noise",
    [(np.float64, 1e-300), (np.float64, 1e-160), (np.float64, 1e300), (np.float32, 1e-30)],
)
def test_noise_of_any_size_that_has_an_inverse(rng, dtype, noise):
    """An overflowing derivative in the noise is infinite; the others are finite and correct."""
    sgpr, X, Y = problem(rng, 4, 20, dtype=dtype)
    sgpr = fs.replace(sgpr, noise_variance=noise)
    value, grad = fs.collapsed_bound_and_grad(sgpr, X, Y)
    assert np.isfinite(value) and value == fs.collapsed_bound(sgpr, X, Y)
    assert grad.noise_variance.dtype == dtype
    assert (
        np.isinf(grad.noise_variance)
        if noise < 1
        else grad.noise_variance == pytest.approx(-10 / noise)
    )
    assert np.isfinite(grad.inducing).all() and np.isfinite(grad.covariance.variance)
    assert np.isfinite(fs.optimal_svgp(sgpr, X, Y).posterior.mean).all()


@pytest.mark.parametrize("dtype, noise", [(np.float64, 1e-310), (np.float32, 1e-40)])
def test_noise_without_an_inverse_is_refused(rng, dtype, noise):
    sgpr, X, Y = problem(rng, 4, 20, dtype=dtype)
    for call in (fs.collapsed_bound, fs.collapsed_bound_and_grad, fs.optimal_svgp):
        with pytest.raises(
            ValueError,
            match=r"`noise_variance` is \S+e-\d+, and its inverse is beyond the range of float",
        ):
            call(fs.replace(sgpr, noise_variance=noise), X, Y)


def test_wrt_leaves_out_the_rest(rng):
    sgpr, X, Y = problem(rng, 4, 20, mean=fs.means.ConstantMean(0.2))
    _, whole = fs.collapsed_bound_and_grad(sgpr, X, Y)
    for wrt in [("noise_variance",), ("inducing", "covariance.variance"), ("mean",)]:
        _, grad = fs.collapsed_bound_and_grad(sgpr, X, Y, wrt=wrt)
        assert_restricted(grad, whole, wrt)


@pytest.mark.parametrize("wrt, kernel_does", [
    ("covariance.variance", {"variance"}),
    (("inducing", "covariance.lengthscales"), {"X1", "lengthscales"}),
    ("noise_variance", None),
])  # fmt: skip
def test_gradients_outside_wrt_are_not_computed(rng, monkeypatch, wrt, kernel_does):
    calls = []
    plain = kernels.stationary_vjp
    monkeypatch.setattr(
        kernels,
        "stationary_vjp",
        lambda *a, need, **k: calls.append(set(need)) or plain(*a, need=need, **k),
    )
    fs.collapsed_bound_and_grad(*problem(rng, 4, 20), wrt=wrt)
    assert calls == ([] if kernel_does is None else [kernel_does] * 2)


def test_bad_arguments_are_named(rng):
    sgpr, X, Y = problem(rng, 3, 8)
    with pytest.raises(TypeError, match="`sgpr` must be a fastsvgp.SGPR.*, got"):
        fs.collapsed_bound(X, X, Y)
    with pytest.raises(ValueError, match="`noise_variance` must be positive"):
        fs.collapsed_bound(fs.replace(sgpr, noise_variance=-0.1), X, Y)
    with pytest.raises(ValueError, match="`X` has 1 columns where `inducing` has 2"):
        fs.collapsed_bound(sgpr, X[:, :1], Y)
    with pytest.raises(ValueError, match="`Y` must be"):
        fs.collapsed_bound(sgpr, X, Y[:-1])
    with pytest.raises(ValueError, match="`Y` contains nan"):
        fs.collapsed_bound(sgpr, X, np.where(np.arange(8) == 3, np.nan, Y))


@pytest.mark.parametrize("outputs", [(), (2,)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("kind", ["stationary", "sum", "network"])
def test_long_data_are_processed_in_chunks(rng, monkeypatch, kind, weighted, outputs, tune):
    """The value and the optimal q hold some rows at a time; the gradient holds all rows."""
    X, Z = rng.standard_normal((150, 2)), rng.standard_normal((7, 2))
    Y = rng.standard_normal((150, *outputs))
    covariance = {
        "stationary": fs.Matern32(1.3, np.ones(2)),
        "sum": fs.RBF(1.3, np.ones(2)) + fs.Linear(0.4),
        "network": fs.covariances.OnFeatures(
            fs.RBF(1.3, np.ones(2)), fs.covariances.Network.random((2, 5, 2), rng=rng)
        ),
    }[kind]
    model = fs.SGPR(covariance, Z, 0.3, mean=None if outputs else fs.means.ConstantMean(0.2))
    weights = {"weights": rng.uniform(0.5, 2, 150)} if weighted else {}
    value, best = (
        fs.collapsed_bound(model, X, Y, **weights),
        fs.optimal_svgp(model, X, Y, **weights),
    )
    tune(collapsed_chunk_rows=16)
    monkeypatch.setattr(forward_pass.kernels, "chunk_numbers", lambda like: 7 * 40)
    monkeypatch.setattr(forward_pass, "_sum_whole", lambda *_: pytest.fail("all rows at once"))
    assert fs.collapsed_bound(model, X, Y, **weights) == pytest.approx(value, rel=1e-12)
    for (path, _, one), (_, _, other) in zip(
        fs.records.leaves(best),
        fs.records.leaves(fs.optimal_svgp(model, X, Y, **weights)),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, rtol=1e-9, atol=1e-11, err_msg=path)
