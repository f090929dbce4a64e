"""The settings of a fit: the arguments as given, and defaults chosen from the data."""

from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from ...runtime.thresholds import MOST_ROWS, columns_by_default
from ..data import images, targets
from ..errors import UsageError, option_of, refuse_beside
from . import deep, periodic, qsgp
from .defaults import BATCH_SIZE, INDUCING, JITTER, LAYER, MINIBATCH, Choice, choose
from .names import NATURAL, PAIRED
from .refusals import validate


@dataclass(frozen=True)
class Settings:
    """The settings of a fit.

    Fields have the names of the arguments of ``fastsvgp fit``, and are None if the method does not
    use them. The others are:

    Attributes
    ----------
    choice : Choice
        The method, and the reason for it.
    surplus : int or None
        The requested number of inducing inputs, if it exceeds the number of training rows.
    group : group of ``fs.distributed``, or None
        The ranks of this training, with ``--mpi``.
    words : list of str
        The command line.
    """

    choice: Choice
    covariance: str
    periodic: tuple | None
    ard: bool
    inducing: int
    surplus: int | None
    orthogonal: int | None
    sampled: int | None
    latents: int | str | None
    layers: int | None
    width: int | None
    patch_shape: tuple | None
    image_shape: tuple | None
    stride: int | None
    features: int | None
    dense_columns: int | None
    basis_batch: int | None
    control_points: int | None
    learn_hyperparameters: bool
    no_extra_noise: bool
    steps: int | None
    epochs: float | None
    batch_size: int | None
    learning_rate: float | None
    natural_step: float | None
    e_steps: int | None
    m_steps: int | None
    jitter: float | None
    dtype: str
    seed: int
    missing: str
    resume: bool
    quiet: bool
    group: Any
    words: list

    @property
    def method(self):
        return self.choice.method

    @property
    def solver(self):
        """The optimiser of the model, by its name in ``recipes``."""
        if self.choice.whole:
            return "lbfgs"
        return "natural" if self.method in NATURAL and self.natural_step != 0 else "adam"

    @property
    def leads(self):
        """Whether this process prints and writes files: the only process, or rank 0."""
        return self.group is None or self.group.rank == 0


def resolve(args, task, group=None):
    """Return the ``Settings`` of a fit.

    Parameters
    ----------
    args : namespace
        The arguments of ``fastsvgp fit``; those about reading data are not used.
    task : Task
        Already split.
    group : group of ``fs.distributed``, optional

    Raises
    ------
    UsageError
        The arguments are inconsistent, or do not fit the data.
    """
    X = task.X[~task.test]
    found = images.resolve(args, task) | deep.resolve(args, X.shape[1])
    found |= qsgp.resolve(args, task, len(X)) | periodic.resolve(args, task)
    choice = _choice(args, task, X, found["layers"], group)
    requested = choice.inducing if args.inducing is None else args.inducing
    found |= _second_set(args, choice.method, requested, len(X))
    surplus = choice.method != "qsgp" and args.patch_shape is None and requested > len(X)
    found |= {
        "choice": choice,
        "ard": args.patch_shape is None if args.ard is None else args.ard,
        "inducing": choice.inducing if choice.at_data else len(X) if surplus else requested,
        "surplus": requested if surplus else None,
        "covariance": args.covariance or "matern32",
        "jitter": _jitter(args, choice),
        "group": group,
    }
    values = {field.name: getattr(args, field.name, None) for field in fields(Settings)}
    settings = Settings(**values | found)
    validate(settings, task)
    return settings


def _choice(args, task, X, layers, group):
    """Choose the method and the number of inducing inputs."""
    minibatch = next(
        (option_of(name) for name in MINIBATCH if getattr(args, name) is not None), None
    )
    without = None if args.latents is None else "--latents"
    closed = task.likelihood == "gaussian" and without is None
    if closed and targets.weights_of(task.y[~task.test]) is not None:
        minibatch = minibatch or "a missing target"
    distinct = len(np.unique(X, axis=0)) if len(X) <= MOST_ROWS else len(X)
    return choose(
        task.likelihood,
        len(X),
        distinct,
        method=args.method,
        inducing=args.inducing,
        minibatch=minibatch,
        without=without,
        alone=group is None,
        few=LAYER if layers else INDUCING,
    )


def _second_set(args, method, inducing, rows):
    """Return the sizes of the second set and of its sample."""
    orthogonal, sampled = args.orthogonal, args.sampled
    refuse_beside(method, PAIRED, orthogonal=orthogonal)
    refuse_beside(method, ("odvgp",), sampled=sampled)
    if method in PAIRED:
        orthogonal = orthogonal or inducing
        if args.patch_shape is None and not 0 < inducing <= rows - orthogonal:
            raise UsageError(
                f"--inducing {inducing} and --orthogonal {orthogonal} are more than the {rows}"
                " training rows; give fewer, or use --method svgp"
            )
    if method == "odvgp" and sampled is None:
        batch = min(args.batch_size or BATCH_SIZE, rows)
        sampled = columns_by_default(inducing, orthogonal, batch) or orthogonal
    elif method == "odvgp" and sampled > orthogonal:
        raise UsageError(
            f"--sampled {sampled} is more than --orthogonal {orthogonal}; give at most {orthogonal}"
        )
    return {"orthogonal": orthogonal, "sampled": sampled}


def _jitter(args, choice):
    small = args.jitter is None and choice.at_data and args.dtype == "float64"
    return JITTER if small else args.jitter
