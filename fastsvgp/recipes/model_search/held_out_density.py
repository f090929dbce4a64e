"""Held-out rows compare candidates by densities, and choose Student-t noise for heavy tails."""

from typing import NamedTuple

import numpy as np

from ...bounds.predict import predict_log_density, predict_y
from ...likelihoods import StudentT
from ...records import replace
from .candidates import natural_steps

BETTER = 2.0  # paired standard errors by which one model replaces another
PASSES = 300  # of expectation maximisation of shares
PRIOR_ROWS = 10  # weight of the prior of the two factors, in rows
LARGEST = 3.0  # logarithm of a factor
LEAST_VARIANCE = 1e-12
# fewest degrees of freedom: with fewer, a peak of residuals near 0 hides that others grow
LIGHTEST = 4.0
# largest scale of standardised residuals: a model whose variance its factors cannot raise enough is
# then penalised
WIDEST = 1.25
# Student-t noise
HEAVY = 10.0  # degrees of freedom below which tails are heavy
BATCH, STEP = 1024, 0.1
# natural steps: part of the time for them, at least, at most
PART, FEWEST, STEPS = 0.05, 20, 200
TRIED, SEED = 3, 3
NARROWEST = 0.05  # smallest part of the squared scale of residuals that is noise


class Tails(NamedTuple):
    """A Student-t of standardised residuals: degrees of freedom, above 2, and scale."""

    df: float
    scale: float

    def log_density(self, residual, sd):
        """Return the log density of residuals (N,) with standard deviations ``sd`` (N,)."""
        return _log_student(residual / sd, self.df, self.scale) - np.log(sd)


def _log_student(z, df, scale):
    from scipy.special import gammaln

    constant = gammaln((df + 1) / 2) - gammaln(df / 2) - 0.5 * np.log(df * np.pi) - np.log(scale)
    return constant - 0.5 * (df + 1) * np.log1p(np.square(z / scale) / df)


def tails_of(z, weights=None, lightest=2.02, widest=np.inf):
    """Fit a Student-t to z (N,), with at least ``lightest`` degrees of freedom.

    Its scale is at most ``widest``. With u = z^2 / (df scale^2), the derivative of the log density
    is (df + 1) u / (1 + u) - 1 by log scale, and by df

        (psi((df + 1) / 2) - psi(df / 2) - 1 / df - log(1 + u) + (df + 1) / df u / (1 + u)) / 2.
    """
    from scipy.optimize import minimize
    from scipy.special import psi

    shares = np.full(len(z), 1 / len(z)) if weights is None else weights / weights.sum()

    def loss(point):
        df, scale = 2 + np.exp(point[0]), np.exp(point[1])
        u = np.square(z / scale) / df
        pulled = shares @ (u / (1 + u)) * (df + 1)
        spread = psi((df + 1) / 2) - psi(df / 2) - (1 - pulled) / df - shares @ np.log1p(u)
        value = shares @ _log_student(z, df, scale)
        return -value, np.array([-0.5 * spread * (df - 2), 1 - pulled])

    least, most = max(np.log(lightest - 2), -7.0), min(np.log(widest), 6.0)
    start = [max(1.0, least), min(0.0, most)]
    found = minimize(
        loss, start, jac=True, method="L-BFGS-B", bounds=[(least, 7.0), (-6.0, most)]
    ).x
    return Tails(float(2 + np.exp(found[0])), float(np.exp(found[1])))


def log_densities(mean, var, y, weights=None):
    """Return the log density (N,) of targets under a Student-t fitted to standardised residuals.

    A Gaussian density would let one outlier choose the model.
    """
    sd = np.sqrt(np.maximum(var, LEAST_VARIANCE))
    tails = tails_of((y - mean) / sd, weights, LIGHTEST, WIDEST)
    return tails.log_density(y - mean, sd)


