"""Predictions of a deep GP: mixtures over points common to all rows, and whole functions."""

import numpy as np
import pytest
from scipy.special import log_softmax, logsumexp, ndtr
from scipy.stats import norm
from support import definitions
from support.deep_problems import LIKELIHOODS, B, layer_of, problem
from support.posterior_problems import JITTER

import fastsvgp as fs
from fastsvgp import kernels

S = 8
OPTIONS = {"jitter": JITTER, "num_samples": S}


def parts(model, X, S=S):
    """Return means and variances (S, N, P) of the last layer's function."""
    sizes = [layer.check_shapes()[1][0] for layer in model.layers[:-1]]
    points = np.split(kernels.normal_points(sum(sizes), S), np.cumsum(sizes)[:-1], axis=1)
    draws = [np.repeat(z[:, None], len(X), axis=1) for z in points]
    found, _ = definitions.deep_marginals(model, X, draws, JITTER)
    return (np.stack([moment.T for moment in moments]) for moments in zip(*found, strict=True))


@pytest.mark.parametrize("name", ["two", "three", "outputs"])
def test_predictions_are_a_mixture_of_gaussians(rng, name):
    model, X, Y = problem(rng, name)
    model = fs.replace(model, likelihood=fs.Gaussian(0.3))
    mean, var = parts(model, X)
    y = Y.reshape(B, -1)
    due_mean, due_var = mean.mean(axis=0), var.mean(axis=0) + mean.var(axis=0)
    logs = norm.logpdf(y, mean, np.sqrt(var + 0.3)).sum(axis=-1)
    due = {
        fs.predict_f: (due_mean, due_var),
        fs.predict_y: (due_mean, due_var + 0.3),
    }
    for call, moments in due.items():
        for a, b in zip(call(model, X, **OPTIONS), moments, strict=True):
            assert a.shape == Y.shape
            np.testing.assert_allclose(a.reshape(B, -1), b, rtol=1e-9)
    np.testing.assert_allclose(
        fs.predict_log_density(model, X, Y, **OPTIONS),
        logsumexp(logs, axis=0) - np.log(S),
        rtol=1e-9,
    )
    cdf = ndtr((y - mean) / np.sqrt(var + 0.3)).mean(axis=0)
    np.testing.assert_allclose(
        fs.predict_cdf(model, X, Y, **OPTIONS).reshape(B, -1), cdf, rtol=1e-9
    )
    levels = 0.01, 0.5, 0.8
    for level, q in zip(levels, fs.predict_quantiles(model, X, levels, **OPTIONS), strict=True):
        assert q.shape == Y.shape
        reached = ndtr((q.reshape(B, -1) - mean) / np.sqrt(var + 0.3)).mean(axis=0)
        np.testing.assert_allclose(reached, level, rtol=1e-11)
    np.testing.assert_array_equal(fs.predict_quantiles(model, X, 0.8, **OPTIONS), q)


def test_quantiles_of_counts_reach_their_level(rng):
    """The smallest count whose distribution function, of the mixture, reaches the level."""
    model, X, _ = problem(rng, "two")
    model = fs.replace(model, likelihood=fs.Poisson(exposure=3.0))
    for level, q in zip(
        (0.1, 0.9), fs.predict_quantiles(model, X, (0.1, 0.9), **OPTIONS), strict=True
    ):
        np.testing.assert_array_equal(q, np.floor(q))
        assert (fs.predict_cdf(model, X, q, **OPTIONS) >= level - 1e-11).all()
        below = fs.predict_cdf(model, X, np.maximum(q - 1, 0), **OPTIONS)
        assert ((below < level) | (q == 0)).all()


