"""Identities of theory between results of different functions, and order of the bounds."""

import numpy as np
import pytest
from oracles import gp
from scipy import special
from support import definitions
from support.gp_problems import COVARIANCES, JITTER, assert_records_close, problem
from support.numerics import generator
from support.posterior_problems import ROWS, in_model, of_means

import fastsvgp as fs
from fastsvgp.records import replace, tree_map

every_covariance = pytest.mark.parametrize("name", COVARIANCES)
# whose natural step is the optimum: all of q(u) is free
POSTERIORS = {"whitened": fs.Whitened, "marginal": fs.Marginal}
free_posteriors = pytest.mark.parametrize("posterior", POSTERIORS)
every_posterior = pytest.mark.parametrize("posterior", ROWS)


def close(a, b, rtol=1e-9):
    b = np.asarray(b)
    np.testing.assert_allclose(a, b, rtol=0, atol=rtol * max(1.0, np.max(np.abs(b))))


def lower(W):
    return np.tril(W)


# --- the definitions ------------------------------------------------------------------------------


@every_covariance
def test_elbo_is_its_definition_for_both_posteriors(name, rng):
    p = problem(rng, name)
    Kuu, Kuf, kff = p.blocks()
    W = lower(p.scale_tril)
    whitened = gp.elbo(Kuu, Kuf, kff, *gp.unwhitened(Kuu, p.mean, W), p.expectation, scale=3.0)
    marginal = gp.elbo(Kuu, Kuf, kff, p.mean, W @ W.T, p.expectation, scale=3.0)
    for posterior, truth in ((fs.Whitened, whitened), (fs.Marginal, marginal)):
        model = p.svgp(posterior(mean=p.mean, scale_tril=p.scale_tril))
        close(fs.elbo(model, p.X, p.y, num_data=3.0 * len(p.y), jitter=JITTER), truth)
        close(fs.elbo_and_grad(model, p.X, p.y, num_data=3.0 * len(p.y), jitter=JITTER)[0], truth)


LIKELIHOODS = {
    "bernoulli_logit": (fs.likelihoods.BernoulliLogit(num_nodes=20),
                        lambda y: lambda f: special.log_expit((2 * y - 1) * f), 20),
    "bernoulli_probit": (fs.BernoulliProbit(num_nodes=20),
                         lambda y: lambda f: special.log_ndtr((2 * y - 1) * f), 20),
    "student_t": (
        fs.StudentT(scale=0.7, df=4.0, num_nodes=20),
        lambda y: lambda f: special.gammaln(2.5) - special.gammaln(2.0)
        - 0.5 * np.log(4 * np.pi) - np.log(0.7)
        - 2.5 * np.log1p(((y - f) / 0.7) ** 2 / 4),
        20,
    ),
    "poisson": (
        fs.Poisson(exposure=1.6),
        lambda y: lambda f: y * (f + np.log(1.6)) - 1.6 * np.exp(f) - special.gammaln(y + 1),
        60,  # closed form in the package
    ),
}  # fmt: skip


@pytest.mark.parametrize("likelihood", LIKELIHOODS)
@free_posteriors
def test_elbo_is_its_definition_for_other_likelihoods(likelihood, posterior, rng):
    ours, log_density, points = LIKELIHOODS[likelihood]
    p = problem(rng, "matern52")
    y = {"poisson": rng.poisson(2.0, len(p.y)).astype(float), "student_t": p.y}.get(
        likelihood, (p.y > 0).astype(float)
    )
    Kuu, Kuf, kff = p.blocks()
    W = lower(p.scale_tril)
    q = gp.unwhitened(Kuu, p.mean, W) if posterior == "whitened" else (p.mean, W @ W.T)
    truth = gp.elbo(
        Kuu, Kuf, kff, *q, lambda mean, var: gp.gauss_hermite(log_density(y), mean, var, points)
    )
    model = p.svgp(POSTERIORS[posterior](mean=p.mean, scale_tril=p.scale_tril), ours)
    close(fs.elbo(model, p.X, y, jitter=JITTER), truth)


@every_covariance
def test_collapsed_bound_is_its_definition(name, rng):
    p = problem(rng, name)
    close(
        fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=JITTER)[0],
        gp.titsias_bound(*p.blocks(), p.y, p.noise),
    )


# --- one bound against another --------------------------------------------------------------------


