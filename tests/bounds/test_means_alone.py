"""``predict_f(..., var=False)``: the mean of each kind of model, without variances."""

from typing import Any

import numpy as np
import pytest
from support import convolutional_problems, latent_problems
from support.path_problems import D, chain, images, svgp
from support.posterior_problems import EVERY, JITTER
from support.weight_problems import basis_of, weights

import fastsvgp as fs
from fastsvgp.bounds.layer_pass import MEANS, LayerPass
from fastsvgp.posteriors.base import Pass

N = 23


def assert_is_the_mean(model, X, **options):
    expected, _ = fs.predict_f(model, X, **options)
    size = np.abs(expected).max()
    for more in ({}, {"chunk_size": 4}, {"var": np.False_}):
        mean = fs.predict_f(model, X, **{"var": False, **options, **more})
        assert type(mean) is np.ndarray and mean.shape == expected.shape
        assert mean.dtype == expected.dtype and mean.flags.c_contiguous
        np.testing.assert_allclose(mean, expected, rtol=1e-9, atol=1e-10 * size)


@pytest.mark.parametrize("P", [None, 1, 3])
@pytest.mark.parametrize("name", EVERY)
def test_each_posterior(rng, name, P):
    mean = None if P == 1 else fs.means.ConstantMean(0.3 if P is None else np.arange(3.0))
    model = svgp(rng, name, P, "matern32", mean)
    assert_is_the_mean(model, rng.uniform(-2.5, 2.5, (N, D)), jitter=JITTER)


@pytest.mark.parametrize("name", latent_problems.MODELS)
def test_several_functions(rng, name):
    X = latent_problems.problem(rng, name, N).X
    assert_is_the_mean(latent_problems.MODELS[name](rng), X, jitter=JITTER)


@pytest.mark.parametrize("basis", ["fourier", "inducing", "relevance"])
def test_weights(rng, basis):
    model = fs.QSGP(basis_of(rng, basis, 12), weights(rng, 12, 2), fs.Gaussian(0.1))
    X = rng.uniform(-2, 2, (N, D))
    assert_is_the_mean(model, X)
    if basis == "inducing":
        assert_is_the_mean(model, X, augmented=True)


@pytest.mark.parametrize(
    "make", [chain, lambda rng: chain(rng, 2), images, lambda rng: images(rng, hidden=False)]
)
def test_deep(rng, make):
    model = make(rng)
    columns = 12 if isinstance(model.layers[0], fs.layers.ConvolutionalLayer) else D
    X = np.round(rng.uniform(-2, 2, (N, columns)))  # some patches are equal
    assert_is_the_mean(model, X, jitter=JITTER, num_samples=4, rng=3)


def test_a_covariance_of_patches(rng):
    covariance, Z, _, X, _ = convolutional_problems.problem(rng, "rbf")
    q = fs.Whitened(rng.standard_normal(len(Z)), np.eye(len(Z)))
    assert_is_the_mean(fs.SVGP(covariance, Z, q, fs.Gaussian(0.1)), X)


@fs.records.record
class Own(fs.posteriors.Posterior):
    """q(u) = N(mean, Kuu): a posterior without a rule for weights of paths."""

    mean: Any = fs.records.leaf()

    def check_size(self, M):
        return ()

    def start_from(self, prior, columns=0, need=()):
        return OwnPass(
            np.linalg.solve(prior.Kuu + prior.jitter * np.eye(len(self.mean)), self.mean)
        )


class OwnPass(Pass):
    """Its pass, with E f = k v."""

    def __init__(self, v):
        self.v = v

    def project(self, Kuf, kff):
        return fs.records.Marginals(self.v @ Kuf, kff.copy()), None


def test_a_posterior_without_a_rule_of_its_own(rng):
    model = svgp(rng)
    model = fs.replace(model, posterior=Own(rng.standard_normal(7)))
    X = rng.uniform(-2, 2, (N, D))
    assert_is_the_mean(model, X)


def test_the_pass_of_a_mean_has_no_variances(rng, monkeypatch):
    """Neither a solve nor a product with all rows: the posterior's pass sees none of them."""
    model, X = svgp(rng, P=2), rng.uniform(-2, 2, (N, D))
    expected, _ = fs.predict_f(model, X)
    monkeypatch.setattr(LayerPass, "forward", None)
    np.testing.assert_allclose(fs.predict_f(model, X, var=False), expected, rtol=1e-9, atol=1e-12)
    work = LayerPass(model, JITTER, need=(MEANS,))
    assert work.means(X[:0]).shape == (2, 0)


def test_single_precision(rng):
    """As accurate as the mean that comes with a variance."""
    exact = svgp(rng, M=40)
    model = fs.records.tree_map(lambda a: np.asarray(a, np.float32)[()], exact)
    X = rng.uniform(-2, 2, (200, D)).astype(np.float32)
    wide = fs.records.tree_map(lambda a: np.asarray(a, np.float64)[()], model)
    right, _ = fs.predict_f(wide, X.astype(float), jitter=1e-4)
    mean, (other, _) = fs.predict_f(model, X, var=False), fs.predict_f(model, X)
    assert mean.dtype == np.float32
    assert np.abs(mean - right).max() <= 3 * np.abs(other - right).max() + 1e-6


def test_a_covariance_and_no_variance_exclude_each_other(rng):
    model, X = svgp(rng, P=2), rng.uniform(-2, 2, (3, D))
    weighted = fs.QSGP(basis_of(rng, "fourier", 12), weights(rng, 12, 2), fs.Gaussian(0.1))
    for each in (model, weighted, latent_problems.MODELS["lmc"](rng)):
        with pytest.raises(ValueError, match="`full_cov` asks for covariances, `var=False` for"):
            fs.predict_f(each, X, full_cov=True, var=False)
    with pytest.raises(ValueError, match="`full_output_cov` asks for covariances"):
        fs.predict_f(latent_problems.MODELS["lmc"](rng), X, full_output_cov=True, var=False)
    with pytest.raises(TypeError, match="`var` must be True or False, got None"):
        fs.predict_f(model, X, var=None)
    with pytest.raises(ValueError, match="not jointly Gaussian"):
        fs.predict_f(chain(rng), X, full_cov=True)


def test_a_mean_that_is_not_finite_names_the_field(rng):
    model = svgp(rng)
    model.posterior.mean[2] = np.inf
    with pytest.raises(ValueError, match="posterior.mean"):
        fs.predict_f(model, np.zeros((3, D)), var=False)
