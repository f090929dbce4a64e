"""Heavy tails: the same hyperparameters under Student-t noise, if held-out rows say that it is better."""

import numpy as np

from ...bounds.predict import predict_log_density, predict_y
from ...likelihoods import StudentT
from ...optim.natural.svgp import natural_step
from ...records import replace
from .held_out_density import better_by, tails_of

HEAVY = 10.0  # degrees of freedom below which tails are
BATCH, STEP = 1024, 0.1
# natural steps: as many as this part of the time allows, at least, at most
PART, FEWEST, STEPS = 0.05, 20, 200
TIMED, SEED = 3, 3
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


def steps_of(svgp, noise, rows, plan):
    """How many natural steps there is time for; None where they are too few. A few, which are dropped, foretell it."""
    began = plan.spent
    with_tails(svgp, noise, rows, TIMED, plan)
    each = (plan.spent - began) / TIMED
    steps = plan.count("Student-t steps", min(PART * plan.seconds / each, STEPS))
    return steps if steps >= FEWEST else None


def with_tails(svgp, noise, rows, steps, plan):
    """The SVGP under Student-t noise, q trained by ``steps`` natural steps on minibatches."""
    model, rng = replace(svgp, likelihood=noise), np.random.default_rng(SEED)
    M, batch = len(svgp.inducing), min(BATCH, len(rows))
    for _ in range(steps):
        some = rows.drawn(batch, rng)
        model, _ = natural_step(
            model, some.X, some.y, step_size=STEP, num_data=len(rows), weights=some.weights
        )
        plan.did(8 * M**2 * (batch + M))
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
