"""Training of a start: arguments of ``fit``, early stopping of L-BFGS, the final model."""

import logging
import math
import numbers
from dataclasses import replace

import numpy as np

from .. import check
from ..bounds.convert import convert
from ..bounds.predict import predict_f, predict_log_density
from ..collapsed.orthogonal import OrthogonalSGPR
from ..collapsed.sgpr import SGPR, optimal_svgp
from ..errors import NotPositiveDefinite
from ..likelihoods import Gaussian
from ..optim.fields import by_field
from ..optim.first_order import adam
from ..optim.flat import free_paths
from ..optim.schedules import Schedule, cosine, log_linear, plateau
from ..posteriors import DecoupledWeights, Relaxed
from ..posteriors.locate import posteriors_of
from ..qsgp.model import QSGP
from ..records import matches
from ..records.inducing_sets import sets_of
from ..runtime.thresholds import columns_by_default
from ..train import fit
from ..train.info import FitInfo
from . import target_values
from .names import REGRESSION
from .scaling import constant
from .second_try import explains_nothing, second_try

log = logging.getLogger("fastsvgp")

NATURAL_STEP = 0.1
RAMP = 100  # steps until the natural step size is reached if the likelihood is not Gaussian
SHARE = 5  # in a short training the ramp is at most 1 / SHARE of the steps
# relaxed posteriors: inducing inputs stay fixed for the first 1000 steps, or for a tenth of a
# shorter training
REST = 1000, 10
GENTLE = 0.2  # and then have this part of the learning rate
# length of a training by default: iterations of L-BFGS, which mostly ends earlier; epochs, and at
# least so many steps, of minibatches
ITERATIONS, EPOCHS, STEPS = 200, 100, 2000
PATIENCE = 10  # iterations of L-BFGS
GAIN = 1e-4  # nats per row: smallest gain over PATIENCE iterations that continues

# Weights of ``DecoupledWeights``: their step size at the first and the last step / learning rate.
# They are far larger than other parameters (the class says how large), and Adam moves a coordinate
# by about its step size: at the learning rate of the others they do not arrive. Held-out RMSE and
# log density (split 0 of ``examples/solve_gp.py``) after 1,000 steps with 64 + 506 inducing inputs,
# and after 800 with 128 + 4048; batches of 1024, Adam of 0.01 for all else, natural steps of 0.1,
# 64 or 256 columns sampled per step (``*``: all):
#
#     step size        0.01            0.1            0.1 to 0.01     0.3 to 0.03    1 to 0.01
#     kin40k, 506      0.370 -0.512 *  0.316 -0.384   0.325 -0.417 *  0.310 -0.369   0.310 -0.373
#       2,500 steps                    0.278 -0.275   0.288 -0.313    0.272 -0.260   0.273 -0.255
#     kin40k, 4048                                    0.261 -0.201    0.256 -0.182
#     bike, 506                        0.287 -0.202   0.288 -0.209    0.288 -0.205   0.288 -0.216
#     elevators, 506                   0.382 -0.465   0.383 -0.467    0.382 -0.465   0.382 -0.468
#     elevators, 4048                  0.381 -0.458   0.381 -0.458    0.380 -0.461
#
# Weights of patches of images are smaller, and larger steps do not help them: the command line
# keeps the plain rate for those.
FIRST, LAST = 30.0, 3.0

CLOSED = SGPR, OrthogonalSGPR


