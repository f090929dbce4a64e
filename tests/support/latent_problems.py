"""Small models of several latent functions, with data."""

from typing import Any, NamedTuple

import numpy as np
from support.posterior_problems import EVERY, PAIRS

import fastsvgp as fs
from fastsvgp.latents.model import layers_of

# the tests compare formulas, so Kuu is well-conditioned
JITTER = 1e-2
N, M, D, P = 11, 4, 2, 3
OPTIONS = {"jitter": JITTER, "num_data": 2.5 * N}
IMAGES = {"image_shape": (3, 2), "patch_shape": (2, 1)}


class Problem(NamedTuple):
    """A model, its data, and options of its bound."""

    model: Any
    X: Any
    Y: Any
    options: dict

    @property
    def data(self):
        return self.X, self.Y


def layer(rng, name="whitened", outputs=None, Z=None, shares=False, mean=None, **more):
    """Return a layer with a posterior of the table; ``shares``: the model has its Z."""
    Z = rng.uniform(-2, 2, (more.get("M", M), D)) if Z is None else Z
    covariance = more.get("covariance")
    if covariance is None:
        covariance = fs.RBF(
            rng.uniform(0.7, 1.4), rng.uniform(0.6, 1.5, D)
        ) + fs.covariances.Constant(0.2)
    if name in PAIRS and not isinstance(Z, fs.posteriors.InducingPair):
        Z = fs.posteriors.InducingPair(Z[:-1].copy(), Z[-1:].copy())
    Kuu = covariance.Kuu(Z)
    q = EVERY[name].make(rng, Kuu + JITTER * np.eye(len(Kuu)), () if outputs is None else outputs)
    return fs.layers.Layer(covariance, None if shares else Z, q, mean)


def mixing(rng, J, L):
    return rng.standard_normal((J, L))


def lmc(rng):
    linear = fs.means.LinearMean(rng.standard_normal(D), 0.3)
    latents = layer(rng, mean=linear), layer(rng, "marginal", M=5)
    mean = fs.means.ConstantMean(rng.standard_normal(P))
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 2), mean)


def separate(rng):
    Z = rng.uniform(-2, 2, (M, D))
    latents = layer(rng, Z=Z, shares=True), layer(rng), layer(rng, Z=Z, shares=True)
    mean = fs.means.LinearMean(rng.standard_normal((P, D)), rng.standard_normal(P))
    return fs.MultiGP(latents, fs.Gaussian(0.3), mean=mean, inducing=Z)


def icm(rng):
    Z = rng.uniform(-2, 2, (M, D))
    latents = (layer(rng, outputs=(2,), Z=Z, shares=True),)
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 2), inducing=Z)


def wide(rng):
    """More latent functions than outputs, in layers of several and of one."""
    Z = rng.uniform(-2, 2, (M, D))
    latents = (
        layer(rng, outputs=(2,), Z=Z, shares=True),
        layer(rng, outputs=(1,)),
        layer(rng, Z=Z, shares=True, mean=fs.means.ConstantMean(0.4)),
    )
    return fs.MultiGP(latents, fs.StudentT(0.5), mixing(rng, P, 4), inducing=Z)


def one_output(rng):
    return fs.MultiGP((layer(rng), layer(rng)), fs.likelihoods.Laplace(0.4), mixing(rng, 1, 2))


def pairs(rng):
    Z = fs.posteriors.InducingPair(rng.uniform(-2, 2, (M, D)), rng.uniform(-2, 2, (2, D)))
    latents = (
        layer(rng, "WhitenedOrthogonal", Z=Z, shares=True),
        layer(rng, "WhitenedOrthogonal", Z=Z, shares=True),
        layer(rng),
    )
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 3), inducing=Z)


def inverse_free(rng):
    latents = layer(rng, "likelihood", outputs=(2,)), layer(rng, "relaxed"), layer(rng)
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 4))


def probed(rng):
    latents = layer(rng, "relaxed"), layer(rng), layer(rng, "relaxed-plain", M=5)
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 3))


def of_sites(rng):
    latents = layer(rng, "absorbed-sites"), layer(rng, "dual-sites", outputs=(2,))
    return fs.MultiGP(latents, fs.Poisson(), 0.4 * mixing(rng, P, 3))


