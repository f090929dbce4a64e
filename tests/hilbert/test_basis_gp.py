"""The process in a fixed basis with Gaussian noise: value, gradient, training and predictions."""

import logging

import numpy as np
import pytest
from support.fixed_basis import bound, density, features, frequencies

import fastsvgp as fs
from fastsvgp.bounds import HilbertBasis
from fastsvgp.covariances import Additive

SHAPES = {1: (20,), 2: (6, 5), 3: (3, 4, 3)}


def problem(rng, D, n=60, P=()):
    X = rng.uniform(-1, 1, (n, D))
    Y = np.sin(3 * X[:, 0])[(...,) + (None,) * len(P)] + 0.1 * rng.standard_normal((n, *P))
    return HilbertBasis(X.min(0), X.max(0), np.array(SHAPES[D]), 1.4), X, Y


def complex_step(function, theta):
    return np.array([function(theta + 1e-30j * e).imag / 1e-30 for e in np.eye(len(theta))])


@pytest.mark.parametrize("D", [1, 2, 3])
@pytest.mark.parametrize("family", ["RBF", "Matern12", "Matern32", "Matern52"])
def test_value_and_gradient(rng, D, family):
    basis, X, y = problem(rng, D)
    Phi, omega = features(X, basis), frequencies(basis, range(D))
    w = rng.uniform(0.5, 2, len(X))
    theta = np.r_[1.3, 0.5 + 0.2 * rng.random(D), 0.05]

    def dense(t):
        return bound(Phi, density(family, t[0], t[1:-1], omega), t[-1], y, weights=w)

    model = fs.BasisGP(getattr(fs, family)(theta[0], theta[1:-1]), basis, theta[-1])
    sums = fs.sufficient_sums(basis, X, y, weights=w)
    value, grad = fs.collapsed_bound_and_grad(model, sums)
    assert abs(value - dense(theta)) < 1e-8 * max(1, abs(value))
    assert fs.collapsed_bound(model, sums) == value
    assert np.isclose(fs.collapsed_bound(model, X, y, weights=w), value, rtol=1e-13)
    found = np.r_[grad.covariance.variance, grad.covariance.lengthscales, grad.noise_variance]
    truth = complex_step(dense, theta.astype(complex))
    np.testing.assert_allclose(found, truth, atol=1e-8 * abs(truth).max())
    some = fs.collapsed_bound_and_grad(model, sums, wrt=("covariance.lengthscales",))[1]
    assert some.covariance.variance is None is some.noise_variance
    np.testing.assert_array_equal(some.covariance.lengthscales, grad.covariance.lengthscales)


@pytest.mark.parametrize("kind", ["on", "additive"])
def test_value_and_gradient_of_several_groups(rng, kind):
    _, X, y = problem(rng, 3)
    groups = ((0,), (1, 2)) if kind == "on" else ((0,), (1,), (2,))
    basis = HilbertBasis(X.min(0), X.max(0), 4, 1.5, groups=groups)
    Phi = features(X, basis)

    def dense(t):
        noise = t[-1]
        if kind == "on":
            Lam = np.concatenate(
                [
                    density("Matern52", t[0], t[1:2], frequencies(basis, (0,))),
                    density("RBF", t[2], t[3:5], frequencies(basis, (1, 2))),
                ]
            )
            return bound(Phi, Lam, noise, y, prior=t[0] + t[2])
        parts = [density("RBF", t[0], t[1 + d : 2 + d], frequencies(basis, (d,))) for d in range(3)]
        return bound(Phi, np.concatenate(parts), noise, y, prior=3 * t[0])

    if kind == "on":
        theta = np.array([1.3, 0.6, 0.7, 0.5, 0.9, 0.05])
        covariance = fs.Matern52(theta[0], theta[1]).on(0) + fs.RBF(theta[2], theta[3:5]).on(1, 2)
    else:
        theta = np.array([0.7, 0.6, 0.5, 0.9, 0.05])
        covariance = Additive(theta[:1], theta[1:4])
    model = fs.BasisGP(covariance, basis, theta[-1])
    value, grad = fs.collapsed_bound_and_grad(model, X, y)
    assert abs(value - dense(theta)) < 1e-8 * max(1, abs(value))
    found = np.concatenate([np.ravel(v) for _, _, v in fs.records.leaves(grad)])
    truth = complex_step(dense, theta.astype(complex))
    np.testing.assert_allclose(found, truth, atol=1e-8 * abs(truth).max())