def training(
    method, course, model, *, at_rows=False, optimiser=None, inducing=("inducing",), fixed=()
):
    """Return the arguments of ``fs.fit`` for a ``Method``, a ``Course`` and a starting model.

    at_rows : bool
        Whether the inducing inputs are all distinct rows. The bound is then that without inducing
        inputs, except for the jitter, and "lbfgs" keeps them fixed.
    optimiser : Optimiser, optional
        Replaces Adam, and its step sizes of single fields.
    inducing : sequence of str
        Paths of the inducing inputs in the model.
    fixed : sequence of str
        Paths of fields that stay fixed.
    """
    steps, seed = course.steps, method.seed
    given = {} if method.jitter is None else {"jitter": method.jitter}
    if method.solver == "lbfgs":
        fixed = ("inducing", *fixed) if at_rows else tuple(fixed)
        given |= {"steps": steps, "rng": seed} | ({"fixed": fixed} if fixed else {})
        return given if isinstance(model, CLOSED) else given | {"collapsed": True}
    if optimiser is None:
        rates = _rates_of_weights(model, course)
        optimiser = adam(course.learning_rate, transform="log", step_sizes=rates)
    if method.kind is Relaxed:
        rest = min(REST[0], steps // REST[1])
        size = plateau(GENTLE * course.learning_rate, factor=0.95, patience=100)
        slow = adam(size, beta1=0.99, transform=getattr(optimiser, "transform", "softplus"))
        named = dict.fromkeys(inducing, slow)
        optimiser = by_field(optimiser, named, after=dict.fromkeys(inducing, rest))
    given |= {
        "steps": steps,
        "batch_size": course.batch_size,
        "optimiser": optimiser,
        "rng": seed,
    } | _sampled_columns(model, course)
    if fixed:
        given["fixed"] = tuple(fixed)
    if method.solver == "natural":
        given["natural_step_size"] = natural_schedule(
            method.likelihood, course.natural_step_size, min(RAMP, math.ceil(steps / SHARE))
        )
    return given


def _rates_of_weights(model, course):
    """Return ``step_sizes`` of ``adam`` for the weights in a model: empty without any."""
    paths = [path for path, q in posteriors_of(model).items() if isinstance(q, DecoupledWeights)]
    first, last = (share * course.learning_rate for share in (FIRST, LAST))
    return {f"{path}.weights_v": cosine(first, last, max(course.steps, 1)) for path in paths}


def _sampled_columns(model, course):
    """Return ``{"sampled": S}`` if the steps of an SVGP are to sample columns, else ``{}``."""
    if not isinstance(getattr(model, "posterior", None), DecoupledWeights):
        return {}
    sizes = map(len, sets_of(model.inducing))
    sampled = columns_by_default(*sizes, course.batch_size)
    return {} if sampled is None else {"sampled": sampled}


def keeping_noise(start, y):
    """Fix the noise of a training by L-BFGS if all targets are equal.

    Otherwise it would decrease the noise towards zero without converging.
    """
    model, fixed = start.model, start.fit.get("fixed", ())
    if hasattr(model, "noise_variance"):
        noise = ["noise_variance"]
    elif start.fit.get("collapsed") and _has_noise(model.likelihood):
        noise = [path for path in free_paths(model, fixed) if matches(path, ("likelihood",))]
    else:
        noise = []
    if not noise or not constant(np.ptp(y, axis=0), y).all():
        return start
    log.warning(
        "all %d targets are equal, which says nothing about their noise; it stays fixed", len(y)
    )
    return replace(start, fit=start.fit | {"fixed": (*fixed, *noise)})


def _has_noise(likelihood):
    """Whether parameters of a likelihood are those of the noise of real-valued targets."""
    real = isinstance(likelihood, tuple(REGRESSION.values()))
    return real and target_values.is_standardised(likelihood)


def seed_of(rng):
    """Return the seed of a start and of its training: an integer as it is, else drawn."""
    number = isinstance(rng, numbers.Integral) and not isinstance(rng, bool) and rng >= 0
    return int(rng) if number else int(check.generator(rng).integers(2**62))


def check_natural_step(size):
    """Check a natural step size: a number in (0, 1], a schedule, or "auto" (``NATURAL_STEP``)."""
    if isinstance(size, str) and size == "auto":
        return NATURAL_STEP
    if isinstance(size, str):
        raise ValueError(
            f"`natural_step_size` must be one of 'auto', a number or a schedule; got {size!r:.200}"
        )
    if not (isinstance(size, Schedule) or callable(size)):
        size = check.scalar("natural_step_size", size)
        if not 0 < size <= 1:
            raise ValueError(
                f"`natural_step_size` must be above 0 and at most 1, got {size:g}; 'auto' is"
                f" {NATURAL_STEP}"
            )
    return size


def natural_schedule(likelihood, size, ramp=RAMP):
    """Return ``size`` for Gaussian noise, else a ramp: far from the optimum steps must be small."""
    if isinstance(likelihood, Gaussian) or not isinstance(size, numbers.Real):
        return size
    return log_linear(min(1e-3, size), size, ramp)


def steps_of(solver, max_iter, rows, batch_size):
    """Convert epochs to the steps that ``fit`` counts; for L-BFGS a step is an iteration.

    If ``max_iter`` is None, these are ``ITERATIONS``, or ``EPOCHS`` and at least ``STEPS``.
    """
    if solver == "lbfgs":
        return ITERATIONS if max_iter is None else max_iter
    steps = math.ceil((EPOCHS if max_iter is None else max_iter) * rows / min(batch_size, rows))
    return max(steps, STEPS) if max_iter is None else steps


def train(model, X, Y, settings, show, *, patience=PATIENCE, tolerance=GAIN, held_out=None):
    """Train a model from ``recipes.begin``.

    Parameters
    ----------
    model, X, Y
        As of ``fit``.
    settings : dict
        The other arguments of ``fit``: those from ``training``, and more.
    show : function ``(step, value, info)``
        Called after each step.
    patience, tolerance : int, float
        L-BFGS ends once ``patience`` iterations have raised the bound by less than ``tolerance``
        nats per row. With ``held_out`` every training ends once the score has not risen by
        ``tolerance`` for ``patience`` epochs or iterations.
    held_out : (X, Y, weights), optional
        Held-out rows; the weights can be None. Their mean log density is the score, and the model
        with the best score is returned.

    Returns
    -------
    model, info, score
        The first two as from ``fit``; the best score, or None.
    """
    jitter, weights = settings.get("jitter"), settings.get("weights")

    def score(model):
        model, amount = finish(model, X, Y, jitter, weights=weights)
        density = predict_log_density(model, *held_out[:2], jitter=amount)
        return float(np.average(density.astype(np.float64), weights=held_out[2]))

    if not free_paths(model, settings.get("fixed", ())):  # every parameter is fixed
        return model, FitInfo(np.empty(0), math.nan, np.empty((0, 2)), 0, 0.0, "converged", 0), None
    if "within" in settings:  # ``fit`` replaces inducing inputs: a level bound is no end
        return *fit(model, X, Y, callback=show, **settings), None
    if isinstance(model, CLOSED) or settings.get("collapsed"):
        size = len(X) if weights is None else float(weights.sum())

        def watching():
            return Settled(show, size, patience, tolerance, None if held_out is None else score)

        start, watch = model, watching()
        model, info = fit(start, X, Y, callback=watch, **settings)
        if _is_nothing(model, info, X, Y, weights):
            again = watching()
            other = second_try(start, X, Y, settings, again)
            if other is not None and _ends_higher(other[1], info):
                watch, (model, info) = again, other
        return model if watch.best is None else watch.best, info, watch.score
    validate = {"validate": score, "patience": patience, "tolerance": tolerance}
    validate = {} if held_out is None else validate
    model, info = fit(model, X, Y, callback=show, **validate, **settings)
    return model, info, info.scores[:, 1].max() if len(info.scores) else None


def _is_nothing(model, info, X, Y, weights):
    """Whether a completed training of an SGPR found nothing."""
    if type(model) is not SGPR or info.interrupted or not len(info.values):
        return False
    return explains_nothing(model, info.values[-1], X, Y, weights)


def _ends_higher(one, other):
    return len(one.values) and not one.interrupted and one.values[-1] > other.values[-1]


class Settled:
    """Early stopping of L-BFGS: by a score, or once ``patience`` iterations gain too little.

    The bound is exact, so its gain shows when training is done. L-BFGS-B itself stops far later: on
    energy (692 rows) after 89 iterations. The last 40 of these raise the bound by 0.05 nats and do
    not change the held-out NLPD.
    """

    def __init__(self, show, size, patience=PATIENCE, tolerance=GAIN, score=None):
        self._show, self._patience, self._tolerance, self._size, self._scored = (
            show,
            patience,
            tolerance,
            size,
            score,
        )
        self._values, self._waited, self.score, self.best = [], 0, None, None

    def __call__(self, step, value, info):
        self._show(step, value, info)
        if self._scored is None:
            self._values = [*self._values[-self._patience :], value]
            return (
                len(self._values) > self._patience
                and value - self._values[0] < self._tolerance * self._size
            )
        score = self._scored(info.model)
        least = (
            -math.inf
            if self.score is None
            else self.score + self._tolerance * max(1.0, abs(self.score))
        )
        if score > least:
            self.score, self.best, self._waited = score, info.model, 0
        else:
            self._waited += 1
        return self._waited >= self._patience


def _all_of(model, kind):
    return all(isinstance(q, kind) for q in posteriors_of(model).values())


def finish(model, X, y, jitter=None, posterior=None, weights=None, group=None):
    """Return ``(model, jitter)`` to predict with, from a model that ``fit`` returned.

    A model of a collapsed bound becomes the optimal SVGP. Its posterior is converted to the class
    ``posterior`` if that is given. The jitter is ``jitter`` (or the default); if Kuu does not
    factorise with it, the smallest sufficient of 10, 100 and 1000 times as much. If ``jitter`` is
    0, these are multiples of the default. With a ``group`` all of its ranks must call ``finish``.
    """
    amount = check.jitter_amount(jitter, X.dtype)
    if isinstance(model, QSGP):
        return model, amount  # has no Kuu to factorise
    ranks = {} if group is None else {"group": group}
    for tried in (
        amount,
        *(more * (amount or check.DEFAULT_JITTER[X.dtype]) for more in (10, 100, 1000)),
    ):
        try:
            collapsed = isinstance(model, CLOSED)
            svgp = (
                optimal_svgp(model, X, y, jitter=tried, weights=weights, **ranks)
                if collapsed
                else model
            )
            if posterior is not None and not _all_of(svgp, posterior):
                svgp = convert(svgp, posterior, jitter=tried)
            predict_f(svgp, X[:1], jitter=tried)
            return svgp, tried
        except NotPositiveDefinite as error:
            failed = error
    raise failed
