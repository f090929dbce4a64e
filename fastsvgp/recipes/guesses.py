"""First values of likelihoods of numbers that are not standardised, from moments of the targets.

A likelihood of a mean exp(f), or of a chance in (0, 1), has a constant mean of f at first: that of
the targets. Grades have their edges at the quantiles of a standard normal variable, so that f = 0
gives their frequencies.
"""

import numpy as np

from .. import check
from ..likelihoods import (
    Beta,
    Binomial,
    Exponential,
    Gamma,
    NegativeBinomial,
    Ordinal,
    Poisson,
    ZeroInflatedPoisson,
)
from ..means import ConstantMean
from .target_values import POSITIVE, comparable_targets

NOISE = 0.1  # initial share of noise in the variance of targets
GUESSED = (*POSITIVE, Beta, Binomial, NegativeBinomial, Ordinal, ZeroInflatedPoisson)
# ranges of first values: moments of few targets, or of equal ones, can be anything
DISPERSION, SHAPE, SCALE, ZEROS = (0.5, 1e3), (0.5, 1e3), (2.0, 1e3), (0.02, 0.5)


def check_targets(likelihood, Y):
    """Check targets before their moments are taken: (N,) or (N, P), or with a last axis of columns.

    ``fit`` checks those of other likelihoods.
    """
    if isinstance(likelihood, (*GUESSED, Poisson)) or check.num_columns(likelihood) > 1:
        axes = check.axes_of_targets(Y, likelihood)
        check.targets(Y, len(Y), axes, likelihood, Y.dtype, ("X", "y"))


def likelihood(kind, Y, num_classes, weights):
    """Make the initial likelihood of a class that is not of real-valued targets."""
    if kind is Ordinal:
        return _edges(Y, num_classes, weights)
    if kind in (Exponential, Binomial):
        return kind()
    mean, var = _moments(Y, weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        if kind is NegativeBinomial:
            return NegativeBinomial(_dispersion(mean, var - mean))
        if kind is ZeroInflatedPoisson:
            return ZeroInflatedPoisson(_middle(1 - mean / (mean + var / mean - 1), ZEROS))
        if kind is Gamma:
            return Gamma(_middle(1 / (NOISE * _moments(np.log(Y), weights)[1]), SHAPE))
        return Beta(_middle(mean * (1 - mean) / (NOISE * var) - 1, SCALE))


def counts_with_exposure(kind, Y, weights):
    """Make the initial likelihood of counts (N, 2) with a column of exposures."""
    if kind not in (Poisson, NegativeBinomial):
        raise ValueError(
            f"{kind.__name__} targets have no exposure; it is for Poisson and NegativeBinomial"
        )
    if kind is Poisson:
        return Poisson(exposure="column")
    y, c = np.moveaxis(np.asarray(Y, np.float64), -1, 0)
    mean, var = _moments(y / c, weights)
    excess = var - mean * np.average(1 / c, axis=0, weights=weights)
    with np.errstate(divide="ignore", invalid="ignore"):
        return NegativeBinomial(_dispersion(mean, excess), exposure="column")


def _dispersion(mean, excess):
    # the function explains a part of the variance: half of it, until it is trained
    return _middle(2 * mean * mean / np.maximum(excess, 0), DISPERSION)


def _middle(values, limits):
    """Return the mean of a first value over outputs, within limits."""
    return float(np.mean(np.clip(np.nan_to_num(values, nan=limits[1]), *limits)))


def _edges(Y, num_classes, weights):
    from scipy.special import ndtri

    C = int(np.max(Y)) + 1 if num_classes is None else num_classes
    counts = np.bincount(np.asarray(Y, np.intp).ravel(), weights, minlength=C) + 1.0
    below = np.cumsum(counts)[:-1] / counts.sum()
    edges = np.sqrt(2.0) * ndtri(below)  # the variance of f + e, at first
    return Ordinal(float(edges[0]), np.diff(edges))


def _moments(Y, weights):
    Y = np.asarray(Y, np.float64)
    mean = np.average(Y, axis=0, weights=weights)
    return mean, np.average(np.square(Y - mean), axis=0, weights=weights)


def first_mean(likelihood, Y, weights=None):
    """Return the ``ConstantMean`` of a model with this likelihood at first; None for 0."""
    value = offset(likelihood, Y, weights)
    return None if value is None else ConstantMean(value.astype(Y.dtype)[()])


def offset(likelihood, Y, weights):
    """Return the initial constant mean of f, () or (P,); None if f has mean 0 at first.

    Y : (N,) or (N, P) array, with a last axis of columns if there are several
    """
    from scipy import special

    with_column = isinstance(likelihood, Poisson) and len(likelihood.target_columns) > 1
    if isinstance(likelihood, Ordinal) or not (with_column or isinstance(likelihood, GUESSED)):
        return None
    y, share = comparable_targets(likelihood, Y)
    share = share if weights is None else (share.T * weights).T
    total = np.sum(share, axis=0)
    mean = np.sum(share * y, axis=0) / total
    if isinstance(likelihood, Beta | Binomial):
        mean = np.clip(mean, 0.5 / (1 + total), 1 - 0.5 / (1 + total))
        probit = isinstance(likelihood, Binomial) and likelihood.link == "probit"
        return special.ndtri(mean) if probit else special.logit(mean)
    if likelihood.counts:
        mean = np.maximum(mean, 0.5 / total)
    if isinstance(likelihood, ZeroInflatedPoisson):
        mean = mean / (1 - float(likelihood.probability))
    unit = getattr(likelihood, "exposure", 1)
    return np.log(mean if isinstance(unit, str) else mean / unit)