@every_covariance
def test_elbo_at_the_optimal_q_is_the_collapsed_bound(name, rng):
    p = problem(rng, name)
    bound, bound_grad = fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=JITTER)
    model = fs.optimal_svgp(p.sgpr(), p.X, p.y, jitter=JITTER)
    value, grad = fs.elbo_and_grad(model, p.X, p.y, jitter=JITTER)
    close(value, bound)
    assert bound <= gp.exact_log_marginal(p.k, p.X, p.y, p.noise)
    # the bound is the ELBO maximised over q: q is stationary there, and the other gradients are the
    # same (envelope theorem)
    close(grad.posterior.mean, np.zeros(len(p.Z)), 1e-8)
    close(lower(grad.posterior.scale_tril), np.zeros((len(p.Z), len(p.Z))), 1e-8)
    assert_records_close(grad.covariance, bound_grad.covariance, 1e-8)
    close(grad.inducing, bound_grad.inducing, 1e-8)
    close(grad.likelihood.variance, bound_grad.noise_variance, 1e-8)


@every_covariance
def test_whitened_is_marginal_at_equal_q(name, rng):
    p = problem(rng, name)
    L = np.linalg.cholesky(p.blocks()[0])
    white = p.svgp()
    plain = p.svgp(fs.Marginal(mean=L @ p.mean, scale_tril=L @ lower(p.scale_tril)))
    value, grad = fs.elbo_and_grad(white, p.X, p.y, num_data=100, jitter=JITTER)
    other, other_grad = fs.elbo_and_grad(plain, p.X, p.y, num_data=100, jitter=JITTER)
    close(value, other)
    close(grad.posterior.mean, L.T @ other_grad.posterior.mean, 1e-8)
    close(
        lower(grad.posterior.scale_tril), lower(L.T @ lower(other_grad.posterior.scale_tril)), 1e-8
    )
    assert grad.likelihood.variance == pytest.approx(other_grad.likelihood.variance, rel=1e-9)
    Xs = rng.uniform(-3, 3, (11, 2))
    for full_cov in (False, True):
        for a, b in zip(
            *(fs.predict_f(m, Xs, full_cov=full_cov, jitter=JITTER) for m in (white, plain)),
            strict=True,
        ):
            close(a, b)


@free_posteriors
@every_covariance
def test_one_natural_step_of_size_one_is_the_optimum(name, posterior, rng):
    p = problem(rng, name)
    model = p.svgp(POSTERIORS[posterior](mean=p.mean, scale_tril=p.scale_tril))
    stepped, _ = fs.natural_step(model, p.X, p.y, step_size=1.0, jitter=JITTER)
    Kuu, Kuf, _ = p.blocks()
    mean, S = gp.optimal_q(Kuu, Kuf, p.y, p.noise)
    W = lower(stepped.posterior.scale_tril)
    ours = (
        gp.unwhitened(Kuu, stepped.posterior.mean, W)
        if posterior == "whitened"
        else (stepped.posterior.mean, W @ W.T)
    )
    close(ours[0], mean, 1e-8)
    close(ours[1], S, 1e-8)
    bound = fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=JITTER)[0]
    close(fs.elbo(stepped, p.X, p.y, jitter=JITTER), bound)


@pytest.mark.parametrize("name", ["matern12", "matern32", "sum"])
def test_inducing_inputs_at_the_data_give_the_exact_process(name, rng):
    p = problem(rng, name, N=17)
    p = p._replace(Z=p.X)
    tiny = 1e-10  # the jitter is the only difference that is left
    exact = gp.exact_log_marginal(p.k, p.X, p.y, p.noise)
    close(fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=tiny)[0], exact, 1e-7)
    model = fs.optimal_svgp(p.sgpr(), p.X, p.y, jitter=tiny)
    close(fs.elbo(model, p.X, p.y, jitter=tiny), exact, 1e-7)
    Xs = rng.uniform(-3, 3, (9, 2))
    mean, cov = gp.exact_predict(p.k, p.X, p.y, p.noise, Xs)
    for full_cov, truth in ((False, np.diag(cov)), (True, cov)):
        ours = fs.predict_f(model, Xs, full_cov=full_cov, jitter=tiny)
        close(ours[0], mean, 1e-7)
        close(ours[1], truth, 1e-7)


