"""Small deep GPs of mixed posteriors."""

import numpy as np
from support.posterior_problems import EVERY, JITTER, PAIRS

import fastsvgp as fs

M, B = 4, 5
# likelihood and targets; P is the number of outputs of the last layer (columns or classes), or None
LIKELIHOODS = {
    "gaussian": lambda rng, P: (fs.Gaussian(0.3), rng.standard_normal((B, P) if P else B)),
    "student": lambda rng, P: (fs.StudentT(0.4), rng.standard_normal((B, P) if P else B)),
    "noise": lambda rng, P: (
        fs.likelihoods.HeteroskedasticGaussian(),
        rng.standard_normal((B, P // 2) if P > 2 else B),
    ),
    "labels": lambda rng, P: (fs.likelihoods.BernoulliLogit(), rng.integers(0, 2, B)),
    "classes": lambda rng, P: (fs.Softmax(num_classes=P, num_samples=16), rng.integers(0, P, B)),
}
CHAINS = {  # (posterior, outputs) of each layer from the inputs on, and the likelihood
    "two": ([("whitened", 3), ("likelihood", None)], "gaussian"),
    "narrow": ([("marginal", 1), ("whitened", None)], "labels"),
    "three": ([("likelihood", 2), ("relaxed", 3), ("WhitenedOrthogonal", None)], "student"),
    "classes": ([("dual-sites", 2), ("likelihood-plain", 3)], "classes"),
    "outputs": ([("WhitenedOrthogonal", 2), ("absorbed-sites", 2), ("marginal", 2)], "gaussian"),
    "rare": (
        [("inverse-free", 2), ("Orthogonal", 1), ("Decoupled", 3), ("DecoupledWeights", 1)],
        "gaussian",
    ),
    "noise": ([("whitened", 2), ("marginal", 4)], "noise"),
    "relaxed": ([("relaxed-plain", 3), ("relaxed", 2)], "student"),
}


def layer_of(rng, name, D, P, M=M):
    """Return a layer with a posterior of the table."""
    covariance = fs.RBF(1.2, np.linspace(0.9, 1.3, D)) + fs.Linear(0.3)
    inducing = rng.uniform(-2, 2, (M, D))
    if name in PAIRS:
        inducing = fs.posteriors.InducingPair(
            inducing[: M - max(1, M // 3)].copy(), inducing[M - max(1, M // 3) :].copy()
        )
    Kuu = covariance.Kuu(inducing)
    posterior = EVERY[name].make(rng, Kuu + JITTER * np.eye(M), () if P is None else (P,))
    return fs.layers.Layer(covariance, inducing, posterior, mean_of(rng, D, P))


def mean_of(rng, D, P):
    """Return the identity if it fits, else linear functions; None for one output."""
    if P is None:
        return None
    return (
        fs.means.IdentityMean()
        if P == D
        else fs.means.LinearMean(rng.standard_normal((P, D)), rng.standard_normal(P))
    )


def problem(rng, name="two", D=2):
    """Return ``(model, X, Y)``."""
    rows, likelihood = CHAINS[name]
    columns = [D, *(P for _, P in rows[:-1])]
    layers = tuple(layer_of(rng, kind, d, P) for (kind, P), d in zip(rows, columns, strict=True))
    if likelihood == "noise":  # a linear mean would make noise of exp(-20)
        layers = (*layers[:-1], fs.replace(layers[-1], mean=None))
    likelihood, Y = LIKELIHOODS[likelihood](rng, rows[-1][1])
    return fs.DeepGP(layers, likelihood), rng.uniform(-2, 2, (B, D)), Y


def draws_for(rng, model, num, batch=B):
    return tuple(
        rng.standard_normal((num, batch, layer.check_shapes()[1][0])) for layer in model.layers[:-1]
    )
