"""L-SVGP: the bounds that it equals and those that are above it, and its errors."""

import numpy as np
import pytest
from oracles import gp, inverse_free
from support import definitions
from support.derivatives import assert_gradient
from support.posterior_problems import LIKELIHOODS

import fastsvgp as fs

each_form = pytest.mark.parametrize(
    "preconditioned", [True, False], ids=["preconditioned", "plain"]
)


def posterior_of(mean, variance, preconditioned):
    return fs.posteriors.LikelihoodForm(mean=mean, variance=variance, preconditioned=preconditioned)


def model_of(rng, M=7, D=2, P=None, likelihood=None, preconditioned=True, dtype=float):
    posterior = posterior_of(
        rng.standard_normal((M,) if P is None else (P, M)).astype(dtype),
        rng.uniform(0.1, 0.6, M).astype(dtype),
        preconditioned,
    )
    return fs.SVGP(
        covariance=fs.RBF(variance=dtype(1.3), lengthscales=rng.uniform(0.8, 1.4, D).astype(dtype)),
        inducing=rng.uniform(-2, 2, (M, D)).astype(dtype),
        posterior=posterior,
        likelihood=likelihood or fs.Gaussian(variance=dtype(0.2)),
        mean=fs.means.ConstantMean(dtype(0.3)) if P is None else None,
    )


def same_q(model, jitter):
    """The Whitened and the Marginal model with the same q(u)."""
    M = len(model.inducing)
    Kuu = gp.rbf(model.covariance.variance, model.covariance.lengthscales)(
        model.inducing, model.inducing
    ) + jitter * np.eye(M)
    q = model.posterior
    m, S = inverse_free.q_of_u(Kuu, np.atleast_2d(q.mean), q.variance, q.preconditioned)
    W = np.linalg.cholesky((S + S.T) / 2)
    if q.mean.ndim == 2:
        W = np.stack([W] * len(m))
    m = m.reshape(q.mean.shape)
    L = np.linalg.cholesky(Kuu)
    whitened = fs.Whitened(mean=np.linalg.solve(L, m.T).T, scale_tril=np.linalg.solve(L, W))
    return [fs.replace(model, posterior=p) for p in (whitened, fs.Marginal(mean=m, scale_tril=W))]


@each_form
@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_bound_is_that_of_whitened_with_the_same_q(rng, likelihood, P, draw, preconditioned):
    model = model_of(rng, P=P, likelihood=likelihood, preconditioned=preconditioned)
    X, jitter = rng.uniform(-2, 2, (11, 2)), 1e-6
    Y = draw(rng, 11)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=40.0, jitter=jitter)
    np.testing.assert_allclose(
        fs.elbo(model, X, Y, num_data=40.0, jitter=jitter), value, rtol=1e-13
    )
    for other in same_q(model, jitter):
        np.testing.assert_allclose(
            fs.elbo(other, X, Y, num_data=40.0, jitter=jitter), value, rtol=1e-8
        )
        for ours, theirs in zip(
            fs.predict_f(model, X, full_cov=True),
            fs.predict_f(other, X, full_cov=True),
            strict=True,
        ):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
        np.testing.assert_allclose(
            fs.predict_log_density(model, X, Y), fs.predict_log_density(other, X, Y), atol=1e-8
        )
    assert_gradient(lambda m: definitions.elbo(m, X, Y, 40 / 11, jitter), model, grad, rng)


def test_pseudo_targets_give_the_exact_posterior(rng):
    """Z = X, m~ = y, S~ = noise give the exact GP and evidence; other parameters stay below."""
    X, y = rng.uniform(-2, 2, (12, 1)), rng.standard_normal(12)
    K = gp.rbf(1.1, np.array([0.9]))(X, X) + 1e-9 * np.eye(12)
    noise = 0.3
    A = K + noise * np.eye(12)
    exact = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1] + 12 * np.log(2 * np.pi))

    def bound(m, s, preconditioned=True):
        q = posterior_of(m, s, preconditioned)
        return fs.elbo(
            fs.SVGP(fs.RBF(1.1, np.array([0.9])), X, q, fs.Gaussian(noise)), X, y, jitter=1e-9
        )

    np.testing.assert_allclose(bound(y, np.full(12, noise)), exact, atol=1e-6)
    for _ in range(20):
        s = np.exp(rng.standard_normal(12))
        assert bound(y + rng.standard_normal(12), s) < exact
        assert bound(rng.standard_normal(12), s, preconditioned=False) < exact


def test_equal_inducing_inputs_need_no_jitter(rng):
    model = model_of(rng, M=6)
    model = fs.replace(model, inducing=np.repeat(model.inducing[:2], 3, axis=0))
    X, y = rng.uniform(-2, 2, (5, 2)), rng.standard_normal(5)
    value, grad = fs.elbo_and_grad(model, X, y, jitter=0.0)
    assert np.isfinite(value) and np.isfinite(grad.inducing).all()


def test_invalid_parameters_are_refused(rng):
    model = model_of(rng)
    X, y = rng.uniform(-2, 2, (5, 2)), rng.standard_normal(5)
    for bad, message in (
        (0.0, "must be positive"),
        (-1.0, "must be positive"),
        (np.nan, "contains nan"),
    ):
        variance = model.posterior.variance.copy()
        variance[2] = bad
        with pytest.raises(ValueError, match=f"posterior.variance.*{message}"):
            fs.elbo(fs.records.replace_at(model, "posterior.variance", variance), X, y)
    with pytest.raises(TypeError, match="`preconditioned`"):
        fs.elbo(
            fs.replace(
                model, posterior=posterior_of(model.posterior.mean, model.posterior.variance, "no")
            ),
            X,
            y,
        )
