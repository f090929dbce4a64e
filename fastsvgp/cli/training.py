"""The untrained model of a task, and its training by any of the methods."""

import math
import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from ..recipes import remedies, routine
from ..train.state import OtherTraining
from .argument_types import MOST
from .data import images
from .errors import UsageError
from .progress import Progress
from .report.outputs import CHECKPOINT
from .resuming import another_fit, check_numbers, described, resumed
from .settings import deep, qsgp
from .settings.names import NATURAL, PAIRED

STEPS = {"sgpr": 200}  # of the others
MINIBATCHES = 2000
BATCH_SIZE = 512
LEARNING_RATE = 0.01
POSTERIORS = {
    "svgp": "whitened", "tsvgp": "absorbed_dual_sites", "lsvgp": "likelihood_form", "rsvgp": "relaxed",
    "solvegp": "whitened_orthogonal", "odvgp": "decoupled_weights", "sgpr": "whitened",
}  # fmt: skip


@dataclass
class Trained:
    """What training gives back: an SVGP, the jitter it can be used with, the bound at each step.

    ``first_step``: seconds until the end of the first step, in which kernels are compiled that are
    not in the cache.
    """

    model: Any
    jitter: float
    values: np.ndarray
    reason: str
    checkpoint: str
    first_step: float = 0.0

    @property
    def interrupted(self):
        return self.reason == "interrupted"

    @property
    def elbo(self):
        """The bound at the end, averaged over the last steps: a minibatch's is noisy."""
        tail = self.values[-max(1, len(self.values) // 50) :]
        return float(np.mean(tail)) if len(tail) else math.nan


def build(task, scale, args):
    """The model to start from, on standardised data: an SVGP or a QSGP at its prior, a DeepGP near its means, or an SGPR.

    ``recipes.begin`` makes those of one layer, as it does for the estimators. Functions of patches
    and deep models have starts of their own: inducing inputs by k-means++ (of patches, or of
    inputs), lengthscales by the median heuristic, variance 1.
    """
    X = np.ascontiguousarray(scale.inputs(task.X[~task.test]), args.dtype)
    rng = np.random.default_rng([args.seed, 1])
    kind = fs.recipes.COVARIANCES[args.covariance]
    sizes = (args.inducing, args.orthogonal) if args.method in PAIRED else args.inducing
    if args.layers:
        return deep.build(X, kind, _likelihood(task), sizes, args, rng)
    y = task.y[~task.test]
    y = (
        np.asarray(y, np.int64)
        if task.kind == "multiclass"
        else np.ascontiguousarray(scale.target(y), args.dtype)
    )
    if args.method == "qsgp":
        covariance = kind(
            variance=1.0, lengthscales=fs.median_lengthscales(X, rng=rng, ard=args.ard)
        )
        return qsgp.build(X, y, covariance, _likelihood(task), args)
    posterior = fs.recipes.POSTERIORS[POSTERIORS[args.method]]
    if not args.patch_shape:
        begun, *_ = fs.recipes.begin(
            X, y, _likelihood(task), sizes, args.covariance, kind=posterior, solver=_solver(args), ard=args.ard,
            jitter=args.jitter, seed=args.seed, group=args.group, informed=not args.resume,
        )  # fmt: skip
        return begun
    covariance = images.covariance(X, kind, args, rng)
    try:
        inducing = fs.patch_inducing(X, sizes, covariance, rng=rng)
    except ValueError as error:
        raise UsageError(
            f"--inducing {args.inducing}, given or by default: {error}; give a smaller one"
        ) from error
    outputs = len(task.classes) if task.kind == "multiclass" else None
    start = fs.recipes.posterior_of(posterior, covariance, inducing, outputs, len(X), args.jitter)
    return fs.SVGP(
        covariance=covariance, inducing=inducing, posterior=start, likelihood=_likelihood(task)
    )


def _solver(args):
    """What moves the model, in the words of ``recipes``."""
    return (
        "lbfgs"
        if args.method == "sgpr"
        else "natural"
        if args.method in NATURAL and args.natural_step != 0
        else "adam"
    )


def _likelihood(task):
    classes = task.classes and len(task.classes)
    return fs.recipes.likelihood_of(task.likelihood, task.y[~task.test], num_classes=classes)


def train(fitted, task, args, folder):
    """Train ``fitted.model`` on the training rows; checkpoints go to ``folder``.

    Returns
    -------
    Trained
        Also after Ctrl-C: the model so far.
    """
    checkpoint = os.path.join(folder, CHECKPOINT)
    if args.resume:
        fitted.scale, then = resumed(checkpoint, fitted, task, args)
    X, y = fitted.standardised_inputs(task.X[~task.test]), fitted.model_targets(task.y[~task.test])
    total = _total_steps(args, len(X))
    settings = _settings(args, total, fitted.model) | {
        "checkpoint": checkpoint,
        "note": described(fitted, task),
    }
    if args.resume:
        check_numbers(checkpoint, then, X, y)
        settings["resume"] = checkpoint
    if args.group is not None:
        settings["group"] = args.group
    with closing(Progress(total, args.quiet)) as progress:
        try:
            model, info, _ = routine.train(fitted.model, X, y, settings, progress)
        except OtherTraining as error:
            raise UsageError(another_fit(checkpoint, error.differences)) from error
        except (ValueError, ArithmeticError) as error:
            there = (
                ""
                if not os.path.exists(checkpoint)
                else ", with --resume to go on from the checkpoint"
            )
            natural = " or --natural-step" if args.method in NATURAL else ""
            steps = "" if args.method == "sgpr" else f"a smaller --learning-rate{natural}, or "
            if args.method != "qsgp":  # which factorises nothing on its way
                error.add_note(f"on the command line: {steps}a larger --jitter may help{there}")
            raise
    args.trained = True
    alone = args.group is None or args.group.rank == 0  # others tell no progress
    # perhaps amid the imports of the first step: there is nothing to keep
    if info.interrupted and alone and not progress.begun:
        raise KeyboardInterrupt
    model, jitter = fs.recipes.finished(model, X, y, args.jitter, group=args.group)
    return Trained(
        model, jitter, np.asarray(info.values), info.reason, checkpoint, progress.first_step
    )


def _settings(args, total, model):
    """The arguments of ``fit`` for the method."""
    rate, natural = args.learning_rate or LEARNING_RATE, args.natural_step or routine.NATURAL_STEP
    settings = routine.training(
        _solver(args), getattr(model, "likelihood", None), fs.recipes.POSTERIORS.get(POSTERIORS.get(args.method)), steps=total,
        batch_size=args.batch_size or BATCH_SIZE, learning_rate=rate, natural_step_size=natural, jitter=args.jitter,
        seed=args.seed, at_rows=args.choice.at_data, inducing=deep.inducing_fields(args),
        optimiser=images.optimiser(model, rate, total) if args.patch_shape else None,
    )  # fmt: skip
    if args.method == "qsgp":
        settings |= qsgp.training(args, model, total)
    if args.sampled is not None:
        settings["sampled"] = args.sampled
    if args.patch_shape and "natural_step_size" in settings:
        settings["natural_step_size"] = images.falling_step(settings["natural_step_size"], total)
    return settings | (
        {"e_steps": args.e_steps, "m_steps": args.m_steps} if args.method in NATURAL else {}
    )


def _total_steps(args, num_data):
    if args.epochs is None:
        return args.steps or STEPS.get(args.method, MINIBATCHES)
    per_epoch = (
        num_data / min(args.batch_size or BATCH_SIZE, num_data) if args.method != "sgpr" else 1
    )
    per_epoch /= (args.e_steps or 1) + (args.m_steps or 1) - 1  # batches of a step
    steps = args.epochs * per_epoch
    if steps > MOST:
        raise UsageError(
            f"--epochs {args.epochs:g} are {steps:.3g} steps, more than can be counted; give at"
            f" most {MOST:g}"
        )
    return math.ceil(steps)


def outcome(task, args, trained):
    """How the training ended, for advice."""
    solver, rows = _solver(args), int(np.sum(~task.test))
    ended = remedies.how_it_ended(solver, trained.reason, trained.values, rows)
    plain = not (args.layers or args.patch_shape)
    inducing = (
        args.inducing + (args.orthogonal or 0) if args.inducing and not args.patch_shape else None
    )
    return remedies.Outcome(
        solver, ended, plain and task.likelihood == "gaussian", rows, task.X.shape[1], inducing
    )


def holds(trained):
    """Whether the checkpoint of a training holds its end."""
    try:
        return fs.load(trained.checkpoint).step == len(trained.values)
    except (OSError, fs.DataFileError):
        return False
