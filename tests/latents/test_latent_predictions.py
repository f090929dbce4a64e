"""Predictions of several latent functions, and draws."""

import numpy as np
import pytest
from scipy import stats
from support.gp_problems import assert_moments
from support.latent_problems import JITTER, MODELS, ONE, D, P, layer, mixing, problem

import fastsvgp as fs
from fastsvgp.latents.latent_pass import LatentPass
from fastsvgp.latents.model import layers_of
from fastsvgp.testing import assert_gradient

S = 100_000
each_model = pytest.mark.parametrize("name", MODELS)


def joint_of_latents(model, Xs):
    """Return mean (L, N) and covariance (L, N, N) of g, layer by layer, from SVGPs."""
    means, covs = [], []
    for one in layers_of(model):
        alone = fs.SVGP(one.covariance, one.inducing, one.posterior, fs.Gaussian(1.0), one.mean)
        mean, cov = fs.predict_f(alone, Xs, full_cov=True, jitter=JITTER)
        means.append(mean.reshape(len(Xs), -1).T)
        covs.append(cov.reshape(-1, len(Xs), len(Xs)))
    return np.concatenate(means), np.concatenate(covs)


def dense_mixing(model, L):
    """Return W of all functions: of a tuple, block-diagonal."""
    blocks = model.mixing if isinstance(model.mixing, tuple) else (model.mixing,)
    if model.mixing is None:
        return np.eye(L)
    W, j, k = np.zeros((sum(len(one) for one in blocks), L)), 0, 0
    for one in blocks:
        W[j : j + len(one), k : k + one.shape[1]] = one
        j, k = j + len(one), k + one.shape[1]
    return W


def inputs(rng, name, count=5):
    return rng.uniform(-2, 2, (count, 6 if name == "images" else D))


def shift_of(model, Xs, J):
    return np.zeros((J, len(Xs))) + (0 if model.mean is None else model.mean(Xs).reshape(J, -1))


@each_model
def test_moments_are_the_dense_formulas(rng, name):
    model, Xs = MODELS[name](rng), inputs(rng, name)
    mean_g, cov_g = joint_of_latents(model, Xs)
    W = dense_mixing(model, len(mean_g))
    J = len(W)
    mean = (W @ mean_g + shift_of(model, Xs, J)).T
    cov = np.einsum("jl,lnm->jnm", np.square(W), cov_g)
    var = np.einsum("jnn->nj", cov)
    over = np.einsum("jl,lnn,kl->njk", W, cov_g, W)
    plain = fs.predict_f(model, Xs, jitter=JITTER)
    joint = fs.predict_f(model, Xs, full_cov=True, jitter=JITTER)
    across = fs.predict_f(model, Xs, full_output_cov=True, jitter=JITTER)
    if J == 1:
        mean, var, cov = mean[:, 0], var[:, 0], cov[0]
    for found, due in ((plain, (mean, var)), (joint, (mean, cov)), (across, (mean, over))):
        for a, b in zip(found, due, strict=True):
            assert a.shape == b.shape
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@each_model
def test_chunks_of_predictions(rng, name):
    model, Xs = MODELS[name](rng), inputs(rng, name, 7)
    ys = problem(rng, name).Y[:7]
    calls = [
        lambda **more: fs.predict_f(model, Xs, **more),
        lambda **more: fs.predict_f(model, Xs, full_output_cov=True, **more),
        lambda **more: fs.predict_y(model, Xs, **more),
        lambda **more: (fs.predict_log_density(model, Xs, ys, **more),),
    ]
    for call in calls:
        for a, b in zip(call(chunk_size=3), call(), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)


@each_model
def test_shapes_of_predictions_of_targets(rng, name):
    model, X, Y, _ = problem(rng, name)
    shape = (len(X), 3) if name == "classes" else Y.shape
    for moment in fs.predict_y(model, X, jitter=JITTER):
        assert moment.shape == shape and np.isfinite(moment).all()
    assert fs.predict_log_density(model, X, Y, jitter=JITTER).shape == (len(X),)
    if name == "classes":
        return
    cdf = fs.predict_cdf(model, X, Y, jitter=JITTER)
    assert cdf.shape == Y.shape and ((cdf >= 0) & (cdf <= 1)).all()
    for levels, axes in ((0.3, ()), ([0.1, 0.5, 0.9], (3,))):
        assert fs.predict_quantiles(model, X, levels, jitter=JITTER).shape == (*axes, *Y.shape)


def test_targets_with_gaussian_noise_follow_their_marginals(rng):
    for name in ("lmc", "icm"):
        model, X, Y, _ = problem(rng, name)
        mean, var = fs.predict_f(model, X, jitter=JITTER)
        sd = np.sqrt(var + 0.3)
        density = stats.norm.logpdf(Y, mean, sd).sum(axis=1)
        close = {"rtol": 1e-10, "atol": 1e-10}
        np.testing.assert_allclose(fs.predict_y(model, X, jitter=JITTER)[1], sd**2, **close)
        found = fs.predict_log_density(model, X, Y, jitter=JITTER)
        np.testing.assert_allclose(found, density, **close)
        found = fs.predict_cdf(model, X, Y, jitter=JITTER)
        np.testing.assert_allclose(found, stats.norm.cdf(Y, mean, sd), **close)
        found = fs.predict_quantiles(model, X, 0.2, jitter=JITTER)
        np.testing.assert_allclose(found, stats.norm.ppf(0.2, mean, sd), **close)


