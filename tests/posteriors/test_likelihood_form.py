"""L-SVGP: its marginals and KL by their definitions, exact reverse rules, and the bounds it equals and stays below."""

import definitions
import numpy as np
import pytest
from budgets import assert_within_budget, by_name
from derivatives import assert_gradient
from gp_problems import assert_moments
from oracles import gp, inverse_free
from reverse_rule import assert_reverse_rule

import fastsvgp as fs

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


def problem(rng, M, N, P):
    """Blocks of a positive definite joint covariance, and parameters."""
    A = rng.standard_normal((M + N, M + N + 3)) / np.sqrt(M + N)
    K = A @ A.T + 0.2 * np.eye(M + N)
    Kff = K[M:, M:]
    mean = rng.standard_normal((M,) if P is None else (P, M))
    blocks = fs.Blocks(K[:M, :M].copy(), K[:M, M:].copy(), Kff.diagonal().copy(), Kff.copy())
    return blocks, mean, rng.uniform(0.2, 1.5, M)


def posterior_of(mean, variance, preconditioned):
    return fs.LikelihoodForm(mean=mean, variance=variance, preconditioned=preconditioned)


@each_form
@each_shape
def test_marginals_and_kl_by_definition(rng, preconditioned, M, N, P):
    blocks, mean, variance = problem(rng, M, N, P)
    Kuu = blocks.Kuu + JITTER * np.eye(M)
    args = (np.atleast_2d(mean), variance, preconditioned)
    truth_mean, truth_cov = inverse_free.marginals(Kuu, blocks.Kuf, blocks.Kff, *args)
    truth_mean = truth_mean.reshape(*mean.shape[:-1], N)
    posterior = posterior_of(mean, variance, preconditioned)
    f, kl, (work, _) = posterior.forward(blocks, JITTER)
    np.testing.assert_allclose(f.mean, truth_mean, atol=1e-11)
    np.testing.assert_allclose(f.var, np.broadcast_to(truth_cov.diagonal(), truth_mean.shape), atol=1e-11)
    np.testing.assert_allclose(kl, inverse_free.kl(*inverse_free.q_of_u(Kuu, *args), Kuu), rtol=1e-10, atol=1e-10)
    assert work.clamped == 0
    got_mean, got_cov = posterior.joint(posterior.start(blocks.Kuu, JITTER), blocks.Kuf, blocks.Kff)
    np.testing.assert_allclose(got_mean, truth_mean, atol=1e-11)
    np.testing.assert_allclose(got_cov, np.broadcast_to(truth_cov, (*mean.shape[:-1], N, N)), atol=1e-11)


@each_form
@each_shape
def test_reverse_rule_of_every_field(rng, preconditioned, M, N, P):
    blocks, mean, variance = problem(rng, M, N, P)
    assert_reverse_rule(rng, posterior_of(mean, variance, preconditioned), blocks, JITTER)


