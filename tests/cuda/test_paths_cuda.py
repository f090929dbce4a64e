"""Functions drawn on device arrays: those of the CPU for the same seed, few copies to the host."""

import contextlib

import numpy as np
import pytest
from support.device_models import Copies, assert_same, moved
from support.path_problems import FEW, D, chain, images, layer, sites, svgp
from support.posterior_problems import EVERY
from support.weight_problems import basis_of, weights

import fastsvgp as fs

S, n = 3, 5


def arrays_of(model):
    """Return Python numbers as NumPy's, as ``to_device`` does."""
    return fs.records.tree_map(
        lambda leaf: np.float64(leaf) if isinstance(leaf, float) else leaf, model
    )


def multi(rng):
    latents = layer(rng, D, None), layer(rng, D, 2)
    mean = fs.means.LinearMean(rng.standard_normal((2, D)), np.ones(2))
    return fs.MultiGP(latents, fs.Gaussian(0.1), rng.standard_normal((2, 3)), mean)


def check_paths(gpu, rng, model, columns=D, copies=1, **options):
    """Compare values and pullbacks at shared and own points."""
    there_options = dict(options)
    if "site_inputs" in options:
        there_options["site_inputs"] = gpu.there(options["site_inputs"])
    model = arrays_of(model)
    here = fs.sample_paths(model, S, rng=1, **options)
    (there,) = moved(gpu, model)
    with Copies(gpu, copies) if copies else contextlib.nullcontext():
        there = fs.sample_paths(there, S, rng=1, **there_options)
    for shape in ((n, columns), (S, n, columns)):
        X = rng.uniform(-2, 2, shape)
        values, vjp = here.and_vjp(X)
        bar = rng.standard_normal(values.shape)
        with Copies(gpu, 1):
            found, there_vjp = there.and_vjp(gpu.there(X))
        with Copies(gpu, 1):
            X_bar = there_vjp(gpu.there(bar))
        assert_same((found, X_bar), (values, vjp(bar)), 1e-8)
        assert_same(fs.to_device(here)(gpu.there(X)), values, 1e-8)
    assert_same(there[1:](gpu.there(X[1:])), values[1:], 1e-8)
    assert_same(there[[2, 0]](gpu.there(X[[2, 0]])), values[[2, 0]], 1e-8)
    np.testing.assert_allclose(fs.to_host(there)(X), values, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("P", [None, 2])
@pytest.mark.parametrize("name", EVERY)
def test_each_posterior(gpu, rng, name, P):
    check_paths(gpu, rng, svgp(rng, name, P, mean=fs.means.LinearMean(np.ones(D), 0.2)), **FEW)


def test_shared_frequencies(gpu, rng):
    check_paths(gpu, rng, svgp(rng, covariance="matern32"), frequencies="shared", **FEW)


@pytest.mark.parametrize("make", [chain, multi, images])
def test_layers(gpu, rng, make):
    check_paths(gpu, rng, make(rng), 12 if make is images else D, **FEW)


@pytest.mark.parametrize("basis", ["fourier", "inducing"])
def test_weights(gpu, rng, basis):
    model = fs.QSGP(basis_of(rng, basis, 12), weights(rng, 12, 2), fs.Gaussian(0.1))
    check_paths(gpu, rng, model, copies=None)


@pytest.mark.parametrize("negative", [False, True])
def test_sites(gpu, rng, negative):
    X, k = rng.uniform(-2, 2, (8, D)), fs.RBF(1.2, 0.9)
    model = fs.sites.VGP(k, sites(rng, 8, 2, negative), fs.Gaussian(0.1))
    check_paths(gpu, rng, model, copies=None, site_inputs=X, **FEW)
    if not negative:
        model = fs.sites.SiteSVGP(k, X[:5].copy(), model.sites, model.likelihood)
        check_paths(gpu, rng, model, copies=None, site_inputs=X, **FEW)


def test_gradients_of_each_function(gpu, rng):
    model, X = arrays_of(svgp(rng)), rng.uniform(-2, 2, (S, n, D))
    here = fs.sample_paths(model, S, rng=1, **FEW)
    there = fs.sample_paths(*moved(gpu, model), S, rng=1, **FEW)
    with Copies(gpu, 1):
        found = there.and_grad(gpu.there(X))
    assert_same(found, here.and_grad(X), 1e-8)


def test_errors_are_those_of_the_host(gpu, rng):
    model, X = arrays_of(svgp(rng)), rng.uniform(-2, 2, (n, D))
    (there,) = moved(gpu, model)
    paths = fs.sample_paths(there, S, rng=1, **FEW)
    with pytest.raises(TypeError, match="different devices: .*`X` on the CPU"):
        paths(X)
    values, vjp = paths.and_vjp(gpu.there(X))
    with pytest.raises(TypeError, match="different devices: .*`values_bar` on the CPU"):
        vjp(np.ones((S, n)))
    with pytest.raises(ValueError, match="`values_bar` contains nan"):
        vjp(values * np.nan)
    X[0, 1] = np.nan
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(0, 1\)"):
        paths(gpu.there(X))
    with pytest.raises(fs.NotPositiveDefinite, match=r"`inducing\[1\]` and `inducing\[0\]`"):
        twice = fs.replace(there, inducing=there.inducing.copy())
        twice.inducing[1] = twice.inducing[0]
        fs.sample_paths(twice, jitter=0.0)
