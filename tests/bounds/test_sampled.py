"""Sampled bounds, averaged over all possible samples, and the theory."""

import numpy as np
import pytest
from support.sampled_problems import (
    FIRST,
    JITTER,
    LIKELIHOODS,
    SECOND,
    UNITS,
    as_dense,
    assert_gradient_at,
    assert_unbiased,
    each_of,
    every_sample,
    fields,
    log_det,
    pairs,
    problem,
)
from support.weight_problems import BASES, dense, weights

import fastsvgp as fs


@pytest.mark.parametrize("scheme", ["with", "without", "stratified"])
@pytest.mark.parametrize("k", [0, 1, 2])
@pytest.mark.parametrize("name", BASES)
def test_gaussian_value_and_gradients_are_unbiased(rng, name, k, scheme):
    model, X, Y = problem(rng, name, k, fs.Gaussian(variance=0.2))
    samples, wrt = pairs(scheme), fields(model)
    found = [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=20, wrt=wrt)
        for sample in samples
    ]
    assert_unbiased(found, model, X, Y, wrt)
    phi, C = model.basis.features(X), dense(model.posterior)
    np.testing.assert_allclose(
        np.mean([info.mean for *_, info in found], axis=0), phi @ model.posterior.mean, atol=1e-10
    )
    np.testing.assert_allclose(
        np.mean([info.var for *_, info in found], axis=0), ((phi @ C) ** 2).sum(1), atol=1e-10
    )
    for v, _, info in found:
        np.testing.assert_allclose(-0.5 * sum(info.terms), v, rtol=1e-12)
    mu, S, c = (
        model.posterior.mean,
        model.basis.precision_times(np.eye(len(C)), JITTER),
        20 / len(X) / 0.2,
    )
    of_mean = c * np.sum((phi @ mu) ** 2 - 2 * Y * (phi @ mu)) + mu @ S @ mu
    of_rest = c * np.sum((phi @ C) ** 2) + np.sum(C * (S @ C)) - 2 * np.log(C.diagonal()).sum()
    log_S = 0.0 if model.basis.dense_precision else np.linalg.slogdet(S)[1]
    known = 20 * np.log(2 * np.pi * 0.2) + c * np.sum(Y**2) - len(C) - log_S
    np.testing.assert_allclose(
        np.mean([info.terms for *_, info in found], axis=0), (of_mean, of_rest, known), rtol=1e-9
    )


@each_of(LIKELIHOODS)
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_gradients_are_those_of_the_value(rng, name, k, likelihood):
    """One sample, all fields jointly and separately; a unit drawn twice, given weights."""
    model, X, Y = problem(rng, name, k, likelihood)
    sample = fs.qsgp.BasisSample(
        np.array([2, 0, 2]), np.array([1, 2]), None, np.array([0.7, 1.4, 0.9]), 1.3
    )
    wrt, tangent = (
        fields(model),
        (None if isinstance(likelihood, fs.Gaussian) else rng.uniform(0.5, 1.5, len(Y))),
    )
    grad = fs.qsgp.sampled_bound_and_grad(
        model, X, Y, sample, num_data=20, wrt=wrt, tangent=tangent
    )[1]
    assert_gradient_at(sample, model, X, Y, grad, rng, tangent=tangent)
    whole = {
        path: bar for path, _, bar in fs.records.leaves(as_dense(grad, model)) if bar is not None
    }
    for path, bar in whole.items():
        some = fs.qsgp.sampled_bound_and_grad(
            model, X, Y, sample, num_data=20, wrt=path, tangent=tangent
        )[1]
        held = {p: a for p, _, a in fs.records.leaves(as_dense(some, model)) if a is not None}
        assert set(held) == {path}
        np.testing.assert_allclose(held[path], bar)