def test_several_outputs_are_the_sum(rng):
    basis, X, Y = problem(rng, 2, P=(3,))
    model = fs.BasisGP(fs.RBF(1.0, np.array([0.5, 0.6])), basis, 0.05)
    value, grad = fs.collapsed_bound_and_grad(model, X, Y)
    each = [fs.collapsed_bound_and_grad(model, X, y) for y in Y.T]
    assert np.isclose(value, sum(v for v, _ in each), rtol=1e-11)
    summed = sum(g.covariance.lengthscales for _, g in each)
    np.testing.assert_allclose(grad.covariance.lengthscales, summed, rtol=1e-7)
    best = fs.optimal_svgp(model, X, Y)
    mean, var = fs.predict_y(best, X[:7])
    one = fs.predict_y(fs.optimal_svgp(model, X, Y[:, 1]), X[:7])
    np.testing.assert_allclose(mean[:, 1], one[0], atol=1e-8)
    np.testing.assert_allclose(var[:, 1], one[1], rtol=1e-8)
    assert np.isclose(fs.elbo(best, X, Y), value, rtol=1e-9)


@pytest.mark.parametrize("kind", [fs.RBF, fs.Matern32])
def test_predictions_are_those_of_the_exact_process(rng, kind):
    covariance = kind(1.3, 0.3)
    X = rng.uniform(-1, 1, (120, 1))
    y = np.sin(6 * X[:, 0]) + 0.1 * rng.standard_normal(120)
    basis = HilbertBasis(-1.0, 1.0, 400, 2.5)
    best = fs.optimal_svgp(fs.BasisGP(covariance, basis, 0.01), X, y)
    Xs = np.linspace(-1, 1, 30)[:, None]
    K, Ks = covariance.matrix(X) + 0.01 * np.eye(120), covariance.matrix(Xs, X)
    mean, cov = fs.predict_f(best, Xs, full_cov=True)
    np.testing.assert_allclose(mean, Ks @ np.linalg.solve(K, y), atol=2e-3)
    truth = covariance.matrix(Xs) - Ks @ np.linalg.solve(K, Ks.T)
    np.testing.assert_allclose(cov, truth, atol=2e-3)
    again, var = fs.predict_f(best, Xs)
    np.testing.assert_allclose(again, mean, atol=1e-9)
    np.testing.assert_allclose(var, np.diagonal(cov), atol=1e-9)
    np.testing.assert_allclose(fs.predict_f(best, Xs, var=False), mean, atol=1e-9)
    draws = fs.sample_f(best, Xs, 2000, rng=1)
    assert abs(draws.mean(0) - mean).max() < 5 * np.sqrt(var.max() / 2000) + 1e-3


def test_training_from_sums_is_training_from_rows(rng, tmp_path):
    basis, X, y = problem(rng, 2)
    model = fs.BasisGP(fs.RBF(1.0, np.array([0.5, 0.6])), basis, 0.05)
    sums = fs.sufficient_sums(basis, X, y)
    one, info = fs.fit(model, sums)
    two, _ = fs.fit(model, X, y)
    assert one.noise_variance == two.noise_variance
    assert np.isclose(info.values[-1], fs.collapsed_bound(one, sums)) and info.reason
    gradient = fs.collapsed_bound_and_grad(one, sums)[1]
    assert abs(gradient.covariance.variance * one.covariance.variance) < 0.05
    assert np.isclose(fs.elbo(info.svgp, X, y), info.values[-1], rtol=1e-9)
    held, _ = fs.fit(model, sums, fixed="covariance.lengthscales", steps=3)
    np.testing.assert_array_equal(held.covariance.lengthscales, model.covariance.lengthscales)
    path = tmp_path / "model.npz"
    fs.save(path, one)
    assert fs.collapsed_bound(fs.load(path), sums) == fs.collapsed_bound(one, sums)
    fs.fit(model, sums, steps=2, checkpoint=tmp_path / "c.npz")
    resumed, _ = fs.fit(model, sums, steps=4, resume=tmp_path / "c.npz")
    assert fs.collapsed_bound(resumed, sums) > fs.collapsed_bound(model, sums)


