"""Student-t noise for heavy tails, at the same hyperparameters, if held-out rows prefer it."""

import numpy as np

from ...bounds.predict import predict_log_density, predict_y
from ...likelihoods import StudentT
from ...records import replace
from .held_out_density import better_by, tails_of
from .minibatches import natural_steps

HEAVY = 10.0  # degrees of freedom below which tails are heavy
BATCH, STEP = 1024, 0.1
# natural steps: part of the time for them, at least, at most
PART, FEWEST, STEPS = 0.05, 20, 200
TIMED, SEED = 3, 3
NARROWEST = 0.05  # smallest part of the squared scale of residuals that is noise


def student_noise(residual, var_f, weights):
    """Estimate Student-t noise from held-out residuals, less the variance of f.

    None if tails are not heavy.
    """
    z_scale = float(np.sqrt(np.average(np.square(residual), weights=weights)))
    tails = tails_of(residual / z_scale, weights)
    if tails.df >= HEAVY:
        return None
    # the scale squared of a Student-t is its variance times (df - 2) / df
    square = (tails.scale * z_scale) ** 2
    taken = np.average(var_f, weights=weights) * (tails.df - 2) / tails.df
    return StudentT(scale=float(np.sqrt(max(square - taken, NARROWEST * square))), df=tails.df)


def steps_of(svgp, noise, rows, plan):
    """Return the number of natural steps that time allows; None if there are too few.

    ``TIMED`` steps predict it; their result is dropped.
    """
    began = plan.spent
    with_tails(svgp, noise, rows, TIMED, plan)
    each = (plan.spent - began) / TIMED
    steps = plan.count("Student-t steps", min(PART * plan.seconds / each, STEPS))
    return steps if steps >= FEWEST else None


def with_tails(svgp, noise, rows, steps, plan):
    """Train q(u) under Student-t noise by ``steps`` natural steps on minibatches."""
    model, rng = replace(svgp, likelihood=noise), np.random.default_rng(SEED)
    M, batch = len(svgp.inducing), min(BATCH, len(rows))
    return natural_steps(model, rows, [STEP] * steps, batch, rng, plan, 8 * M**2 * (batch + M))


def gains(heavy, svgp, X, y, weights):
    """Return the gains of ``heavy`` on held-out rows, in standard errors.

    By predictive density, and by the Gaussian density of mean and variance.
    """

    def by_moments(model):
        mean, var = predict_y(model, X)
        return -0.5 * (np.log(var) + np.square(y - mean) / var)

    return tuple(
        better_by(density(heavy), density(svgp), weights)
        for density in (lambda model: predict_log_density(model, X, y), by_moments)
    )
