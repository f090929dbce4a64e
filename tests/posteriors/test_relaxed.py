"""R-SVGP: estimates of its traces, and its relation to L-SVGP."""

import itertools
import sys

import numpy as np
import pytest
import scipy.linalg
from oracles import inverse_free
from support.derivatives import along, assert_restricted, extended
from support.posterior_problems import (
    JITTER,
    LIKELIHOODS,
    ROWS,
    in_model,
    near_inverse_factor,
    problem,
    through,
)

import fastsvgp as fs
from fastsvgp import kernels

each_form = pytest.mark.parametrize(
    "preconditioned", [True, False], ids=["preconditioned", "plain"]
)


def square(L):
    return np.tril(L) @ np.tril(L).T


# --- estimates ----------------------------------------------------------------------------------


def everything(posterior, blocks, f_bar, **Z):
    """The KL and all gradients in one vector."""
    back = through(posterior, blocks, f_bar, -1.0, **Z)
    parts = [bar.ravel() for _, _, bar in fs.records.leaves(back.posterior)]
    return np.concatenate([[back.kl], back.Kuu.ravel(), back.Kuf.ravel(), *parts])


@pytest.mark.parametrize("name", ["relaxed", "relaxed-plain"])
def test_estimates_are_unbiased_and_exact_with_orthogonal_probes(rng, name):
    posterior, blocks, _ = problem(rng, name, 4, 3, 2)
    f_bar = fs.records.Marginals(*rng.standard_normal((2, 2, 3)))
    exact = everything(posterior, blocks, f_bar)
    every = [
        everything(posterior, blocks, f_bar, probes=np.array(z)[:, None])
        for z in itertools.product([-1.0, 1.0], repeat=4)
    ]
    assert np.std(every, axis=0).max() > 1e-3
    np.testing.assert_allclose(np.mean(every, axis=0), exact, atol=1e-11)
    np.testing.assert_allclose(
        everything(posterior, blocks, f_bar, probes=scipy.linalg.hadamard(4) * 1.0),
        exact,
        atol=1e-11,
    )


def test_probes_are_drawn_from_the_rng(rng):
    model, X, y = model_of(rng)
    first = fs.elbo_and_grad(model, X, y, probes=3, rng=7)
    again = fs.elbo_and_grad(model, X, y, probes=3, rng=np.random.default_rng(7))
    assert first[0] == again[0] != fs.elbo(model, X, y, probes=3, rng=8)
    assert first[0] == fs.elbo(model, X, y, probes=3, rng=7)
    many = [fs.elbo(model, X, y, probes=1, rng=i) for i in range(400)]
    np.testing.assert_allclose(np.mean(many), fs.elbo(model, X, y), atol=5 * np.std(many) / 20)


# --- whole models -------------------------------------------------------------------------------


def model_of(rng, M=7, P=None, likelihood=None, preconditioned=True, error=0.1, jitter=1e-6):
    covariance = fs.RBF(variance=1.3, lengthscales=rng.uniform(0.8, 1.4, 2))
    Z, variance = rng.uniform(-2, 2, (M, 2)), rng.uniform(0.2, 0.6, M)
    L = near_inverse_factor(rng, covariance.matrix(Z) + np.diag(variance + jitter), error)
    mean = rng.standard_normal((M,) if P is None else (P, M))
    posterior = fs.posteriors.Relaxed(mean, variance, L, preconditioned=preconditioned)
    X = rng.uniform(-2, 2, (11, 2))
    y = rng.standard_normal((11,) if P is None else (11, P))
    return fs.SVGP(covariance, Z, posterior, likelihood or fs.Gaussian(variance=0.2)), X, y


def as_likelihood_form(model):
    q = model.posterior
    return fs.replace(
        model,
        posterior=fs.posteriors.LikelihoodForm(q.mean, q.variance, preconditioned=q.preconditioned),
    )


@each_form
@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_proposition_2(rng, likelihood, P, draw, preconditioned):
    """At T = K~^-1, held fixed, value and all gradients are those of L-SVGP."""
    model, X, _ = model_of(
        rng, P=P, likelihood=likelihood, preconditioned=preconditioned, error=0.0
    )
    Y = draw(rng, 11)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=40.0, jitter=1e-6)
    truth, truth_grad = fs.elbo_and_grad(
        as_likelihood_form(model), X, Y, num_data=40.0, jitter=1e-6
    )
    np.testing.assert_allclose(value, truth, rtol=1e-12)
    bars = {path: bar for path, _, bar in fs.records.leaves(grad)}
    for path, _, bar in fs.records.leaves(truth_grad):
        np.testing.assert_allclose(
            bars[path], bar, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(bar).max()), err_msg=path
        )
    if not preconditioned:  # T maximises the bound there; a preconditioned mean moves with T
        np.testing.assert_allclose(bars["posterior.inverse_tril"], 0, atol=1e-9)


