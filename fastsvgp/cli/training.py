"""The untrained model of a task, and its training by either method."""

import math
import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from ..errors import DataFileError
from .errors import UsageError
from .names import COVARIANCES, LIKELIHOODS
from .progress import Progress

STEPS = {"svgp": 2000, "sgpr": 200}
JITTER = {"float64": 1e-6, "float32": 1e-4}
NOISE = 0.1  # variance at the start, of targets with variance 1
RAMP = 100  # steps until the natural step size is reached, where the likelihood is not Gaussian
CHECKPOINT = "checkpoint.npz"


@dataclass
class Trained:
    """What training gives back: an SVGP, the jitter it can be used with, the bound at each step."""

    model: Any
    jitter: float
    values: np.ndarray
    reason: str
    checkpoint: str

    @property
    def interrupted(self):
        return self.reason == "interrupted"

    @property
    def elbo(self):
        """The bound at the end, averaged over the last steps: a minibatch's is noisy."""
        tail = self.values[-max(1, len(self.values) // 50) :]
        return float(np.mean(tail)) if len(tail) else math.nan


def build(task, scale, args):
    """The model to start from, on standardised data: an SVGP at its prior, or an SGPR.

    Inducing inputs by k-means++, lengthscales by the median heuristic, variance 1.
    """
    X = np.ascontiguousarray(scale.inputs(task.X[~task.test]), args.dtype)
    rng = np.random.default_rng([args.seed, 1])
    lengthscales = fs.median_lengthscales(X, rng=rng, ard=args.ard)
    covariance = getattr(fs, COVARIANCES[args.covariance])(variance=1.0, lengthscales=lengthscales)
    inducing = fs.kmeans_inducing(X, args.inducing, rng=rng)
    if args.method == "sgpr":
        return fs.SGPR(covariance, inducing, noise_variance=NOISE)
    M = len(inducing)
    outputs = (len(task.classes),) if task.kind == "multiclass" else ()
    start = np.tile(np.eye(M, dtype=args.dtype), (*outputs, 1, 1))
    posterior = fs.Whitened(mean=np.zeros((*outputs, M), args.dtype), scale_tril=start)
    return fs.SVGP(covariance=covariance, inducing=inducing, posterior=posterior, likelihood=_likelihood(task))


def _likelihood(task):
    kind = getattr(fs, LIKELIHOODS[task.likelihood])
    if task.kind == "multiclass":
        return kind(num_classes=len(task.classes))
    settings = {
        "gaussian": {"variance": NOISE},
        "student-t": {"scale": NOISE**0.5},
        "laplace": {"scale": NOISE**0.5},
        "poisson": {"exposure": float(task.y[~task.test].mean())},  # f = 0 is then the mean rate
    }
    return kind(**settings.get(task.likelihood, {}))


def train(fitted, task, args, folder):
    """Train ``fitted.model`` on the training rows; checkpoints go to ``folder``.

    Returns
    -------
    Trained
        Also after Ctrl-C: the model so far.
    """
    X, y = fitted.standardised_inputs(task.X[~task.test]), fitted.model_targets(task.y[~task.test])
    checkpoint = os.path.join(folder, CHECKPOINT)
    total = _total_steps(args, len(X))
    settings = {"steps": total, "jitter": args.jitter, "checkpoint": checkpoint, "rng": args.seed}
    if args.resume:
        _check_resume(checkpoint, fitted.model, args)
        settings["resume"] = checkpoint
    if args.method == "svgp":
        settings |= {"batch_size": args.batch_size, "optimiser": fs.adam(args.learning_rate, transform="log")}
        if args.natural_step:
            settings["natural_step_size"] = _natural_schedule(task, args.natural_step)
    stale = os.path.exists(checkpoint) and not args.resume
    with closing(Progress(total, args.quiet)) as progress:
        try:
            model, info = fs.fit(fitted.model, X, y, callback=progress, **settings)
        except (ValueError, ArithmeticError) as error:
            there = "" if stale or not os.path.exists(checkpoint) else ", with --resume to go on from the checkpoint"
            steps = "a smaller --learning-rate or --natural-step, or " if args.method == "svgp" else ""
            error.add_note(f"on the command line: {steps}a larger --jitter may help{there}")
            raise
    return _finished(model, info, X, y, args, checkpoint)


def _total_steps(args, num_data):
    if args.epochs is None:
        return args.steps or STEPS[args.method]
    return math.ceil(args.epochs * (num_data / min(args.batch_size, num_data) if args.method == "svgp" else 1))


def _natural_schedule(task, size):
    """Gaussian noise bears the full step at once; elsewhere the first ones, far from the optimum, are kept small."""
    return size if task.likelihood == "gaussian" else fs.schedules.log_linear(min(1e-3, size), size, RAMP)


def _finished(model, info, X, y, args, checkpoint):
    """The SVGP in the end, with the smallest jitter of 1, 10, 100 and 1000 times the given one that factorises its Kuu."""
    jitter = args.jitter or JITTER[args.dtype]
    for amount in (jitter, 10 * jitter, 100 * jitter, 1000 * jitter):
        try:
            svgp = fs.optimal_svgp(model, X, y, jitter=amount) if args.method == "sgpr" else model
            fs.predict_f(svgp, X[:1], jitter=amount)
            break
        except fs.NotPositiveDefinite:
            if amount > 500 * jitter:
                raise
    return Trained(svgp, amount, np.asarray(info.values), info.reason, checkpoint)


def _check_resume(checkpoint, model, args):
    """Refuse a checkpoint of another run before ``fit`` reads it."""
    if not os.path.exists(checkpoint):
        raise UsageError(f"--resume: there is no checkpoint {checkpoint}; an interrupted run leaves one in its --out folder")
    state = fs.load(checkpoint)
    if not hasattr(state, "model") or not hasattr(state, "seed"):
        raise DataFileError(f"--resume: {checkpoint} is no checkpoint of a training")
    before, now = _essence(state.model, state.seed), _essence(model, args.seed if args.method == "svgp" else state.seed)
    if before != now:
        differences = ", ".join(f"{name} {before[name]} then, {now[name]} now" for name in now if before.get(name) != now[name])
        raise UsageError(f"--resume: {checkpoint} belongs to another fit ({differences}); give the same arguments again")


def _essence(model, seed):
    """What must be the same for a checkpoint to fit."""
    return {
        "method": type(model).__name__,
        "covariance": type(model.covariance).__name__,
        "likelihood": type(getattr(model, "likelihood", None)).__name__,
        "inducing inputs": np.shape(model.inducing),
        "dtype": str(model.inducing.dtype),
        "lengthscales": np.shape(model.covariance.lengthscales),
        "seed": seed,
    }
