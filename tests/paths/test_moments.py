"""Moments of many functions: those that predictions of the model have, or joint draws."""

import numpy as np
import pytest
from support.gp_problems import assert_moments
from support.path_problems import (
    FEW,
    D,
    alone,
    assert_slopes,
    chain,
    images,
    layer,
    sites,
    svgp,
)
from support.posterior_problems import EVERY, JITTER
from support.weight_problems import basis_of, weights

import fastsvgp as fs

S = 4000


def assert_predicted(values, mean, cov):
    """Compare values (S, N) or (S, N, P) with mean (N,) or (N, P) and cov (N, N) or (P, N, N)."""
    if values.ndim == 2:
        values, mean, cov = values[..., None], mean[:, None], cov[None]
    for p, one in enumerate(cov):
        assert_moments(values[..., p], mean[:, p], one)


@pytest.mark.parametrize("covariance, P", [("rbf", None), ("matern32", 3)])
@pytest.mark.parametrize("name", EVERY)
def test_each_posterior(rng, name, covariance, P):
    mean = fs.means.ConstantMean(0.3 if P is None else np.arange(3.0))
    model = svgp(rng, name, P, covariance, mean)
    X = rng.uniform(-2.5, 2.5, (3, D))
    values = fs.sample_paths(model, S, rng=rng, **FEW)(X)
    assert_predicted(values, *fs.predict_f(model, X, full_cov=True, jitter=JITTER))


@pytest.mark.parametrize("name", EVERY)
def test_the_jitter_is_noise_of_the_inducing_variables(rng, name):
    model, X = svgp(rng, name), rng.uniform(-2.5, 2.5, (3, D))
    values = fs.sample_paths(model, S, rng=rng, jitter=0.5, num_features=FEW["num_features"])(X)
    assert_predicted(values, *fs.predict_f(model, X, full_cov=True, jitter=0.5))


@pytest.mark.parametrize("negative", [False, True])
@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("kind", [fs.sites.SiteSVGP, fs.sites.VGP])
def test_sites(rng, kind, P, negative):
    X, k = rng.uniform(-2, 2, (8, D)), fs.RBF(1.2, 0.9)
    Z = () if kind is fs.sites.VGP else (rng.uniform(-2, 2, (5, D)),)
    model = kind(k, *Z, sites(rng, 8, P, negative), fs.Gaussian(0.1), fs.means.ConstantMean(0.2))
    Xs = rng.uniform(-2.5, 2.5, (3, D))
    values = fs.sample_paths(model, S, site_inputs=X, rng=rng, **FEW)(Xs)
    tied = fs.sites.tie_sites(model, X, jitter=JITTER)
    # without a negative site a VGP takes no jitter
    jitter = 1e-10 if kind is fs.sites.VGP and not negative else JITTER
    assert_predicted(values, *fs.predict_f(tied, Xs, full_cov=True, jitter=jitter))