@each_form
@pytest.mark.parametrize("P", [None, 2])
def test_parts_add_up_to_the_whole(rng, preconditioned, P):
    N = 9
    blocks, mean, variance = problem(rng, 6, N, P)
    posterior = posterior_of(mean, variance, preconditioned)
    f, kl, saved = posterior.forward(blocks, JITTER)
    f_bar = fs.Marginals(*rng.standard_normal((2, *f.mean.shape)))
    whole, whole_blocks = posterior.vjp(f_bar, -0.7, saved)
    work = posterior.start(blocks.Kuu, JITTER, N)
    np.testing.assert_allclose(posterior.kl(work), kl, rtol=1e-13)
    Kuf_bars = []
    for cols in (slice(0, 3), slice(3, 3), slice(3, N)):
        part_f, part = posterior.project(work, blocks.Kuf[:, cols], blocks.kff[cols])
        np.testing.assert_allclose(part_f.var, f.var[..., cols], rtol=1e-12)
        Kuf_bars.append(posterior.pull(work, part, fs.tree_map(lambda x, c=cols: x[..., c], f_bar)))
    posterior_bar, Kuu_bar = posterior.finish(work, -0.7)
    np.testing.assert_allclose(np.hstack(Kuf_bars), whole_blocks.Kuf, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(Kuu_bar, whole_blocks.Kuu, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(posterior_bar.mean, whole.mean, rtol=1e-11, atol=1e-12)
    np.testing.assert_allclose(posterior_bar.variance, whole.variance, rtol=1e-11, atol=1e-12)


@each_form
@pytest.mark.parametrize("kl_bar", [-1.0, 0.0])
def test_only_what_is_needed_is_computed_and_equals_the_whole(rng, preconditioned, kl_bar):
    blocks, mean, variance = problem(rng, 6, 8, 2)
    posterior = posterior_of(mean, variance, preconditioned)

    def bars(*need):
        f, _, saved = posterior.forward(blocks, JITTER)
        f_bar = fs.Marginals(np.sin(f.mean), -np.cos(f.var))
        return posterior.vjp(f_bar, kl_bar, saved, need) if need else posterior.vjp(f_bar, kl_bar, saved)

    whole, whole_blocks = bars()
    only_mean, nothing = bars("posterior.mean")
    assert only_mean.variance is None and nothing is None
    np.testing.assert_allclose(only_mean.mean, whole.mean, rtol=1e-12, atol=1e-12)
    only_variance, nothing = bars("posterior.variance")
    assert only_variance.mean is None and nothing is None
    np.testing.assert_allclose(only_variance.variance, whole.variance, rtol=1e-11, atol=1e-12)
    nothing, only_blocks = bars("blocks")
    assert nothing.mean is None and nothing.variance is None
    for name in ("Kuu", "Kuf", "kff"):
        np.testing.assert_allclose(getattr(only_blocks, name), getattr(whole_blocks, name), rtol=1e-11, atol=1e-11)


@each_form
@pytest.mark.parametrize("M, N", [(6, 4), (70, 90)])
def test_float32_is_as_accurate_as_numpy(rng, preconditioned, M, N):
    """Plain NumPy in float32, by the definition through a Cholesky factor, sets the budget."""
    def plain(dtype, blocks, mean, variance):
        b = fs.tree_map(lambda a: a.astype(dtype), blocks)
        m, s = mean.astype(dtype), variance.astype(dtype)
        L = np.linalg.cholesky(b.Kuu + np.diag(s + dtype(JITTER)))
        Lam = np.linalg.solve(L, b.Kuf)
        w = np.linalg.solve(L.T, np.linalg.solve(L, m)) if preconditioned else m
        return w @ b.Kuf, b.kff - (Lam**2).sum(0)

    def draw():
        p = problem(rng, M, N, None)
        single = [fs.tree_map(lambda a: a.astype(np.float32), p[0]), *(a.astype(np.float32) for a in p[1:])]
        posterior = posterior_of(*single[1:], preconditioned)
        f, _, saved = posterior.forward(single[0], JITTER)
        trees = (f, *posterior.vjp(f, -1.0, saved))
        assert {a.dtype for tree in trees for _, _, a in fs.leaves(tree) if a is not None} == {np.dtype(np.float32)}
        return by_name(("mean", "var"), (f.mean, f.var), plain(np.float32, *p), plain(np.float64, *p))

    assert_within_budget(draw, problems=9)


# --- whole models -------------------------------------------------------------------------------------------------------


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
        mean=fs.ConstantMean(dtype(0.3)) if P is None else None,
    )


def same_q(model, jitter):
    """The Whitened and the Marginal model with the same q(u)."""
    M = len(model.inducing)
    Kuu = gp.rbf(model.covariance.variance, model.covariance.lengthscales)(model.inducing, model.inducing) + jitter * np.eye(M)
    q = model.posterior
    m, S = inverse_free.q_of_u(Kuu, np.atleast_2d(q.mean), q.variance, q.preconditioned)
    W = np.linalg.cholesky((S + S.T) / 2)
    if q.mean.ndim == 2:
        W = np.stack([W] * len(m))
    m = m.reshape(q.mean.shape)
    L = np.linalg.cholesky(Kuu)
    whitened = fs.Whitened(mean=np.linalg.solve(L, m.T).T, scale_tril=np.linalg.solve(L, W))
    return [fs.replace(model, posterior=p) for p in (whitened, fs.Marginal(mean=m, scale_tril=W))]


LIKELIHOODS = [
    (fs.Gaussian(variance=0.2), None, lambda rng, N: rng.standard_normal(N)),
    (fs.Gaussian(variance=0.2), 2, lambda rng, N: rng.standard_normal((N, 2))),
    (fs.BernoulliLogit(), None, lambda rng, N: rng.integers(0, 2, N)),
    (fs.Poisson(), 1, lambda rng, N: rng.poisson(1.0, (N, 1))),
    (fs.RobustMax(num_classes=3), 3, lambda rng, N: rng.integers(0, 3, N)),
]


@each_form
@pytest.mark.parametrize("likelihood, P, draw", LIKELIHOODS, ids=lambda x: type(x).__name__)
def test_it_is_the_bound_of_its_q(rng, likelihood, P, draw, preconditioned):
    model = model_of(rng, P=P, likelihood=likelihood, preconditioned=preconditioned)
    X, jitter = rng.uniform(-2, 2, (11, 2)), 1e-6
    Y = draw(rng, 11)
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=40.0, jitter=jitter)
    np.testing.assert_allclose(fs.elbo(model, X, Y, num_data=40.0, jitter=jitter), value, rtol=1e-13)
    for other in same_q(model, jitter):
        np.testing.assert_allclose(fs.elbo(other, X, Y, num_data=40.0, jitter=jitter), value, rtol=1e-8)
        for ours, theirs in zip(fs.predict_f(model, X, full_cov=True), fs.predict_f(other, X, full_cov=True), strict=True):
            np.testing.assert_allclose(ours, theirs, atol=1e-8)
        np.testing.assert_allclose(fs.predict_log_density(model, X, Y), fs.predict_log_density(other, X, Y), atol=1e-8)
    assert_gradient(lambda m: definitions.elbo(m, X, Y, 40 / 11, jitter), model, grad, rng)


