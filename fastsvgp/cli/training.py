"""The untrained model of a task, and its training by any of the methods."""

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
from .settled import Settled

STEPS = {"svgp": 2000, "lsvgp": 2000, "rsvgp": 2000, "sgpr": 200}
NATURAL_STEP = 0.1
BATCH_SIZE = 512
LEARNING_RATE = 0.01
REST = 1000, 10  # rsvgp: the inducing inputs rest for so many steps, or for one in so many steps of a short training,
GENTLE = 0.2  # and then move by this part of the learning rate
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

    Inducing inputs by k-means++, or the distinct training inputs where ``args.choice`` says so; lengthscales by the median
    heuristic, variance 1.
    """
    X = np.ascontiguousarray(scale.inputs(task.X[~task.test]), args.dtype)
    rng = np.random.default_rng([args.seed, 1])
    lengthscales = fs.median_lengthscales(X, rng=rng, ard=args.ard)
    covariance = getattr(fs, COVARIANCES[args.covariance])(variance=1.0, lengthscales=lengthscales)
    inducing = np.unique(X, axis=0) if args.choice.at_data else fs.kmeans_inducing(X, args.inducing, rng=rng)
    if args.method == "sgpr":
        return fs.SGPR(covariance, inducing, noise_variance=NOISE)
    outputs = (len(task.classes),) if task.kind == "multiclass" else ()
    posterior = _posterior(args.method, np.zeros((*outputs, len(inducing)), args.dtype), len(X))
    return fs.SVGP(covariance=covariance, inducing=inducing, posterior=posterior, likelihood=_likelihood(task))


def _posterior(method, mean, num_data):
    """The prior, but for ``lsvgp`` and ``rsvgp``, whose pseudo-observations stand for an equal share of the data each."""
    M, dtype = mean.shape[-1], mean.dtype
    if method == "svgp":
        return fs.Whitened(mean=mean, scale_tril=np.tile(np.eye(M, dtype=dtype), (*mean.shape[:-1], 1, 1)))
    variance = np.full(M, NOISE * M / num_data, dtype)
    if method == "lsvgp":
        return fs.LikelihoodForm(mean=mean, variance=variance)
    return fs.Relaxed(mean=mean, variance=variance, inverse_tril=np.eye(M, dtype=dtype))  # ``fit`` begins with its inverse


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
    if args.method != "sgpr":
        settings |= {"batch_size": args.batch_size or BATCH_SIZE, "optimiser": _optimiser(args, total)}
    if args.choice.at_data:
        settings["fixed"] = ("inducing",)
    if args.method == "svgp" and args.natural_step != 0:
        settings["natural_step_size"] = _natural_schedule(task, args.natural_step or NATURAL_STEP)
    stale = os.path.exists(checkpoint) and not args.resume
    with closing(Progress(total, args.quiet)) as progress:
        callback = Settled(progress, len(X)) if args.method == "sgpr" and args.steps is args.epochs is None else progress
        try:
            model, info = fs.fit(fitted.model, X, y, callback=callback, **settings)
        except (ValueError, ArithmeticError) as error:
            there = "" if stale or not os.path.exists(checkpoint) else ", with --resume to go on from the checkpoint"
            natural = " or --natural-step" if args.method == "svgp" else ""
            steps = "" if args.method == "sgpr" else f"a smaller --learning-rate{natural}, or "
            error.add_note(f"on the command line: {steps}a larger --jitter may help{there}")
            raise
    if info.interrupted and not progress.begun:  # perhaps amid the imports of the first step: there is nothing to keep
        raise KeyboardInterrupt
    return _finished(model, info, X, y, args, checkpoint)


def _total_steps(args, num_data):
    if args.epochs is None:
        return args.steps or STEPS[args.method]
    per_epoch = num_data / min(args.batch_size or BATCH_SIZE, num_data) if args.method != "sgpr" else 1
    return math.ceil(args.epochs * per_epoch)


def _optimiser(args, total):
    rate = args.learning_rate or LEARNING_RATE
    everything = fs.adam(rate, transform="log")
    if args.method != "rsvgp":
        return everything
    rest = min(REST[0], total // REST[1])
    return fs.gentle_inducing(everything, after=rest, step_size=GENTLE * rate)


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
    before, now = _essence(state.model, state.seed), _essence(model, args.seed if args.method != "sgpr" else state.seed)
    if before != now:
        differences = ", ".join(f"{name} {before[name]} then, {now[name]} now" for name in now if before.get(name) != now[name])
        raise UsageError(f"--resume: {checkpoint} belongs to another fit ({differences}); give the same arguments again")


def _essence(model, seed):
    """What must be the same for a checkpoint to fit."""
    return {
        "method": type(model).__name__,
        "posterior": type(getattr(model, "posterior", None)).__name__,
        "covariance": type(model.covariance).__name__,
        "likelihood": type(getattr(model, "likelihood", None)).__name__,
        "inducing inputs": np.shape(model.inducing),
        "dtype": str(model.inducing.dtype),
        "lengthscales": np.shape(model.covariance.lengthscales),
        "seed": seed,
    }