@each_of(LIKELIHOODS[1:])  # without the Gaussian, whose bound is unbiased
@pytest.mark.parametrize("scheme", ["with", "stratified"])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", BASES)
def test_other_likelihoods_are_bounded_from_below(rng, name, k, scheme, likelihood):
    model, X, Y = problem(rng, name, k, likelihood)
    exact = fs.qsgp.bound(model, X, Y, num_data=20) - log_det(model)
    phi, C = model.basis.features(X), dense(model.posterior)
    sd = np.sqrt(((phi @ C) ** 2).sum(1))
    for tangent in (None, sd, 0.3, 3 * sd):
        values = [
            fs.qsgp.sampled_bound_and_grad(model, X, Y, s, num_data=20, wrt=(), tangent=tangent)[0]
            for s in pairs(scheme)
        ]
        assert np.mean(values) < exact
    everything = fs.qsgp.BasisSample(np.arange(UNITS), np.arange(UNITS))
    np.testing.assert_allclose(
        fs.qsgp.sampled_bound_and_grad(model, X, Y, everything, num_data=20, wrt=(), tangent=sd)[0],
        exact,
        rtol=1e-9,
    )
    assert (
        fs.qsgp.sampled_bound_and_grad(
            model, X, Y, everything, num_data=20, wrt=(), tangent=2 * sd
        )[0]
        < exact
    )
    if k == 0 and not model.basis.dense_precision:
        alone = [fs.qsgp.BasisSample(i, weight_i=w) for i, w in every_sample(scheme)]
        assert (
            np.mean(
                [
                    fs.qsgp.sampled_bound_and_grad(model, X, Y, s, num_data=20, wrt=(), tangent=sd)[
                        0
                    ]
                    for s in alone
                ]
            )
            < exact
        )


@pytest.mark.parametrize("name", BASES)
def test_everything_is_the_exact_bound(rng, name):
    model, X, Y = problem(rng, name, 2, fs.Gaussian(variance=0.2))
    everything = fs.qsgp.BasisSample(np.arange(UNITS), np.arange(UNITS))
    value, _, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, everything, wrt=())
    np.testing.assert_allclose(value, fs.qsgp.bound(model, X, Y) - log_det(model), rtol=1e-10)


@pytest.mark.parametrize("control", [False, True])
@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("jitter", [0.0, 1e-2, 0.5])
def test_one_jitter_for_the_sampled_bound_and_the_whole_one(rng, jitter, k, control):
    """S = K_zz + jitter I: on average over samples, exactly at all functions, in gradients."""
    model, X, Y = problem(rng, "inducing", k, fs.Gaussian(variance=0.2))
    wrt, control = fields(model), fs.qsgp.kriging_control_variate(model, X[:4]) if control else None
    options = {"num_data": 20, "jitter": jitter, "control": control}
    for scheme in ("with", "stratified"):
        found = [
            fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt, **options)
            for sample in pairs(scheme)
        ]
        assert_unbiased(found, model, X, Y, wrt, jitter)
    everything = fs.qsgp.BasisSample(np.arange(UNITS), np.arange(UNITS))
    assert_unbiased(
        [fs.qsgp.sampled_bound_and_grad(model, X, Y, everything, wrt=wrt, **options)],
        model,
        X,
        Y,
        wrt,
        jitter,
    )
    if control is None:
        sample = fs.qsgp.BasisSample(
            np.array([2, 0, 2]), np.array([1, 2]), None, np.array([0.7, 1.4, 0.9]), 1.3
        )
        grad = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt, **options)[1]
        assert_gradient_at(sample, model, X, Y, grad, rng, jitter=jitter)


def test_sampled_steps_end_at_the_optimum_of_the_same_jitter(rng):
    """Only with this jitter is the gradient in the mean and the diagonal zero."""
    model, X, Y = problem(rng, "inducing", 0, fs.Gaussian(variance=0.2))
    best, _ = fs.qsgp.optimal_weights(model, X, Y, tolerance=1e-14, jitter=0.5)
    everything = fs.qsgp.BasisSample(np.arange(UNITS), np.arange(UNITS))
    for jitter, least, most in ((0.5, 0.0, 1e-8), (None, 1e-3, np.inf)):
        grad = fs.qsgp.sampled_bound_and_grad(
            best, X, Y, everything, wrt="posterior", jitter=jitter
        )[1].posterior
        for bar in (grad.mean.values, grad.diagonal.values):
            assert least <= np.abs(bar).max() <= most


def test_a_jitter_of_none_is_the_default(rng):
    model, X, Y = problem(rng, "inducing", 0, fs.Gaussian(variance=0.2))
    sample = fs.qsgp.BasisSample(FIRST, SECOND)
    values = [
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt=(), jitter=jitter)[0]
        for jitter in (None, JITTER, 2 * JITTER)
    ]
    assert values[0] == values[1] != values[2]