def test_the_naive_preconditioner_fails_proposition_2(rng):
    """With w = T m~ the gradient in s misses the term -T dK~ T m~, by the dense definition."""
    posterior, blocks, _ = problem(rng, "relaxed", 5, 6, 1)
    Kuu, m, variance = blocks.Kuu + JITTER * np.eye(5), posterior.mean, posterior.variance
    T = np.linalg.inv(Kuu + np.diag(variance))
    a, b = rng.standard_normal((1, 6)), -rng.random(6)

    def bound(s, T=None, P=None, at=inverse_free.kl_bound):
        f, cov = inverse_free.marginals(Kuu, blocks.Kuf, blocks.Kff, m, s, T=T, P=P)
        kl = (
            at(Kuu, m, s, T, P=P)
            if T is not None
            else inverse_free.kl(*inverse_free.q_of_u(Kuu, m, s), Kuu)
        )
        return np.sum(a * f) + b @ cov.diagonal() - kl

    def gradient(*held):
        return np.array(
            [along(lambda s: bound(s, *held), extended(variance), d)[1] for d in np.eye(5)]
        )

    truth = gradient()
    assert np.linalg.norm(gradient(T) - truth) <= 1e-10 * np.linalg.norm(truth)
    assert np.linalg.norm(gradient(T, T) - truth) > 1e-2 * np.linalg.norm(truth)


@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS[:4], ids=lambda x: type(x).__name__)
def test_plain_bound_is_below_that_of_l_svgp(rng, likelihood, P, draw):
    model, X, _ = model_of(rng, P=P, likelihood=likelihood, preconditioned=False, error=0.0)
    Y = draw(rng, 11)
    above = fs.elbo(as_likelihood_form(model), X, Y)
    M = len(model.inducing)
    for error in (1e-3, 0.1, 0.5, 1.0, 2.0):
        for _ in range(4):
            shape = np.exp(0.3 * error * rng.standard_normal(M))
            noise = error / M * np.tril(rng.standard_normal((M, M)), -1)
            L = np.tril(model.posterior.inverse_tril) @ (np.diag(shape) + noise)
            below = fs.elbo(fs.records.replace_at(model, "posterior.inverse_tril", L), X, Y)
            assert below < above
    assert (
        fs.elbo(fs.records.replace_at(model, "posterior.inverse_tril", 1e-3 * np.eye(M)), X, Y)
        < above
    )


def test_relaxed_bound_is_below_the_log_marginal_likelihood(rng):
    for _ in range(20):
        model, X, y = model_of(rng, error=rng.uniform(0, 2))
        A = model.covariance.matrix(X) + 0.2 * np.eye(11)
        exact = -0.5 * (
            y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1] + 11 * np.log(2 * np.pi)
        )
        assert fs.elbo(model, X, y) < exact


def test_relaxed_variances_are_above_those_of_l_svgp(rng):
    """Eq. (3): variances are above those of L-SVGP."""
    model, X, _ = model_of(rng)
    assert (fs.predict_f(model, X)[1] > fs.predict_f(as_likelihood_form(model), X)[1]).all()


def test_relaxed_bound_uses_matrix_products_only(rng, monkeypatch):
    """No factorisation and no solve of the package, SciPy or NumPy is called."""
    model, X, y = model_of(rng, M=70)
    # compiled, and imported
    step = fs.elbo_and_grad(model, X, y, probes=4, rng=0)[0], fs.elbo_and_grad(model, X, y)[0]
    fs.predict_f(model, X)

    def refuse(*args, **kwargs):
        raise AssertionError("a decomposition or a solve")

    words = ("cholesky", "solve", "inverse", "whitening", "potr", "trsm", "trtri")
    refused = 0
    for module in (
        kernels,
        sys.modules["fastsvgp.kernels.cpu.common.blas"],
        sys.modules["fastsvgp.kernels.cpu.common.blocked"],
    ):
        for name in [name for name in dir(module) if any(word in name for word in words)]:
            monkeypatch.setattr(module, name, refuse)
            refused += 1
    assert refused > 10
    for module in (scipy.linalg, np.linalg):
        for name in dir(module):
            if callable(getattr(module, name)) and name.islower() and name not in ("norm", "test"):
                monkeypatch.setattr(module, name, refuse)
    again = fs.elbo_and_grad(model, X, y, probes=4, rng=0)[0], fs.elbo_and_grad(model, X, y)[0]
    fs.predict_f(model, X)
    fs.optim.newton_schulz_step(np.eye(3), np.eye(3), 1.0)
    assert again == step


