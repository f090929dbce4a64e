"""The untrained model of a task, and its training by any of the methods."""

import math
import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from ..train.state import OtherTraining
from . import images, layers, qsgp
from .arguments import MOST
from .errors import UsageError
from .names import NATURAL, PAIRED
from .outputs import CHECKPOINT
from .progress import Progress
from .resuming import another_fit, check_numbers, described, resumed
from .settled import Settled

STEPS = {"sgpr": 200}  # of the others
MINIBATCHES = 2000
BATCH_SIZE = 512
LEARNING_RATE = 0.01
REST = 1000, 10  # rsvgp: the inducing inputs rest for so many steps, or for one in so many steps of a short training,
GENTLE = 0.2  # and then move by this part of the learning rate
POSTERIORS = {
    "svgp": "whitened", "tsvgp": "absorbed_dual_sites", "lsvgp": "likelihood_form", "rsvgp": "relaxed",
    "solvegp": "whitened_orthogonal", "odvgp": "decoupled_weights",
}  # fmt: skip


@dataclass
class Trained:
    """What training gives back: an SVGP, the jitter it can be used with, the bound at each step.

    ``first_step``: seconds until the end of the first step, in which kernels are compiled that are not in the cache.
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

    Inducing inputs by k-means++ (of patches, where the covariance is of these), or the distinct training inputs where
    ``args.choice`` says so; lengthscales by the median heuristic, variance 1.
    """
    X = np.ascontiguousarray(scale.inputs(task.X[~task.test]), args.dtype)
    rng = np.random.default_rng([args.seed, 1])
    kind = fs.recipes.COVARIANCES[args.covariance]
    sizes = (args.inducing, args.orthogonal) if args.method in PAIRED else args.inducing
    if args.layers:
        return layers.build(X, kind, _likelihood(task), sizes, args, rng)
    if args.patch_shape:
        covariance = images.covariance(X, kind, args, rng)
    else:
        covariance = kind(variance=1.0, lengthscales=fs.median_lengthscales(X, rng=rng, ard=args.ard))
    if args.method == "qsgp":
        y = np.ascontiguousarray(scale.target(task.y[~task.test]), args.dtype)
        return qsgp.build(X, y, covariance, _likelihood(task), args)
    if args.patch_shape:
        try:
            inducing = fs.patch_inducing(X, sizes, covariance, rng=rng)
        except ValueError as error:
            raise UsageError(f"--inducing {args.inducing}, given or by default: {error}; give a smaller one") from error
    else:
        inducing = np.unique(X, axis=0) if args.choice.at_data else fs.kmeans_inducing(X, sizes, rng=rng)
    if args.method == "sgpr":
        return fs.SGPR(covariance, inducing, noise_variance=fs.recipes.NOISE)
    outputs = len(task.classes) if task.kind == "multiclass" else None
    kind = fs.recipes.POSTERIORS[POSTERIORS[args.method]]
    posterior = fs.recipes.posterior_of(kind, covariance, inducing, outputs, len(X), args.jitter)
    return fs.SVGP(covariance=covariance, inducing=inducing, posterior=posterior, likelihood=_likelihood(task))


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
    settings = {"steps": total, "jitter": args.jitter, "checkpoint": checkpoint, "rng": args.seed}
    settings["note"] = described(fitted, task)
    if args.resume:
        check_numbers(checkpoint, then, X, y)
        settings["resume"] = checkpoint
    if args.group is not None:
        settings["group"] = args.group
    if args.method != "sgpr":
        settings |= {"batch_size": args.batch_size or BATCH_SIZE, "optimiser": _optimiser(args, total, fitted.model)}
    if args.method == "qsgp":
        settings |= qsgp.training(args, fitted.model, total)
    if args.choice.at_data:
        settings["fixed"] = ("inducing",)
    if args.sampled is not None:
        settings["sampled"] = args.sampled
    if args.method in NATURAL and args.natural_step != 0:
        natural = fs.recipes.natural_schedule(fitted.model.likelihood, args.natural_step or fs.recipes.NATURAL_STEP)
        settings["natural_step_size"] = images.falling_step(natural, total) if args.patch_shape else natural
    if args.method in NATURAL:
        settings |= {"e_steps": args.e_steps, "m_steps": args.m_steps}
    with closing(Progress(total, args.quiet)) as progress:
        callback = Settled(progress, len(X)) if args.method == "sgpr" and args.steps is args.epochs is None else progress
        try:
            model, info = fs.fit(fitted.model, X, y, callback=callback, **settings)
        except OtherTraining as error:
            raise UsageError(another_fit(checkpoint, error.differences)) from error
        except (ValueError, ArithmeticError) as error:
            there = "" if not os.path.exists(checkpoint) else ", with --resume to go on from the checkpoint"
            natural = " or --natural-step" if args.method in NATURAL else ""
            steps = "" if args.method == "sgpr" else f"a smaller --learning-rate{natural}, or "
            if args.method != "qsgp":  # which factorises nothing on its way
                error.add_note(f"on the command line: {steps}a larger --jitter may help{there}")
            raise
    args.trained = True
    alone = args.group is None or args.group.rank == 0  # others tell no progress
    if info.interrupted and alone and not progress.begun:  # perhaps amid the imports of the first step: there is nothing to keep
        raise KeyboardInterrupt
    model, jitter = fs.recipes.finished(model, X, y, args.jitter, group=args.group)
    return Trained(model, jitter, np.asarray(info.values), info.reason, checkpoint, progress.first_step)


def _total_steps(args, num_data):
    if args.epochs is None:
        return args.steps or STEPS.get(args.method, MINIBATCHES)
    per_epoch = num_data / min(args.batch_size or BATCH_SIZE, num_data) if args.method != "sgpr" else 1
    per_epoch /= (args.e_steps or 1) + (args.m_steps or 1) - 1  # batches of a step
    steps = args.epochs * per_epoch
    if steps > MOST:
        raise UsageError(f"--epochs {args.epochs:g} are {steps:.3g} steps, more than can be counted; give at most {MOST:g}")
    return math.ceil(steps)


def _optimiser(args, total, model):
    rate = args.learning_rate or LEARNING_RATE
    everything = images.optimiser(model, rate, total) if args.patch_shape else fs.adam(rate, transform="log")
    if args.method != "rsvgp":
        return everything
    rest = min(REST[0], total // REST[1])
    return fs.gentle_inducing(everything, after=rest, step_size=GENTLE * rate, fields=layers.inducing_fields(args))


def holds(trained):
    """Whether the checkpoint of a training holds its end."""
    try:
        return fs.load(trained.checkpoint).step == len(trained.values)
    except (OSError, fs.DataFileError):
        return False
