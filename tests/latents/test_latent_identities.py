"""Models of several latent functions that equal simpler ones, and the order of the bounds."""

import numpy as np
import pytest
from oracles import gp
from support import definitions
from support.gp_problems import assert_records_close
from support.latent_problems import JITTER, OPTIONS, D, M, N, P, layer, mixing, prior_of, problem

import fastsvgp as fs

FIELDS = "covariance", "inducing", "posterior", "mean"
POSTERIORS = "whitened", "marginal", "likelihood", "absorbed-sites", "dual-sites", "relaxed"


def assert_equal(one, other):
    """Compare records bit by bit; for factors only lower triangles."""
    for (path, kind, a), (_, _, b) in zip(
        fs.records.leaves(one), fs.records.leaves(other), strict=True
    ):
        assert (a is None) is (b is None), path
        if a is not None:
            a, b = (np.tril(x) if kind in ("tril", "symmetric") else x for x in (a, b))
            np.testing.assert_array_equal(a, b, err_msg=path)


def svgp(one, likelihood):
    return fs.SVGP(one.covariance, one.inducing, one.posterior, likelihood, one.mean)


def assert_predictions_equal(model, Xs, alone):
    """Compare predictions of the functions with those of SVGPs, bit by bit."""
    mean, var = fs.predict_f(model, Xs, jitter=JITTER)
    _, cov = fs.predict_f(model, Xs, full_cov=True, jitter=JITTER)
    for p, one in enumerate(alone):
        found = fs.predict_f(one, Xs, jitter=JITTER)
        np.testing.assert_array_equal(mean[:, p], found[0])
        np.testing.assert_array_equal(var[:, p], found[1])
        np.testing.assert_array_equal(
            cov[p], fs.predict_f(one, Xs, full_cov=True, jitter=JITTER)[1]
        )


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("posterior", POSTERIORS)
def test_separate_layers_are_the_sum_of_their_svgps(rng, posterior, weighted):
    X, Y, likelihood = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P)), fs.StudentT(0.4)
    latents = tuple(layer(rng, posterior) for _ in range(P - 1)) + (layer(rng, M=7),)
    model = fs.MultiGP(latents, likelihood)
    weights = rng.uniform(0.1, 2, (N, P)) if weighted else None
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, weights=weights, **OPTIONS)
    alone = [svgp(one, likelihood) for one in latents]
    found = [
        fs.elbo_and_grad(
            one, X, Y[:, p], inputs=True, weights=weights if weights is None else weights[:, p],
            **OPTIONS,
        )
        for p, one in enumerate(alone)
    ]  # fmt: skip
    assert value == pytest.approx(sum(one[0] for one in found), rel=1e-14)
    for p, (_, due, _) in enumerate(found):
        for name in FIELDS:
            if getattr(latents[p], name) is None:
                assert getattr(grad.latents[p], name) is None
            elif name == "inducing":
                np.testing.assert_array_equal(grad.latents[p].inducing, due.inducing)
            else:
                assert_equal(getattr(grad.latents[p], name), getattr(due, name))
    np.testing.assert_array_equal(X_bar, found[2][2] + (found[1][2] + found[0][2]))
    scale = sum(one[1].likelihood.scale for one in found)
    assert grad.likelihood.scale == pytest.approx(scale, rel=1e-13)
    assert_predictions_equal(model, rng.uniform(-3, 3, (5, D)), alone)


@pytest.mark.parametrize("W", ["none", "identity"])
def test_one_layer_is_an_svgp(rng, W):
    X, Y, likelihood = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P)), fs.StudentT(0.4)
    mean = fs.means.LinearMean(rng.standard_normal((P, D)), rng.standard_normal(P))
    one = layer(rng, outputs=(P,))
    model = fs.MultiGP((one,), likelihood, None if W == "none" else np.eye(P), mean)
    alone = svgp(fs.replace(one, mean=mean), likelihood)
    value, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, **OPTIONS)
    due, due_grad, due_X_bar = fs.elbo_and_grad(alone, X, Y, inputs=True, **OPTIONS)
    assert value == pytest.approx(due, rel=1e-14)
    assert_equal(grad.latents[0].covariance, due_grad.covariance)
    assert_equal(grad.latents[0].posterior, due_grad.posterior)
    assert_equal(grad.mean, due_grad.mean)
    assert_equal(grad.likelihood, due_grad.likelihood)
    np.testing.assert_array_equal(grad.latents[0].inducing, due_grad.inducing)
    np.testing.assert_array_equal(X_bar, due_X_bar)
    Xs = rng.uniform(-3, 3, (5, D))
    for call in (fs.predict_f, fs.predict_y):
        for a, b in zip(call(model, Xs), call(alone, Xs), strict=True):
            np.testing.assert_array_equal(a, b)


