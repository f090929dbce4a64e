"""A second start for a training of the collapsed bound that found nothing.

L-BFGS can converge to a model that explains everything as noise. The bound is then that of
independent normal targets, and its gradient vanishes. So it does for functions of many cycles,
which look like noise at the median distance of rows. The bound at the start tells which
lengthscales explain something: it is below that of pure noise for a sine of many cycles, and above
it for common tables, which keep the median distance.
"""

import logging

import numpy as np

from ..bounds.svgp import SVGP
from ..collapsed.sgpr import SGPR, collapsed_bound
from ..errors import NotPositiveDefinite
from ..inducing import unique_rows
from ..likelihoods import Gaussian
from ..optim.first_order import adam
from ..optim.flat import as_names, free_paths
from ..posteriors import Whitened
from ..records import is_record, leaves, replace, replace_at
from ..runtime import tuning
from ..train import fit

log = logging.getLogger("fastsvgp")

NATS = 3.0  # above the bound of pure noise: more is a training that found something
DIVISORS = 2, 4, 16, 64, 256  # of lengthscales
STEPS, BATCH, RATE, NATURAL = 200, 512, 0.05, 0.1  # of minibatches, with many rows
OF_ONE = (
    "checkpoint",
    "checkpoint_every",
    "resume",
    "note",
)  # settings of the first training only


def explains_nothing(model, value, X, Y, weights):
    """Whether the bound ``value`` of a trained SGPR is within ``NATS`` of that of pure noise."""
    noise = bound_of_noise(model, X, Y, weights)
    return bool(np.isfinite(noise) and value <= noise + NATS)


def second_try(start, X, Y, settings, watch):
    """Train an SGPR again; return ``(model, info)``, or None if no other start exists.

    With at most ``retry_rows`` distinct rows (``runtime.tuning``), all of them become inducing
    inputs, and lengthscales start shorter if that raises the bound; with more, training begins with
    natural steps on minibatches.

    start : SGPR, the start of the first training; watch : callback of ``fit``
    """
    if type(start) is not SGPR or is_record(start.inducing) or "group" in settings:
        return None
    settings = {name: value for name, value in settings.items() if name not in OF_ONE}
    if not free_paths(start, (*as_names(settings.get("fixed", ())), "inducing")):
        return None
    distinct = unique_rows.distinct(X)[0]
    if len(distinct) <= tuning.current.retry_rows:
        fixed, first = as_names(settings.get("fixed", ())), start
        if len(start.inducing) < len(distinct):
            first = replace(start, inducing=np.ascontiguousarray(distinct))
            fixed = settings["fixed"] = (*fixed, "inducing")
        given = settings.get("weights"), settings.get("jitter"), fixed
        shorter, _ = choose_by_bound(first, X, Y, *given)
        if shorter is start:
            return None
        log.info(
            "the training found nothing; once more with all %d distinct rows%s",
            len(distinct),
            "" if shorter is first else " and shorter lengthscales",
        )
        start = shorter
    else:
        log.info("the training found nothing; once more after %d steps on minibatches", STEPS)
        start = _train_on_minibatches(start, X, Y, settings)
    return fit(start, X, Y, callback=watch, **settings)


def _train_on_minibatches(start, X, Y, settings):
    M, outputs = len(start.inducing), Y.shape[1:]
    eye = np.broadcast_to(np.eye(M, dtype=X.dtype), (*outputs, M, M)).copy()
    q = Whitened(np.zeros((*outputs, M), X.dtype), eye)
    model = SVGP(start.covariance, start.inducing, q, Gaussian(start.noise_variance), start.mean)
    fixed = [
        "likelihood.variance" if name == "noise_variance" else name
        for name in as_names(settings.get("fixed", ()))
    ]
    options = {name: settings[name] for name in ("jitter", "weights", "rng") if name in settings}
    model, _ = fit(
        model, X, Y, steps=STEPS, batch_size=min(BATCH, len(X)), natural_step_size=NATURAL,
        optimiser=adam(RATE, transform="log"), fixed=tuple(fixed), **options,
    )  # fmt: skip
    return SGPR(model.covariance, model.inducing, model.likelihood.variance, mean=model.mean)


# --- shorter lengthscales ---


def bound_of_noise(model, X, Y, weights=None):
    """Return the largest bound of an SGPR that explains everything as noise.

    It is infinite if the targets equal the mean.
    """
    residual = np.asarray(Y if model.mean is None else Y - model.mean(X), np.float64)
    squares = np.square(residual).reshape(len(X), -1)
    counts = np.ones(len(X)) if weights is None else np.asarray(weights, np.float64)
    number = counts.sum() * squares.shape[1]
    variance = (counts @ squares).sum() / number
    return -0.5 * number * (np.log(2 * np.pi * variance) + 1) if variance > 0 else np.inf


def choose_by_bound(sgpr, X, Y, weights=None, jitter=None, fixed=()):
    """Return the start of an SGPR whose lengthscales have the highest bound, and the bounds taken.

    The lengthscales are those of ``sgpr`` if their bound is above that of pure noise, or else these
    divided by one of ``DIVISORS``, if a bound is.
    """
    least = bound_of_noise(sgpr, X, Y, weights)

    def bound(start):
        try:
            return collapsed_bound(start, X, Y, weights=weights, jitter=jitter)
        except NotPositiveDefinite:
            return -np.inf

    if not np.isfinite(least) or bound(sgpr) > least:
        return sgpr, 1
    starts = [_divide_lengthscales(sgpr, divisor, fixed) for divisor in DIVISORS]
    bounds = [bound(start) for start in starts]
    best = int(np.argmax(bounds))
    return starts[best] if bounds[best] > least else sgpr, 1 + len(DIVISORS)


def _divide_lengthscales(sgpr, divisor, fixed):
    free = free_paths(sgpr, fixed)
    for path, _, value in leaves(sgpr.covariance, "covariance."):
        if path in free and path.rpartition(".")[2] == "lengthscales":
            sgpr = replace_at(sgpr, path, value / divisor)
    return sgpr
