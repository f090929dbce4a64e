"""Starts of models with several latent functions: layers, and a mixing of their outputs.

Without ``latents`` all outputs share one covariance, as in an SVGP; a likelihood of K functions per
output then has K layers, each with the k-th function of all outputs.
"""

import numpy as np

from .. import check
from ..latents.build import lengthscale_factors, mixing_directions
from ..latents.model import MultiGP
from ..layers.layer import Layer
from ..records import leaves, replace
from ..records.inducing_sets import sets_of
from ..runtime.thresholds import MOST_LATENTS
from . import guesses, target_values
from .names import NOISE, mean_of, posterior_of

SEPARATE = "separate"


def needs_latents(latents, likelihood):
    """Whether these settings need a ``MultiGP``."""
    return latents is not None or likelihood.latents_per_output > 1


def check_latents(name, latents):
    """Check a number of latent functions, "separate" or None; ``name`` is for messages."""
    if latents is None or isinstance(latents, str) and latents == SEPARATE:
        return latents
    if isinstance(latents, str):
        raise ValueError(
            f"`{name}` must be a number of latent functions, or {SEPARATE!r}; got {latents!r:.80}"
        )
    if check.whole(name, latents) > MOST_LATENTS:
        raise ValueError(f"`{name}` must be at most {MOST_LATENTS}, got {latents}")
    return int(latents)


def model_of(Y, weights, parts, method, found, rng):
    """Make the initial ``MultiGP`` for standardised targets.

    Parameters
    ----------
    Y, weights
        As of ``begin``.
    parts : Settings
        ``latents``: a number of functions that a mixing combines, "separate" for a covariance per
        function, or None. Of a likelihood of several functions per output a number mixes the
        first; the others are separate.
    method : Method
        With a likelihood in the dtype of the model.
    found : (covariance, inducing inputs)
        Of every layer. The lengthscales of mixed functions differ, as in ``multi_gp``, unless
        ``parts`` has a record as its covariance.
    rng : Generator
    """
    covariance, Z = found
    likelihood, latents = method.likelihood, check_latents("latents", parts.latents)
    K, classes = likelihood.latents_per_output, likelihood.num_latent
    P = classes or (*check.axes_of_targets(Y, likelihood), 1)[0]
    mixed = latents not in (None, SEPARATE)
    if mixed and classes:
        raise ValueError(
            f"`latents` is {latents}, but the functions of classes cannot be mixed; give"
            f" {SEPARATE!r}, or leave it out"
        )

    def layer(outputs=None, factor=1.0):
        own = covariance
        if factor != 1:
            own = replace(own, lengthscales=(own.lengthscales * factor).astype(dtype)[()])
        num_data = len(Y) if weights is None else weights.sum()
        q = posterior_of(method.kind, own, Z, outputs, num_data, method.jitter)
        return Layer(own, None, q)

    dtype, mixing = sets_of(Z)[0].dtype, None
    if latents is None:
        layers = [layer(P if P > 1 else None) for _ in range(K)]
    elif mixed:
        by_name = isinstance(parts.covariance, str) and latents > 1
        factors = lengthscale_factors(latents) if by_name else np.ones(latents)
        layers = [layer(factor=factor) for factor in factors] + [layer() for _ in range(K * P - P)]
        W = mixing_directions(*_centre(Y, weights, likelihood), latents, rng).astype(dtype)
        mixing = W if K == 1 else (W, *[np.eye(P, dtype=dtype)] * (K - 1))
    else:
        layers = [layer() for _ in range(K * P)]
    offsets, mean = _offsets(Y, weights, likelihood), parts.mean
    if mean is None and offsets is not None:
        mean = "constant"
    offsets = np.zeros(P) if offsets is None else offsets
    mean = mean_of(mean, covariance.num_columns(Z), np.squeeze(offsets.astype(dtype))[()])
    return MultiGP(tuple(layers), likelihood, mixing, mean, Z)


def fixed_variances(model):
    """Return the paths of variances that stay fixed because a mixing has their scale."""
    if not isinstance(model, MultiGP) or model.mixing is None:
        return ()
    values = {path: value for path, _, value in leaves(model)}
    names = (f"latents.{number}.covariance.variance" for number in range(len(model.latents)))
    # several variances, of a linear covariance, are relevances, too
    return tuple(name for name in names if name in values and np.ndim(values[name]) == 0)


def _latent_values(Y, likelihood):
    """Return the targets (N, P) in the units of the latent functions."""
    if not likelihood.counts or check.num_columns(likelihood) > 1:
        return target_values.as_real(likelihood, Y).reshape(len(Y), -1)
    return np.log(np.asarray(Y, np.float64).reshape(len(Y), -1) + 0.5)


def _moments(values, weights):
    mean = np.average(values, axis=0, weights=weights)
    spread = np.sqrt(np.average(np.square(values - mean), axis=0, weights=weights))
    return mean, np.where(spread > 0, spread, 1.0)


def _centre(Y, weights, likelihood):
    """Return the centred rows (N, P), each times the root of its relative weight, and the sds."""
    values = _latent_values(Y, likelihood)
    mean, spread = _moments(values, weights)
    share = 1.0 if weights is None else np.sqrt(weights / np.mean(weights))[:, None]
    return (values - mean) * share, spread


def _offsets(Y, weights, likelihood):
    """Return the initial means of all functions.

    For a likelihood of one function per output they are those of ``guesses.offset``, None for
    zeros. Of several functions, the first are the means of the targets, and all others the log of
    a share of their variances.
    """
    K = likelihood.latents_per_output
    if K == 1:
        return guesses.offset(likelihood, Y, weights)
    mean, spread = _moments(_latent_values(Y, likelihood), weights)
    return np.concatenate([mean, *[np.log(NOISE * np.square(spread))] * (K - 1)])