# --- the direction of L-SVGP's rule with P for the inverse --------------------------------------


def flat(grad):
    parts = (
        grad.covariance.variance,
        grad.covariance.lengthscales,
        grad.inducing,
        grad.posterior.mean,
        grad.posterior.variance,
    )
    return np.concatenate([np.ravel(p) for p in parts])


@each_form
def test_the_direction_is_nearer_to_l_svgp_than_the_gradient(rng, preconditioned):
    """Errors against the gradient of L-SVGP: d for the exact gradient, d^2 for the direction."""
    model, X, y = model_of(rng, M=20, preconditioned=preconditioned, error=0.0)
    truth = flat(fs.elbo_and_grad(as_likelihood_form(model), X, y)[1])
    noise, start = (
        np.tril(rng.standard_normal((20, 20))) / 20,
        np.tril(model.posterior.inverse_tril),
    )
    errors = []
    for size in (1e-1, 1e-2, 1e-3):
        near = fs.records.replace_at(
            model, "posterior.inverse_tril", start @ (np.eye(20) + size * noise)
        )
        results = fs.elbo_and_grad(near, X, y), fs.bounds.lsvgp_direction(near, X, y)
        assert results[1][1].posterior.inverse_tril is None
        for value, _ in results:
            np.testing.assert_allclose(value, fs.elbo(near, X, y), rtol=1e-12)
        errors.append(
            [np.linalg.norm(flat(grad) - truth) / np.linalg.norm(truth) for _, grad in results]
        )
    exact, direction = np.array(errors).T
    assert (direction < exact).all()
    np.testing.assert_allclose(exact[1:] / exact[:-1], 0.1, rtol=0.3)
    np.testing.assert_allclose(direction[1:] / direction[:-1], 0.01, rtol=0.5)


def test_the_direction_by_definition(rng):
    """Recipe 4.5 of the spec with J := P."""
    posterior, blocks, _ = problem(rng, "relaxed", 6, 5, 2)
    mean, variance, f_bar = (
        posterior.mean,
        posterior.variance,
        fs.records.Marginals(rng.standard_normal((2, 5)), -rng.random((2, 5))),
    )
    back = through(posterior, blocks, f_bar, -1.0, direction="likelihood")
    Kuu = blocks.Kuu + JITTER * np.eye(6)
    J = inverse_free.preconditioner(Kuu, variance, square(posterior.inverse_tril))
    Psi, w, b = J @ blocks.Kuf, mean @ J, f_bar.var.sum(0)
    w_bar = f_bar.mean @ blocks.Kuf.T - w @ Kuu
    cross = (w_bar @ J).T @ w
    H = (Psi * b) @ Psi.T + 2 * (J @ np.diag(variance / 2) @ J - J / 2) - (cross + cross.T) / 2
    np.testing.assert_allclose(back.Kuu, H - w.T @ w / 2, atol=1e-11)
    np.testing.assert_allclose(back.Kuf, w.T @ f_bar.mean - 2 * Psi * b, atol=1e-11)
    np.testing.assert_allclose(
        back.posterior.variance, H.diagonal() - J.diagonal() + 1 / variance, atol=1e-11
    )
    np.testing.assert_allclose(back.posterior.mean, w_bar @ J, atol=1e-11)
    assert back.posterior.inverse_tril is None
    for field in ("mean", "variance"):
        only = through(
            posterior, blocks, f_bar, -1.0, need=(f"posterior.{field}",), direction="likelihood"
        )
        assert only.Kuu is None and only.Kuf is None
        assert [path for path, _, bar in fs.records.leaves(only.posterior) if bar is not None] == [
            field
        ]
        np.testing.assert_allclose(
            getattr(only.posterior, field), getattr(back.posterior, field), atol=1e-11
        )


@each_form
def test_far_from_the_inverse_the_direction_is_the_gradient(rng, preconditioned):
    """From d = 1 on."""
    model, X, y = model_of(rng, P=2, preconditioned=preconditioned)
    far = fs.records.replace_at(model, "posterior.inverse_tril", 2 * model.posterior.inverse_tril)
    (value, grad), (other, direction) = (
        call(far, X, y, num_data=40) for call in (fs.elbo_and_grad, fs.bounds.lsvgp_direction)
    )
    assert value == other
    for (path, _, a), (_, _, b) in zip(
        fs.records.leaves(direction), fs.records.leaves(grad), strict=True
    ):
        np.testing.assert_array_equal(a, b, err_msg=path)


