"""The untrained model of a task, and its training by any of the methods."""

import math
import os
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import numpy as np

import fastsvgp as fs

from . import images, layers, qsgp
from .arguments import MOST
from .errors import UsageError
from .fitted import jittered
from .names import COVARIANCES, LIKELIHOODS, NATURAL, PAIRED
from .outputs import CHECKPOINT
from .progress import Progress
from .resuming import check_numbers, described, resumed
from .settled import Settled

STEPS = {"sgpr": 200}  # of the others
MINIBATCHES = 2000
NATURAL_STEP = 0.1
BATCH_SIZE = 512
LEARNING_RATE = 0.01
REST = 1000, 10  # rsvgp: the inducing inputs rest for so many steps, or for one in so many steps of a short training,
GENTLE = 0.2  # and then move by this part of the learning rate
AT_PRIOR = {  # what they start from
    "svgp": fs.Whitened, "tsvgp": fs.AbsorbedDualSites, "solvegp": fs.WhitenedOrthogonal, "odvgp": fs.DecoupledWeights,
}  # fmt: skip
JITTER = {"float64": 1e-6, "float32": 1e-4}
NOISE = 0.1  # variance at the start, of targets with variance 1
RAMP = 100  # steps until the natural step size is reached, where the likelihood is not Gaussian


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
    kind = getattr(fs, COVARIANCES[args.covariance])
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
        return fs.SGPR(covariance, inducing, noise_variance=NOISE)
    outputs = len(task.classes) if task.kind == "multiclass" else None
    if args.method in AT_PRIOR:
        posterior = fs.at_prior(AT_PRIOR[args.method], covariance, inducing, outputs=outputs, jitter=args.jitter)
    else:
        batch = () if outputs is None else (outputs,)
        posterior = _pseudo_observations(args.method, np.zeros((*batch, len(inducing)), args.dtype), len(X))
    return fs.SVGP(covariance=covariance, inducing=inducing, posterior=posterior, likelihood=_likelihood(task))


def _pseudo_observations(method, mean, num_data):
    """The posterior of ``lsvgp`` and ``rsvgp``: each pseudo-observation stands for an equal share of the data."""
    M, dtype = mean.shape[-1], mean.dtype
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
        natural = _natural_schedule(task, args.natural_step or NATURAL_STEP)
        settings["natural_step_size"] = images.falling_step(natural, total) if args.patch_shape else natural
    if args.method in NATURAL:
        settings |= {"e_steps": args.e_steps, "m_steps": args.m_steps}
    with closing(Progress(total, args.quiet)) as progress:
        callback = Settled(progress, len(X)) if args.method == "sgpr" and args.steps is args.epochs is None else progress
        try:
            model, info = fs.fit(fitted.model, X, y, callback=callback, **settings)
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
    trained = _finished(model, info, X, y, args, checkpoint)
    trained.first_step = progress.first_step
    return trained


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


def _natural_schedule(task, size):
    """Gaussian noise bears the full step at once; elsewhere the first ones, far from the optimum, are kept small."""
    return size if task.likelihood == "gaussian" else fs.schedules.log_linear(min(1e-3, size), size, RAMP)


def holds(trained):
    """Whether the checkpoint of a training holds its end."""
    try:
        return fs.load(trained.checkpoint).step == len(trained.values)
    except (OSError, fs.DataFileError):
        return False


def _finished(model, info, X, y, args, checkpoint):
    """The model in the end, with the smallest jitter of 1, 10, 100 and 1000 times the given one that factorises its Kuu."""
    jitter = args.jitter or JITTER[args.dtype]
    for amount in (jitter, 10 * jitter, 100 * jitter, 1000 * jitter):
        try:
            svgp = fs.optimal_svgp(model, X, y, jitter=amount, group=args.group) if args.method == "sgpr" else model
            fs.predict_f(svgp, X[:1], **jittered(svgp, amount))
            break
        except fs.NotPositiveDefinite:
            if amount > 500 * jitter:
                raise
    return Trained(svgp, amount, np.asarray(info.values), info.reason, checkpoint)
