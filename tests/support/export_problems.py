"""Models with each part that can be exported, and rows at which files are compared."""

import numpy as np

import fastsvgp as fs
from fastsvgp import covariances as cs, likelihoods as ls
from fastsvgp.recipes.beyond_range import BeyondRange

M, D, N = 12, 3, 1000
LEVELS = [0.01, 0.3, 0.5, 0.975]
ELL = np.array([0.8, 1.5, 2.0])
BOX = {"low": (-1.0, -1.0, -2.0), "middle": (0.0, 0.3, 1.0), "high": (1.0, 1.0, 1.0)}


def whitened(rng, *batch, spread=0.5):
    tril = np.tril(0.1 * rng.standard_normal((*batch, M, M)), -1) + spread * np.eye(M)
    return fs.Whitened(rng.standard_normal((*batch, M)), tril)


def network(activation, rng=5):
    return cs.Network.random((D, 6, 5, 2), activation, rng=rng)


COVARIANCES = {
    "rbf": fs.RBF(1.3, ELL),
    "matern12": fs.Matern12(1.3, ELL),
    "matern32": fs.Matern32(0.7, 1.2),
    "matern52": fs.Matern52(1.3, ELL),
    "rational": cs.RationalQuadratic(1.3, ELL, alpha=0.7),
    "constant": cs.Constant(2.0),
    "linear": fs.Linear(np.array([0.1, 0.2, 0.3])) + fs.RBF(),
    "polynomial": cs.Polynomial(np.array([0.1, 0.2, 0.3]), 0.5, degree=3) + fs.RBF(),
    "columns": (fs.RBF(1.3, ELL[:2]).on(2, 0) + 0.3) * fs.Matern32().on(1),
    "periodic": fs.Periodic(fs.RBF(1.2, ELL), period=np.array([1.0, 2.0, 5.0])),
    "periodic-one": fs.Periodic(fs.Matern32(1.2, 0.8), period=3.0),
    "cosine": cs.spectral_mixture(
        [1.0, 0.5], [[0.1, 0.2, 0.3], [0.5, 0.1, 0.0]], np.ones((2, D)) / 9
    ),
    "codes": cs.Categorical(1.2, 0.7).on(2) * fs.RBF().on(0, 1),
    "network": cs.OnFeatures(fs.RBF(1.0, ELL[:2]), network("tanh")),
    "network-relu": cs.OnFeatures(fs.RBF() + fs.Linear(0.2), network("relu")),
    "held": BeyondRange(fs.RBF(1.3, ELL), variance=2.0, **BOX),
    "not-held": BeyondRange(fs.Linear(0.3) + fs.RBF(), variance=2.0, held=False, **BOX),
    "held-network": BeyondRange(
        cs.OnFeatures(fs.RBF(1.0, ELL[:2]), network("tanh")), variance=2.0, **BOX
    ),
}
LIKELIHOODS = {
    "probit": (fs.BernoulliProbit(), ()),
    "logit": (ls.BernoulliLogit(), ()),
    "poisson": (fs.Poisson(exposure=2.5), ()),
    "poisson-column": (fs.Poisson(exposure="column"), ()),
    "laplace": (ls.Laplace(scale=0.3), ()),
    "student": (fs.StudentT(scale=0.3, df=4.5), ()),
    "softmax": (fs.Softmax(num_classes=3), (3,)),
    "two": (fs.Gaussian(0.1), (2,)),
    "one-axis": (fs.Gaussian(0.1), (1,)),
}


def spaced(rng, rows):
    """Draw rows of which no two are close: then Kuu is far from singular."""
    return rng.permutation(np.linspace(-2, 2, rows * D)).reshape(rows, D)


def corners(rng, Z):
    """Rows near and far, at the inducing inputs, and at the border of the box."""
    X = rng.uniform(-2.5, 2.5, (N, D))
    X[:100] *= 1e2
    X[100 : 100 + len(Z)] = Z
    for row, name in enumerate(("low", "middle", "high")):
        X[-1 - row] = BOX[name]
    X[-4], X[-5] = 0.0, 1e7
    return X


def model_of(rng, name):
    """Return a model and rows, by the name of a case."""
    likelihood, outputs = LIKELIHOODS.get(name, (fs.Gaussian(0.1), ()))
    covariance = COVARIANCES.get(name, COVARIANCES["rbf"])
    Z = spaced(rng, M)
    X = corners(rng, Z)
    if name == "codes":
        Z[:, 2], X[:, 2] = rng.integers(0, 4, M), rng.integers(0, 6, N)
    inside = covariance.covariance if isinstance(covariance, BeyondRange) else covariance
    if isinstance(inside, cs.OnFeatures):
        Z = inside.network(2 * Z)
    if name == "two":
        mean = fs.means.LinearMean(rng.standard_normal((2, D)), np.array([0.3, -0.4]))
    else:
        mean = fs.means.ConstantMean(0.4) if outputs else None
    return fs.SVGP(covariance, Z, whitened(rng, *outputs), likelihood, mean), X


def wanted(predictor, X, quantiles):
    """Return what fastsvgp predicts."""
    found = fs.predict_quantiles(predictor, X, LEVELS) if quantiles else None
    return *fs.predict_y(predictor, X), found