@pytest.mark.parametrize("case", range(8))
@every_posterior
def test_every_bound_stays_below_the_evidence(case, posterior):
    rng = generator(case)
    name = list(COVARIANCES)[case % len(COVARIANCES)]
    M, N, D = rng.integers(1, 12), rng.integers(1, 30), rng.integers(1, 4)
    p = problem(rng, name, M=M, N=N, D=D)
    # without probes: an estimate of a bound is none
    model, _ = in_model(rng, posterior, p.svgp(), jitter=JITTER)
    first = of_means(model.posterior).removeprefix("posterior.")
    model = replace(
        model, posterior=replace(model.posterior, **{first: 0.1 * getattr(model.posterior, first)})
    )
    evidence = gp.exact_log_marginal(p.k, p.X, p.y, p.noise)
    bound = fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=JITTER)[0]
    assert fs.elbo(model, p.X, p.y, jitter=JITTER) <= bound + 1e-9 * abs(bound)
    assert bound <= evidence + 1e-9 * abs(evidence)


# --- sums over data -------------------------------------------------------------------------------


def add(records):
    total, *rest = records
    for r in rest:
        total = tree_map(lambda a, b: a + b, total, r)
    return total


@pytest.mark.parametrize("outputs", [(), (3,)], ids=["one", "three"])
@every_posterior
def test_sum_over_shards_is_the_whole(posterior, outputs, rng):
    p = problem(rng, "product", N=30)
    p = p._replace(y=rng.standard_normal((30, *outputs)))
    model, random = in_model(rng, posterior, p.svgp(), outputs, JITTER)
    N_total, edges = 120.0, [0, 7, 8, 30]
    value, grad = fs.elbo_and_grad(model, p.X, p.y, num_data=N_total, jitter=JITTER, **random)
    shards = [slice(a, b) for a, b in zip(edges[:-1], edges[1:], strict=True)]
    data = [
        fs.bounds.data_term_and_grad(
            model,
            p.X[s],
            p.y[s],
            num_data=N_total * len(p.y[s]) / len(p.y),
            jitter=JITTER,
            **random,
        )
        for s in shards
    ]
    kl, kl_grad = fs.bounds.kl_term_and_grad(model, jitter=JITTER, **random)
    close(sum(v for v, _ in data) - kl, value)
    total = add([g for _, g in data])
    assert_records_close(tree_map(np.subtract, total, kl_grad), grad)


@every_posterior
def test_average_over_equal_minibatches_is_the_full_bound(posterior, rng):
    p = problem(rng, "matern32", N=24)
    model, random = in_model(rng, posterior, p.svgp(), jitter=JITTER)
    value, grad = fs.elbo_and_grad(model, p.X, p.y, jitter=JITTER, **random)
    batches = [slice(i, i + 8) for i in range(0, 24, 8)]
    parts = [
        fs.elbo_and_grad(model, p.X[b], p.y[b], num_data=24, jitter=JITTER, **random)
        for b in batches
    ]
    close(np.mean([v for v, _ in parts]), value)
    assert_records_close(tree_map(lambda total: total / 3, add([g for _, g in parts])), grad)


@every_posterior
def test_multi_output_is_the_sum_of_single_outputs(posterior, rng):
    """Fields with an axis of outputs are stacked; gradients of shared fields are sums."""
    P = 3
    p = problem(rng, "rbf")
    Y = rng.standard_normal((len(p.X), P))
    model, random = in_model(rng, posterior, p.svgp(), (P,), JITTER)
    alone = in_model(rng, posterior, p.svgp(), (), JITTER)[0].posterior
    of_all = dict(model.posterior.__dict__)
    own = [
        field for field, value in alone.__dict__.items() if np.ndim(value) < np.ndim(of_all[field])
    ]
    assert of_means(alone).removeprefix("posterior.") in own
    singles = [
        replace(
            model, posterior=replace(model.posterior, **{field: of_all[field][i] for field in own})
        )
        for i in range(P)
    ]
    value, grad = fs.elbo_and_grad(model, p.X, Y, num_data=50, jitter=JITTER, **random)
    parts = [
        fs.elbo_and_grad(s, p.X, Y[:, i], num_data=50, jitter=JITTER, **random)
        for i, s in enumerate(singles)
    ]
    close(value, sum(v for v, _ in parts))
    total = add([g for _, g in parts])
    stacked = replace(
        total.posterior,
        **{field: np.stack([getattr(g.posterior, field) for _, g in parts]) for field in own},
    )
    assert_records_close(grad, replace(total, posterior=stacked))
    Xs = rng.uniform(-3, 3, (5, 2))
    for full_cov in (False, True):
        mean, cov = fs.predict_f(model, Xs, full_cov=full_cov, jitter=JITTER)
        alone = [fs.predict_f(s, Xs, full_cov=full_cov, jitter=JITTER) for s in singles]
        close(mean, np.stack([m for m, _ in alone], axis=1))
        close(cov, np.stack([c for _, c in alone], axis=0 if full_cov else 1))


