"""A look at a candidate: its collapsed posterior, scored on held-out rows.

Neither the posterior nor the hyperparameters have seen these rows.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...check import DEFAULT_JITTER
from ...inducing import kmeans, unique_rows
from .candidates import Hyper
from .collapsed_posterior import Collapsed, features, of_features, sums, tuned
from .held_out_density import factors_of, log_densities

M = 256
ROWS = 8000
CLUSTERED = 20_000  # rows whose features are clustered for inducing inputs
HALF = 3000  # rows above which inducing inputs are at most half of them
# jitter: of the variance, but at most this part of the noise or that of the training
RELATIVE_JITTER, OF_NOISE, TRAINED = 1e-6, 0.01, DEFAULT_JITTER[np.dtype(np.float64)]
LARGE = 15.0  # a factor close to its upper limit
MORE, TRIES = 8.0, 4  # beyond LARGE noise is multiplied by MORE, at most TRIES times


@dataclass(frozen=True)
class Look:
    """The score of a candidate at one time.

    Attributes
    ----------
    candidate : str
    seconds : float
        Time since the start of the search.
    score : float
        Mean log density of the held-out targets, standardised.
    rmse : float
    factors : (a, c)
        Multipliers of the variance of f and of the noise.
    """

    candidate: str
    seconds: float
    steps: int
    score: float
    rmse: float
    factors: tuple
    hyper: Hyper
    scale: Any
    state: Any = None  # of a network, to restore

    def measured(self):
        """Format the metric that the story shows after the log density."""
        return f"RMSE {self.rmse:.4g}"

    def to_json(self):
        return {
            "candidate": self.candidate,
            "seconds": round(self.seconds, 1),
            "steps": self.steps,
            "log_density": self.score,
            "rmse": self.rmse,
            "factors": list(self.factors),
        }


class Judged(NamedTuple):
    """A posterior and its scores on held-out rows."""

    collapsed: Any
    factors: tuple  # (a, c)
    density: Any  # (N,) log density of each held-out target
    score: float
    rmse: float
    gaussian: float  # mean Gaussian log density


def judged(hyper, scale, rows, held, count):
    """Compute the posterior of ``rows`` at given hyperparameters, and score it on ``held``.

    An overfitted network has its largest bound at almost no noise. If held-out rows require a far
    larger variance, posteriors with more and more noise are tried as long as their Gaussian density
    rises.
    """
    Z, found = sums_of(hyper, rows, count)
    X, exact = scale.X(held.X), at_rows(Z, rows)
    s, n = (1.0, hyper.noise) if exact else tuned(found, hyper.noise)
    best = _judged(Collapsed(hyper.covariance, Z, found, s, n), X, held)
    for _ in range(TRIES):
        if max(best.factors) < LARGE:
            break
        s, n = tuned(found, n * MORE, fixed_noise=True)
        other = _judged(Collapsed(hyper.covariance, Z, found, s, n), X, held)
        if other.gaussian <= best.gaussian:
            break
        best = other
    return best


def _judged(collapsed, X, held):
    mean, var_f = collapsed.predict(X)
    a, c = factors_of(mean, var_f, collapsed.noise, held.y, held.weights)
    var = a * var_f + c * collapsed.noise
    density = log_densities(mean, var, held.y, held.weights)
    squares = np.square(mean - held.y)
    gaussian = -0.5 * np.average(np.log(2 * np.pi * var) + squares / var, weights=held.weights)
    score = float(np.average(density, weights=held.weights))
    rmse = float(np.sqrt(np.average(squares, weights=held.weights)))
    return Judged(collapsed, (a, c), density, score, rmse, float(gaussian))


def density_of(found, scale, rows):
    """Return the log density (N,) of rows that can be new to the posterior and its factors."""
    mean, var_f = found.collapsed.predict(scale.X(rows.X))
    a, c = found.factors
    return log_densities(mean, a * var_f + c * found.collapsed.noise, rows.y, rows.weights)


def posterior_of(hyper, rows, count, tune=True):
    """Return the collapsed posterior with ``count`` inducing inputs.

    ``tune``: whether variance and noise maximise its bound. Those of an exact process, with all
    rows as inducing inputs, do already.
    """
    Z, found = sums_of(hyper, rows, count)
    best = tuned(found, hyper.noise) if tune and not at_rows(Z, rows) else (1.0, hyper.noise)
    return Collapsed(hyper.covariance, Z, found, *best)


def sums_of(hyper, rows, count):
    """Return at most ``count`` inducing inputs (see ``inducing_of``), and the ``Sums`` of rows.

    More jitter than noise would pass for noise in ``tuned``.
    """
    k, Z = of_features(hyper.covariance), inducing_of(hyper, rows, count)
    relative = RELATIVE_JITTER * float(k.diag(Z).mean())
    jitter = min(relative, max(TRAINED, OF_NOISE * hyper.noise))
    return Z, sums(hyper.covariance, Z, rows.X, rows.y, rows.weights, jitter)


def at_rows(Z, rows):
    """Whether the inducing inputs are all distinct rows, which are then in memory."""
    return isinstance(rows.X, np.ndarray) and unique_rows.are_the_rows(Z, rows.X)


def inducing_of(hyper, rows, count):
    """Return learnt inducing inputs, filled up to ``count`` with k-means centres of features."""
    rng = np.random.default_rng(2)
    learnt = hyper.inducing
    if learnt is not None and len(learnt) >= count:
        return learnt
    phi = features(hyper.covariance, rows.drawn(CLUSTERED, rng).X)
    distinct = unique_rows.distinct(phi)[0]
    most = min(count, len(rows) // 2 if len(rows) > HALF else len(rows))
    if most >= len(distinct):
        return distinct
    if learnt is None:
        return kmeans(distinct, most, rng=0)
    if most <= len(learnt):
        return learnt
    return np.concatenate([learnt, kmeans(distinct, most - len(learnt), rng=0)])


def look_at(candidate, held, plan):
    """Make a ``Look``.

    Raise ``NotPositiveDefinite`` without a posterior, ``ArithmeticError`` without a finite score.
    """
    hyper = candidate.hyper()
    rows = candidate.rows.drawn(ROWS, np.random.default_rng(1))
    found = judged(hyper, candidate.scale, rows, held, M)
    plan.did(3 * M**2 * len(rows) + 20 * M**3 + 4 * M**2 * len(held), 10)
    if not np.isfinite(found.score):
        raise ArithmeticError("the density of held-out rows is not finite")
    return look_of(candidate, plan.spent, found.score, found.rmse, found.factors)


def look_of(candidate, seconds, score, rmse, factors):
    """Return the ``Look`` at a candidate with these measurements."""
    return Look(
        candidate.name, seconds, candidate.steps, score, rmse, tuple(factors), candidate.hyper(),
        candidate.scale, getattr(candidate, "state", None),
    )  # fmt: skip
