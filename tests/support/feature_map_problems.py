"""Small deep GPs with hidden layers on patches."""

import numpy as np
from support.deep_problems import draws_for
from support.posterior_problems import EVERY, JITTER, PAIRS

import fastsvgp as fs

B, M = 3, 4
CHAINS = "plain", "convolutional", "places", "maps"


def posterior_for(rng, name, covariance, columns, outputs):
    """Return ``(inducing, posterior)``."""
    inducing = rng.uniform(-1, 1, (M, columns))
    if name in PAIRS:
        inducing = fs.posteriors.InducingPair(inducing[:3].copy(), inducing[3:].copy())
    return inducing, EVERY[name].make(rng, covariance.Kuu(inducing) + JITTER * np.eye(M), outputs)


def feature_map(rng, image, patch, stride=1, channels=2, name="whitened", mean=True):
    """Return a layer on patches."""
    d = patch[0] * patch[1] * (*image, 1)[2]
    covariance = fs.RBF(1.2, np.linspace(1.5, 2.5, d)) + fs.Linear(0.1)
    filters = (
        fs.means.LinearMean(0.3 * rng.standard_normal((channels, d)), rng.standard_normal(channels))
        if mean
        else None
    )
    inducing, q = posterior_for(rng, name, covariance, d, (channels,))
    return fs.layers.ConvolutionalLayer(
        covariance, inducing, q, filters, image_shape=image, patch_shape=patch, stride=stride
    )


def top(rng, below, kind, name="whitened"):
    """Return an output layer on a feature map."""
    shape = below.output_shape
    if kind == "plain":
        covariance, columns = fs.Matern32(1.1, 2.0), int(np.prod(shape))
    else:
        location = fs.Matern52(1.3, 2.0) if kind == "places" else None
        weights = rng.uniform(-1, 1, (shape[0] - 1) * (shape[1] - 1))
        covariance = fs.covariances.Convolutional(
            fs.RBF(1.1, 1.7), weights, location, image_shape=shape, patch_shape=(2, 2)
        )
        columns = 4 * shape[2] + (0 if location is None else 2)
    inducing, q = posterior_for(rng, name, covariance, columns, ())
    if kind == "places":
        inducing[:, -2:] = rng.uniform(0, 2, (M, 2))
    return fs.layers.Layer(covariance, inducing, q)


def chain(rng, kind):
    match kind:
        case "maps":
            first = feature_map(rng, (5, 6, 2), (2, 3), 1, 2, "likelihood")
            second = feature_map(rng, first.output_shape, (2, 2), 2, 1, "WhitenedOrthogonal")
            return first, second, top(rng, second, "plain", "relaxed")
        case "places":
            first = feature_map(rng, (7, 5), (3, 2), 2, 3, "marginal", mean=False)
        case _:
            first = feature_map(
                rng, (5, 5), (2, 3), 1, 2, "relaxed" if kind == "plain" else "whitened"
            )
    return first, top(rng, first, kind)


def problem(rng, kind):
    """Return ``(model, X, Y, draws)``; images have a black half and a grey corner."""
    layers = chain(rng, kind)
    H, W, *_ = layers[0].geometry
    X = rng.standard_normal((B, H, W, layers[0].geometry[2]))
    X[0, : H - 1], X[1, :, : W - 1], X[2, 1:, 1:] = 0, 0, 0.5
    model = fs.DeepGP(layers, fs.Gaussian(0.3))
    return model, X.reshape(B, -1), rng.standard_normal(B), draws_for(rng, model, 2, B)
