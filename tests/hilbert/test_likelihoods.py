"""Any likelihood above a fixed basis: bounds and natural steps against a dense SVGP of features."""

import numpy as np
import pytest
from support.fixed_basis import density, features, frequencies

import fastsvgp as fs
from fastsvgp.bounds import BasisSVGP, HilbertBasis
from fastsvgp.covariances import Additive
from fastsvgp.records import leaves, replace_at

LIKELIHOODS = {
    "poisson": (fs.Poisson(), lambda rng, f: rng.poisson(np.exp(f)).astype(float)),
    "bernoulli": (fs.BernoulliLogit(), lambda rng, f: (rng.random(f.shape) < 0.5).astype(float)),
    "gaussian": (fs.Gaussian(0.1), lambda rng, f: f + 0.3 * rng.standard_normal(f.shape)),
}


def problem(rng, name, n=120, P=()):
    X = rng.uniform(-1, 1, (n, 2))
    f = (np.sin(4 * X[:, 0]) + X[:, 1])[(...,) + (None,) * len(P)] * np.ones(P)
    likelihood, draw = LIKELIHOODS[name]
    basis = HilbertBasis([-1.0, -1.0], [1.0, 1.0], np.array([6, 5]), 1.5)
    m = basis.size
    L = np.tril(0.2 * rng.standard_normal((*P, m, m))) / np.sqrt(m) + 0.7 * np.eye(m)
    q = fs.Whitened(0.3 * rng.standard_normal((*P, m)), L)
    covariance = fs.RBF(1.0, np.array([0.5, 0.7]))
    return BasisSVGP(covariance, basis, q, likelihood), X, draw(rng, f)


def dense_elbo(model, X, Y):
    """The bound of one output from dense features, moments and 20 nodes; closed for Poisson."""
    k, q = model.covariance, model.posterior
    omega = frequencies(model.basis, (0, 1))
    F = features(X, model.basis) * np.sqrt(density("RBF", k.variance, k.lengthscales, omega))
    mean, var = F @ q.mean, np.square(F @ q.scale_tril).sum(1)
    nodes, weights = np.polynomial.hermite_e.hermegauss(20)
    f = mean[:, None] + np.sqrt(var)[:, None] * nodes
    weights = weights / weights.sum()
    if isinstance(model.likelihood, fs.Poisson):
        logs = [np.sum(np.log(np.arange(1, y + 1))) for y in Y]
        data = np.sum(Y * mean - np.exp(mean + var / 2)) - np.sum(logs)
    else:
        data = np.sum((Y[:, None] * f - np.logaddexp(0, f)) @ weights)
    L = q.scale_tril
    kl = 0.5 * (np.square(L).sum() + q.mean @ q.mean - len(L)) - np.log(np.diagonal(L)).sum()
    return data - kl


@pytest.mark.parametrize("name", ["poisson", "bernoulli"])
def test_bound_and_fixed_point_of_natural_steps(rng, name):
    model, X, Y = problem(rng, name)
    truth = dense_elbo(model, X, Y)
    assert abs(fs.elbo(model, X, Y) - truth) < 1e-10 * abs(truth)
    for _ in range(30):
        model, info = fs.natural_step(model, X, Y, step_size=0.9)
    # at the optimum q(v) has the precision I + D Gamma_w D of the sites, and the mean their sum
    grad = fs.elbo_and_grad(model, X, Y, wrt=("posterior",))[1].posterior
    assert abs(grad.mean).max() < 1e-7
    assert abs(fs.elbo(model, X, Y) - dense_elbo(model, X, Y)) < 1e-10 * abs(truth)
    assert info.value > truth


@pytest.mark.parametrize("name", LIKELIHOODS)
@pytest.mark.parametrize("P", [(), (2,)])
def test_gradient(rng, name, P):
    model, X, Y = problem(rng, name, 40, P)
    model = fs.replace(model, mean=fs.means.ConstantMean(0.3 if not P else np.full(P, 0.3)))
    value, grad = fs.elbo_and_grad(model, X, Y)
    found = {path: g for path, _, g in leaves(grad)}
    assert np.isclose(value, fs.elbo(model, X, Y))
    for path, _, now in leaves(model):
        now = np.asarray(now)
        direction = rng.standard_normal(now.shape)
        if path.endswith("scale_tril"):
            direction = np.tril(direction)
        h = 1e-5
        up, down = (
            fs.elbo(replace_at(model, path, (now + s * direction)[()]), X, Y) for s in (h, -h)
        )
        slope = float(np.sum(np.asarray(found[path]) * direction))
        assert abs(slope - (up - down) / (2 * h)) < 2e-5 * (1 + abs(slope)), path


