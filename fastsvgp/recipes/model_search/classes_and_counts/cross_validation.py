"""The temperature of a model without held-out rows, by cross-validation at its hyperparameters."""

import numpy as np

from ....records import Marginals
from ..minibatches import at_prior, natural_steps
from .candidates import BATCH, COST
from .temperature import latent, temperature_of

FOLDS, STEPS, FEWEST = 5, 40, 15  # natural steps per fold, and the least that are worth taking


RAMP = 5  # steps until the natural step size is reached
WHOLE, PART = 0.5, 0.2  # natural step sizes on all rows, and on minibatches


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