@each_model
def test_gradients_of_predictions(rng, name):
    model, Xs = MODELS[name](rng), inputs(rng, name)
    mean, var, pull = fs.bounds.predict_f_and_vjp(model, Xs, jitter=JITTER)
    for a, b in zip((mean, var), fs.predict_f(model, Xs, jitter=JITTER), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-14)
    a, b = rng.standard_normal(mean.shape), rng.standard_normal(mean.shape)

    def product(Xs):
        mean, var = fs.predict_f(model, Xs, jitter=JITTER)
        return (a * mean).sum() + (b * var).sum()

    assert_gradient(product, Xs, pull(a, b), rng=rng, rtol=1e-9)


# --- draws ----------------------------------------------------------------------------------------


def assert_moments_of(samples, model, Xs):
    """Compare draws (S, N, J) with all covariances, across rows and functions."""
    mean_g, cov_g = joint_of_latents(model, Xs)
    W = dense_mixing(model, len(mean_g))
    mean = W @ mean_g + shift_of(model, Xs, len(W))
    cov = np.einsum("jl,lnm,kl->njmk", W, cov_g, W).reshape(mean.size, mean.size)
    assert_moments(samples.reshape(len(samples), -1), mean.T.ravel(), cov)


@pytest.mark.parametrize("name", ["lmc", "wide", "noise", "one output", "classes"])
def test_moments_of_draws(rng, name):
    model, Xs = MODELS[name](rng), inputs(rng, name, 3)
    samples = fs.sample_f(model, Xs, S, rng=1, jitter=JITTER)
    if name in ONE and samples.ndim == 2:
        samples = samples[..., None]
    assert_moments_of(samples, model, Xs)
    few = fs.sample_f(model, Xs, 2, rng=np.random.default_rng(1), jitter=JITTER)
    assert few.shape[:2] == (2, 3)
    again = fs.sample_f(model, Xs, 2, rng=np.random.default_rng(1), jitter=JITTER)
    np.testing.assert_array_equal(few, again)


def test_one_mean_for_all_functions_is_added_to_each(rng):
    model, Xs, bare = MODELS["lmc"](rng), inputs(rng, "lmc", 3), {"num_samples": 2, "rng": 1}
    mean = fs.means.LinearMean(rng.standard_normal(D), 0.3)
    without = fs.sample_f(fs.replace(model, mean=None), Xs, **bare)
    samples = fs.sample_f(fs.replace(model, mean=mean), Xs, **bare)
    np.testing.assert_allclose(samples - without, np.tile(mean(Xs)[:, None], (2, 1, P)), rtol=1e-12)


def test_moments_of_draws_of_a_hidden_layer(rng):
    """What a deep GP passes on are draws of g, mixed: functions of a row depend on each other."""
    latents = layer(rng, outputs=(2,)), layer(rng)
    hidden = fs.layers.ParallelLayers(
        latents, mixing(rng, P, 3), fs.means.ConstantMean(np.arange(3.0))
    )
    Xs = rng.uniform(-2, 2, (1, D))
    # f(h) = h, without variance
    q = fs.Whitened(np.eye(P), 1e-7 * np.stack([np.eye(P)] * P))
    identity = fs.layers.Layer(fs.Linear(np.ones(P)), np.eye(P), q)
    deep = fs.DeepGP((hidden, identity), fs.Gaussian(0.1))
    samples = fs.sample_f(deep, Xs, 4000, rng=1, jitter=1e-12)
    of_g = fs.MultiGP(latents, fs.Gaussian(0.1), hidden.mixing, hidden.mean)
    mean_g, cov_g = joint_of_latents(of_g, Xs)
    W = hidden.mixing
    mean, cov = W @ mean_g[:, 0] + np.arange(3.0), (W * cov_g[:, 0, 0]) @ W.T
    assert_moments(samples[:, 0], mean, cov)


@pytest.mark.parametrize("P", [1, 3])
def test_moments_of_hidden_draws_of_a_bound(rng, P):
    """The draws of the bound, from the pass itself."""
    latents = layer(rng, outputs=(2,)), layer(rng)
    hidden = fs.layers.ParallelLayers(
        latents, mixing(rng, P, 3), fs.means.LinearMean(np.ones((P, D)), np.ones(P))
    )
    X = rng.uniform(-2, 2, (2, D))
    work = hidden.start(JITTER, hidden=True)
    g, _ = work.forward(X)
    draws = g.mean.T + np.sqrt(g.var).T * rng.standard_normal((S, 2, 3))
    h = work.mix_draws(draws, X)
    assert h.shape == (S, 2, P)
    mean_g, cov_g = joint_of_latents(fs.MultiGP(latents, fs.Gaussian(0.1)), X)
    W = hidden.mixing
    for n in range(2):
        mean = W @ mean_g[:, n] + 1 + X[n].sum()
        assert_moments(h[:, n], mean, (W * cov_g[:, n, n]) @ W.T)


def test_only_layers_with_a_gradient_keep_residuals(rng):
    """Otherwise the memory of a prediction would grow with the number of layers."""
    model, X, _, _ = problem(rng, "separate")
    for need, kept in (
        ((), [False] * 3),
        (("likelihood", "mean"), [False] * 3),
        (("latents.1.covariance",), [False, True, False]),
        (("inducing",), [True, False, True]),
        (("inputs",), [True] * 3),
    ):
        _, rows = LatentPass(model, JITTER, len(X), need).forward(X)
        assert [one is not None for one in rows.layers] == kept, need
