"""How an estimator trains: the routine of all doors from a start, with its own ways to stop, and what it tells."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy

from .. import recipes
from ..bounds.elbo import elbo
from ..bounds.predict import predict_log_density
from ..errors import warn
from ..likelihoods import Gaussian
from ..recipes import remedies, routine
from ..records import leaves, matches, replace_at
from ..records.inducing_sets import stacked

LOOKED_AT = 1000  # training rows, by which a model is compared with the trivial predictor
FEW = 30  # rows, of which chance makes what it likes
# nats a row: by so little more than the trivial predictor's a log density is no better
HARDLY = 0.01
WORDS = {
    "longer": "a larger max_iter",
    "minibatches": "solver='natural'",
    "all": "n_inducing={rows} (all rows)",
    "exact": "solver='lbfgs' with n_inducing={rows} (all rows)",
    "more": "n_inducing={more}",
    "fewer": "fewer columns of X",
    "covariance": "another covariance",
}


@dataclass(frozen=True)
class Stopping:
    """When to stop before the end: held-out rows or None, iterations without improvement, and what counts as one."""

    held: Any
    patience: int
    tolerance: float


@dataclass(frozen=True)
class Trained:
    """What a training gives: an SVGP, its jitter, its bound on all training rows, and the bound by epochs or iterations."""

    model: Any
    jitter: float
    bound: float
    bounds: np.ndarray
    score: float | None
    info: Any
    settings: dict

    @property
    def interrupted(self):
        return self.info.interrupted


def train(start, X, y, weights, kind, stopping, show):
    """Train from a ``recipes.Start`` on standardised X, y, weights or None; ``kind`` is the class of the posterior in the end.

    ``show(step, value, info)`` is called after each step.
    """
    model, info, best = routine.train(
        start.model,
        X,
        y,
        start.fit,
        show,
        patience=stopping.patience,
        tolerance=stopping.tolerance,
        held=stopping.held,
    )
    model, jitter = recipes.finished(model, X, y, start.fit.get("jitter"), kind, weights)
    bound = elbo(model, X, y, jitter=jitter, weights=weights)
    batch = start.fit.get("batch_size")
    per_epoch = 1 if batch is None else max(1.0, len(X) / batch)
    return Trained(model, jitter, bound, _by_epoch(info.values, per_epoch), best, info, start.fit)


def says_nothing(model, jitter, X, y, weights):
    """Whether a model says of its own training rows hardly more than their mean and spread, or frequencies, do."""
    weights = np.ones(len(X)) if weights is None else weights
    trivial = _trivial(y, weights, model.likelihood)
    if weights.sum() < FEW or not np.isfinite(trivial):
        return False
    some = slice(None, None, -(-len(X) // LOOKED_AT))
    density = predict_log_density(model, X[some], y[some], jitter=jitter)
    return np.average(density.astype(np.float64), weights=weights[some]) <= trivial + HARDLY


def warn_of_nothing(trained, X, y, weights):
    """Warn where ``says_nothing``, with what may help."""
    if not says_nothing(trained.model, trained.jitter, X, y, weights):
        return
    collapsed, info = "batch_size" not in trained.settings, trained.info
    solver = (
        "lbfgs" if collapsed else "natural" if "natural_step_size" in trained.settings else "adam"
    )
    collapses = (
        isinstance(trained.model.likelihood, Gaussian)
        and type(trained.model.posterior) in recipes.COLLAPSED
    )
    reason = "patience" if info.reason == "callback" and trained.score is not None else info.reason
    ended, inducing = (
        remedies.how_it_ended(solver, reason, info.values, len(X)),
        len(stacked(trained.model.inducing)),
    )
    outcome = remedies.Outcome(solver, ended, collapses, *X.shape, inducing)
    warn(
        f"the model is no better than the trivial predictor: {remedies.remedies(outcome, WORDS)};"
        " or X says little about y"
    )


def _trivial(y, weights, likelihood):
    """The mean log density of the trivial predictor, which knows no input: infinite where targets are all equal."""
    shares = weights / weights.sum()
    if y.dtype.kind in "iu":
        frequency = np.bincount(y, shares)
        frequency = frequency[frequency > 0]
        return float(np.sum(frequency * np.log(frequency))) if len(frequency) > 1 else np.inf
    y = y.reshape(len(y), -1).astype(np.float64)
    if likelihood.counts:
        rate = shares @ y
        return (
            float(np.sum(shares @ (xlogy(y, rate) - rate - gammaln(y + 1))))
            if np.ptp(y, axis=0).all()
            else np.inf
        )
    variance = shares @ np.square(y - shares @ y)
    return (
        float(-0.5 * np.sum(np.log(2 * np.pi * variance) + 1))
        if (variance > 1e-12).all()
        else np.inf
    )


def _by_epoch(values, per_epoch):
    """Averages of the values of steps over epochs."""
    epochs = (np.arange(len(values)) / per_epoch).astype(np.intp)
    return np.bincount(epochs, values) / np.bincount(epochs) if len(values) else np.asarray(values)


def scattered(model, rng, fixed):
    """A model to start from elsewhere: each positive hyperparameter that is not ``fixed`` times exp(z), z standard normal."""
    for path, kind, value in leaves(model):
        hyperparameter = kind == "positive" and path.partition(".")[0] in (
            "covariance",
            "likelihood",
            "noise_variance",
        )
        if hyperparameter and not matches(path, fixed):
            factor = np.exp(rng.standard_normal(np.shape(value)))
            model = replace_at(
                model, path, value * np.asarray(factor, getattr(value, "dtype", np.float64))[()]
            )
    return model
