"""Targets in the units of the function, in those of predictions, as logarithms and as grades."""

import numpy as np

from ..bounds.predict import predict_cdf, predict_f
from ..layers.layer import DeepGP
from ..likelihoods import (
    Beta,
    Binomial,
    Censored,
    Exponential,
    Gamma,
    Gaussian,
    KnownNoise,
    Switched,
)
from ..records import Marginals

POSITIVE = Gamma, Exponential
SHOWN = 5  # rows that a message names


def is_standardised(likelihood):
    """Whether targets of a likelihood are standardised."""
    if isinstance(likelihood, Switched):
        return all(map(is_standardised, likelihood.parts))
    return not (likelihood.counts or isinstance(likelihood, (*POSITIVE, Beta)))


def comparable_targets(likelihood, Y):
    """Return targets that predictions of y can be compared with, and the weight of each.

    Y : (N,) or (N, P) array, with a last axis of columns if there are several

    Returns
    -------
    y, share : (N,) or (N, P) arrays
        Counts per trial or per unit of exposure, with trials or exposures as weights. A limit of a
        censored target has weight 0, because its value is not known.
    """
    Y = np.asarray(Y, np.float64)
    if len(likelihood.target_columns) == 1:
        return Y, np.ones(Y.shape)
    y, other = Y[..., 0], Y[..., 1]
    if likelihood.counts:
        return y / other, other
    return y, (other == 0.0) * 1.0 if isinstance(likelihood, Censored) else np.ones(y.shape)


def as_real(likelihood, Y):
    """Convert targets to real values (N,) or (N, P) whose scale is that of f."""
    from scipy.special import logit

    y, share = comparable_targets(likelihood, Y)
    if isinstance(likelihood, Binomial):
        return logit((y * share + 0.5) / (share + 1))
    if len(likelihood.target_columns) > 1 and likelihood.counts:
        return np.log((y * share + 0.5) / share)
    if isinstance(likelihood, Beta):
        return logit(y)
    return np.log(y) if isinstance(likelihood, POSITIVE) else y


def squared_columns(likelihood):
    """Return the positions of columns in the squared units of y."""
    return (1,) if isinstance(likelihood, KnownNoise) else ()


def grade_probabilities(model, X, jitter=None):
    """Return the probabilities (N, C) of the labels of an ``Ordinal`` likelihood.

    X : (N, D) array in the units of the model
    """
    grades = range(-1, model.likelihood.num_classes)
    if isinstance(model, DeepGP):  # a mixture over samples
        below = [predict_cdf(model, X, np.full(len(X), k), jitter=jitter) for k in grades]
    else:
        f = Marginals(*predict_f(model, X, jitter=jitter))
        below = [model.likelihood.predict_cdf(np.full(len(X), float(k)), f) for k in grades]
    return np.diff(np.stack(below, axis=1), axis=1)


def check_target(target):
    """Return the setting ``target``, None or "log"; ``ValueError`` for anything else."""
    if target is not None and not (isinstance(target, str) and target == "log"):
        raise ValueError(
            f"`target` must be None, or 'log' for a model of log y; got {target!r:.60}"
        )
    return target


def check_log_target(likelihood, y, weights=None):
    """Refuse targets without a logarithm, by their rows, and noise under which E y is infinite.

    Rows of weight 0 do not count.
    """
    if not isinstance(likelihood, Gaussian):
        raise ValueError(
            "`target='log'` is for the likelihood 'gaussian', under which y has a mean in closed"
            f" form; got {type(likelihood).__name__}: leave one of them out"
        )
    bad = ~(np.asarray(y) > 0).reshape(len(y), -1).all(axis=1)
    if weights is not None:
        bad &= np.asarray(weights) > 0
    rows = np.flatnonzero(bad)
    if len(rows):
        listed = ", ".join(map(str, rows[:SHOWN]))
        more = f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""
        raise ValueError(
            f"`y` must be positive for target='log', but is {np.min(y[rows[0]]):g} in row {rows[0]}"
            f" (rows {listed}{more}); leave these rows out, or target='log'"
        )