@each_form
def test_the_block_level_form_and_the_two_terms_agree_with_the_whole(rng, preconditioned):
    model = model_of(rng, P=2, preconditioned=preconditioned)
    X, Y = rng.uniform(-2, 2, (11, 2)), rng.standard_normal((11, 2))
    value, grad = fs.elbo_and_grad(model, X, Y, num_data=30)
    data, data_grad = fs.data_term_and_grad(model, X, Y, num_data=30)
    kl, kl_grad = fs.kl_term_and_grad(model)
    np.testing.assert_allclose(data - kl, value, rtol=1e-12)
    for name in ("mean", "variance"):
        whole = getattr(grad.posterior, name)
        parted = getattr(data_grad.posterior, name) - getattr(kl_grad.posterior, name)
        np.testing.assert_allclose(parted, whole, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(data_grad.inducing - kl_grad.inducing, grad.inducing, rtol=1e-9, atol=1e-9)
    blocks = model.covariance.blocks(model.inducing, X)
    other, (_, posterior_bar, _) = fs.elbo_and_grad_from_blocks(blocks, model.posterior, model.likelihood, Y, num_data=30)
    np.testing.assert_allclose(other, value, rtol=1e-13)
    np.testing.assert_allclose(posterior_bar.variance, grad.posterior.variance, rtol=1e-12)
    assert fs.elbo_and_grad(model, X, Y, wrt="posterior.mean")[1].posterior.variance is None


def test_pseudo_targets_are_the_exact_posterior_and_every_q_stays_below_it(rng):
    """Z = X, m~ = y, S~ = noise: the exact GP, and its marginal likelihood; the bound is below for any other parameters."""
    X, y = rng.uniform(-2, 2, (12, 1)), rng.standard_normal(12)
    K = gp.rbf(1.1, np.array([0.9]))(X, X) + 1e-9 * np.eye(12)
    noise = 0.3
    A = K + noise * np.eye(12)
    exact = -0.5 * (y @ np.linalg.solve(A, y) + np.linalg.slogdet(A)[1] + 12 * np.log(2 * np.pi))

    def bound(m, s, preconditioned=True):
        q = posterior_of(m, s, preconditioned)
        return fs.elbo(fs.SVGP(fs.RBF(1.1, np.array([0.9])), X, q, fs.Gaussian(noise)), X, y, jitter=1e-9)

    np.testing.assert_allclose(bound(y, np.full(12, noise)), exact, atol=1e-6)
    for _ in range(20):
        s = np.exp(rng.standard_normal(12))
        assert bound(y + rng.standard_normal(12), s) < exact
        assert bound(rng.standard_normal(12), s, preconditioned=False) < exact


def test_it_needs_no_jitter_where_inducing_inputs_coincide(rng):
    model = model_of(rng, M=6)
    model = fs.replace(model, inducing=np.repeat(model.inducing[:2], 3, axis=0))
    X, y = rng.uniform(-2, 2, (5, 2)), rng.standard_normal(5)
    value, grad = fs.elbo_and_grad(model, X, y, jitter=0.0)
    assert np.isfinite(value) and np.isfinite(grad.inducing).all()


def test_samples_have_the_moments_of_the_posterior(rng):
    model = model_of(rng)
    X = rng.uniform(-2, 2, (4, 2))
    samples = fs.sample_f(model, X, 4000, rng=1)
    mean, cov = fs.predict_f(model, X, full_cov=True)
    assert_moments(samples, mean, cov)


def test_models_are_saved_and_raveled(rng, tmp_path):
    model = model_of(rng, preconditioned=False)
    fs.save(tmp_path / "model.npz", model)
    loaded = fs.load(tmp_path / "model.npz")
    assert loaded.posterior.preconditioned is False
    vector, unravel = fs.ravel(loaded)
    np.testing.assert_allclose(unravel(vector).posterior.variance, model.posterior.variance, rtol=1e-14)


def test_clear_errors(rng):
    for mean, variance in [((3,), (4,)), ((4,), (4, 4)), ((0, 4), (4,)), ((), (4,)), ((2, 4), (2, 4))]:
        with pytest.raises(ValueError, match="`posterior` has mean"):
            posterior_of(np.zeros(mean), np.ones(variance), True).check_size(4)
    model = model_of(rng)
    X, y = rng.uniform(-2, 2, (5, 2)), rng.standard_normal(5)
    for bad, message in ((0.0, "must be positive"), (-1.0, "must be positive"), (np.nan, "contains nan")):
        variance = model.posterior.variance.copy()
        variance[2] = bad
        with pytest.raises(ValueError, match=f"posterior.variance.*{message}"):
            fs.elbo(fs.replace_at(model, "posterior.variance", variance), X, y)
    with pytest.raises(TypeError, match="`preconditioned`"):
        fs.elbo(fs.replace(model, posterior=posterior_of(model.posterior.mean, model.posterior.variance, "no")), X, y)
    with pytest.raises(TypeError, match="natural_step: a LikelihoodForm posterior can not take natural-gradient steps.*adam"):
        fs.natural_step(model, X, y)
