"""How an estimator trains: the routine of all doors from a start, with its own ways to stop, and what it tells."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import recipes, routine
from ..bounds.elbo import elbo
from ..records import leaves, replace_at


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

    @property
    def interrupted(self):
        return self.info.interrupted


def train(start, X, y, weights, kind, stopping, show):
    """Train from a ``recipes.Start`` on standardised X, y, weights or None; ``kind`` is the class of the posterior in the end.

    ``show(step, value, info)`` is called after each step.
    """
    model, info, best = routine.train(
        start.model, X, y, start.fit, show, patience=stopping.patience, tolerance=stopping.tolerance, held=stopping.held
    )
    model, jitter = recipes.finished(model, X, y, start.fit.get("jitter"), kind, weights)
    bound = elbo(model, X, y, jitter=jitter, weights=weights)
    batch = start.fit.get("batch_size")
    per_epoch = 1 if batch is None else max(1.0, len(X) / batch)
    return Trained(model, jitter, bound, _by_epoch(info.values, per_epoch), best, info)


def _by_epoch(values, per_epoch):
    """Averages of the values of steps over epochs."""
    epochs = (np.arange(len(values)) / per_epoch).astype(np.intp)
    return np.bincount(epochs, values) / np.bincount(epochs) if len(values) else np.asarray(values)


def scattered(model, rng):
    """A model to start from elsewhere: each positive hyperparameter times exp(z), z standard normal."""
    for path, kind, value in leaves(model):
        if kind == "positive" and path.partition(".")[0] in ("covariance", "likelihood", "noise_variance"):
            factor = np.exp(rng.standard_normal(np.shape(value)))
            model = replace_at(model, path, value * np.asarray(factor, getattr(value, "dtype", np.float64))[()])
    return model
