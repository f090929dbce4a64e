"""R-SVGP: its bound by definition, exact reverse rules, estimates of its traces, and how it stands to L-SVGP."""

import itertools
import sys

import definitions
import numpy as np
import pytest
import scipy.linalg
from budgets import assert_within_budget, by_name
from derivatives import along, assert_gradient, extended
from oracles import inverse_free
from reverse_rule import assert_reverse_rule

import fastsvgp as fs
from fastsvgp import kernels

SHAPES = [
    (1, 1, None),
    (5, 3, None),
    (3, 40, None),
    (4, 7, 2),
    (2, 3, 1),
    (5, 0, None),
    (17, 5, 3),
    (70, 66, None),
]
JITTER = 1e-3

each_shape = pytest.mark.parametrize("M, N, P", SHAPES)
each_form = pytest.mark.parametrize("preconditioned", [True, False], ids=["preconditioned", "plain"])
each_estimate = pytest.mark.parametrize("K", [None, 1, 6])


def factor(Kt, rng, error=0.15):
    """Near chol(K~^-1), with NaN above the diagonal."""
    M = len(Kt)
    noise = np.tril(rng.standard_normal((M, M)), -1) + np.diag(rng.uniform(-1, 1, M))
    L = np.linalg.cholesky(np.linalg.inv(Kt)) @ (np.eye(M) + error / M * noise)
    return L + np.triu(np.full((M, M), np.nan), 1)


