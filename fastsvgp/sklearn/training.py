"""How an estimator trains: ``fit`` from a start, with its own ways to stop, and what it tells."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import recipes
from ..bounds.elbo import SVGP, elbo
from ..bounds.predict import predict_log_density
from ..optim.flat import free_paths
from ..records import leaves, matches, replace_at
from ..train import fit


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
    interrupted: bool


def train(start, X, y, weights, kind, stopping, show):
    """Train from a ``recipes.Start`` on standardised X, y, weights or None; ``kind`` is the class of the posterior in the end.

    ``show(step, value, info)`` is called after each step.
    """
    jitter, held = start.fit.get("jitter"), stopping.held

    def score(model):
        model, amount = recipes.finished(model, X, y, jitter, weights=weights)
        density = predict_log_density(model, *held[:2], jitter=amount)
        return float(np.average(density.astype(np.float64), weights=held[2]))

    if isinstance(start.model, SVGP):
        validate = {} if held is None else {"validate": score, "patience": stopping.patience, "tolerance": stopping.tolerance}
        model, info = fit(start.model, X, y, callback=show, **validate, **start.fit)
        per_epoch = max(1.0, len(X) / start.fit["batch_size"])
        best = info.scores[:, 1].max() if len(info.scores) else None
        values, interrupted = info.values, info.interrupted
    elif free_paths(start.model, start.fit.get("fixed", ())):
        size = len(X) if weights is None else float(weights.sum())
        watch = _Iterations(show, stopping, size, None if held is None else score)
        model, info = fit(start.model, X, y, callback=watch, **start.fit)
        model, best, per_epoch = model if watch.best is None else watch.best, watch.score, 1
        values, interrupted = info.values, info.interrupted
    else:  # a kernel of fixed numbers at all rows: nothing is left to learn
        model, best, per_epoch, values, interrupted = start.model, None, 1, np.empty(0), False
    model, jitter = recipes.finished(model, X, y, jitter, kind, weights)
    bound = elbo(model, X, y, jitter=jitter, weights=weights)
    return Trained(model, jitter, bound, _by_epoch(values, per_epoch), best, interrupted)


class _Iterations:
    """A callback of L-BFGS that ends it: by held-out rows, else once ``patience`` iterations have gained less than the tolerance.

    The bound is exact, so its gain says when the training is done: ``tolerance`` nats a row. L-BFGS-B alone goes on far longer,
    for nothing that predictions show.
    """

    def __init__(self, show, stopping, size, score):
        self._show, self._stopping, self._score, self._enough = show, stopping, score, stopping.tolerance * size
        self._values, self._waited, self.score, self.best = [], 0, None, None

    def __call__(self, step, value, info):
        self._show(step, value, info)
        if self._score is None:
            self._values = [*self._values[-self._stopping.patience :], value]
            return len(self._values) > self._stopping.patience and value - self._values[0] < self._enough
        score = self._score(info.model)
        least = -math.inf if self.score is None else self.score + self._stopping.tolerance * max(1.0, abs(self.score))
        if score > least:
            self.score, self.best, self._waited = score, info.model, 0
        else:
            self._waited += 1
        return self._waited >= self._stopping.patience


def _by_epoch(values, per_epoch):
    """Averages of the values of steps over epochs."""
    epochs = (np.arange(len(values)) / per_epoch).astype(np.intp)
    return np.bincount(epochs, values) / np.bincount(epochs) if len(values) else np.asarray(values)


def scattered(model, rng, fixed):
    """A model to start from elsewhere: each positive hyperparameter that is not ``fixed`` times exp(z), z standard normal."""
    for path, kind, value in leaves(model):
        hyperparameter = kind == "positive" and path.partition(".")[0] in ("covariance", "likelihood", "noise_variance")
        if hyperparameter and not matches(path, fixed):
            factor = np.exp(rng.standard_normal(np.shape(value)))
            model = replace_at(model, path, value * np.asarray(factor, getattr(value, "dtype", np.float64))[()])
    return model
