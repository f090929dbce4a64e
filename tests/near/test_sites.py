"""A VIF with sites: no sites are the SVGP, all rows near the VGP; gradients; training."""

import numpy as np
import pytest

import fastsvgp as fs

N, M = 40, 5


@pytest.fixture
def problem():
    rng = np.random.default_rng(3)
    X = rng.uniform(-2, 2, (N, 2))
    Y = rng.poisson(np.exp(np.sin(3 * X[:, 0]))).astype(float)
    tril = np.tril(0.2 * rng.standard_normal((M, M))) + np.eye(M)
    q = fs.Whitened(0.3 * rng.standard_normal(M), tril)
    covariance = fs.Matern32(1.3, np.array([0.9, 1.2]))
    mean = fs.means.ConstantMean(0.2)
    return fs.SVGP(covariance, X[:M] + 0.01, q, fs.Poisson(), mean), X, Y


def vif(svgp, X, Y, k):
    near = fs.neighbours(X, svgp.covariance, k, Y=Y)
    return fs.VIF(svgp.covariance, svgp.inducing, svgp.posterior, svgp.likelihood, svgp.mean, near)


def test_without_sites_the_bound_is_that_of_the_svgp(problem):
    svgp, X, Y = problem
    model = vif(svgp, X, Y, 4)
    value, grad = fs.elbo_and_grad(model, X, Y)
    plain, its_grad = fs.elbo_and_grad(svgp, X, Y)
    assert value == pytest.approx(plain, rel=1e-10)
    np.testing.assert_allclose(grad.inducing, its_grad.inducing, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(grad.mean.value, its_grad.mean.value, rtol=1e-8)
    near = fs.replace(model.near, lambda1=np.zeros(N), lambda2=np.zeros(N))
    one, two = (fs.predict_f(m, X) for m in (fs.replace(model, near=near), svgp))
    np.testing.assert_allclose(one, two, rtol=1e-8)


@pytest.mark.parametrize("likelihood", [fs.Poisson(), fs.BernoulliProbit()])
def test_all_rows_near_and_e_steps_give_the_vgp(problem, likelihood):
    svgp, X, Y = problem
    Y = np.minimum(Y, 1) if isinstance(likelihood, fs.BernoulliProbit) else Y
    svgp = fs.replace(svgp, likelihood=likelihood, mean=None)
    model = vif(svgp, X, Y, N - 1)
    sites = fs.sites.Sites(np.zeros(N), np.ones(N))
    exact = fs.sites.VGP(svgp.covariance, sites, likelihood)
    for _ in range(60):
        model, _ = fs.natural_step(model, X, Y, step_size=0.4)
        exact, _ = fs.natural_step(exact, X, Y, step_size=0.4)
    lambda2 = exact.sites.lambda2
    np.testing.assert_allclose(model.near.lambda2, lambda2, rtol=1e-2, atol=1e-3)
    assert fs.elbo(model, X, Y) == pytest.approx(fs.sites.bound(exact, X, Y), abs=1e-2)


def test_gradient_with_sites_held_fixed(problem):
    svgp, X, Y = problem
    svgp = fs.replace(svgp, likelihood=fs.StudentT(0.6))
    model, _ = fs.natural_step(vif(svgp, X, Y, 4), X, Y, step_size=0.5)
    assert (model.near.lambda2 > 0).sum() > 10
    rng = np.random.default_rng(3)
    rows = rng.permutation(N)[:25]
    options = {"weights": rng.uniform(0.5, 2, 25), "rows": rows, "num_data": N}
    _, grad = fs.elbo_and_grad(model, X[rows], Y[rows], **options)
    fs.testing.assert_gradient(lambda m: fs.elbo(m, X[rows], Y[rows], **options), model, grad)


def test_rows_without_a_precision_are_counted(problem, caplog):
    svgp, X, Y = problem
    svgp = fs.replace(svgp, likelihood=fs.StudentT(0.1))
    model, info = fs.natural_step(vif(svgp, X, Y, 4), X, Y, step_size=1.0)
    assert 0 < info.negative == (model.near.lambda2 <= 0).sum() < N
    with caplog.at_level("WARNING", logger="fastsvgp"):
        fs.fit(model, X, Y, steps=3, natural_step_size=0.5, rng=0)
    said = [one for one in caplog.messages if "no neighbours" in one]
    assert len(said) == 1 and "rows" in said[0]


def test_fit_moves_the_sites(problem, tmp_path):
    svgp, X, Y = problem
    model = fs.VIF(svgp.covariance, svgp.inducing, svgp.posterior, svgp.likelihood, neighbours=4)
    options = {"batch_size": 10, "natural_step_size": 0.2, "optimiser": fs.adam(0.02), "rng": 0}
    with pytest.raises(ValueError, match="natural_step_size"):
        fs.fit(model, X, Y, steps=2)
    trained, _ = fs.fit(model, X, Y, steps=40, **options)
    assert (trained.near.lambda2 > 0).all()
    assert fs.elbo(trained, X, Y) > fs.elbo(svgp, X, Y)
    on_ranks = fs.distributed.threads(2, rows="all").run(
        lambda group: fs.fit(model, X, Y, steps=40, group=group, **options)[0]
    )
    for one in on_ranks:
        np.testing.assert_allclose(one.posterior.mean, trained.posterior.mean, atol=1e-6)
        np.testing.assert_allclose(one.near.lambda2, trained.near.lambda2, atol=1e-6)
    fs.fit(model, X, Y, steps=20, checkpoint=tmp_path / "half.npz", **options)
    again, _ = fs.fit(model, X, Y, steps=40, resume=tmp_path / "half.npz", **options)
    np.testing.assert_array_equal(again.near.lambda1, trained.near.lambda1)
    fs.save(tmp_path / "model.npz", trained)
    np.testing.assert_array_equal(
        fs.predict_y(fs.load(tmp_path / "model.npz"), X), fs.predict_y(trained, X)
    )
