"""A model with each part of the package, and with inducing inputs of each form."""

from typing import Any

import numpy as np
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.posteriors.dual_sites import WhitenedState
from fastsvgp.records import leaf, record, static

M, D, P = 4, 2, 3


@record
class Anchors:
    """Record that replaces inducing inputs: numbers of each kind, some in fields that can hold
    records.
    """

    place: Any
    spread: Any = leaf("positive")
    scale_tril: Any = leaf("tril")
    parts: Any
    weights: Any = leaf(default=None)
    label: Any = static(default="north")


@record
class Offset:
    amount: Any


def svgp(rng, covariance=None, inducing=None, posterior=None, likelihood=None, mean=None):
    return fs.SVGP(
        fs.RBF(0.8, rng.uniform(0.5, 2, D)) if covariance is None else covariance,
        rng.standard_normal((M, D)) if inducing is None else inducing,
        (
            fs.Whitened(rng.standard_normal(M), lower_factor(rng, M))
            if posterior is None
            else posterior
        ),
        fs.Gaussian(0.1) if likelihood is None else likelihood,
        mean,
    )


def anchors(rng):
    parts = (
        Offset(rng.standard_normal(M)),
        fs.RBF(0.5, rng.uniform(0.5, 2, D)),
        Offset([1.0, 2.0]),
    )
    return Anchors(
        rng.standard_normal((M, D)),
        rng.uniform(0.5, 2, M),
        lower_factor(rng, M),
        parts,
        label="south",
    )


def two_sets(rng, *batch):
    return [
        field
        for _ in range(2)
        for field in (rng.standard_normal((*batch, M)), lower_factor(rng, *batch, M))
    ]


def weighted(rng, make):
    return fs.QSGP(make(rng), chevron(rng), fs.Gaussian(0.1))


def deep(rng):
    hidden = fs.layers.Layer(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, D)),
        POSTERIORS["whitened"](rng),
        MEANS["constant"](rng),
    )
    pair = fs.posteriors.InducingPair(*rng.standard_normal((2, M, P)))
    return fs.DeepGP(
        (hidden, fs.layers.Layer(fs.Linear(0.5), pair, fs.posteriors.Orthogonal(*two_sets(rng)))),
        fs.Gaussian(0.1),
    )


def multi(rng):
    """Layers with and without inducing inputs of their own, of one output and of several."""
    own = fs.layers.Layer(
        fs.Matern32(0.7, 0.4), rng.standard_normal((M, D)), POSTERIORS["marginal"](rng)
    )
    shared = fs.layers.Layer(
        fs.RBF(0.8, 0.5), None, POSTERIORS["whitened"](rng), MEANS["constant"](rng)
    )
    W, mean = rng.standard_normal((2, P + 1)), fs.means.ConstantMean(rng.standard_normal(2))
    return fs.MultiGP(
        (own, shared), fs.Gaussian(0.1), W, mean, inducing=rng.standard_normal((M, D))
    )


def heteroskedastic(rng):
    """A matrix of the mixing for each function of the likelihood."""
    latents = tuple(
        fs.layers.Layer(fs.RBF(0.8, 0.5), rng.standard_normal((M, D)), POSTERIORS["marginal"](rng))
        for _ in range(3)
    )
    W = rng.standard_normal((2, 2)), rng.standard_normal((2, 1))
    return fs.MultiGP(latents, fs.likelihoods.HeteroskedasticGaussian(), W)


def parallel(rng):
    """Layers side by side below a layer."""
    whole = multi(rng)
    hidden = fs.layers.ParallelLayers(whole.latents, whole.mixing, whole.mean, whole.inducing)
    top = fs.layers.Layer(
        fs.RBF(0.8, 0.5), rng.standard_normal((M, 2)), POSTERIORS["marginal"](rng)
    )
    return fs.DeepGP((hidden, top), fs.Gaussian(0.1))


def chevron(rng):
    return fs.qsgp.ChevronWeights(
        rng.standard_normal(M), lower_factor(rng, M)[:, :2].copy(), rng.uniform(0.5, 2, M - 2)
    )


def feature_maps(rng):
    shapes = {"image_shape": (3, 3), "patch_shape": (2, 2)}
    filters = fs.means.LinearMean(rng.standard_normal((P, 4)), rng.standard_normal(P))
    first = fs.layers.ConvolutionalLayer(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, 4)),
        POSTERIORS["whitened"](rng),
        filters,
        **shapes,
    )
    images = fs.covariances.Convolutional(
        fs.RBF(0.9, 0.5),
        rng.standard_normal(4),
        fs.Matern32(),
        image_shape=(2, 2, P),
        patch_shape=(1, 1),
    )
    last = fs.layers.Layer(images, rng.standard_normal((M, P + 2)), POSTERIORS["marginal"](rng))
    return fs.DeepGP((first, last), fs.Gaussian(0.1))