def images(rng):
    patches = fs.covariances.Convolutional(fs.RBF(1.1, 1.3), rng.standard_normal(4), **IMAGES)
    whole = fs.RBF(0.8, rng.uniform(1, 2, 6))
    latents = (
        layer(rng, Z=rng.standard_normal((M, 2)), covariance=patches),
        layer(rng, Z=rng.standard_normal((M, 6)), covariance=whole),
    )
    return fs.MultiGP(latents, fs.Gaussian(0.3), mixing(rng, P, 2))


def noise_of_one(rng):
    mean = fs.means.ConstantMean(np.array([0.2, -0.5]))
    return fs.MultiGP((layer(rng), layer(rng)), fs.likelihoods.HeteroskedasticGaussian(), mean=mean)


def noise(rng):
    latents = layer(rng, outputs=(2,)), layer(rng), layer(rng)
    W = mixing(rng, P, 3), 0.5 * mixing(rng, P, 1)
    return fs.MultiGP(latents, fs.likelihoods.HeteroskedasticGaussian(), W)


def dispersed(rng):
    latents = tuple(layer(rng, outputs=(P,)) for _ in range(2))
    mean = fs.means.ConstantMean(rng.uniform(-0.5, 0.5, 2 * P))
    return fs.MultiGP(
        latents, fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=6), mean=mean
    )


def classes(rng):
    latents = layer(rng), layer(rng, outputs=(2,))
    return fs.MultiGP(latents, fs.Softmax(num_classes=3, num_samples=16))


MODELS = {
    "lmc": lmc,
    "separate": separate,
    "icm": icm,
    "wide": wide,
    "one output": one_output,
    "pairs": pairs,
    "inverse-free": inverse_free,
    "probes": probed,
    "sites": of_sites,
    "images": images,
    "noise of one": noise_of_one,
    "noise": noise,
    "dispersed": dispersed,
    "classes": classes,
}
ONE = "one output", "noise of one"  # with targets (N,)
STEPPING = "lmc", "separate", "icm", "wide", "one output", "noise of one", "noise", "classes"


def targets(rng, name, model, N=N):
    """Return random targets that fit the likelihood of a row."""
    if name == "classes":
        return rng.integers(0, 3, N)
    shape = (N,) if name in ONE else (N, P)
    if model.likelihood.counts:
        return rng.poisson(2.0, shape).astype(float)
    return rng.standard_normal(shape)


def problem(rng, name="lmc", N=N):
    model = MODELS[name](rng)
    X = rng.uniform(-2, 2, (N, 6 if name == "images" else D))
    options = OPTIONS | ({"probes": 3, "rng": 5} if name == "probes" else {})
    return Problem(model, X, targets(rng, name, model, N), options)


def with_posteriors(model, *kinds):
    """Return the model with posteriors of these kinds, at the prior."""
    layers = layers_of(model)
    latents = tuple(
        fs.replace(
            own,
            posterior=fs.posteriors.at_prior(
                kind, one.covariance, one.inducing, *one.check_shapes()[1], jitter=JITTER
            ),
        )
        for own, one, kind in zip(model.latents, layers, kinds, strict=True)
    )
    return fs.replace(model, latents=latents)


def plain_step(q, bar, size):
    """Return a posterior with one mean and factor after a step along its natural gradient.

    S_new^-1 = S^-1 - 2 size dS,  m_new = m + size S_new dm; the gradient of W is tril(2 dS W).
    """
    W = np.tril(q.scale_tril)
    A = W.T @ np.tril(bar.scale_tril)
    A = np.tril(A) + np.tril(A, -1).T  # 2 W' dS W
    inverse = np.linalg.inv(W)
    S = np.linalg.inv(inverse.T @ (np.eye(len(W)) - size * A) @ inverse)
    return type(q)(q.mean + size * S @ bar.mean, np.linalg.cholesky(S))


def prior_of(model, X, jitter=0.0):
    """Return the covariance (J N, J N) of all functions at X under the prior, less the mean."""
    N, blocks = len(X), []
    for one in layers_of(model):
        K = one.covariance.Kuu(X) + jitter * np.eye(N)
        outputs = one.check_shapes()[1]
        blocks += [K] * (outputs[0] if outputs else 1)
    W = np.eye(len(blocks)) if model.mixing is None else model.mixing
    return sum(np.kron(np.outer(w, w), K) for w, K in zip(np.transpose(W), blocks, strict=True))
