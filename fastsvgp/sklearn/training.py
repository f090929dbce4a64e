"""Training of an estimator: the common routine, with stopping rules and warnings."""

from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import gammaln, xlogy
from sklearn.exceptions import ConvergenceWarning

from .. import check, recipes
from ..bounds.objectives import elbo
from ..bounds.predict import predict_log_density
from ..bounds.svgp import SVGP
from ..errors import warn
from ..recipes import remedies, routine
from ..records import leaves, matches, replace_at
from ..records.inducing_sets import stack_sets
from ..runtime.progress_bar import Progress

LOOKED_AT = 1000  # training rows for the comparison with the trivial predictor
WIDE = 10.0  # lengthscales of a restart: largest factor, and the inverse of the smallest
FEW = 5  # rows, below which the comparison says nothing
# nats per row: smallest gain in log density over the trivial predictor that counts
HARDLY = 0.01
HYPERPARAMETERS = {"covariance", "likelihood", "noise_variance"}  # parts of paths
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
class Trained:
    """Result of training: an SVGP, its jitter, its bound on all training rows, and all bounds.

    ``bounds`` are per epoch or iteration.
    """

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
    """Train from a ``recipes.Start`` on standardised X, y, and weights or None.

    ``kind`` is the class of the final posterior. ``stopping`` are arguments of ``routine.train``.
    ``show(step, value, info)`` is called after each step.
    """
    model, info, best = routine.train(start.model, X, y, start.fit, show, **stopping)
    model, jitter = recipes.finish(model, X, y, start.fit.get("jitter"), kind, weights)
    bound = elbo(model, X, y, jitter=jitter, weights=weights)
    batch = start.fit.get("batch_size")
    per_epoch = 1 if batch is None else max(1.0, len(X) / batch)
    return Trained(model, jitter, bound, _average(info.values, per_epoch), best, info, start.fit)


def leave_out(start, y, weights, normalize):
    """Return a start that leaves out targets of weight 0, (N, P), also from the scaling of y."""
    if normalize:
        left = np.square(y - start.scale.y_mean)
        spread = np.sqrt(np.average(left, axis=0, weights=weights))
        start = replace(start, scale=replace(start.scale, y_scale=spread))
    return replace(start, fit=start.fit | {"weights": weights})


def check_neighbours(estimator, count):
    """Check ``neighbours`` against the other settings and the number of rows."""
    neighbours = estimator.neighbours
    if neighbours is None:
        return
    check.whole("neighbours", neighbours)
    if estimator.n_latents is not None:
        raise ValueError(
            "`neighbours` is for targets of one function, and `n_latents` gives them several; leave"
            " one of the two out"
        )
    if neighbours >= count:
        raise ValueError(
            f"`neighbours` must be below the number of rows, got {neighbours} and {count} rows;"
            " give fewer"
        )


def add_near_rows(trained, X, y, weights, neighbours, seed, verbose):
    """Train on with near rows; return another ``Trained``."""
    with closing(Progress(recipes.NEAR_STEPS, quiet=not verbose)) as progress:
        model, info = recipes.near_rows(
            trained.model, X, y, neighbours=neighbours, weights=weights, jitter=trained.jitter,
            callback=progress, rng=seed,
        )  # fmt: skip
    bound = elbo(model, X, y, jitter=trained.jitter, weights=weights)
    info = info if info.interrupted else trained.info
    return replace(trained, model=model, info=info, bound=bound)


def says_nothing(model, jitter, X, y, weights):
    """Whether a model predicts its training rows barely better than the trivial predictor."""
    weights = np.ones(len(X)) if weights is None else weights
    trivial = _trivial(y, weights, model.likelihood)
    if weights.sum() < FEW or not np.isfinite(trivial):
        return False
    some = slice(None, None, -(-len(X) // LOOKED_AT))
    density = predict_log_density(model, X[some], y[some], jitter=jitter)
    return np.average(density.astype(np.float64), weights=weights[some]) <= trivial + HARDLY


def warn_if_poor(trained, X, y, weights):
    """Warn, with advice, if ``says_nothing``, or else if the training ended short."""
    outcome = _outcome(trained, X)
    if says_nothing(trained.model, trained.jitter, X, y, weights):
        warn(
            "the model is no better than the trivial predictor:"
            f" {remedies.remedies(outcome, WORDS)}; or X carries little information about y"
        )
    elif outcome.ended == "short":
        warn(remedies.describe_end(len(trained.info.values), outcome, WORDS), ConvergenceWarning)


def _outcome(trained, X):
    """Return the ``remedies.Outcome`` of a training."""
    collapsed, info = "batch_size" not in trained.settings, trained.info
    solver = (
        "lbfgs" if collapsed else "natural" if "natural_step_size" in trained.settings else "adam"
    )
    model = trained.model
    collapses = isinstance(model, SVGP) and recipes.collapses(
        model.likelihood, type(model.posterior)
    )
    reason = "patience" if info.reason == "callback" and trained.score is not None else info.reason
    return remedies.Outcome(
        solver,
        remedies.how_it_ended(solver, reason, info.values, len(X)),
        collapses,
        *X.shape,
        len(stack_sets(model.inducing)),
    )


def _trivial(y, weights, likelihood):
    """Mean log density of the predictor without inputs; infinite if there is none.

    There is none for equal targets, and for targets of several columns.
    """
    if check.num_columns(likelihood) > 1:
        return np.inf
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


def _average(values, per_epoch):
    """Average the values of steps per epoch."""
    epochs = (np.arange(len(values)) / per_epoch).astype(np.intp)
    return np.bincount(epochs, values) / np.bincount(epochs) if len(values) else np.asarray(values)


def scatter(model, rng, fixed):
    """Return the start of a restart: ``model`` with scattered positive hyperparameters.

    Fields that are ``fixed`` stay as they are. Lengthscales differ widely, so each restart begins
    with other inputs that matter.
    """
    for path, kind, value in leaves(model):
        hyperparameter = kind == "positive" and not HYPERPARAMETERS.isdisjoint(path.split("."))
        if hyperparameter and not matches(path, fixed):
            draw = wide_factors if path.endswith("lengthscales") else factors
            factor = draw(np.shape(value), rng)
            model = replace_at(
                model, path, value * np.asarray(factor, getattr(value, "dtype", np.float64))[()]
            )
    return model


def factors(shape, rng):
    """Draw exp(z) with z standard normal."""
    return np.exp(rng.standard_normal(shape))


def wide_factors(shape, rng):
    """Draw log-uniform factors of lengthscales from 1 / ``WIDE`` to ``WIDE``.

    D of them are then multiplied by one number, so that the scaled distance of a typical pair of
    rows changes by at most ``WIDE ** (1 / D)``. With many inputs it would otherwise be so large
    that no row informs another one, and L-BFGS would explain everything as noise.
    """
    drawn = WIDE ** rng.uniform(-1, 1, shape)
    common = WIDE ** (rng.uniform(-1, 1) / np.size(drawn))
    return common * np.sqrt(np.mean(drawn**-2.0)) * drawn


def merit(trained):
    """Score of a restart: held-out log density if there is one, else the bound."""
    return trained.bound if trained.score is None else trained.score