@pytest.mark.parametrize("basis", ["fourier", "inducing", "relevance"])
def test_weights(rng, basis):
    model = fs.QSGP(basis_of(rng, basis, 12), weights(rng, 12, 2), fs.Gaussian(0.1))
    X = rng.uniform(-2, 2, (4, D))
    paths = fs.sample_paths(model, 5, rng=3)
    np.testing.assert_allclose(paths(X), fs.sample_f(model, X, 5, rng=3), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("make", [chain, images])
def test_deep(rng, make):
    model = make(rng)
    X = rng.uniform(-1, 1, (3, 12 if make is images else D))
    values = fs.sample_paths(model, S, rng=rng, **FEW)(X)
    draws = fs.sample_f(model, X, 2000, rng=rng, jitter=JITTER)
    for moment in (lambda v: v, lambda v: v[:, :, None] * v[:, None]):
        ours, theirs = (moment(v - draws.mean(axis=0)) for v in (values, draws))
        error = np.sqrt(ours.var(axis=0) / len(ours) + theirs.var(axis=0) / len(theirs))
        assert (abs(ours.mean(axis=0) - theirs.mean(axis=0)) <= 6 * error).all()


def test_shared_frequencies_have_the_moments_of_many_features(rng):
    model, X = svgp(rng), rng.uniform(-2, 2, (3, D))
    options = FEW | {"num_features": 4096, "frequencies": "shared"}
    values = fs.sample_paths(model, 1000, rng=rng, **options)(X)
    mean, cov = fs.predict_f(model, X, full_cov=True, jitter=JITTER)
    assert_moments(values, mean, cov)


@fs.records.record
class HalvedValues(fs.RBF):
    """Inducing variables u = f(z) / 2."""

    def Kuu(self, inducing, other=None):
        return 0.25 * self.matrix(inducing, other)

    def Kuf(self, inducing, X):
        return 0.5 * self.matrix(inducing, X)

    def Kuf_vjp(self, K_bar, K, inducing, X, need=("covariance", "inducing", "X")):
        names = {"inducing": "X1", "X": "X2"}
        words = tuple(names.get(name, name) for name in need)
        return self.matrix_vjp(0.5 * K_bar, None, inducing, X, words)

    def features(self, num, seeds, columns):
        return Halving(super().features(num, seeds, columns))


class Halving:
    """Features that know these inducing variables."""

    def __init__(self, inner):
        self.size, self.multiply, self.multiply_vjp = inner.size, inner.multiply, inner.multiply_vjp

    def multiply_inducing(self, inducing, w):
        return 0.5 * self.multiply(inducing, w)


def test_inducing_variables_that_are_not_values_of_the_function(rng, monkeypatch):
    k = HalvedValues(1.2, np.array([0.9, 1.4]))
    model = fs.replace(svgp(rng), covariance=k)
    X = rng.uniform(-2.5, 2.5, (3, D))
    paths = fs.sample_paths(model, S, rng=rng, **FEW)
    assert_predicted(paths(X), *fs.predict_f(model, X, full_cov=True, jitter=JITTER))
    assert_slopes(paths[:2], X, rng)
    data = rng.uniform(-2, 2, (8, D))  # a VGP has values of the function
    options = {"site_inputs": data, "rng": 1, **FEW}
    vgp = fs.sites.VGP(k, sites(rng, 8), fs.Gaussian(0.1))
    plain = fs.replace(vgp, covariance=fs.RBF(k.variance, k.lengthscales))
    found, due = (fs.sample_paths(one, 3, **options) for one in (vgp, plain))
    np.testing.assert_allclose(found(X), due(X), rtol=1e-12)
    assert_slopes(found, X, rng)
    monkeypatch.delattr(Halving, "multiply_inducing")
    with pytest.raises(TypeError, match="HalvedValues lack `multiply_inducing`.*sample_f"):
        fs.sample_paths(model)


# --- the same functions from the parts of a model -------------------------------------------------


def test_a_deep_gp_chains_the_functions_of_its_layers(rng):
    first, top = layer(rng, D, 2, fs.means.IdentityMean()), layer(rng, 2, None)
    model, X = fs.DeepGP((first, top), fs.Gaussian(0.1)), rng.uniform(-2, 2, (6, D))
    found, one_by_one = fs.sample_paths(model, 4, rng=5, **FEW), np.random.default_rng(5)
    hidden = fs.sample_paths(alone(first), 4, rng=one_by_one, **FEW)(X)
    due = fs.sample_paths(alone(top), 4, rng=one_by_one, **FEW)(hidden)
    np.testing.assert_allclose(found(X), due, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("kind", ["mixing", "two matrices", "none", "one output"])
def test_a_multi_gp_mixes_the_functions_of_its_latents(rng, kind):
    latents, W = (layer(rng, D, None), layer(rng, D, 2)), rng.standard_normal((3, 3))
    X, likelihood, mean = (
        rng.uniform(-2, 2, (6, D)),
        fs.Gaussian(0.1),
        fs.means.LinearMean(np.ones(D)),
    )
    mixing = {"mixing": W, "none": None, "one output": W[:1]}.get(kind)
    dense = np.eye(3) if mixing is None else mixing
    if kind == "two matrices":
        mixing, likelihood = (W[:2, :1], W[:2, 1:]), fs.likelihoods.HeteroskedasticGaussian()
        dense = np.block([[mixing[0], np.zeros((2, 2))], [np.zeros((2, 1)), mixing[1]]])
    model, gen = fs.MultiGP(latents, likelihood, mixing, mean), np.random.default_rng(5)
    found = fs.sample_paths(model, 4, rng=5, **FEW)
    g = [
        fs.sample_paths(alone(latent), 4, rng=gen, **FEW)(X).reshape(4, 6, -1) for latent in latents
    ]
    due = np.concatenate(g, axis=-1) @ dense.T + mean(X)[:, None]
    due = due[..., 0] if kind == "one output" else due
    assert found(X).shape == due.shape
    np.testing.assert_allclose(found(X), due, rtol=1e-12, atol=1e-12)


def test_layers_with_the_inducing_inputs_of_the_model(rng):
    latents = layer(rng, D, None), layer(rng, D, None)
    Z = latents[0].inducing
    own = fs.MultiGP(tuple(fs.replace(one, inducing=Z) for one in latents), fs.Gaussian(0.1))
    shared = fs.replace(own, latents=tuple(fs.replace(one, inducing=None) for one in latents))
    shared, X = fs.replace(shared, inducing=Z), rng.uniform(-2, 2, (6, D))
    found, due = (fs.sample_paths(one, 3, rng=1, **FEW)(X) for one in (shared, own))
    np.testing.assert_array_equal(found, due)


def test_a_last_layer_on_patches_is_an_svgp_of_them(rng):
    model, X = images(rng, hidden=False), rng.standard_normal((5, 12))
    of_patches = fs.sample_paths(alone(model.layers[0]), 3, rng=1, **FEW)
    patches = fs.covariances.extract_patches(X, (3, 4), (2, 2)).reshape(-1, 4)
    due = of_patches(patches).reshape(3, 5, -1)
    found = fs.sample_paths(model, 3, rng=1, **FEW)
    np.testing.assert_allclose(found(X), due, rtol=1e-13, atol=1e-13)
    own = np.stack([X, X, X])
    np.testing.assert_allclose(found(own), due, rtol=1e-12, atol=1e-13)


def test_shared_frequencies_are_one_seed(rng):
    paths = fs.sample_paths(svgp(rng), 3, frequencies="shared", rng=0, **FEW)
    assert type(paths.functions.seeds) is int
    w = np.repeat(paths.functions.weights[:1], 3, axis=0)
    same = fs.replace(paths.functions, weights=w, terms=())
    values = fs.posteriors.Paths(same)(rng.standard_normal((4, D)))
    np.testing.assert_array_equal(values[1], values[0])
