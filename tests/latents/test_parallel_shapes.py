"""Shapes of ``ParallelLayers``: one output keeps its leading axis, as that of a ``Layer``."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

M, N = 5, 12


def layer(rng, lengthscale, Z):
    q = fs.Whitened(rng.standard_normal((1, M)), 0.3 * np.eye(M)[None])
    return fs.layers.Layer(fs.RBF(1.0, lengthscale), Z, q)


def parallel(rng, mean):
    Z = np.linspace(-2, 2, M)[:, None]
    return fs.layers.ParallelLayers(
        (layer(rng, 0.5, Z), layer(rng, 2.0, Z)), mixing=rng.standard_normal((1, 2)), mean=mean
    )


MEANS = (
    fs.means.IdentityMean(),
    fs.means.ConstantMean(np.array([0.5])),
    fs.means.LinearMean(np.array([[0.7]])),
)


@pytest.mark.parametrize("mean", MEANS, ids=lambda mean: type(mean).__name__)
def test_gradients_of_one_mixed_hidden_output(rng, mean):
    hidden = parallel(rng, mean)
    X, Y = rng.uniform(-2, 2, (N, 1)), rng.standard_normal((N, 1))
    deep = fs.DeepGP((hidden, layer(rng, 1.0, np.linspace(-2, 2, M)[:, None])), fs.Gaussian(0.3))
    draws = (rng.standard_normal((2, N, 2)),)
    value, grad, X_bar = fs.elbo_and_grad(deep, X, Y, draws=draws, inputs=True)
    assert_gradient(lambda model: fs.elbo(model, X, Y, draws=draws), deep, grad)
    assert_gradient(lambda moved: fs.elbo(deep, moved, Y, draws=draws), X, X_bar)


def test_a_last_layer_of_one_output_has_its_axis(rng):
    deep = fs.DeepGP((parallel(rng, fs.means.IdentityMean()),), fs.Gaussian(0.3))
    X, Y = rng.uniform(-2, 2, (N, 1)), rng.standard_normal((N, 1))
    assert fs.predict_f(deep, X)[0].shape == fs.predict_y(deep, X)[0].shape == (N, 1)
    _, grad = fs.elbo_and_grad(deep, X, Y)
    assert_gradient(lambda model: fs.elbo(model, X, Y), deep, grad)
