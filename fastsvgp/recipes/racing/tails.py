"""Heavy tails: the same hyperparameters under Student-t noise, if held-out rows say that it is better."""

import numpy as np

from ...bounds.predict import predict_log_density, predict_y
from ...likelihoods import StudentT
from ...optim.natural.svgp import natural_step
from ...records import replace
from .densities import better_by, tails_of

HEAVY = 10.0  # degrees of freedom below which tails are
BATCH, STEP = 1024, 0.1
PART, FEWEST, STEPS = (
    0.05,
    20,
    200,
)  # of the time, and how many natural steps that has to be, and at most is
FIRST = 3  # are timed
NARROWEST = 0.05  # of the variance of residuals, what noise has at least


def student_noise(residual, var_f, weights):
    """Student-t noise of held-out residuals, with the variance of f taken off; None where tails are not heavy."""
    z_scale = float(np.sqrt(np.average(np.square(residual), weights=weights)))
    tails = tails_of(residual / z_scale, weights)
    if tails.df >= HEAVY:
        return None
    # the scale squared of a Student-t is its variance times (df - 2) / df
    square = (tails.scale * z_scale) ** 2
    taken = np.average(var_f, weights=weights) * (tails.df - 2) / tails.df
    return StudentT(scale=float(np.sqrt(max(square - taken, NARROWEST * square))), df=tails.df)


def with_tails(svgp, noise, rows, plan, rng):
    """The SVGP under Student-t noise, q trained by natural steps on minibatches; None where there is no time for them."""
    model = replace(svgp, likelihood=noise)
    batch = min(BATCH, len(rows))

    def step(model):
        chosen = np.sort(rng.choice(len(rows), batch, replace=False))
        some = rows.some(chosen)
        model, _ = natural_step(
            model, some.X, some.y, step_size=STEP, num_data=len(rows), weights=some.weights
        )
        plan.did(8 * len(model.inducing) ** 2 * (batch + len(model.inducing)))
        return model

    began = plan.spent
    for _ in range(FIRST):
        model = step(model)
    each = (plan.spent - began) / FIRST
    count = plan.count("Student-t steps", lambda: min(PART * plan.seconds / each, STEPS))
    if count < FEWEST:
        return None
    for _ in range(count):
        model = step(model)
    return model


def gains(heavy, svgp, X, y, weights):
    """By how many standard errors held-out rows prefer ``heavy``: by its density, and by mean and variance alone."""

    def by_moments(model):
        mean, var = predict_y(model, X)
        return -0.5 * (np.log(var) + np.square(y - mean) / var)

    return tuple(
        better_by(density(heavy), density(svgp), weights)
        for density in (lambda model: predict_log_density(model, X, y), by_moments)
    )