def problem(rng, M, N, P, error=0.15):
    """Blocks of a positive definite joint covariance, and a posterior's parameters."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    Kff = K[M:, M:]
    blocks = fs.Blocks(K[:M, :M].copy(), K[:M, M:].copy(), Kff.diagonal().copy(), Kff.copy())
    mean, variance = rng.standard_normal((M,) if P is None else (P, M)), rng.uniform(0.2, 1.5, M)
    return blocks, mean, variance, factor(blocks.Kuu + np.diag(variance + JITTER), rng, error)


def signs(rng, M, K):
    return {} if K is None else {"probes": rng.choice([-1.0, 1.0], (M, K))}


def square(L):
    return np.tril(L) @ np.tril(L).T


@each_form
@each_shape
@each_estimate
def test_marginals_and_kl_by_definition(rng, preconditioned, M, N, P, K):
    blocks, mean, variance, L = problem(rng, M, N, P)
    Kuu, T, Z = blocks.Kuu + JITTER * np.eye(M), square(L), signs(rng, M, K)
    m = np.atleast_2d(mean)
    truth_mean, truth_cov = inverse_free.marginals(Kuu, blocks.Kuf, blocks.Kff, m, variance, preconditioned, T)
    truth_mean = truth_mean.reshape(*mean.shape[:-1], N)
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)
    f, kl, (work, _) = posterior.forward(blocks, JITTER, **Z)
    np.testing.assert_allclose(f.mean, truth_mean, atol=1e-11)
    np.testing.assert_allclose(f.var, np.broadcast_to(truth_cov.diagonal(), truth_mean.shape), atol=1e-11)
    truth = inverse_free.kl_bound(Kuu, m, variance, T, preconditioned, **Z)
    np.testing.assert_allclose(kl, truth, rtol=1e-10, atol=1e-10)
    assert work.clamped == 0
    got_mean, got_cov = posterior.joint(posterior.start(blocks.Kuu, JITTER), blocks.Kuf, blocks.Kff)
    np.testing.assert_allclose(got_mean, truth_mean, atol=1e-11)
    np.testing.assert_allclose(got_cov, np.broadcast_to(truth_cov, (*mean.shape[:-1], N, N)), atol=1e-11)


@each_form
@each_shape
@each_estimate
def test_reverse_rule_of_every_field(rng, preconditioned, M, N, P, K):
    blocks, mean, variance, L = problem(rng, M, N, P)
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)
    assert_reverse_rule(rng, posterior, blocks, JITTER, **signs(rng, M, K))


@each_form
@each_estimate
@pytest.mark.parametrize("P", [None, 2])
def test_parts_add_up_to_the_whole(rng, preconditioned, P, K):
    N = 9
    blocks, mean, variance, L = problem(rng, 6, N, P)
    Z = signs(rng, 6, K)
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)
    f, kl, saved = posterior.forward(blocks, JITTER, **Z)
    f_bar = fs.Marginals(*rng.standard_normal((2, *f.mean.shape)))
    whole, whole_blocks = posterior.vjp(f_bar, -0.7, saved)
    work = posterior.start(blocks.Kuu, JITTER, N, ("posterior", "blocks"), **Z)
    np.testing.assert_allclose(posterior.kl(work), kl, rtol=1e-13)
    Kuf_bars = []
    for cols in (slice(0, 3), slice(3, 3), slice(3, N)):
        part_f, part = posterior.project(work, blocks.Kuf[:, cols], blocks.kff[cols])
        np.testing.assert_allclose(part_f.var, f.var[..., cols], rtol=1e-12)
        Kuf_bars.append(posterior.pull(work, part, fs.tree_map(lambda x, c=cols: x[..., c], f_bar)))
    posterior_bar, Kuu_bar = posterior.finish(work, -0.7)
    np.testing.assert_allclose(np.hstack(Kuf_bars), whole_blocks.Kuf, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(Kuu_bar, whole_blocks.Kuu, rtol=1e-11, atol=1e-11)
    for name in ("mean", "variance", "inverse_tril"):
        np.testing.assert_allclose(getattr(posterior_bar, name), getattr(whole, name), rtol=1e-10, atol=1e-11)


@each_form
@each_estimate
@pytest.mark.parametrize("kl_bar", [-1.0, 0.0])
def test_only_what_is_needed_is_computed_and_equals_the_whole(rng, preconditioned, K, kl_bar):
    blocks, mean, variance, L = problem(rng, 6, 8, 2)
    Z = signs(rng, 6, K)
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)

    def bars(*need):
        f, _, saved = posterior.forward(blocks, JITTER, **Z)
        f_bar = fs.Marginals(np.sin(f.mean), -np.cos(f.var))
        return posterior.vjp(f_bar, kl_bar, saved, need) if need else posterior.vjp(f_bar, kl_bar, saved)

    whole, whole_blocks = bars()
    for name in ("mean", "variance", "inverse_tril"):
        only, nothing = bars(f"posterior.{name}")
        assert nothing is None and [n for n, _, bar in fs.leaves(only) if bar is not None] == [name]
        np.testing.assert_allclose(getattr(only, name), getattr(whole, name), rtol=1e-11, atol=1e-12)
    nothing, only_blocks = bars("blocks")
    assert not [bar for _, _, bar in fs.leaves(nothing) if bar is not None]
    for name in ("Kuu", "Kuf", "kff"):
        np.testing.assert_allclose(getattr(only_blocks, name), getattr(whole_blocks, name), rtol=1e-11, atol=1e-11)


@each_form
@pytest.mark.parametrize("M, N", [(6, 4), (70, 90)])
def test_float32_is_as_accurate_as_numpy(rng, preconditioned, M, N):
    """Plain NumPy in float32, by the definition with T and P formed, sets the budget; also of the gradients."""
    def plain(dtype, blocks, mean, variance, L, f_bar):
        b = fs.tree_map(lambda a: a.astype(dtype), blocks)
        m, s, factor = mean.astype(dtype), variance.astype(dtype), np.tril(L).astype(dtype)
        T, A = factor @ factor.T, b.Kuu + np.diag(s + dtype(JITTER))
        B = 2 * T - T @ A @ T
        w = B @ m if preconditioned else m
        a, c = f_bar.mean.astype(dtype), f_bar.var.astype(dtype)
        return w @ b.Kuf, b.kff - (b.Kuf * (B @ b.Kuf)).sum(0), np.outer(w, a) - 2 * (B @ b.Kuf) * c

    def draw():
        p = *problem(rng, M, N, None), fs.Marginals(rng.standard_normal(N), -rng.random(N))
        blocks, f_bar = (fs.tree_map(lambda a: a.astype(np.float32), tree) for tree in (p[0], p[-1]))
        posterior = fs.Relaxed(*(a.astype(np.float32) for a in p[1:4]), preconditioned=preconditioned)
        for probes in (rng.choice([-1.0, 1.0], (M, 5)).astype(np.float32), None):
            f, _, saved = posterior.forward(blocks, JITTER, probes=probes)
            posterior_bar, blocks_bar = posterior.vjp(f_bar, -1.0, saved)
            trees = (f, posterior_bar, blocks_bar)
            assert {a.dtype for tree in trees for _, _, a in fs.leaves(tree) if a is not None} == {np.dtype(np.float32)}
        fast = f.mean, f.var, blocks_bar.Kuf
        return by_name(("mean", "var", "Kuf"), fast, plain(np.float32, *p), plain(np.float64, *p))

    assert_within_budget(draw, problems=9)


# --- estimates ----------------------------------------------------------------------------------------------------------


def everything(posterior, blocks, f_bar, **Z):
    """The KL and all gradients in one vector."""
    _, kl, saved = posterior.forward(blocks, JITTER, **Z)
    posterior_bar, blocks_bar = posterior.vjp(f_bar, -1.0, saved)
    parts = [a for _, _, a in [*fs.leaves(posterior_bar), *fs.leaves(blocks_bar)] if a is not None]
    return np.concatenate([[kl], *(a.ravel() for a in parts)])


@each_form
def test_estimates_are_unbiased_and_exact_with_orthogonal_probes(rng, preconditioned):
    blocks, mean, variance, L = problem(rng, 4, 3, 2)
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)
    f_bar = fs.Marginals(*rng.standard_normal((2, 2, 3)))
    exact = everything(posterior, blocks, f_bar)
    every = [everything(posterior, blocks, f_bar, probes=np.array(z)[:, None]) for z in itertools.product([-1.0, 1.0], repeat=4)]
    assert np.std(every, axis=0).max() > 1e-3
    np.testing.assert_allclose(np.mean(every, axis=0), exact, atol=1e-11)
    np.testing.assert_allclose(everything(posterior, blocks, f_bar, probes=scipy.linalg.hadamard(4) * 1.0), exact, atol=1e-11)


def test_probes_are_drawn_from_the_rng(rng):
    model, X, y = model_of(rng)
    first = fs.elbo_and_grad(model, X, y, probes=3, rng=7)
    again = fs.elbo_and_grad(model, X, y, probes=3, rng=np.random.default_rng(7))
    assert first[0] == again[0] != fs.elbo(model, X, y, probes=3, rng=8)
    assert first[0] == fs.elbo(model, X, y, probes=3, rng=7)
    many = [fs.elbo(model, X, y, probes=1, rng=i) for i in range(400)]
    np.testing.assert_allclose(np.mean(many), fs.elbo(model, X, y), atol=5 * np.std(many) / 20)


# --- whole models -------------------------------------------------------------------------------------------------------


def model_of(rng, M=7, P=None, likelihood=None, preconditioned=True, error=0.1, jitter=1e-6):
    covariance = fs.RBF(variance=1.3, lengthscales=rng.uniform(0.8, 1.4, 2))
    Z, variance = rng.uniform(-2, 2, (M, 2)), rng.uniform(0.2, 0.6, M)
    L = factor(covariance.matrix(Z) + np.diag(variance + jitter), rng, error)
    mean = rng.standard_normal((M,) if P is None else (P, M))
    posterior = fs.Relaxed(mean, variance, L, preconditioned=preconditioned)
    X = rng.uniform(-2, 2, (11, 2))
    y = rng.standard_normal((11,) if P is None else (11, P))
    return fs.SVGP(covariance, Z, posterior, likelihood or fs.Gaussian(variance=0.2)), X, y


def as_likelihood_form(model):
    q = model.posterior
    return fs.replace(model, posterior=fs.LikelihoodForm(q.mean, q.variance, preconditioned=q.preconditioned))


LIKELIHOODS = [
    (fs.Gaussian(variance=0.2), None, lambda rng, N: rng.standard_normal(N)),
    (fs.Gaussian(variance=0.2), 2, lambda rng, N: rng.standard_normal((N, 2))),
    (fs.BernoulliLogit(), None, lambda rng, N: rng.integers(0, 2, N)),
    (fs.Poisson(), 1, lambda rng, N: rng.poisson(1.0, (N, 1))),
    (fs.RobustMax(num_classes=3), 3, lambda rng, N: rng.integers(0, 3, N)),
]


@each_form
@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_proposition_2(rng, likelihood, P, draw, preconditioned):
    """At T = K~^-1, held fixed, value and all gradients are those of L-SVGP."""
    model, X, _ = model_of(rng, P=P, likelihood=likelihood, preconditioned=preconditioned, error=0.0)
    Y = draw(rng, 11)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=40.0, jitter=1e-6)
    truth, truth_grad = fs.elbo_and_grad(as_likelihood_form(model), X, Y, num_data=40.0, jitter=1e-6)
    np.testing.assert_allclose(value, truth, rtol=1e-12)
    bars = {path: bar for path, _, bar in fs.leaves(grad)}
    for path, _, bar in fs.leaves(truth_grad):
        np.testing.assert_allclose(bars[path], bar, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(bar).max()), err_msg=path)
    if not preconditioned:  # T maximises the bound there; a preconditioned mean moves with T
        np.testing.assert_allclose(bars["posterior.inverse_tril"], 0, atol=1e-9)


def test_the_naive_preconditioner_fails_proposition_2(rng):
    """With w = T m~ the gradient in s would miss what -T dK~ T m~ adds: shown on the dense definition."""
    blocks, mean, variance, _ = problem(rng, 5, 6, 1)
    Kuu, m = blocks.Kuu + JITTER * np.eye(5), mean
    T = np.linalg.inv(Kuu + np.diag(variance))
    a, b = rng.standard_normal((1, 6)), -rng.random(6)

    def bound(s, T=None, P=None, at=inverse_free.kl_bound):
        f, cov = inverse_free.marginals(Kuu, blocks.Kuf, blocks.Kff, m, s, T=T, P=P)
        kl = at(Kuu, m, s, T, P=P) if T is not None else inverse_free.kl(*inverse_free.q_of_u(Kuu, m, s), Kuu)
        return np.sum(a * f) + b @ cov.diagonal() - kl

    def gradient(*held):
        return np.array([along(lambda s: bound(s, *held), extended(variance), d)[1] for d in np.eye(5)])

    truth = gradient()
    assert np.linalg.norm(gradient(T) - truth) <= 1e-10 * np.linalg.norm(truth)
    assert np.linalg.norm(gradient(T, T) - truth) > 1e-2 * np.linalg.norm(truth)


@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS[:4], ids=lambda x: type(x).__name__)
def test_plain_it_stays_below_the_bound_of_l_svgp(rng, likelihood, P, draw):
    model, X, _ = model_of(rng, P=P, likelihood=likelihood, preconditioned=False, error=0.0)
    Y = draw(rng, 11)
    above = fs.elbo(as_likelihood_form(model), X, Y)
    M = len(model.inducing)
    for error in (1e-3, 0.1, 0.5, 1.0, 2.0):
        for _ in range(4):
            shape = np.exp(0.3 * error * rng.standard_normal(M))
            noise = error / M * np.tril(rng.standard_normal((M, M)), -1)
            L = np.tril(model.posterior.inverse_tril) @ (np.diag(shape) + noise)
            below = fs.elbo(fs.replace_at(model, "posterior.inverse_tril", L), X, Y)
            assert below < above
    assert fs.elbo(fs.replace_at(model, "posterior.inverse_tril", 1e-3 * np.eye(M)), X, Y) < above


def test_it_is_below_the_log_marginal_likelihood(rng):
    for _ in range(20):
        model, X, y = model_of(rng, error=rng.uniform(0, 2))
        A = model.covariance.matrix(X) + 0.2 * np.eye(11)
        exact = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1] + 11 * np.log(2 * np.pi))
        assert fs.elbo(model, X, y) < exact


@each_form
def test_gradients_of_the_whole_model(rng, preconditioned):
    model, X, y = model_of(rng, P=2, preconditioned=preconditioned)
    value, grad = fs.elbo_and_grad(model, X, y, num_data=40.0, jitter=1e-6)
    np.testing.assert_allclose(fs.elbo(model, X, y, num_data=40.0, jitter=1e-6), value, rtol=1e-13)
    assert_gradient(lambda m: definitions.elbo(m, X, y, 40 / 11, 1e-6), model, grad, rng)


def test_terms_blocks_predictions_and_files(rng, tmp_path):
    model, X, y = model_of(rng)
    Z = rng.choice([-1.0, 1.0], (7, 3))
    for probes in (None, Z):
        value, grad = fs.elbo_and_grad(model, X, y, probes=probes)
        data, data_grad = fs.data_term_and_grad(model, X, y, probes=probes)
        kl, kl_grad = fs.kl_term_and_grad(model, probes=probes)
        np.testing.assert_allclose(data - kl, value, rtol=1e-12)
        parted = fs.tree_map(np.subtract, data_grad.posterior, kl_grad.posterior)
        for (path, _, a), (_, _, b) in zip(fs.leaves(parted), fs.leaves(grad.posterior), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9, err_msg=path)
        blocks = model.covariance.blocks(model.inducing, X)
        other, (_, bar, _) = fs.elbo_and_grad_from_blocks(blocks, model.posterior, model.likelihood, y, probes=probes)
        np.testing.assert_allclose(other, value, rtol=1e-12)
        np.testing.assert_allclose(bar.inverse_tril, grad.posterior.inverse_tril, rtol=1e-9, atol=1e-10)
    mean, cov = fs.predict_f(model, X, full_cov=True)
    marginal_mean, var = fs.predict_f(model, X, chunk_size=3)
    np.testing.assert_allclose(marginal_mean, mean, atol=1e-12)
    np.testing.assert_allclose(var, cov.diagonal(), atol=1e-12)
    assert (var > fs.predict_f(as_likelihood_form(model), X)[1]).all()  # eq. (3): never too sure
    assert fs.predict_log_density(model, X, y).shape == (11,) and fs.sample_f(model, X, 2, rng=0).shape == (2, 11)
    np.testing.assert_allclose(fs.predict_y(model, X)[1], var + 0.2, atol=1e-12)
    fs.save(tmp_path / "model.npz", model)
    assert fs.elbo(fs.load(tmp_path / "model.npz"), X, y) == fs.elbo(model, X, y)


def test_matrix_products_are_all_it_takes(rng, monkeypatch):
    """No factorisation and no solve: of ours, of SciPy's, of NumPy's."""
    model, X, y = model_of(rng, M=70)
    step = fs.elbo_and_grad(model, X, y, probes=4, rng=0)[0], fs.elbo_and_grad(model, X, y)[0]  # compiled, and imported
    fs.predict_f(model, X)

    def refuse(*args, **kwargs):
        raise AssertionError("a decomposition or a solve")

    words = ("cholesky", "solve", "inverse", "whitening", "potr", "trsm", "trtri")
    refused = 0
    for module in (kernels, sys.modules["fastsvgp.kernels.cpu.blas"], sys.modules["fastsvgp.kernels.cpu.blocked"]):
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
    fs.newton_schulz_step(np.eye(3), np.eye(3), 1.0)
    assert again == step


# --- the direction of L-SVGP's rule with P for the inverse ---------------------------------------------------------------


def flat(grad):
    parts = (grad.covariance.variance, grad.covariance.lengthscales, grad.inducing, grad.posterior.mean, grad.posterior.variance)
    return np.concatenate([np.ravel(p) for p in parts])


@each_form
def test_the_other_direction_is_nearer_to_l_svgp(rng, preconditioned):
    """Errors against the gradient of L-SVGP: d for the exact gradient, d^2 for the direction; the table of the spec."""
    model, X, y = model_of(rng, M=20, preconditioned=preconditioned, error=0.0)
    truth = flat(fs.elbo_and_grad(as_likelihood_form(model), X, y)[1])
    noise, start = np.tril(rng.standard_normal((20, 20))) / 20, np.tril(model.posterior.inverse_tril)
    errors = {"exact": [], "likelihood": []}
    for size in (1e-1, 1e-2, 1e-3):
        for direction, found in errors.items():
            posterior = fs.replace(model.posterior, inverse_tril=start @ (np.eye(20) + size * noise), direction=direction)
            value, grad = fs.elbo_and_grad(fs.replace(model, posterior=posterior), X, y)
            found.append(np.linalg.norm(flat(grad) - truth) / np.linalg.norm(truth))
            np.testing.assert_allclose(value, fs.elbo(fs.replace(model, posterior=posterior), X, y), rtol=1e-12)
    exact, other = np.array(errors["exact"]), np.array(errors["likelihood"])
    assert (other < exact).all()
    np.testing.assert_allclose(exact[1:] / exact[:-1], 0.1, rtol=0.3)
    np.testing.assert_allclose(other[1:] / other[:-1], 0.01, rtol=0.5)
    assert grad.posterior.inverse_tril is None


def test_the_other_direction_by_definition_and_only_near_the_inverse(rng):
    """Recipe 4.5 of the spec with J := P; from d = 1 on the exact gradient."""
    blocks, mean, variance, L = problem(rng, 6, 5, 2)
    f_bar = fs.Marginals(rng.standard_normal((2, 5)), -rng.random((2, 5)))
    posterior = fs.Relaxed(mean, variance, L, direction="likelihood")
    f, _, saved = posterior.forward(blocks, JITTER)
    bar, blocks_bar = posterior.vjp(f_bar, -1.0, saved)
    Kuu = blocks.Kuu + JITTER * np.eye(6)
    J = inverse_free.preconditioner(Kuu, variance, square(L))
    Psi, w, b = J @ blocks.Kuf, mean @ J, f_bar.var.sum(0)
    w_bar = f_bar.mean @ blocks.Kuf.T - w @ Kuu
    cross = (w_bar @ J).T @ w
    H = (Psi * b) @ Psi.T + 2 * (J @ np.diag(variance / 2) @ J - J / 2) - (cross + cross.T) / 2
    np.testing.assert_allclose(blocks_bar.Kuu, H - w.T @ w / 2, atol=1e-11)
    np.testing.assert_allclose(blocks_bar.Kuf, w.T @ f_bar.mean - 2 * Psi * b, atol=1e-11)
    np.testing.assert_allclose(bar.variance, H.diagonal() - J.diagonal() + 1 / variance, atol=1e-11)
    np.testing.assert_allclose(bar.mean, w_bar @ J, atol=1e-11)
    only, _ = posterior.vjp(f_bar, -1.0, posterior.forward(blocks, JITTER)[2], ("posterior.variance",))
    np.testing.assert_allclose(only.variance, bar.variance, atol=1e-11)
    far = [fs.Relaxed(mean, variance, 2 * L, direction=direction) for direction in ("exact", "likelihood")]
    exact, other = (everything(q, blocks, f_bar) for q in far)
    np.testing.assert_array_equal(exact, other)


# --- bad input ----------------------------------------------------------------------------------------------------------


def test_clear_errors(rng):
    model, X, y = model_of(rng)
    q = model.posterior

    def fails(error, message, path=None, value=None, **options):
        with pytest.raises(error, match=message):
            fs.elbo(model if path is None else fs.replace_at(model, path, value), X, y, **options)

    for diagonal, message in ((0.0, "must be positive"), (-1.0, "must be positive"), (np.nan, "nan"), (np.inf, "inf")):
        L = np.tril(q.inverse_tril)
        L[3, 3] = diagonal
        fails(ValueError, f"diagonal of posterior.inverse_tril.*{message}", "posterior.inverse_tril", L)
    L = np.tril(q.inverse_tril)
    L[3, 1] = np.nan
    fails(ValueError, "posterior.inverse_tril.*nan", "posterior.inverse_tril", L)
    fails(ValueError, "`posterior` has inverse_tril", "posterior.inverse_tril", np.eye(6))
    fails(ValueError, "posterior.variance.*must be positive", "posterior.variance", np.zeros(7))
    fails(ValueError, "`posterior` has mean", "posterior.variance", np.ones((7, 7)))
    fails(ValueError, "`direction`.*exact, likelihood.*'best'", "posterior", fs.replace(q, direction="best"))
    for probes in (np.ones(7), np.ones((6, 2)), np.ones((7, 0))):
        fails(ValueError, r"`probes` must have one row for each of the 7 inducing inputs.*\(7, K\)", probes=probes)
    for probes in (np.zeros((7, 2)), np.full((7, 2), np.nan), rng.standard_normal((7, 2))):
        fails(ValueError, "`probes` must hold.*alone", probes=probes)
    for probes in (0, -1, 2.5):
        fails(ValueError, "`probes` must be a whole number of at least 1", probes=probes)
    fails(TypeError, "`probes` must be a whole number of at least 1, got True", probes=True)
    fails(TypeError, "`probes`.*LikelihoodForm posterior has none", "posterior", as_likelihood_form(model).posterior, probes=3)
    with pytest.raises(TypeError, match="natural_step: a Relaxed posterior can not take natural-gradient steps.*adam"):
        fs.natural_step(model, X, y)
