"""The temperature of a model: a factor of its latent functions, which held-out rows choose.

With f = c + g, c the constant mean, the temperature T multiplies g: the mean is c + T (m - c), the
variance T^2 v. A Gaussian process of T^2 times the variance with the same whitened q(u) has exactly
these marginals, because its factor of Kuu is T times as large.
"""

import numpy as np

from ....bounds.predict import predict_f
from ....records import Marginals, replace
from ..last_posterior import scaled
from ..minibatches import at_prior, natural_steps
from .candidates import BATCH, COST

PRIOR_ROWS = 10  # weight of the prior of log T, standard normal, in rows
LARGEST = 3.0  # of log T
ROWS = 8192  # per chunk of predictions
FOLDS, STEPS, FEWEST = 5, 40, 15  # natural steps per fold, and the least that are worth taking
RAMP = 5  # steps until the natural step size is reached
WHOLE, PART = 0.5, 0.2  # natural step sizes on all rows, and on minibatches


def latent(model, X):
    """Predict marginals of f at X in chunks of rows, outputs first."""
    chunks = [predict_f(model, X[at : at + ROWS]) for at in range(0, len(X), ROWS)]
    mean, var = (np.concatenate(parts).T for parts in zip(*chunks, strict=True))
    return Marginals(mean, var)


def constant_of(model):
    """Return the constant mean with an axis for rows."""
    return np.asarray(model.mean.value)[..., None]


def at_temperature(f, constant, T):
    """Return the marginals of c + T (f - c)."""
    return Marginals(constant + T * (f.mean - constant), T**2 * f.var)


def temperature_of(model, f, y, weights):
    """Return the temperature that maximises the held-out log density, with a prior around 1."""
    from scipy.optimize import minimize_scalar

    total, constant = len(y) if weights is None else weights.sum(), constant_of(model)

    def loss(log_T):
        tempered = at_temperature(f, constant, np.exp(log_T))
        density = model.likelihood.predict_log_density(y, tempered)
        return 0.5 * PRIOR_ROWS * log_T**2 / total - np.average(density, weights=weights)

    found = minimize_scalar(loss, bounds=(-LARGEST, LARGEST), method="bounded")
    return float(np.exp(found.x)) if found.fun < loss(0.0) else 1.0


def tempered(model, T):
    """Return the model whose g is T times that of ``model``, up to jitter."""
    return replace(model, covariance=scaled(model.covariance, T**2))


# --- without held-out rows: cross-validation at the hyperparameters ---


def cross_validated_temperature(model, rows, groups, plan, step_seconds):
    """Return the temperature that is best for predictions of f on held-out folds.

    The posterior for each fold starts at the prior and takes natural steps on minibatches of the
    other folds. ``groups`` (N,) numbers the input rows; equal ones are in one fold. If the time
    left allows too few steps, which take ``step_seconds`` each, the temperature is 1.
    """
    steps = plan.count(
        "cross-validation: steps", lambda: min(max(plan.left, 0) / (FOLDS * step_seconds), STEPS)
    )
    if steps < FEWEST:
        return 1.0
    fold = groups % FOLDS
    mean, var = (np.zeros((*model.posterior.mean.shape[:-1], len(rows))) for _ in range(2))
    for k in np.unique(fold):
        seen = rows.some(fold != k)
        if not len(seen):
            return 1.0
        start = at_prior(model.covariance, model.inducing, model.likelihood, model.mean)
        f = latent(_trained(start, seen, plan, steps), rows.X[fold == k])
        mean[..., fold == k], var[..., fold == k] = f.mean, f.var
    return temperature_of(model, Marginals(mean, var), rows.y, rows.weights)


def _trained(model, rows, plan, steps):
    rng, M = np.random.default_rng(1), len(model.inducing)
    flops = COST * 8 * model.posterior.mean.size * M * (min(M, BATCH) + M)
    largest = WHOLE if len(rows) <= BATCH else PART
    rising = [largest * min(1.0, (step + 1) / RAMP) for step in range(steps)]
    return natural_steps(model, rows, rising, BATCH, rng, plan, flops, COST)