def test_a_value_needs_no_backward_pass(rng, monkeypatch):
    model, X, Y = problem(rng, "fourier", 1, fs.Gaussian(variance=0.2))
    sample = fs.qsgp.BasisSample(FIRST, SECOND)
    value, whole, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample)

    def refused(*_):
        raise AssertionError("not requested")

    monkeypatch.setattr(fs.qsgp.RandomFourier, "products_vjp", refused)
    for wrt in ((), "likelihood"):
        found, grad, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt=wrt)
        assert found == value and grad.posterior is grad.basis is None
    assert grad.likelihood.variance == whole.likelihood.variance
    with pytest.raises(AssertionError, match="not requested"):
        fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, wrt="posterior")


def test_ten_thousand_functions_within_5_sigma(rng):
    m, k = 10_000, 3
    model = fs.QSGP(
        fs.qsgp.RandomFourier(fs.RBF(1.0, 0.7), num_features=m, seed=1),
        weights(rng, m, k),
        fs.Gaussian(variance=0.5),
    )
    model = fs.records.replace_at(model, "posterior.mean", 0.01 * model.posterior.mean)
    model = fs.records.replace_at(
        model, "posterior.columns", np.tril(0.01 * model.posterior.columns) + np.eye(m, k)
    )
    X, Y = rng.standard_normal((20, 2)), rng.standard_normal(20)
    for scheme in ("with", "stratified", "without"):
        values = []
        for _ in range(60):
            sample = fs.qsgp.draw_basis_sample(model.basis, 200, rng=rng, scheme=scheme)
            values.append(
                fs.qsgp.sampled_bound_and_grad(model, X, Y, sample, num_data=100, wrt=())[0]
            )
        exact = fs.qsgp.bound(model, X, Y, num_data=100)
        assert abs(np.mean(values) - exact) < 5 * np.std(values) / np.sqrt(60)


def test_entries_that_are_not_sampled_are_not_read(rng):
    model, X, Y = problem(rng, "relevance", 1, fs.Gaussian(variance=0.2))
    unseen = np.array([False, False, True])
    for path in ("posterior.mean", "posterior.columns", "basis.precision", "basis.inducing"):
        array = dict((p, a) for p, _, a in fs.records.leaves(model))[path].copy()
        array[unseen] = np.nan
        model = fs.records.replace_at(model, path, array)
    model = fs.records.replace_at(model, "posterior.diagonal", np.array([0.5, np.nan]))
    value, grad, info = fs.qsgp.sampled_bound_and_grad(
        model, X, Y, fs.qsgp.BasisSample(np.array([0, 1]), np.array([1, 0]))
    )
    assert np.isfinite(value) and np.isfinite(info.mean).all()
    assert (
        list(grad.posterior.mean.rows) == [0, 1] and np.isfinite(grad.posterior.mean.values).all()
    )
    with pytest.raises(ValueError, match=r"`posterior.mean` contains nan at index 2"):
        fs.qsgp.sampled_bound_and_grad(
            model, X, Y, fs.qsgp.BasisSample(np.array([2, 1]), np.array([1, 0]))
        )


@pytest.mark.parametrize("k", [0, 2])
@pytest.mark.parametrize("name", ["fourier", "relevance"])
def test_float32(rng, name, k):
    model, X, Y = problem(rng, name, k, fs.likelihoods.BernoulliLogit())
    single = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], model)
    sample = fs.qsgp.BasisSample(np.array([2, 0]), np.array([1, 2]))
    value, grad, _ = fs.qsgp.sampled_bound_and_grad(model, X, Y, sample)
    found, other, info = fs.qsgp.sampled_bound_and_grad(
        single, X.astype(np.float32), Y.astype(np.float32), sample
    )
    np.testing.assert_allclose(found, value, rtol=1e-4)
    assert info.var.dtype == np.float32
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(as_dense(other, model)),
        fs.records.leaves(as_dense(grad, model)),
        strict=True,
    ):
        assert a is None or np.asarray(a).dtype == np.float32, path
        if a is not None:
            np.testing.assert_allclose(
                a, b, atol=1e-3 * max(1, np.abs(b).max(initial=0)), err_msg=path
            )
