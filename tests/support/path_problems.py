"""Models whose functions are drawn, and the comparison of their moments."""

import numpy as np
from support.gp_problems import lower_factor
from support.numerics import nine_point
from support.posterior_problems import JITTER, in_model

import fastsvgp as fs

D = 2
COVARIANCES = {
    "rbf": fs.RBF(1.2, np.array([0.9, 1.4])),
    "matern32": fs.Matern32(1.3, np.array([1.1, 0.8])),
}
FEW = {"num_features": 64, "jitter": JITTER}  # own frequencies have no bias at any number


def svgp(rng, name="whitened", P=None, covariance="rbf", mean=None, M=7):
    """Return an SVGP with a posterior of the table."""
    Z, k = rng.uniform(-2, 2, (M, D)), COVARIANCES[covariance]
    model, _ = in_model(rng, name, fs.SVGP(k, Z, None, fs.Gaussian(0.2), mean), (P,) if P else ())
    return model


def layer(rng, columns, P, mean=None, covariance=None, M=6):
    """Return a layer with a ``Whitened`` posterior."""
    axes = () if P is None else (P,)
    q = fs.Whitened(rng.standard_normal((*axes, M)), lower_factor(rng, *axes, M, off=0.1))
    k = fs.RBF(0.8, np.linspace(0.9, 1.3, columns)) if covariance is None else covariance
    return fs.layers.Layer(k, rng.uniform(-2, 2, (M, columns)), q, mean)


def alone(layer):
    """Return a layer as an SVGP."""
    return fs.SVGP(layer.covariance, layer.inducing, layer.posterior, fs.Gaussian(0.1), layer.mean)


def sites(rng, N, P=None, negative=False):
    """Return sites of N data."""
    axes = (N,) if P is None else (P, N)
    lambda2 = rng.uniform(0.3, 2.0, axes)
    if negative:
        lambda2[..., 1] = -0.05
    return fs.sites.Sites(rng.standard_normal(axes), lambda2)


def chain(rng, outputs=None):
    """Return a deep GP of three layers, the middle one of layers side by side."""
    first = layer(rng, D, 3, fs.means.LinearMean(rng.standard_normal((3, D))))
    mixed = fs.layers.ParallelLayers(
        (layer(rng, 3, None), layer(rng, 3, 2, covariance=fs.Matern52(0.7, 1.2))),
        rng.standard_normal((2, 3)),
        fs.means.LinearMean(rng.standard_normal((2, 3)), np.ones(2)),
    )
    return fs.DeepGP((first, mixed, layer(rng, 2, outputs)), fs.Gaussian(0.1))


def images(rng, hidden=True):
    """Return a deep GP with a layer on the patches of 3 x 4 images."""
    shapes = {"image_shape": (3, 4), "patch_shape": (2, 2)}
    below = layer(rng, 4, 2, fs.means.LinearMean(rng.standard_normal((2, 4))))
    below = fs.layers.ConvolutionalLayer(
        below.covariance, below.inducing, below.posterior, below.mean, **shapes
    )
    return fs.DeepGP((below, layer(rng, 12, None)) if hidden else (below,), fs.Gaussian(0.1))


def assert_slopes(paths, X, rng, rtol=1e-8):
    """Compare the pullback to the points with differences, along a random direction."""
    values, vjp = paths.and_vjp(X)
    np.testing.assert_allclose(values, paths(X), rtol=1e-13, atol=1e-13)
    bar, d = rng.standard_normal(values.shape), rng.standard_normal(X.shape)
    X_bar = vjp(bar)
    assert X_bar.shape == X.shape
    slope = nine_point(lambda s: np.sum(bar * paths(X + s * d)), 1e-3)
    scale = np.linalg.norm(X_bar) * np.linalg.norm(d)
    assert abs(np.vdot(X_bar, d) - slope) <= rtol * scale
    np.testing.assert_allclose(vjp(2 * bar), 2 * X_bar, rtol=1e-12, atol=1e-13)
