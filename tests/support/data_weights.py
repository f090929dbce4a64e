"""Weights of data for tests: a problem per likelihood, and repeated rows."""

import numpy as np
import pytest
from support.gp_problems import lower_factor, spread

import fastsvgp as fs
from fastsvgp.likelihoods import layout

B, D, M = 23, 2, 6


def real(rng, shape):
    return 1.5 * rng.standard_normal(shape)


def label(rng, shape):
    return rng.integers(0, 2, shape)


def trials(rng, shape):
    """Two columns: successes of a few trials."""
    n = rng.integers(1, 5, shape)
    return np.stack([rng.binomial(n, 0.4), n], axis=-1).astype(float)


TABLE = {  # likelihood, targets, outputs, what is no target
    "gaussian": (fs.Gaussian(0.3), real, (2,), np.nan),
    "probit": (fs.BernoulliProbit(), label, (), -7),
    "logit": (
        fs.likelihoods.BernoulliLogit(),
        lambda rng, shape: label(rng, shape).astype(float),
        (2,),
        np.nan,
    ),
    "poisson": (
        fs.Poisson(exposure=1.7),
        lambda rng, shape: rng.poisson(2.0, shape).astype(float),
        (2,),
        -0.5,
    ),
    "laplace": (fs.likelihoods.Laplace(0.6), real, (2,), np.inf),
    "student_t": (fs.StudentT(0.7, df=3.0), real, (), np.nan),
    "heteroskedastic": (fs.likelihoods.HeteroskedasticGaussian(), real, (4,), np.nan),
    "negative_binomial": (
        fs.likelihoods.HeteroskedasticNegativeBinomial(num_nodes=8),
        lambda rng, shape: rng.poisson(2.0, shape).astype(float),
        (2,),
        np.nan,
    ),
    "binomial": (fs.likelihoods.Binomial(), trials, (), np.nan),
    "exposures": (
        fs.likelihoods.NegativeBinomial(1.7, exposure="column"),
        lambda rng, shape: trials(rng, shape) + 0.5 * (np.arange(2) == 1),
        (2,),
        -0.5,
    ),
    "ordinal": (
        fs.likelihoods.Ordinal(-0.5, np.ones(2)),
        lambda rng, shape: rng.integers(0, 4, shape).astype(float),
        (2,),
        np.nan,
    ),
    "robust_max": (
        fs.likelihoods.RobustMax(num_classes=3),
        lambda rng, shape: rng.integers(0, 3, shape[:1]),
        (3,),
        99,
    ),
    "softmax": (
        fs.Softmax(num_classes=3, num_samples=32),
        lambda rng, shape: 1.0 * rng.integers(0, 3, shape[:1]),
        (3,),
        np.nan,
    ),
}
each = pytest.mark.parametrize("name", TABLE)


def problem(rng, name="gaussian"):
    """``(model, X, Y)``."""
    likelihood, targets, outputs, _ = TABLE[name]
    covariance, Z = fs.RBF(1.3, np.array([0.9, 1.2])), spread(rng, M, D)
    posterior = fs.Whitened(
        0.3 * rng.standard_normal((*outputs, M)), lower_factor(rng, *outputs, M, off=0.1)
    )
    model = fs.SVGP(
        covariance, Z, posterior, likelihood, None if name == "probit" else mean_of(outputs)
    )
    shape = B, *layout.outputs_of(likelihood, outputs)
    return model, rng.uniform(-2, 2, (B, D)), targets(rng, shape)


def axes(model, Y):
    """Return the shape of an array with one number per target."""
    return Y.shape if len(model.likelihood.target_columns) == 1 else Y.shape[:-1]


def mean_of(outputs):
    return fs.means.ConstantMean(np.linspace(0.1, 0.3, *outputs) if outputs else 0.2)


def counts(rng):
    """Return integer weights, some 0, and the repeated row numbers."""
    w = rng.permutation(np.arange(B) % 4)
    return w, np.repeat(np.arange(B), w)


def assert_close(found, expected, rtol=1e-10):
    """Records, arrays and numbers, each relative to its own size."""
    if isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_close(one, other, rtol)
        return
    if not hasattr(expected, "_record_fields"):
        return np.testing.assert_allclose(
            found, expected, rtol=0, atol=rtol * np.max(np.abs(expected))
        )
    for (path, kind, one), (_, _, other) in zip(
        fs.records.leaves(found), fs.records.leaves(expected), strict=True
    ):
        assert (one is None) == (other is None), path
        if other is not None:
            one, other = (
                (np.tril(one), np.tril(other)) if kind in ("tril", "symmetric") else (one, other)
            )
            np.testing.assert_allclose(
                one, other, rtol=0, atol=rtol * np.max(np.abs(other)), err_msg=path
            )


def summed(X_bar, rows):
    """Sum over repeated rows."""
    out = np.zeros((B, D))
    np.add.at(out, rows, X_bar)
    return out


def without(Y, w, name):
    """Replace targets of weight 0 by invalid values."""
    Y = Y.copy()
    Y[w == 0] = TABLE[name][3]
    return Y
