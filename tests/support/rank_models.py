"""Models and data for tests on several ranks."""

import numpy as np
from support import deep_problems, latent_problems
from support.posterior_problems import EVERY, JITTER, PAIRS

import fastsvgp as fs
from fastsvgp.likelihoods import layout

D, M = 2, 6
ROWS = 23  # of problems for a bound
TRAINING_ROWS = 53
LIKELIHOODS = {  # and outputs
    "gaussian": (fs.Gaussian(0.3), (2,)),
    "probit": (fs.BernoulliProbit(), ()),
    "logit": (fs.likelihoods.BernoulliLogit(), (2,)),
    "poisson": (fs.Poisson(exposure=1.7), (2,)),
    "laplace": (fs.likelihoods.Laplace(0.6), ()),
    "student_t": (fs.StudentT(0.7, df=3.0), ()),
    "heteroskedastic": (fs.likelihoods.HeteroskedasticGaussian(), (4,)),
    "robust_max": (fs.likelihoods.RobustMax(num_classes=3), (3,)),
    "softmax": (fs.Softmax(num_classes=3, num_samples=32), (3,)),
}
MEANS = {
    "none": lambda P: None,
    "constant": lambda P: fs.means.ConstantMean(np.linspace(0.1, 0.3, *P) if P else 0.2),
    "linear": lambda P: fs.means.LinearMean(np.full((*P, D), 0.3), np.full(P, 0.1) if P else 0.1),
}


def bound_problem(rng, posterior="whitened", likelihood="gaussian", mean="constant"):
    """``(model, X, Y, options)`` of an SVGP."""
    likelihood, P = LIKELIHOODS[likelihood]
    covariance, Z = fs.RBF(1.3, np.array([0.9, 1.2])), rng.uniform(-2, 2, (M, D))
    inducing = fs.posteriors.InducingPair(Z[: M - 2], Z[M - 2 :]) if posterior in PAIRS else Z
    A = covariance.Kuu(inducing) + JITTER * np.eye(M)
    q = EVERY[posterior].make(rng, A, P)
    model = fs.SVGP(covariance, inducing, q, likelihood, MEANS[mean](P))
    outputs = () if likelihood.num_latent else layout.outputs_of(likelihood, P)
    Y = rng.integers(0, 2, (ROWS, *outputs)).astype(float)
    more = {}
    if EVERY[posterior].probes is not None:
        more["probes"] = EVERY[posterior].random(rng, M)["probes"]
    return model, rng.uniform(-2, 2, (ROWS, D)), Y, {"jitter": JITTER} | more


def latents_problem(rng, name="lmc"):
    """``(model, X, Y, options)`` of a model of several latent functions."""
    model, X, Y, options = latent_problems.problem(rng, name, N=ROWS)
    del options["num_data"]
    return model, X, Y, options


def latents_to_train(rng, name="lmc", N=TRAINING_ROWS):
    """``(model, X, Y)`` of a model of several latent functions to train."""
    return latent_problems.problem(rng, name, N=N)[:3]


def layers_problem(rng, name="two"):
    """``(model, X, Y)`` of a deep GP."""
    model, _, Y = deep_problems.problem(rng, name)
    return model, rng.uniform(-2, 2, (ROWS, 2)), Y[rng.integers(0, len(Y), ROWS)]


def training_data(rng, rows=TRAINING_ROWS):
    X = rng.uniform(-2, 2, (rows, D))
    return X, np.sin(2 * X[:, 0]) + 0.1 * rng.standard_normal(rows)


def training_problem(rng, likelihood=None, outputs=()):
    """``(model, X, Y)`` of an SVGP to train.

    Its posterior is not the prior, at which no marginal depends on inducing inputs and
    lengthscales: their gradients are then rounding error, which a first step of Adam,
    g / (|g| + 1e-8), multiplies by a million (2e-16 becomes 4e-10).
    """
    X, Y = training_data(rng)
    mean = np.linspace(-0.5, 0.5, M)
    if outputs:
        mean = mean * np.linspace(0.5, 1, outputs[0])[:, None]
    q = fs.Whitened(mean, np.broadcast_to(0.8 * np.eye(M), (*outputs, M, M)).copy())
    return fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, likelihood or fs.Gaussian(0.1)), X, Y


def class_problem(rng):
    """``(model, X, Y)`` of a softmax classifier to train."""
    model, X, _ = training_problem(rng, fs.Softmax(num_classes=3, num_samples=16), (3,))
    return model, X, rng.integers(0, 3, TRAINING_ROWS)


def inverse_problem(rng, kind=fs.posteriors.Relaxed):
    """``(model, X, Y)`` of an SVGP with a factor of an inverse to train."""
    X, Y = training_data(rng)
    third = np.ones(M) if kind is fs.posteriors.Relaxed else np.eye(M)
    # not the prior, whose gradient in Z is rounding error
    q = kind(np.linspace(-0.5, 0.5, M), 0.8 * third, np.eye(M))
    return fs.SVGP(fs.RBF(1.0, np.ones(D)), X[:M].copy(), q, fs.Gaussian(0.1)), X, Y


def layers_to_train(rng, posterior=None):
    """``(model, X, Y)`` of two layers to train; ``posterior``: of the first one."""
    X, Y = training_data(rng, ROWS)
    q = posterior or fs.Whitened(np.zeros((2, 5)), 0.3 * np.stack([np.eye(5)] * 2))
    hidden = fs.layers.Layer(fs.RBF(1.0, np.ones(2)), X[:5].copy(), q, fs.means.IdentityMean())
    top = fs.layers.Layer(
        fs.RBF(1.0, np.ones(2)), X[5:10].copy(), fs.Whitened(np.zeros(5), np.eye(5))
    )
    return fs.DeepGP((hidden, top), fs.Gaussian(0.1)), X, Y


def layers_on_patches(rng):
    """``(model, X, Y)`` of two convolutional layers."""
    q = fs.Whitened(rng.standard_normal((2, 5)), np.stack([np.eye(5)] * 2))
    layer = fs.layers.ConvolutionalLayer(
        fs.RBF(), rng.standard_normal((5, 4)), q, image_shape=(3, 3), patch_shape=(2, 2)
    )
    top = fs.layers.ConvolutionalLayer(
        fs.RBF(), rng.standard_normal((5, 8)), q, image_shape=(2, 2, 2), patch_shape=(2, 2)
    )
    model = fs.DeepGP((layer, top), fs.Gaussian(0.2))
    return model, rng.standard_normal((ROWS, 9)), rng.standard_normal((ROWS, 2))
