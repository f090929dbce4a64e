"""Predictors: the predictions of every model, without a factor of Kuu."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import posteriors as qs

M, M2, D, JITTER = 12, 7, 2, 1e-4
COVARIANCE = fs.RBF(1.3, np.array([0.9, 1.2]))


def tril(rng, M, *batch):
    return np.tril(0.1 * rng.standard_normal((*batch, M, M)), -1) + 0.5 * np.eye(M)


def whitened(rng, *batch):
    return fs.Whitened(rng.standard_normal((*batch, M)), tril(rng, M, *batch))


def pair(rng, kind, *fields):
    return kind(rng.standard_normal(M), 0.3 * tril(rng, M), rng.standard_normal(M2), *fields)


CASES = {
    "whitened": whitened,
    "whitened-2": lambda rng: whitened(rng, 2),
    "marginal": lambda rng: fs.Marginal(rng.standard_normal(M), 0.2 * tril(rng, M)),
    "wide": lambda rng: fs.Whitened(rng.standard_normal(M), 2.5 * tril(rng, M)),
    "likelihood": lambda rng: qs.LikelihoodForm(rng.standard_normal(M), 0.1 + rng.random(M)),
    "likelihood-plain": lambda rng: qs.LikelihoodForm(
        rng.standard_normal((2, M)), 0.1 + rng.random(M), preconditioned=False
    ),
    "relaxed": lambda rng: qs.Relaxed(rng.standard_normal(M), 0.5 + rng.random(M), np.eye(M) / 4),
    "absorbed": qs.AbsorbedDualSites,
    "dual": qs.DualSites,
    "whitened-orthogonal": lambda rng: pair(rng, qs.WhitenedOrthogonal, tril(rng, M2)),
    "orthogonal": lambda rng: pair(rng, qs.Orthogonal, 0.1 * tril(rng, M2)),
    "decoupled": lambda rng: pair(rng, qs.Decoupled),
    "weights": lambda rng: pair(rng, qs.DecoupledWeights),
    "inverse-free": lambda rng: qs.InverseFreeWhitened(
        rng.standard_normal(M), tril(rng, M), np.eye(M) / 4
    ),
    "mean-of-two": lambda rng: whitened(rng, 2),
}


def problem(rng, name):
    Z, O = rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (M2, D))  # noqa: E741
    make = CASES[name]
    q = whitened(rng) if isinstance(make, type) else make(rng)
    two = hasattr(q, "mean_u")
    mean = fs.means.ConstantMean(np.array([0.3, -0.4])) if name == "mean-of-two" else None
    model = fs.SVGP(COVARIANCE, qs.InducingPair(Z, O) if two else Z, q, fs.Gaussian(0.1), mean)
    if isinstance(make, type):
        model = qs.convert(model, make, jitter=JITTER)
    return model, rng.uniform(-2, 2, (31, D))


def assert_same(ours, theirs, tolerance=1e-11):
    for one, other in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * np.abs(other).max())


@pytest.mark.parametrize("name", CASES)
def test_predictions_are_those_of_the_model(rng, name):
    model, Xs = problem(rng, name)
    fast = fs.predictor(model, jitter=JITTER)
    assert_same(fs.predict_f(fast, Xs), fs.predict_f(model, Xs, jitter=JITTER))
    assert_same(fs.predict_y(fast, Xs), fs.predict_y(model, Xs, jitter=JITTER))
    both = (fs.predict_f(m, Xs, full_cov=True, jitter=JITTER) for m in (fast, model))
    assert_same(*both)
    means = (fs.predict_f(m, Xs, var=False, jitter=JITTER) for m in (fast, model))
    assert_same(*([mean] for mean in means))
    mean, _, vjp = fs.predict_f_and_vjp(fast, Xs)
    bars = rng.standard_normal((2, *mean.shape))
    other = fs.predict_f_and_vjp(model, Xs, jitter=JITTER)[2]
    assert_same([vjp(*bars)], [other(*bars)], 1e-10)


def test_several_functions_and_layers(rng):
    Z, Xs = rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (9, D))
    layer = fs.Layer(COVARIANCE, None, whitened(rng))
    hidden = fs.Layer(COVARIANCE, Z, whitened(rng, D), fs.means.IdentityMean())
    multi = fs.MultiGP((layer, layer), fs.Gaussian(0.1), rng.standard_normal((3, 2)), inducing=Z)
    deep = fs.DeepGP((hidden, fs.Layer(COVARIANCE, Z, whitened(rng))), fs.Gaussian(0.1))
    for model in (multi, deep):
        fast = fs.predictor(model, jitter=JITTER)
        assert_same(fs.predict_y(fast, Xs), fs.predict_y(model, Xs, jitter=JITTER))


def test_models_with_data(rng):
    Z, X = rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (20, D))
    Y = np.sin(X[:, 0])
    sgpr = fs.SGPR(COVARIANCE, Z, 0.1)
    best = fs.optimal_svgp(sgpr, X, Y)
    assert_same(fs.predict_y(fs.predictor(sgpr, X, Y), X), fs.predict_y(best, X), 1e-9)
    sites = fs.Sites(Y / 0.1, np.full(20, 10.0))
    untied = fs.SiteSVGP(COVARIANCE, Z, sites, fs.Gaussian(0.1))
    vgp = fs.VGP(COVARIANCE, sites, fs.Gaussian(0.1))
    for model in (untied, vgp):
        tied = fs.sites.tie_sites(model, X)
        assert_same(fs.predict_y(fs.predictor(model, X, Y), X), fs.predict_y(tied, X), 1e-8)
        with pytest.raises(TypeError, match="pass its `X`"):
            fs.predictor(model)
    with pytest.raises(TypeError, match="an SGPR has no q\\(u\\); pass its `X` and `Y`"):
        fs.predictor(sgpr)
    with pytest.raises(TypeError, match="leave `X` and `Y` out"):
        fs.predictor(best, X, Y)


def test_float32_files_and_threads(rng, tmp_path):
    model, Xs = problem(rng, "whitened")
    fast = fs.predictor(model, jitter=JITTER)
    low = fs.predictor(model, jitter=JITTER, dtype=np.float32)
    ours = fs.predict_f(low, Xs.astype(np.float32))
    assert ours[0].dtype == np.float32
    assert_same(ours, fs.predict_f(fast, Xs), 1e-3)
    fs.save(tmp_path / "p.npz", fast)
    loaded, want = fs.load(tmp_path / "p.npz"), fs.predict_y(fast, Xs)
    assert_same(fs.predict_y(loaded, Xs), want, 0)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: fs.predict_y(fast, Xs), range(20)):
            assert_same(found, want, 0)


def test_it_only_predicts(rng):
    model, Xs = problem(rng, "whitened")
    fast, Y = fs.predictor(model, jitter=JITTER), np.zeros(len(Xs))
    for call in (fs.elbo, fs.elbo_and_grad):
        with pytest.raises(TypeError, match="only predicts"):
            call(fast, Xs, Y)
    with pytest.raises(TypeError, match="only predicts"):
        fs.natural_step(fast, Xs, Y, step_size=0.5)
    with pytest.raises(TypeError, match="sample_paths: a predictor keeps"):
        fs.sample_paths(fast, 2, rng=0)
    with pytest.raises(TypeError, match="float64 or float32"):
        fs.predictor(model, dtype=int)
    assert fs.sample_f(fast, Xs, 2, rng=0).shape == (2, len(Xs))