def test_one_function_is_an_svgp(rng):
    """Without an axis of outputs, and with one of length 1."""
    X, y = rng.uniform(-2, 2, (N, D)), rng.standard_normal(N)
    for outputs in (None, (1,)):
        one = layer(rng, outputs=outputs, mean=fs.means.ConstantMean(0.3))
        model, alone = fs.MultiGP((one,), fs.Gaussian(0.2)), svgp(one, fs.Gaussian(0.2))
        for Y in (y, y[:, None]):
            if outputs and Y is y:
                assert fs.elbo(model, X, y, **OPTIONS) == fs.elbo(model, X, y[:, None], **OPTIONS)
                continue  # an SVGP with an axis of outputs takes columns
            value, grad = fs.elbo_and_grad(model, X, Y, **OPTIONS)
            due, due_grad = fs.elbo_and_grad(alone, X, Y, **OPTIONS)
            assert value == due
            assert_equal(grad.latents[0].posterior, due_grad.posterior)
        assert fs.predict_f(model, X)[0].shape == fs.predict_y(model, X)[1].shape == (N,)


def test_means_of_layers_pass_the_mixing(rng):
    """f = W (g + m) + mean is f = W g + (W m + mean)."""
    latents = tuple(layer(rng, mean=fs.means.ConstantMean(m)) for m in (0.4, -0.7))
    W = mixing(rng, P, 2)
    X, Y = rng.uniform(-2, 2, (N, D)), rng.standard_normal((N, P))
    model = fs.MultiGP(latents, fs.Gaussian(0.2), W, fs.means.ConstantMean(np.ones(P)))
    bare = tuple(fs.replace(one, mean=None) for one in latents)
    other = fs.replace(
        model, latents=bare, mean=fs.means.ConstantMean(1 + W @ np.array([0.4, -0.7]))
    )
    assert fs.elbo(model, X, Y, **OPTIONS) == pytest.approx(fs.elbo(other, X, Y, **OPTIONS))


def test_a_model_follows_its_definition(rng):
    """Value and moments by dense formulas of each latent function."""
    model, X, Y, _ = problem(rng, "lmc")
    moments = [
        definitions.layer_moments(one, X, JITTER) for one in model.latents
    ]  # mean, variance, KL
    mean, var = (np.concatenate([one[i] for one in moments]) for i in (0, 1))
    W = model.mixing
    f_mean, f_var = W @ mean + model.mean.value[:, None], np.square(W) @ var
    ell = sum(gp.gaussian_expectation(Y[:, p], 0.3, f_mean[p], f_var[p]) for p in range(P))
    due = 2.5 * ell - sum(one[2] for one in moments)
    assert fs.elbo(model, X, Y, **OPTIONS) == pytest.approx(due, rel=1e-10)


def test_sums_over_shards_are_the_whole(rng):
    for name in ("lmc", "noise", "icm"):
        model, X, Y, _ = problem(rng, name)
        value, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
        parts = [
            fs.bounds.data_term_and_grad(model, X[at], Y[at], jitter=JITTER)
            for at in (slice(4), slice(4, 5), slice(5, N))
        ]
        kl, total = fs.bounds.kl_term_and_grad(model, jitter=JITTER)
        assert sum(one for one, _ in parts) - kl == pytest.approx(value, rel=1e-12)
        total = fs.records.tree_map(np.negative, total)
        for _, one in parts:
            total = fs.records.tree_map(np.add, total, one)
        assert_records_close(total, grad, 1e-12)


# --- order of the bounds --------------------------------------------------------------------------


def evidence(model, X, Y, jitter=0.0):
    """Return the exact log marginal likelihood of Gaussian noise."""
    noise, shift = float(model.likelihood.variance), model.mean.value
    K = prior_of(model, X, jitter) + noise * np.eye(Y.size)
    return gp.log_normal((Y - shift).T.ravel(), np.zeros(Y.size), K)