# --- mean functions -------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", ["zero", "constant", "linear"])
@every_posterior
def test_a_mean_function_shifts_targets_and_predictions(mean, posterior, rng):
    p = problem(rng, "matern52")
    weights, bias = np.array([0.7, -1.1]), 0.4
    mean, shift = {
        "zero": (fs.means.ZeroMean(), lambda X: np.zeros(len(X))),
        "constant": (fs.means.ConstantMean(1.7), lambda X: np.full(len(X), 1.7)),
        "linear": (fs.means.LinearMean(weights, bias), lambda X: X @ weights + bias),
    }[mean]
    plain, random = in_model(rng, posterior, p.svgp(), jitter=JITTER)
    moved = replace(plain, mean=mean)
    value, grad = fs.elbo_and_grad(moved, p.X, p.y + shift(p.X), jitter=JITTER, **random)
    other, other_grad = fs.elbo_and_grad(plain, p.X, p.y, jitter=JITTER, **random)
    close(value, other)
    assert_records_close(grad.posterior, other_grad.posterior)
    assert_records_close(grad.covariance, other_grad.covariance)
    Xs = rng.uniform(-3, 3, (5, 2))
    for predict in (fs.predict_f, fs.predict_y):
        close(predict(moved, Xs)[0], predict(plain, Xs)[0] + shift(Xs))
        close(predict(moved, Xs)[1], predict(plain, Xs)[1])
    sgpr = replace(p.sgpr(), mean=mean)
    close(
        fs.collapsed_bound_and_grad(sgpr, p.X, p.y + shift(p.X), jitter=JITTER)[0],
        fs.collapsed_bound_and_grad(p.sgpr(), p.X, p.y, jitter=JITTER)[0],
    )


# --- predictions ----------------------------------------------------------------------------------


@every_posterior
@every_covariance
def test_predictions_are_their_definition(name, posterior, rng):
    p = problem(rng, name)
    model, _ = in_model(rng, posterior, p.svgp(), jitter=JITTER)
    Xs = rng.uniform(-3, 3, (13, 2))
    ys = rng.standard_normal(13)
    Kuu, Kuf, kff = p.blocks(Xs)
    q = [moments[0] for moments in definitions.q_of_u(model.posterior, Kuu)]
    mean, cov = gp.joint(Kuu, Kuf, p.k(Xs, Xs), *q)
    var = gp.marginals(Kuu, Kuf, kff, *q)[1]
    for ours, truth in zip(fs.predict_f(model, Xs, jitter=JITTER), (mean, var), strict=True):
        close(ours, truth)
    for ours, truth in zip(
        fs.predict_f(model, Xs, full_cov=True, jitter=JITTER), (mean, cov), strict=True
    ):
        close(ours, truth)
    for ours, truth in zip(
        fs.predict_y(model, Xs, jitter=JITTER), (mean, var + p.noise), strict=True
    ):
        close(ours, truth)
    density = -0.5 * (gp.LOG_2PI + np.log(var + p.noise) + (ys - mean) ** 2 / (var + p.noise))
    close(fs.predict_log_density(model, Xs, ys, jitter=JITTER), density)


@every_posterior
def test_chunked_predictions_are_the_unchunked_ones(posterior, rng):
    p = problem(rng, "sum")
    model, _ = in_model(rng, posterior, p.svgp(), jitter=JITTER)
    Xs, ys = rng.uniform(-3, 3, (65, 2)), rng.standard_normal(65)
    for predict in (
        fs.predict_f,
        fs.predict_y,
        lambda m, Xs, **settings: (fs.predict_log_density(m, Xs, ys, **settings),),
    ):
        whole = predict(model, Xs, jitter=JITTER)
        for chunk in (1, 17, 64):
            for a, b in zip(
                predict(model, Xs, jitter=JITTER, chunk_size=chunk), whole, strict=True
            ):
                close(a, b, 1e-13)