def factors_of(mean, var_f, noise, y, weights=None, least_noise=0.0):
    """Return the factors ``(a, c)`` of the variance a v_f + c noise that fit held-out targets best.

    They maximise the Gaussian density under a prior around 1; c noise is at least ``least_noise``.
    With V = a v_f + c n and g = ((y - mean)^2 / V - 1) / (2 V), its derivatives are
    d/d log a = sum g a v_f and d/d log c = sum g c n.
    """
    from scipy.optimize import minimize

    squares, counts = np.square(y - mean), np.ones(len(y)) if weights is None else weights
    total = counts.sum()

    def loss(point):
        a, c = np.exp(point)
        V = np.maximum(a * var_f + c * noise, LEAST_VARIANCE)
        g = counts * (squares / V - 1) / (2 * V)
        density = -0.5 * counts @ (np.log(2 * np.pi * V) + squares / V)
        slopes = np.array([g @ (a * var_f), g.sum() * c * noise])
        prior = 0.5 * PRIOR_ROWS * (point @ point)
        return (prior - density) / total, (PRIOR_ROWS * point - slopes) / total

    ratio = max(least_noise, LEAST_VARIANCE) / max(noise, LEAST_VARIANCE)
    least = float(np.clip(np.log(ratio), -LARGEST, LARGEST))
    bounds, start = [(-LARGEST, LARGEST), (least, LARGEST)], [0.0, max(least, 0.0)]
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    a, c = np.exp(found.x)
    return float(a), float(c)


def factor_of(mean, var_f, noise, y, weights=None, least_noise=0.0):
    """Return one factor of both, for models whose mean depends on their ratio."""
    t = factors_of(mean, var_f + noise, 0.0, y, weights)[0]
    return max(t, least_noise / noise)


def better_by(first, second, weights=None, clusters=None):
    """Return the mean of ``first - second``, two (N,) log densities, in paired standard errors.

    0 if all are equal. ``clusters`` (N,) numbers rows that depend on one another, and count as one.
    """
    gain = first - second
    if clusters is not None:
        counts = np.bincount(clusters, weights)
        gain = np.bincount(clusters, gain if weights is None else gain * weights)
        gain, weights = gain[counts > 0] / counts[counts > 0], counts[counts > 0]
    mean = np.average(gain, weights=weights)
    spread = np.sqrt(np.average(np.square(gain - mean), weights=weights) / max(len(gain) - 1, 1))
    return (
        float(mean / spread) if spread > 0 else 0.0 if mean == 0 else float(np.sign(mean) * np.inf)
    )


def stack(densities, weights=None):
    """Return shares (K,) of K predictive densities that maximise the log score of their mixture.

    densities : (K, N) log densities of held-out rows

    The score is concave in the shares; each pass of expectation maximisation raises it (stacking:
    Yao, Vehtari, Simpson, Gelman 2018).
    """
    p = np.exp(densities - densities.max(axis=0))
    counts = np.ones(p.shape[1]) if weights is None else weights
    counts, shares = counts / counts.sum(), np.full(len(p), 1 / len(p))
    for _ in range(PASSES):
        parts = shares[:, None] * p
        shares = (parts / parts.sum(axis=0)) @ counts
    return shares


def mix(densities, shares):
    """Return the log densities (N,) of a mixture."""
    top = densities.max(axis=0)
    return top + np.log(shares @ np.exp(densities - top))


# --- Student-t noise, at the same hyperparameters ---


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

    ``TRIED`` steps predict it; their result is dropped.
    """
    began = plan.spent
    train_with_tails(svgp, noise, rows, TRIED, plan)
    each = (plan.spent - began) / TRIED
    steps = plan.count("Student-t steps", min(PART * plan.seconds / each, STEPS))
    return steps if steps >= FEWEST else None


def train_with_tails(svgp, noise, rows, steps, plan):
    """Train q(u) under Student-t noise by ``steps`` natural steps on minibatches."""
    model, rng = replace(svgp, likelihood=noise), np.random.default_rng(SEED)
    M, batch = len(svgp.inducing), min(BATCH, len(rows))
    return natural_steps(model, rows, [STEP] * steps, batch, rng, plan, 8 * M**2 * (batch + M))


def gains(heavy, svgp, X, y, weights):
    """Return the gains of ``heavy`` on held-out rows, in standard errors.

    By predictive density, and by the Gaussian density of mean and variance.
    """

    def moment_density(model):
        mean, var = predict_y(model, X)
        return -0.5 * (np.log(var) + np.square(y - mean) / var)

    return tuple(
        better_by(density(heavy), density(svgp), weights)
        for density in (lambda model: predict_log_density(model, X, y), moment_density)
    )