COVARIANCES = {
    "rbf": lambda rng: fs.RBF(1.5, rng.uniform(0.5, 2, D)),
    "matern12": lambda rng: fs.Matern12(np.float64(0.7), 0.4),
    "matern32": lambda rng: fs.Matern32(0.7, [0.4, 2.0]),
    "matern52": lambda rng: fs.Matern52(0.7, (0.4, 2.0)),
    "linear": lambda rng: fs.Linear(rng.uniform(0.5, 2, D)),
    "convolutional": lambda rng: fs.covariances.Convolutional(
        fs.covariances.Sum((fs.RBF(0.8, 0.5), fs.Linear(0.2))),
        rng.standard_normal(6),
        fs.Matern32(),
        image_shape=(3, 2),
        patch_shape=(1, 1),
    ),
    "weighted": lambda rng: fs.covariances.Weighted(
        fs.Matern52(0.8, 0.5) + fs.Linear(0.2), points=2
    ),
    "on features": lambda rng: fs.covariances.OnFeatures(
        fs.RBF(0.8, 0.5), fs.covariances.Network.random((D, 4, 2), rng=rng)
    ),
    "rational quadratic": lambda rng: fs.covariances.RationalQuadratic(
        0.8, rng.uniform(0.5, 2, D), 1.5
    ),
    "periodic on a column": lambda rng: fs.Periodic(fs.Matern52(0.7, 0.4), 2.0).on(1),
    "of inner products": lambda rng: (
        fs.covariances.Polynomial(rng.uniform(0.5, 2, D), 0.3, degree=2)
        + fs.covariances.ArcCosine(0.8, 0.4, order=2)
    ),
    "cosine": lambda rng: fs.covariances.Cosine(0.8, rng.standard_normal(D)) * fs.RBF(),
    "additive": lambda rng: fs.covariances.Additive([0.8, 0.3], rng.uniform(0.5, 2, D)),
    "change points": lambda rng: fs.covariances.ChangePoints(
        (fs.RBF(), fs.Linear()), [0.1], 3.0, column=1
    ),
    "composed": lambda rng: fs.covariances.Sum(
        (fs.covariances.Product((fs.Linear(0.5), fs.RBF(1.1, 0.9))), fs.covariances.Constant(0.3))
    ),
}
POSTERIORS = {
    "whitened": lambda rng: fs.Whitened(rng.standard_normal((P, M)), lower_factor(rng, P, M)),
    "marginal": lambda rng: fs.Marginal(rng.standard_normal(M), lower_factor(rng, M)),
    "likelihood_form": lambda rng: fs.posteriors.LikelihoodForm(
        rng.standard_normal((P, M)), rng.uniform(0.5, 2, M), preconditioned=False
    ),
    "relaxed": lambda rng: fs.posteriors.Relaxed(
        rng.standard_normal(M), rng.uniform(0.5, 2, M), lower_factor(rng, M)
    ),
    "inverse_free": lambda rng: fs.posteriors.InverseFreeWhitened(
        rng.standard_normal(M), lower_factor(rng, M), lower_factor(rng, M)
    ),
    "absorbed_dual_sites": lambda rng: fs.posteriors.AbsorbedDualSites(*two_sets(rng, P)[:2]),
    "whitened_state": lambda rng: WhitenedState(*two_sets(rng)[:2]),
    "dual_sites": lambda rng: fs.posteriors.DualSites(*two_sets(rng)[:2]),
    "orthogonal": lambda rng: fs.posteriors.Orthogonal(*two_sets(rng)),
    "decoupled": lambda rng: fs.posteriors.Decoupled(*two_sets(rng, P)[:3]),
    "decoupled_weights": lambda rng: fs.posteriors.DecoupledWeights(*two_sets(rng, P)[:3]),
    "predictive": lambda rng: fs.posteriors.PredictiveWeights(
        rng.standard_normal(M), rng.standard_normal((M, M)), -np.ones(M)
    ),
    "whitened_orthogonal": lambda rng: fs.posteriors.WhitenedOrthogonal(*two_sets(rng, P)),
}
LIKELIHOODS = {
    "gaussian": fs.Gaussian(np.float64(0.2)),
    "laplace": fs.likelihoods.Laplace(0.3),
    "student_t": fs.StudentT(0.3, df=3.0),
    "poisson": fs.Poisson(),
    "negative_binomial": fs.likelihoods.NegativeBinomial(1.5, exposure="column"),
    "zero_inflated": fs.likelihoods.ZeroInflatedPoisson(0.3),
    "binomial": fs.likelihoods.Binomial(link="probit"),
    "gamma": fs.likelihoods.Gamma(2.0),
    "exponential": fs.likelihoods.Exponential(),
    "beta": fs.likelihoods.Beta(np.float64(5.0)),
    "ordinal": fs.likelihoods.Ordinal(-0.5, np.array([0.8, 1.1])),
    "known_noise": fs.likelihoods.KnownNoise(0.2),
    "censored": fs.likelihoods.Censored(0.2),
    "switched": fs.likelihoods.Switched((fs.Gaussian(0.2), fs.StudentT(0.3))),
    "probit": fs.BernoulliProbit(),
    "logit": fs.likelihoods.BernoulliLogit(num_nodes=10),
    "robust_max": fs.likelihoods.RobustMax(num_classes=P),
    "softmax": fs.Softmax(num_classes=P),
    "heteroskedastic": fs.likelihoods.HeteroskedasticGaussian(),
    "heteroskedastic counts": fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=8),
}
MEANS = {
    "zero": lambda rng: fs.means.ZeroMean(),
    "constant": lambda rng: fs.means.ConstantMean(rng.standard_normal(P)),
    "linear": lambda rng: fs.means.LinearMean(rng.standard_normal(D), 0.25),
    "identity": lambda rng: fs.means.IdentityMean(),
}
INDUCING = {
    "list": lambda rng: rng.standard_normal((M, D)).tolist(),
    "tuple": lambda rng: tuple(map(tuple, rng.standard_normal((M, D)).tolist())),
    "record": anchors,
    "records": lambda rng: (anchors(rng), Offset(0.5)),
    "pair": lambda rng: fs.posteriors.InducingPair(
        rng.standard_normal((M, D)), rng.standard_normal((2, D))
    ),
    "nested": lambda rng: Offset(Offset(rng.standard_normal((M, D)))),
}
BASES = {
    "fourier": lambda rng: fs.qsgp.RandomFourier(
        fs.Matern32(0.8, rng.uniform(0.5, 2, D)), num_features=M, seed=3
    ),
    "inducing": lambda rng: fs.qsgp.InducingBasis(fs.RBF(0.8, 0.5), rng.standard_normal((M, D))),
    "relevance": lambda rng: fs.qsgp.RelevanceBasis(
        fs.RBF(0.8, 0.5), rng.standard_normal((M, D)), rng.uniform(0.5, 2, M)
    ),
}
MODELS = {
    "codes": lambda rng: svgp(
        rng,
        fs.covariances.Coregion(rng.standard_normal((3, 2)), rng.uniform(0.5, 2, 3)).on(0)
        * fs.covariances.Categorical(0.8, 0.5).on(1),
        rng.integers(0, 3, (M, D)).astype(float),
    ),
    **{
        f"covariance {name}": lambda rng, make=make: svgp(rng, covariance=make(rng))
        for name, make in COVARIANCES.items()
    },
    **{
        f"posterior {name}": lambda rng, make=make: svgp(rng, posterior=make(rng))
        for name, make in POSTERIORS.items()
    },
    **{
        f"likelihood {name}": lambda rng, part=part: svgp(rng, likelihood=part)
        for name, part in LIKELIHOODS.items()
    },
    **{
        f"mean {name}": lambda rng, make=make: svgp(rng, mean=make(rng))
        for name, make in MEANS.items()
    },
    **{
        f"inducing {name}": lambda rng, make=make: svgp(rng, inducing=make(rng))
        for name, make in INDUCING.items()
    },
    "sgpr": lambda rng: fs.SGPR(
        fs.RBF(0.8, 0.5), rng.standard_normal((M, D)), 0.1, fs.means.ConstantMean(0.5)
    ),
    "site svgp": lambda rng: fs.sites.SiteSVGP(
        fs.RBF(0.8, 0.5),
        rng.standard_normal((M, D)),
        fs.sites.Sites(*rng.standard_normal((2, P, 9))),
        fs.Gaussian(0.1),
    ),
    "vgp": lambda rng: fs.sites.VGP(
        fs.RBF(0.8, 0.5),
        fs.sites.Sites(*rng.standard_normal((2, 9))),
        fs.Gaussian(0.1),
        fs.means.ConstantMean(0.5),
    ),
    "orthogonal sgpr": lambda rng: fs.bounds.OrthogonalSGPR(
        fs.RBF(0.8, 0.5),
        fs.posteriors.InducingPair(*rng.standard_normal((2, M, D))),
        0.1,
        *two_sets(rng)[:2],
        fs.means.ConstantMean(0.5),
    ),
    **{f"basis {name}": lambda rng, make=make: weighted(rng, make) for name, make in BASES.items()},
    "deep": lambda rng: deep(rng),
    "sgpr inducing record": lambda rng: fs.SGPR(fs.RBF(0.8, 0.5), anchors(rng), np.float64(0.1)),
    "feature maps": lambda rng: feature_maps(rng),
    "several functions": multi,
    "a mixing of each function": heteroskedastic,
    "parallel layers": parallel,
}
