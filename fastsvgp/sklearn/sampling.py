"""Sample targets, given samples of the function."""

import numpy as np
from scipy import special

from ..likelihoods import (
    BernoulliLogit,
    BernoulliProbit,
    Gaussian,
    HeteroskedasticGaussian,
    HeteroskedasticNegativeBinomial,
    Laplace,
    Poisson,
    RobustMax,
    Softmax,
    StudentT,
)


def draw(likelihood, f, rng):
    """Sample one y for each f, (S, N) or (S, N, P); class codes (S, N) for f (S, N, C).

    For a likelihood of two functions per output f is (S, N, 2 P).

    Raises ``TypeError`` for a user-defined likelihood.
    """
    if isinstance(likelihood, Gaussian):
        return f + np.sqrt(likelihood.variance) * rng.standard_normal(f.shape)
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
    if isinstance(likelihood, Poisson):
        return rng.poisson(likelihood.exposure * np.exp(f)).astype(f.dtype)
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