def test_class_probabilities_are_those_of_the_mixture(rng):
    model, X, Y = problem(rng, "classes")
    p, spread = fs.predict_y(model, X, **OPTIONS)
    np.testing.assert_allclose(p.sum(axis=1), 1, rtol=1e-12)
    np.testing.assert_allclose(spread, p * (1 - p), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(
        fs.predict_log_density(model, X, Y, **OPTIONS), np.log(p[np.arange(B), Y]), rtol=1e-10
    )
    mean, var = parts(model, X)
    points = kernels.normal_points(3, model.likelihood.num_samples)
    f = mean[..., None, :] + np.sqrt(var)[..., None, :] * points
    np.testing.assert_allclose(p, np.exp(log_softmax(f, axis=-1)).mean(axis=(0, 2)), rtol=1e-9)
    with pytest.raises(TypeError, match="classes, which have no quantiles"):
        fs.predict_quantiles(model, X, 0.5)


def test_a_prediction_depends_only_on_its_row(rng):
    """Chunked equals unchunked, and ``rng=None`` is one seed."""
    model, X, Y = problem(rng, "three")
    calls = [
        lambda **kw: fs.predict_f(model, X, **kw),
        lambda **kw: fs.predict_y(model, X, **kw),
        lambda **kw: (fs.predict_log_density(model, X, Y, **kw), fs.predict_cdf(model, X, Y, **kw)),
        lambda **kw: fs.predict_quantiles(model, X, 0.3, **kw),
    ]
    for call in calls:
        whole = call(jitter=JITTER)
        np.testing.assert_array_equal(call(jitter=JITTER, rng=None), whole)
        np.testing.assert_array_equal(call(jitter=JITTER, rng=5), call(jitter=JITTER, rng=5))
        assert np.any(np.not_equal(call(jitter=JITTER, rng=5), whole))
        for size in (1, 2, B + 1):
            np.testing.assert_allclose(
                call(jitter=JITTER, chunk_size=size), whole, rtol=1e-12, atol=1e-13
            )


def moments_by_points(rng):
    """Errors of the mean by 256 and by 2 points, against 40 nodes over one hidden variable."""
    model, X, _ = problem(rng, "narrow")
    nodes, weights = np.polynomial.hermite_e.hermegauss(40)
    draws = [np.repeat(nodes[:, None, None], B, axis=1)]
    found, _ = definitions.deep_marginals(model, X, draws, JITTER)
    mean = sum(w * one[0][0] for w, one in zip(weights / weights.sum(), found, strict=True))
    return [
        np.abs(fs.predict_f(model, X, jitter=JITTER, num_samples=num)[0] - mean).max()
        for num in (256, 2)
    ]


def test_points_find_the_moments_of_many_draws(rng):
    """Medians, because the smoothness of a model in its hidden variable is random."""
    close, far = np.median([moments_by_points(rng) for _ in range(7)], axis=0)
    assert close < 0.01 and close < far / 3


def test_sample_f_draws_whole_functions_layer_by_layer(rng):
    """The first layer's sample at all inputs jointly, then the next layer's at that sample."""
    below, above = layer_of(rng, "marginal", 2, 2), layer_of(rng, "whitened", 2, None)
    X, rng_of = rng.uniform(-2, 2, (B, 2)), np.random.default_rng
    deep = fs.DeepGP((below, above), fs.Gaussian(0.3))
    hidden = fs.sample_f(fs.DeepGP((below,), fs.Gaussian(0.3)), X, 3, rng=rng_of(5), jitter=JITTER)
    after = rng_of(5)
    after.standard_normal(hidden.size)
    top = fs.DeepGP((above,), fs.Gaussian(0.3))
    due = np.concatenate([fs.sample_f(top, H, 1, rng=after, jitter=JITTER) for H in hidden])
    np.testing.assert_allclose(
        fs.sample_f(deep, X, 3, rng=rng_of(5), jitter=JITTER), due, rtol=1e-10
    )
    twice = fs.sample_f(deep, np.repeat(X, 2, axis=0), 2, rng=0, jitter=1e-9)
    np.testing.assert_allclose(twice[:, ::2], twice[:, 1::2], atol=1e-3)
    outputs, _, _ = problem(rng, "outputs")
    assert fs.sample_f(outputs, X, 3, rng=0, jitter=JITTER).shape == (3, B, 2)


def test_full_cov_is_rejected(rng):
    model, X, _ = problem(rng, "two")
    with pytest.raises(
        ValueError,
        match=r"not jointly Gaussian.*sample_f\(model, Xs\) draws whole functions",
    ):
        fs.predict_f(model, X, full_cov=True)


def test_every_likelihood_predicts(rng):
    for name, make in LIKELIHOODS.items():
        P = {"classes": 3, "noise": 2}.get(name)
        likelihood, Y = make(rng, P)
        model = fs.DeepGP(
            (layer_of(rng, "whitened", 2, 2), layer_of(rng, "likelihood", 2, P)), likelihood
        )
        logs = fs.predict_log_density(model, rng.uniform(-2, 2, (B, 2)), Y)
        assert logs.shape == (B,) and np.isfinite(logs).all()