def test_direction_in_requested_fields(rng):
    model, X, y = model_of(rng)
    model = fs.replace(model, mean=fs.means.ConstantMean(0.2))
    value, whole = fs.bounds.lsvgp_direction(model, X, y, num_data=40, jitter=1e-3)
    assert value == pytest.approx(fs.elbo(model, X, y, num_data=40, jitter=1e-3), rel=1e-12)
    assert whole.posterior.inverse_tril is None
    for wrt in (
        ("covariance.variance",),
        ("posterior",),
        ("inducing", "posterior.mean"),
        ("mean", "likelihood"),
        "posterior.inverse_tril",
        (),
    ):
        again, some = fs.bounds.lsvgp_direction(model, X, y, num_data=40, jitter=1e-3, wrt=wrt)
        assert again == pytest.approx(value, rel=1e-12)
        assert_restricted(some, whole, wrt, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", [name for name in ROWS if not name.startswith("relaxed")])
def test_other_posteriors_have_no_such_direction(rng, name):
    model, X, y = model_of(rng)
    model, _ = in_model(rng, name, model)
    kind = type(model.posterior).__name__
    message = (
        f"lsvgp_direction: a {kind} posterior has no such direction; its gradient is"
        " elbo_and_grad's"
    )
    with pytest.raises(TypeError, match=message):
        fs.bounds.lsvgp_direction(model, X, y)


def test_direction_refuses_unsupported_arguments(rng):
    model, X, y = model_of(rng)
    with pytest.raises(
        TypeError, match="lsvgp_direction has no option `probes` for SVGP; it takes"
    ):
        fs.bounds.lsvgp_direction(model, X, y, probes=3)
    with pytest.raises(TypeError, match="Relaxed has no field `direction`"):
        fs.posteriors.Relaxed(
            model.posterior.mean,
            model.posterior.variance,
            model.posterior.inverse_tril,
            direction="likelihood",
        )
    with pytest.raises(
        TypeError, match="elbo_and_grad has no option `direction` for SVGP; it takes"
    ):
        fs.elbo_and_grad(model, X, y, direction="likelihood")


# --- bad input ----------------------------------------------------------------------------------


def test_invalid_parameters_are_refused(rng):
    model, X, y = model_of(rng)
    q = model.posterior

    def fails(error, message, path=None, value=None, **options):
        with pytest.raises(error, match=message):
            fs.elbo(
                model if path is None else fs.records.replace_at(model, path, value),
                X,
                y,
                **options,
            )

    for diagonal, message in (
        (0.0, "must be positive"),
        (-1.0, "must be positive"),
        (np.nan, "nan"),
        (np.inf, "inf"),
    ):
        L = np.tril(q.inverse_tril)
        L[3, 3] = diagonal
        fails(
            ValueError,
            f"diagonal of posterior.inverse_tril.*{message}",
            "posterior.inverse_tril",
            L,
        )
    L = np.tril(q.inverse_tril)
    L[3, 1] = np.nan
    fails(ValueError, "posterior.inverse_tril.*nan", "posterior.inverse_tril", L)
    fails(ValueError, "`posterior` has inverse_tril", "posterior.inverse_tril", np.eye(6))
    fails(ValueError, "posterior.variance.*must be positive", "posterior.variance", np.zeros(7))
    fails(ValueError, "`posterior` has mean", "posterior.variance", np.ones((7, 7)))
    for probes in (np.ones(7), np.ones((6, 2)), np.ones((7, 0))):
        fails(
            ValueError,
            r"`probes` must have one row for each of the 7 inducing inputs.*\(7, K\)",
            probes=probes,
        )
    for probes in (np.zeros((7, 2)), np.full((7, 2), np.nan), rng.standard_normal((7, 2))):
        fails(ValueError, "`probes` must hold .* only", probes=probes)
    for probes in (0, -1, 2.5):
        fails(ValueError, "`probes` must be a whole number of at least 1", probes=probes)
    fails(TypeError, "`probes` must be a whole number of at least 1, got True", probes=True)
    fails(
        TypeError,
        "`probes` is no random quantity of a LikelihoodForm posterior, which has none: leave it"
        " out",
        "posterior",
        as_likelihood_form(model).posterior,
        probes=3,
    )
    fails(TypeError, "elbo has no option `noise` for SVGP; it takes .*`probes`", noise=3)
