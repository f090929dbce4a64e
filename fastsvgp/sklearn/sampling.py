"""Sample targets, given samples of the function."""

import numpy as np
from scipy import special

from ..likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Beta,
    Binomial,
    Censored,
    Exponential,
    Gamma,
    Gaussian,
    HeteroskedasticGaussian,
    HeteroskedasticNegativeBinomial,
    KnownNoise,
    Laplace,
    NegativeBinomial,
    Ordinal,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
    ZeroInflatedPoisson,
)

TINY = 1e-300  # smallest parameter of a beta variable


def draw(likelihood, f, rng):
    """Sample one y for each f, (S, N) or (S, N, P); class codes (S, N) for f (S, N, C).

    For a likelihood of two functions per output f is (S, N, 2 P). Targets with trials or exposures
    are those of one trial and one unit of exposure; the noise of others is that of the likelihood.

    Raises ``TypeError`` for a user-defined likelihood.
    """
    if isinstance(likelihood, Gaussian | KnownNoise | Censored):
        variance = getattr(likelihood, "excess", likelihood.variance)
        return f + np.sqrt(variance) * rng.standard_normal(f.shape)
    if likelihood.latents_per_output == 2:
        f, h = np.split(f, 2, axis=-1)
        f, h = (f[..., 0], h[..., 0]) if f.shape[-1] == 1 else (f, h)
        if isinstance(likelihood, HeteroskedasticGaussian):
            return f + np.exp(0.5 * h) * rng.standard_normal(f.shape)
        if isinstance(likelihood, HeteroskedasticNegativeBinomial):
            shape = np.exp(h)
            return rng.poisson(np.exp(f - h) * rng.gamma(shape)).astype(f.dtype)
    if isinstance(likelihood, Laplace):
        return f + rng.laplace(scale=likelihood.scale, size=f.shape)
    if isinstance(likelihood, StudentT):
        return f + likelihood.scale * rng.standard_t(likelihood.df, f.shape)
    if isinstance(likelihood, Poisson | NegativeBinomial | ZeroInflatedPoisson):
        return _counts(likelihood, f, rng).astype(f.dtype)
    if isinstance(likelihood, Gamma | Exponential):
        shape = float(getattr(likelihood, "shape", 1.0))
        return (np.exp(f) * rng.gamma(shape, 1 / shape, f.shape)).astype(f.dtype)
    if isinstance(likelihood, Beta):
        a, b = (float(likelihood.scale) * special.expit(g.astype(np.float64)) for g in (f, -f))
        return rng.beta(np.maximum(a, TINY), np.maximum(b, TINY)).astype(f.dtype)
    if isinstance(likelihood, Ordinal):
        edges = likelihood.first + np.cumsum(np.concatenate([[0.0], likelihood.gaps]))
        return np.searchsorted(edges, f + rng.standard_normal(f.shape))
    if isinstance(likelihood, Binomial):
        link = special.ndtr if likelihood.link == "probit" else special.expit
        return (rng.random(f.shape) < link(f)).astype(f.dtype)
    if isinstance(likelihood, BernoulliProbit | BernoulliLogit):
        link = special.ndtr if isinstance(likelihood, BernoulliProbit) else special.expit
        return (rng.random(f.shape) < link(f)).astype(np.intp)
    if isinstance(likelihood, Softmax):
        return np.argmax(f + rng.gumbel(size=f.shape), axis=-1)
    if isinstance(likelihood, RobustMax):
        best, C = np.argmax(f, axis=-1), likelihood.num_classes
        other = (best + rng.integers(1, C, best.shape)) % C
        return np.where(rng.random(best.shape) < likelihood.epsilon, other, best)
    raise TypeError(
        f"sample_y: cannot sample from a {type(likelihood).__name__}, which is user-defined; sample"
        " f with fastsvgp.sample_f"
    )


def _counts(likelihood, f, rng):
    """Sample counts of one unit of exposure, or of the exposure of the likelihood."""
    unit = getattr(likelihood, "exposure", 1)
    rate = (1 if isinstance(unit, str) else unit) * np.exp(f)
    if isinstance(likelihood, NegativeBinomial):
        a = float(likelihood.dispersion)
        rate = rate * rng.gamma(a, 1 / a, f.shape)
    if isinstance(likelihood, ZeroInflatedPoisson):
        rate = rate * (rng.random(f.shape) >= likelihood.probability)
    return rng.poisson(rate)
