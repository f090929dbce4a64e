"""The temperature of a model of few rows, by cross-validation at fixed hyperparameters."""

import numpy as np

from ....optim.natural.svgp import natural_step
from ....records import Marginals, replace
from ..rows import groups_of
from .candidates import at_prior, ramp
from .looks import latent, temperature_of

FOLDS, STEPS = 5, 40


def cross_validated_temperature(model, rows, plan):
    """Return the temperature that is best for predictions of f on held-out folds.

    The posterior for each fold starts at the prior and takes ``STEPS`` natural steps on the other
    folds. Equal input rows are in one fold.
    """
    fold = groups_of(rows.X, np.random.default_rng(0)) % FOLDS
    mean, var = (np.zeros((*model.posterior.mean.shape[:-1], len(rows))) for _ in range(2))
    for k in np.unique(fold):
        seen = rows.some(fold != k)
        if not len(seen):
            return 1.0
        start = at_prior(model.covariance, model.inducing, model.likelihood)
        f = latent(_trained(replace(start, mean=model.mean), seen, plan), rows.X[fold == k])
        mean[..., fold == k], var[..., fold == k] = f.mean, f.var
    return temperature_of(model, Marginals(mean, var), rows.y, rows.weights)


def _trained(model, rows, plan):
    M, factors = len(model.inducing), model.posterior.mean.size
    for step in range(STEPS):
        model, _ = natural_step(model, rows.X, rows.y, step_size=ramp(step), weights=rows.weights)
        plan.did(8 * factors * M * (2 * M))
    return model