def test_laplace_averages(rng):
    basis, X, y = problem(rng, 1)
    model = fs.BasisGP(fs.RBF(1.0, np.array([0.5])), basis, 0.05)
    sums = fs.sufficient_sums(basis, X, y)
    trained, _ = fs.fit(model, sums)
    average = fs.laplace(trained, sums, draws=4, rng=0)
    rows = fs.laplace(trained, X, y, draws=4, rng=0)
    mean, var = fs.predict_y(average, X)
    np.testing.assert_allclose(mean, fs.predict_y(rows, X)[0], atol=1e-6)
    assert (var > 0).all() and len(average.models) == 4


def test_missing_variance_is_reported_with_its_side(rng, caplog):
    X = rng.uniform(-1, 1, (300, 1))
    y = np.sin(3 * X[:, 0]) + 0.1 * rng.standard_normal(300)
    few = fs.BasisGP(fs.RBF(1.0, 0.05), HilbertBasis(-1.0, 1.0, 20, 1.2), 0.01)
    narrow = fs.BasisGP(fs.RBF(1.0, 0.5), HilbertBasis(-1.0, 1.0, 60, 1.1), 0.01)
    good = fs.BasisGP(fs.RBF(1.0, 0.5), HilbertBasis(-1.0, 1.0, 60, 3.0), 0.01)
    for model, said in (
        (few, "a lengthscale of 0.05 needs 60 functions, not 20"),
        (narrow, "the box ends 0.2 lengthscales beyond the data, not 2.5"),
        (good, None),
    ):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "fastsvgp"):
            fs.optimal_svgp(model, X, y)
        assert (said in caplog.text) if said else not caplog.text
    assert few.missing(fs.sufficient_sums(few.basis, X, y)) > 0.1


def test_float32(rng):
    basis, X, y = problem(rng, 2)
    model = fs.BasisGP(fs.RBF(np.float32(1.0), np.array([0.5, 0.6], np.float32)), basis, 0.05)
    wide = fs.BasisGP(fs.RBF(1.0, np.array([0.5, 0.6])), basis, 0.05)
    X32 = np.clip(X.astype(np.float32), -1, 1)
    value, grad = fs.collapsed_bound_and_grad(model, X32, y.astype(np.float32))
    assert abs(value - fs.collapsed_bound(wide, X, y)) < 1e-3 * abs(value)
    assert grad.covariance.lengthscales.dtype == np.float64  # sums are in float64


def test_bad_input(rng):
    basis, X, y = problem(rng, 2)
    model = fs.BasisGP(fs.RBF(1.0, np.array([0.5, 0.6])), basis, 0.05)
    sums = fs.sufficient_sums(basis, X, y)
    other = fs.sufficient_sums(fs.replace(basis, num_functions=np.array([6, 6])), X, y)
    with pytest.raises(ValueError, match="another basis: `num_functions`"):
        fs.collapsed_bound(model, other)
    with pytest.raises(TypeError, match="sums hold all rows: leave `Y` out"):
        fs.collapsed_bound(model, sums, y)
    with pytest.raises(TypeError, match="give `X` and `Y`, or sums"):
        fs.collapsed_bound(model, X)
    with pytest.raises(ValueError, match="a term of columns .0,., and the basis no such group"):
        fs.collapsed_bound(fs.replace(model, covariance=fs.RBF().on(0)), sums)
    with pytest.raises(TypeError, match="Linear has no spectral density"):
        fs.collapsed_bound(fs.replace(model, covariance=fs.Linear()), sums)
    with pytest.raises(TypeError, match="`basis` must be a fastsvgp.bounds.HilbertBasis, got int"):
        fs.collapsed_bound(fs.replace(model, basis=3), sums)
    with pytest.raises(TypeError, match="predict_f.*predict with info.svgp"):
        fs.predict_f(model, X)
    with pytest.raises(ValueError, match="L-BFGS-B; `batch_size` would"):
        fs.fit(model, sums, batch_size=3)
    with pytest.raises(TypeError, match="leave `weights` out"):
        fs.fit(model, sums, weights=np.ones(60))
    with pytest.raises(ValueError, match="nothing to train"):
        fs.fit(model, sums, fixed=("covariance", "noise_variance"))
