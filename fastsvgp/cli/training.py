"""Build the initial model of a task and train it with any of the methods."""

import math
import os
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from ..recipes import remedies, routine
from ..runtime.thresholds import MOST_ROWS
from ..train.state import OtherTraining
from .argument_types import MOST
from .data import images, targets
from .errors import UsageError
from .mpi import ranks_apart
from .progress import Progress
from .report.outputs import CHECKPOINT
from .resuming import another_fit, check_checkpoint, check_numbers, describe_fit
from .settings import periodic, qsgp
from .settings.defaults import BATCH_SIZE
from .settings.names import NATURAL, PAIRED

LEARNING_RATE = 0.01
GROWING = 1000  # iterations for all numbers of inducing inputs with --within
POSTERIORS = {
    "svgp": "whitened",
    "tsvgp": "absorbed_dual_sites",
    "lsvgp": "likelihood_form",
    "rsvgp": "relaxed",
    "solvegp": "whitened_orthogonal",
    "odvgp": "decoupled_weights",
    "sgpr": "whitened",
}


@dataclass
class TrainedFit:
    """Result of training: the model, the jitter for its use, and the bound at each step.

    ``saved``: steps that the checkpoint holds, all but those with near rows.
    ``first_step``: seconds until the end of the first step. That step compiles the kernels that are
    not in the cache.
    """

    model: Any
    jitter: float
    values: np.ndarray
    reason: str
    checkpoint: str
    saved: int
    first_step: float = 0.0
    certificate: fs.bounds.Certificate | None = None

    @property
    def interrupted(self):
        return self.reason == "interrupted"

    @property
    def elbo(self):
        """Bound at the end, averaged over the last steps because minibatch values are noisy."""
        tail = self.values[-max(1, len(self.values) // 50) :]
        return float(np.mean(tail)) if len(tail) else math.nan


def build(task, scale, settings):
    """Build the initial model on standardised data.

    An SVGP or a QSGP starts at its prior, a DeepGP near its mean functions. ``recipes.begin``
    builds models of one layer, as for the estimators. Models of patches and deep models have other
    starts: inducing inputs by k-means++ (of patches, or of inputs), lengthscales by the median
    heuristic, and variance 1.
    """
    X = np.ascontiguousarray(scale.X(task.X[~task.test]), settings.dtype)
    rng = np.random.default_rng([settings.seed, 1])
    kind = fs.recipes.COVARIANCES[settings.covariance]
    sizes = (
        (settings.inducing, settings.orthogonal) if settings.method in PAIRED else settings.inducing
    )
    y = model_targets(task, scale, settings.dtype)
    likelihood = _likelihood(task, settings)
    if settings.method == "qsgp":
        covariance = kind(
            variance=1.0, lengthscales=fs.inducing.median_lengthscales(X, rng=rng, ard=settings.ard)
        )
        return qsgp.build(X, y, covariance, likelihood, settings)
    posterior, mean = (
        fs.recipes.POSTERIORS[POSTERIORS[settings.method]],
        fs.recipes.first_mean(likelihood, y),
    )
    if settings.layers:
        return _deep(X, kind, likelihood, sizes, settings, posterior, mean, rng)
    if not settings.patch_shape:
        covariance = settings.covariance
        if settings.periodic:
            covariance = periodic.covariance(X, kind, settings, scale, rng)
        parts = fs.recipes.Settings(sizes, covariance, ard=settings.ard, latents=settings.latents)
        method = _method(settings, likelihood, posterior)
        informed = not settings.resume or settings.within is not None
        initial, *_ = fs.recipes.begin(X, y, parts, method, group=settings.group, informed=informed)
        return initial
    covariance = images.covariance(X, kind, settings, rng)
    try:
        inducing = fs.inducing.patches(X, sizes, covariance, rng=rng)
    except ValueError as error:
        raise UsageError(
            f"--inducing {settings.inducing} (given, or the default): {error}; give a smaller one"
        ) from error
    outputs = len(task.classes) if task.kind == "multiclass" else None
    start = fs.recipes.posterior_of(
        posterior, covariance, inducing, outputs, len(X), settings.jitter
    )
    return fs.SVGP(covariance, inducing, start, likelihood, mean)


def _deep(X, kind, likelihood, sizes, settings, posterior, mean, rng):
    """Build the initial deep GP, on standardised inputs; ``mean`` is that of the last layer."""

    def covariance(variance, lengthscales):
        # one lengthscale from the distances in all columns together
        one = lengthscales.dtype.type(np.sqrt(np.mean(lengthscales**2)))
        return kind(variance=variance, lengthscales=lengthscales if settings.ard else one)

    options = {"width": settings.width, "covariance": covariance, "posterior": posterior}
    model = fs.layers.deep_gp(X, likelihood, settings.layers, sizes, rng=rng, **options)
    return fs.records.replace_at(model, f"layers.{settings.layers - 1}.mean", mean)


def model_targets(task, scale, dtype):
    """Return the training targets in the units of the model, with means for missing ones."""
    y, second = targets.fill_missing(task.y[~task.test]), task.second_of(~task.test)
    if task.kind == "multiclass":
        return np.asarray(y, np.int64)
    return np.ascontiguousarray(targets.scale_targets(scale, y, second, task.likelihood), dtype)


def _likelihood(task, settings):
    classes = task.classes and len(task.classes)
    y, second = targets.fill_missing(task.y[~task.test]), task.second_of(~task.test)
    exposure = task.second is not None and task.second.option == "exposure"
    y = y if second is None else np.stack([y, second], axis=-1)
    likelihood = fs.recipes.likelihood_of(
        task.likelihood, y, num_classes=classes, exposure=exposure
    )
    return fs.replace(likelihood, extra=False) if settings.no_extra_noise else likelihood


def train(fitted, task, settings, folder):
    """Train ``fitted.model`` on the training rows, with checkpoints in ``folder``.

    Returns
    -------
    TrainedFit
        After Ctrl-C, the model so far.
    """
    checkpoint = os.path.join(folder, CHECKPOINT)
    if settings.resume:
        fitted.scale, then = check_checkpoint(checkpoint, fitted, task, settings)
    X = fitted.standardise_inputs(task.X[~task.test])
    y = fitted.model_targets(task.y[~task.test], task.second_of(~task.test))
    total = _total_steps(settings, len(X))
    options = _options(settings, fitted.model, total)
    options |= {"checkpoint": checkpoint, "note": describe_fit(fitted, task, settings)}
    weights = None if task.second else targets.weights_of(y)
    weighed = {} if weights is None else {"weights": weights.astype(y.dtype)}
    options |= weighed
    if settings.resume:
        check_numbers(checkpoint, then, X=X, Y=y, **weighed)
        options["resume"] = checkpoint
    if settings.group is not None:
        options["group"] = settings.group
    with closing(Progress(total, settings.quiet)) as progress, _explain(settings, checkpoint):
        model, info, _ = routine.train(fitted.model, X, y, options, progress)
    # interrupted before the first step, perhaps during imports: there is nothing to keep
    if info.interrupted and settings.leads and not progress.has_started:
        raise KeyboardInterrupt
    with ranks_apart():
        model, jitter = fs.recipes.finish(model, X, y, settings.jitter, group=settings.group)
    found, alone = info.certificate, settings.group is None and not info.interrupted
    exact = settings.method == "sgpr" and not settings.neighbours and len(X) <= MOST_ROWS
    if found is None and exact and alone:
        found = fs.certificate(model, X, y, jitter=jitter)
    values, reason = np.asarray(info.values), info.reason
    saved = len(values)
    if settings.neighbours and not info.interrupted:
        model, info = _add_near_rows(model, X, y, weights, jitter, settings)
        values, reason = np.concatenate([values, info.values]), info.reason
    first = progress.first_step
    return TrainedFit(model, jitter, values, reason, checkpoint, saved, first, found)


def _add_near_rows(model, X, y, weights, jitter, settings):
    """Train on with near rows."""
    with closing(Progress(fs.recipes.NEAR_STEPS, settings.quiet)) as progress:
        return fs.recipes.near_rows(
            model, X, y, neighbours=settings.neighbours, weights=weights, jitter=jitter,
            callback=progress, rng=settings.seed,
        )  # fmt: skip


@contextmanager
def _explain(settings, checkpoint):
    """Add advice about command-line options to an error of training."""
    try:
        yield
    except OtherTraining as error:
        raise UsageError(another_fit(checkpoint, error.differences)) from error
    except (ValueError, ArithmeticError) as error:
        there = (
            ""
            if not os.path.exists(checkpoint)
            else ", with --resume to continue from the checkpoint"
        )
        natural = " or --natural-step" if settings.method in NATURAL else ""
        steps = "" if settings.choice.whole else f"a smaller --learning-rate{natural}, or "
        if settings.method != "qsgp":  # its steps factorise no matrix
            error.add_note(f"on the command line: {steps}a larger --jitter may help{there}")
        raise


def _options(settings, model, total):
    """Return the arguments of ``fit``, from the recipe that the estimators use."""
    kind = fs.recipes.POSTERIORS.get(POSTERIORS.get(settings.method))
    rate, optimiser = settings.learning_rate or LEARNING_RATE, None
    if settings.patch_shape:
        optimiser = images.optimiser(model, rate, total)
    course = fs.recipes.Course(
        steps=total,
        batch_size=settings.batch_size or BATCH_SIZE,
        learning_rate=rate,
        natural_step_size=settings.natural_step or routine.NATURAL_STEP,
    )
    layers = range(settings.layers or 0)
    options = routine.training(
        _method(settings, getattr(model, "likelihood", None), kind),
        course,
        model,
        at_rows=settings.choice.at_data or settings.within is not None,
        inducing=[f"layers.{number}.inducing" for number in layers] or ["inducing"],
        fixed=(*fs.recipes.fixed_variances(model), *periodic.fixed_paths(model)),
        optimiser=optimiser,
    )
    if settings.patch_shape and "natural_step_size" in options:
        options["natural_step_size"] = images.falling_step(options["natural_step_size"], total)
    if settings.method in NATURAL:
        options |= {"e_steps": settings.e_steps, "m_steps": settings.m_steps}
    if settings.method == "odvgp":
        every = settings.orthogonal
        options["sampled"] = settings.sampled if settings.sampled < every else None
    if settings.within is not None:
        options["within"] = settings.within
    if settings.method == "qsgp":
        options |= qsgp.training(settings, model, total)
    return options


def _method(settings, likelihood, posterior):
    return fs.recipes.Method(
        solver=settings.solver,
        likelihood=likelihood,
        kind=posterior,
        jitter=settings.jitter,
        seed=settings.seed,
    )


def _total_steps(settings, num_data):
    if settings.epochs is None:
        whole = routine.ITERATIONS if settings.within is None else GROWING
        return settings.steps or (whole if settings.choice.whole else routine.STEPS)
    per_epoch = (
        num_data / min(settings.batch_size or BATCH_SIZE, num_data)
        if not settings.choice.whole
        else 1
    )
    per_epoch /= (settings.e_steps or 1) + (settings.m_steps or 1) - 1  # batches per step
    steps = settings.epochs * per_epoch
    if steps > MOST:
        raise UsageError(
            f"--epochs {settings.epochs:g} are {steps:.3g} steps; at most {MOST:g} steps are"
            " possible, so give fewer epochs"
        )
    return math.ceil(steps)


def outcome(task, settings, trained):
    """Summarise how the training ended, for ``metrics.advice``."""
    solver, rows = settings.solver, int(np.sum(~task.test))
    ended = remedies.how_it_ended(solver, trained.reason, trained.values, rows)
    plain = not (settings.layers or settings.patch_shape or settings.latents)
    inducing = (
        settings.inducing + (settings.orthogonal or 0)
        if settings.inducing and not settings.patch_shape
        else None
    )
    return remedies.Outcome(
        solver, ended, plain and task.likelihood == "gaussian", rows, task.X.shape[1], inducing
    )


def holds(trained):
    """Whether the checkpoint of a training holds its last step."""
    try:
        return fs.load(trained.checkpoint).step == trained.saved
    except (OSError, fs.DataFileError):
        return False
