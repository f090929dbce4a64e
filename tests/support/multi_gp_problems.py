"""Small models of several latent functions: separate covariances, mixing, noise that varies."""

import numpy as np

import fastsvgp as fs

MULTI = ["separate", "mixed", "one layer", "heteroskedastic"]


def multi_of(rng, name, M=4, B=9, D=2):
    """Return ``(model, X, Y)`` of two outputs, away from the prior; Y is (B, 2)."""
    X = rng.standard_normal((B, D))
    Y = np.stack([np.sin(X.sum(axis=1)), np.cos(X[:, 0])], axis=1)
    Y += 0.1 * rng.standard_normal(Y.shape)
    Z = 1.5 * rng.standard_normal((M, D))

    def layer(scale, Q=None, inducing=None):
        axes = () if Q is None else (Q,)
        tril = np.tril(0.2 * rng.standard_normal((*axes, M, M))) + 0.8 * np.eye(M)
        q = fs.Whitened(rng.standard_normal((*axes, M)), tril)
        return fs.layers.Layer(fs.RBF(1.2, np.linspace(0.8, scale, D)), inducing, q)

    gaussian, W = fs.Gaussian(0.2), rng.standard_normal((2, 3))
    if name == "separate":
        latents = layer(1.0), layer(1.5)
        return fs.MultiGP(latents, gaussian, None, fs.means.ConstantMean(np.ones(2)), Z), X, Y
    if name == "mixed":
        latents = layer(1.0), layer(1.5, inducing=Z + 0.1), layer(2.0)
        return fs.MultiGP(latents, gaussian, W, None, Z), X, Y
    if name == "one layer":
        return fs.MultiGP((layer(1.3, 3, Z),), gaussian, W), X, Y
    latents, mixing = (layer(1.0, 3), layer(1.5, 2)), (W, np.eye(2))
    noise = fs.means.ConstantMean(np.array([0.0, 0.0, -1.0, -1.0]))
    return fs.MultiGP(latents, fs.likelihoods.HeteroskedasticGaussian(), mixing, noise, Z), X, Y
