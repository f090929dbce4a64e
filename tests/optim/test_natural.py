"""Natural steps on real models; the algebra is tested with the posteriors."""

import numpy as np
import pytest
from gp_problems import lower_factor

import fastsvgp as fs

POSTERIORS = pytest.mark.parametrize("cls", [fs.Whitened, fs.Marginal], ids=lambda c: c.__name__)


def model(rng, cls, likelihood, M=6):
    q = cls(rng.standard_normal(M), lower_factor(rng, M))
    return fs.SVGP(fs.RBF(1.2, np.array([0.9, 1.1])), rng.standard_normal((M, 2)), q, likelihood, fs.ConstantMean(0.3))


def prior_factor(m):
    """Cholesky factor of the prior covariance in the coordinates of the posterior."""
    if isinstance(m.posterior, fs.Whitened):
        return np.eye(6)
    return np.linalg.cholesky(m.covariance.matrix(m.inducing) + 1e-6 * np.eye(6))


@POSTERIORS
def test_gaussian_step_of_size_one_is_the_optimum(rng, cls):
    X = rng.standard_normal((40, 2))
    Y = np.sin(X[:, 0]) + 0.1 * rng.standard_normal(40)
    start = model(rng, cls, fs.Gaussian(0.05))
    stepped, info = fs.natural_step(start, X, Y, step_size=1.0)
    sgpr = fs.SGPR(start.covariance, start.inducing, 0.05, start.mean)
    np.testing.assert_allclose(fs.elbo(stepped, X, Y), fs.collapsed_bound(sgpr, X, Y), rtol=1e-10)
    np.testing.assert_allclose(info.value, fs.elbo(start, X, Y), rtol=1e-12)
    assert info.step_size == 1.0 and not info.backed_off
    assert stepped.covariance.variance == start.covariance.variance
    again, _ = fs.natural_step(stepped, X, Y, step_size=1.0)
    np.testing.assert_allclose(again.posterior.scale_tril, stepped.posterior.scale_tril, rtol=1e-8, atol=1e-10)


@POSTERIORS
@pytest.mark.parametrize("likelihood", [fs.BernoulliLogit(), fs.Poisson()])
def test_repeated_steps_climb_to_a_stationary_point(rng, cls, likelihood):
    X = rng.standard_normal((60, 2))
    Y = (X[:, 0] > 0).astype(float)
    m = model(rng, cls, likelihood)
    m = fs.replace(m, posterior=cls(np.zeros(6), 0.1 * np.eye(6)))
    values = []
    for _ in range(150):  # each shrinks the way left to about 0.8 of it where the likelihood is least like a Gaussian
        m, info = fs.natural_step(m, X, Y, step_size=0.5)
        values.append(info.value)
    assert all(b > a - 1e-9 for a, b in zip(values[5:], values[6:], strict=False))
    _, grad = fs.elbo_and_grad(m, X, Y, wrt=("posterior",))
    L = prior_factor(m)  # gradients in coordinates where the prior has unit covariance
    assert np.abs(L.T @ grad.posterior.mean).max() < 1e-6 and np.abs(L.T @ grad.posterior.scale_tril).max() < 1e-6


@POSTERIORS
def test_a_step_out_of_the_cone_is_halved_and_says_so(rng, cls):
    # Student-t: far outliers make the curvature negative; a long step then leaves the positive definite precisions
    X = rng.standard_normal((200, 2))
    Y = np.where(np.arange(200) % 2, 6.0, -6.0)
    m = model(rng, cls, fs.StudentT(0.3, df=3.0))
    m = fs.replace(m, posterior=cls(np.zeros(6), 0.5 * prior_factor(m)))
    stepped, info = fs.natural_step(m, X, Y, step_size=1.0)
    assert info.backed_off and 0 < info.step_size < 1.0
    assert np.log2(info.step_size) == round(np.log2(info.step_size))
    assert np.isfinite(fs.elbo(stepped, X, Y))
    again, inside = fs.natural_step(m, X, Y, step_size=info.step_size)  # the longest of the halves that stays inside
    assert not inside.backed_off
    np.testing.assert_array_equal(again.posterior.scale_tril, stepped.posterior.scale_tril)
    assert fs.natural_step(m, X, Y, step_size=2 * info.step_size)[1].step_size == info.step_size


def test_minibatch_step_scales_the_data_term(rng):
    X = rng.standard_normal((20, 2))
    Y = X[:, 0]
    m = model(rng, fs.Whitened, fs.Gaussian(0.1))
    copies, _ = fs.natural_step(m, np.tile(X, (3, 1)), np.tile(Y, 3), step_size=0.4)
    scaled, _ = fs.natural_step(m, X, Y, step_size=0.4, num_data=60)
    np.testing.assert_allclose(scaled.posterior.mean, copies.posterior.mean, rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(scaled.posterior.scale_tril, copies.posterior.scale_tril, rtol=1e-9, atol=1e-10)


def test_a_bound_that_is_not_finite_is_named(rng):
    X = rng.standard_normal((10, 2))
    m = model(rng, fs.Whitened, fs.Poisson())
    m = fs.replace_at(m, "mean.value", 2000.0)  # exp(2000) overflows
    with pytest.raises(ValueError, match="the bound is -inf at this posterior"):
        fs.natural_step(m, X, np.ones(10))


def test_monotone_steps_never_lower_the_bound(rng):
    """Poisson with large rates from far away, where a step of 1 overshoots."""
    X, Z = rng.uniform(-2, 2, (60, 1)), np.linspace(-2, 2, 6)[:, None]
    Y = rng.poisson(np.exp(3 + 1.5 * np.sin(2 * X[:, 0]))) * 1.0
    model = fs.SVGP(fs.RBF(4.0, 0.7), Z, fs.at_prior(fs.Whitened, fs.RBF(4.0, 0.7), Z), fs.Poisson())
    bare, info = fs.natural_step(model, X, Y, step_size=1.0)
    assert info.step_size == 1.0
    before, sizes = fs.elbo(model, X, Y), []
    for _ in range(12):
        model, info = fs.natural_step(model, X, Y, step_size=1.0, monotone=True)
        sizes.append(info.step_size)
        assert info.value >= before - 1e-9 * abs(before)
        before = info.value
    assert min(sizes) < 1 == sizes[-1] and fs.elbo(model, X, Y) > before - 1e-9 * abs(before)
    with pytest.raises(TypeError, match="`monotone` must be"):
        fs.natural_step(model, X, Y, monotone=3)


def test_monotone_steps_of_outputs_and_of_random_quantities(rng):
    X, Y = rng.uniform(-2, 2, (30, 1)), rng.standard_normal((30, 2))
    pair = fs.InducingPair(X[:4].copy(), X[4:12].copy())
    covariance = fs.RBF(1.0, 0.7)
    for q, options in ((fs.Whitened, {}), (fs.DecoupledWeights, {"sampled": 3, "rng": 0})):
        inducing = pair if q is fs.DecoupledWeights else pair.Z
        start = fs.at_prior(q, covariance, inducing, outputs=2)
        model = fs.SVGP(covariance, inducing, start, fs.StudentT(0.3, df=4.0))
        stepped, info = fs.natural_step(model, X, Y, step_size=0.5, num_data=60, monotone=True, **options)
        assert fs.elbo(stepped, X, Y, num_data=60, **options) >= info.value
        bare, same = fs.natural_step(model, X, Y, step_size=info.step_size, num_data=60, **options)
        assert same.value == info.value
        for (_, _, one), (_, _, other) in zip(fs.leaves(stepped), fs.leaves(bare), strict=True):
            np.testing.assert_array_equal(one, other)