def test_several_groups_agree_with_the_dense_covariance(rng):
    X = rng.uniform(-1, 1, (50, 2))
    y = rng.poisson(1.5, 50).astype(float)
    covariance = Additive([0.8], np.array([0.5, 0.9]))
    basis = HilbertBasis(-np.ones(2), np.ones(2), 12, 2.5, groups=((0,), (1,)))
    q = fs.Whitened(np.zeros(24), np.eye(24))
    model = BasisSVGP(covariance, basis, q, fs.Poisson())
    np.testing.assert_allclose(fs.predict_f(model, X)[1], 1.6, rtol=5e-3)  # the prior
    cov = fs.predict_f(model, X, full_cov=True)[1]
    np.testing.assert_allclose(cov, covariance.matrix(X), atol=1e-2)
    for _ in range(20):
        model, info = fs.natural_step(model, X, y, step_size=0.9)
    assert abs(fs.elbo_and_grad(model, X, y)[1].posterior.mean).max() < 1e-6
    # gradient at the optimum against differences
    value, grad = fs.elbo_and_grad(model, X, y, wrt=("covariance",))
    h = 1e-4
    for path, g in (("covariance.variances", grad.covariance.variances[0]),):
        now = model.covariance.variances
        up, down = (fs.elbo(replace_at(model, path, now + s), X, y) for s in (h, -h))
        assert abs(g - (up - down) / (2 * h)) < 1e-6 * (1 + abs(g))


def test_one_natural_step_reaches_the_collapsed_optimum(rng):
    model, X, Y = problem(rng, "gaussian")
    best, _ = fs.natural_step(model, X, Y, step_size=1.0)
    gp = fs.BasisGP(model.covariance, model.basis, model.likelihood.variance)
    optimum = fs.optimal_svgp(gp, X, Y)
    np.testing.assert_allclose(best.posterior.mean, optimum.posterior.mean, atol=1e-8)
    assert abs(fs.elbo(best, X, Y) - fs.collapsed_bound(gp, X, Y)) < 1e-7


def test_training(rng, tmp_path):
    model, X, Y = problem(rng, "poisson")
    trained, info = fs.fit(model, X, Y, collapsed=True, steps=8)
    assert info.values[-1] > info.values[0] > fs.elbo(model, X, Y)
    batches, more = fs.fit(model, X, Y, steps=5, batch_size=50, natural_step_size=0.3, rng=0)
    assert more.steps == 5 and np.isfinite(more.values).all()
    fs.save(tmp_path / "m.npz", trained)
    np.testing.assert_array_equal(
        fs.predict_y(fs.load(tmp_path / "m.npz"), X)[0], fs.predict_y(trained, X)[0]
    )


def test_ranks_and_weights(rng):
    model, X, Y = problem(rng, "poisson")
    w = rng.uniform(0.5, 2, len(X))
    whole, found = fs.elbo_and_grad(model, X, Y, weights=w), []
    fs.distributed.threads(2).run(
        lambda group: found.append(fs.elbo_and_grad(model, X, Y, weights=w, group=group))
    )
    for value, grad in found:
        assert np.isclose(value, whole[0], rtol=1e-11)
        np.testing.assert_allclose(
            grad.covariance.lengthscales, whole[1].covariance.lengthscales, rtol=1e-7
        )


def test_float32(rng):
    model, X, Y = problem(rng, "poisson")
    narrow = fs.records.tree_map(lambda v: np.asarray(v, np.float32)[()], model)
    mean, var = fs.predict_f(narrow, X.astype(np.float32))
    assert mean.dtype == var.dtype == np.float32
    np.testing.assert_allclose(mean, fs.predict_f(model, X)[0], atol=1e-5)
    value, grad = fs.elbo_and_grad(narrow, X.astype(np.float32), Y)
    assert grad.posterior.mean.dtype == np.float64 or grad.posterior.mean.dtype == np.float32
    assert np.isclose(value, fs.elbo(model, X, Y), rtol=1e-5)


def test_bad_input(rng):
    model, X, Y = problem(rng, "poisson")
    with pytest.raises(ValueError, match="`X`: 1 rows are outside of the box"):
        fs.elbo(model, np.where(np.arange(120)[:, None] == 3, 9.0, X), Y)
    q = fs.Marginal(model.posterior.mean, model.posterior.scale_tril)
    with pytest.raises(TypeError, match="takes a HilbertBasis and a Whitened.*got a Marginal"):
        fs.elbo(fs.replace(model, posterior=q), X, Y)
    with pytest.raises(TypeError, match="takes a HilbertBasis and a Whitened.*got a int"):
        fs.elbo(fs.replace(model, basis=3), X, Y)
    with pytest.raises(ValueError, match="a term of columns .0,., and the basis no such group"):
        fs.elbo(fs.replace(model, covariance=fs.RBF().on(0)), X, Y)
    with pytest.raises(TypeError, match="no gradient in X"):
        fs.elbo_and_grad(model, X, Y, inputs=True)
    with pytest.raises(ValueError, match="has 3 columns|columns"):
        fs.predict_f(model, np.ones((3, 3)))