def gap_of(model, X):
    """Return KL[q || p] of independent latent functions at their best, for inducing inputs at X.

    The precisions of the best factors are the diagonal blocks of that of the posterior.
    """
    W, N = model.mixing, len(X)
    factors = [
        np.linalg.cholesky(one.covariance.Kuu(X))
        for one in model.latents
        for _ in range(max(1, one.posterior.mean.ndim and one.posterior.mean.size // N))
    ]
    weights = W.T @ W / model.likelihood.variance
    blocks = [
        [weights[k, m] * A.T @ B + (k == m) * np.eye(N) for m, B in enumerate(factors)]
        for k, A in enumerate(factors)
    ]
    alone = sum(np.linalg.slogdet(row[k])[1] for k, row in enumerate(blocks))
    return 0.5 * (alone - np.linalg.slogdet(np.block(blocks))[1])


@pytest.mark.parametrize("columns", ["any", "orthogonal"])
@pytest.mark.parametrize("name", ["lmc", "icm"])
def test_the_bound_stays_below_the_evidence_and_reaches_it(rng, name, columns):
    """At Z = X only the independence of the latent functions under q is left.

    With orthogonal columns of W they are independent under the posterior, and nothing is left.
    """
    model, X, Y, _ = problem(rng, name)
    # means of layers are zero, so that all of the mean is the model's
    latents = tuple(fs.replace(one, mean=None) for one in model.latents)
    model = fs.replace(model, latents=latents, mean=fs.means.ConstantMean(np.linspace(-1, 1, P)))
    if columns == "orthogonal":
        W = np.linalg.qr(model.mixing)[0] * np.array([1.3, 0.6])
        model = fs.replace(model, mixing=W)
    exact = evidence(model, X, Y)
    assert fs.elbo(model, X, Y, jitter=JITTER) < exact
    for few in (1, 4, 9):
        fewer = at_data(model, X[:few])
        best, _ = fs.natural_step(fewer, X, Y, step_size=1.0, jitter=1e-9)
        assert fs.elbo(best, X, Y, jitter=1e-9) < exact
    full = at_data(model, X)
    best, info = fs.natural_step(full, X, Y, step_size=1.0, jitter=1e-9)
    assert not info.backed_off and not info.in_turn
    gap = gap_of(full, X)
    assert bool(gap < 1e-9) is (columns == "orthogonal")
    assert fs.elbo(best, X, Y, jitter=1e-9) == pytest.approx(exact - gap, rel=1e-6)


def at_data(model, Z):
    """Return the model with inducing inputs Z, at the prior."""
    latents = []
    for one in model.latents:
        q = fs.posteriors.at_prior(fs.Whitened, one.covariance, Z, *one.posterior.mean.shape[:-1])
        latents.append(fs.replace(one, inducing=Z, posterior=q))
    return fs.replace(model, latents=tuple(latents), inducing=None)


def test_a_tuple_of_matrices_is_a_block_of_each(rng):
    """One matrix in a tuple is that matrix; identities in a tuple are no mixing."""
    model, X, Y, options = problem(rng, "lmc")
    wrapped = fs.replace(model, mixing=(model.mixing,))
    value, grad = fs.elbo_and_grad(model, X, Y, **options)
    other, other_grad = fs.elbo_and_grad(wrapped, X, Y, **options)
    assert value == other
    np.testing.assert_array_equal(grad.mixing, other_grad.mixing[0])
    model, X, Y, options = problem(rng, "dispersed")
    plain, _ = fs.elbo_and_grad(model, X, Y, **options)
    eyes, grad = fs.elbo_and_grad(fs.replace(model, mixing=(np.eye(P), np.eye(P))), X, Y, **options)
    assert eyes == pytest.approx(plain, rel=1e-14)
    assert [one.shape for one in grad.mixing] == [(P, P), (P, P)] and M > 1


# --- likelihoods of several functions -------------------------------------------------------------

DRAWS = 1_000_000


def test_the_expected_density_of_mixed_functions_is_that_of_joint_draws(rng):
    """The mean of log p(y | f, h) over draws of g; each block has latents of its own."""
    model, X, Y, _ = problem(rng, "noise", N=1)
    ell, _ = fs.bounds.data_term_and_grad(model, X, Y, jitter=JITTER, wrt=())
    mean, var = latent_marginals(model, X)
    g = mean[:, None] + np.sqrt(var)[:, None] * rng.standard_normal((len(mean), DRAWS))
    f, h = model.mixing[0] @ g[:3], model.mixing[1] @ g[3:]
    logs = -0.5 * (gp.LOG_2PI + h + (Y[0][:, None] - f) ** 2 * np.exp(-h)).sum(axis=0)
    assert abs(logs.mean() - ell) <= 5 * logs.std() / np.sqrt(DRAWS)


def test_a_function_in_mean_and_noise_would_be_no_bound(rng):
    """With W = (1, 1)' the sum at marginals exceeds the expectation, and is refused."""
    one = layer(rng)
    q = fs.posteriors.at_prior(fs.Whitened, one.covariance, one.inducing)
    one = fs.replace(one, posterior=q)
    shared = fs.MultiGP((one,), fs.likelihoods.HeteroskedasticGaussian(), np.ones((2, 1)))
    twice = fs.MultiGP((one, one), fs.likelihoods.HeteroskedasticGaussian())
    x, y = rng.uniform(-2, 2, (1, D)), np.ones(1)
    at_marginals, _ = fs.bounds.data_term_and_grad(twice, x, y, jitter=JITTER, wrt=())
    mean, var = latent_marginals(fs.MultiGP((one,), fs.Gaussian(1.0)), x)
    g = mean + np.sqrt(var) * rng.standard_normal(DRAWS)
    logs = -0.5 * (gp.LOG_2PI + g + (1 - g) ** 2 * np.exp(-g))
    assert at_marginals > logs.mean() + max(0.5, 20 * logs.std() / np.sqrt(DRAWS))
    with pytest.raises(ValueError, match=r"a tuple of 2 matrices .* must be independent"):
        fs.elbo(shared, x, y)


def latent_marginals(model, X):
    """Return mean and variance of g at one input."""
    plain = fs.MultiGP(model.latents, fs.Gaussian(1.0), inducing=model.inducing)
    return (np.atleast_1d(np.squeeze(moment)) for moment in fs.predict_f(plain, X, jitter=JITTER))
