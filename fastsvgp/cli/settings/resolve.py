"""The settings of a fit: the arguments as given, and defaults chosen from the data."""

from argparse import Namespace

import numpy as np

from ...layers.build import WIDEST
from ...runtime.thresholds import MOST_ROWS, columns_by_default
from ..data import images, targets
from ..errors import UsageError, join, option_of, refuse_beside
from . import periodic, qsgp
from .defaults import BATCH_SIZE, INDUCING, JITTER, LAYER, MINIBATCH, choose
from .names import LAYERED, METHODS, NATURAL, PAIRED, VARYING, WITH_LATENTS, WITH_NEAR_ROWS

MOVERS = {"sgpr": "L-BFGS trains everything", "qsgp": "AdaGrad trains the posterior"}


class FitSettings(Namespace):
    """The settings of a fit.

    They have the names of the arguments of ``fastsvgp fit``, and are None if the method does not
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
    """Return the ``FitSettings`` of a fit.

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
    found = images.resolve(args, task) | _layers(args, X.shape[1])
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
    settings = FitSettings(**{**vars(args), "method": choice.method, **found})
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
    within = args.within is not None
    distinct = len(np.unique(X, axis=0)) if len(X) <= MOST_ROWS else len(X)
    return choose(
        task.likelihood,
        len(X),
        distinct,
        method=args.method or ("sgpr" if within else None),
        inducing=INDUCING if within and args.inducing is None else args.inducing,
        minibatch=minibatch,
        without=without,
        alone=group is None,
        few=LAYER if layers else INDUCING,
    )


def _layers(args, num_inputs):
    """Return ``layers`` and ``width``; refuse invalid combinations of arguments.

    Both are None for a model without hidden layers, that is of one layer.
    """
    if args.width is not None and (args.layers or 1) == 1:
        raise UsageError(
            "--width is the number of outputs of hidden layers; give --layers 2 or more, or leave"
            " --width out"
        )
    if args.layers is None:
        return {"layers": None, "width": None}
    refuse_beside(args.method or LAYERED[0], LAYERED, layers=args.layers)
    if args.patch_shape is not None:
        raise UsageError(
            "--layers and --patch-shape cannot be combined on the command line; use"
            " fastsvgp.layers.ConvolutionalLayer in Python"
        )
    layers = None if args.layers == 1 else args.layers
    return {"layers": layers, "width": layers and (args.width or min(num_inputs, WIDEST))}


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


# --- settings that are inconsistent, or do not fit the data ---


def validate(settings, task):
    """Refuse settings that the method does not use."""
    method, likelihood, step = settings.method, task.likelihood, settings.natural_step
    _refuse(
        (
            method == "sgpr" and likelihood != "gaussian",
            f"--method sgpr needs the gaussian likelihood, but here it is {likelihood}"
            f" ({task.reason}); use --method svgp",
        ),
        (
            settings.no_extra_noise and likelihood != "known-noise",
            f"--no-extra-noise is for --noise COLUMN, and here the likelihood is {likelihood};"
            " leave it out",
        ),
    )
    _check_functions(settings, task)
    _check_near_rows(settings, task)
    mover = MOVERS.get(method, "Adam trains the posterior too")
    refuse_beside(method, ("sgpr",), within=settings.within)
    refuse_beside(method, NATURAL, e_steps=settings.e_steps, m_steps=settings.m_steps)
    unused = [name for name in ("batch_size", "learning_rate") if getattr(settings, name)]
    _refuse(
        (
            step and method not in NATURAL,
            f"--natural-step is for --method {', '.join(NATURAL)}; with {method} {mover}: leave"
            " --natural-step out",
        ),
        (
            method == "tsvgp" and step == 0,
            "--natural-step 0: only natural-gradient steps train the sites of --method tsvgp; give"
            " a step size above 0",
        ),
        (
            (settings.e_steps or 1) > 1 and step == 0,
            f"--e-steps {settings.e_steps} are natural-gradient steps, but --natural-step is 0;"
            " leave one of them out",
        ),
        (
            settings.group is not None and method == "qsgp",
            "--mpi: one process trains --method qsgp; leave --mpi out",
        ),
        (
            settings.group is not None and settings.within is not None,
            "--mpi: one process trains with --within; leave one of them out",
        ),
        (
            unused and method == "sgpr",
            "--method sgpr trains on all data by L-BFGS; leave out"
            f" {join(map(option_of, unused))}, which would have no effect",
        ),
    )


def _refuse(*cases):
    """Raise the ``UsageError`` of the first case ``(applies, message)`` that applies."""
    for applies, message in cases:
        if applies:
            raise UsageError(message)


def _check_near_rows(settings, task):
    """Check ``--neighbours`` against the other arguments and the rows."""
    count, rows = settings.neighbours, int((~task.test).sum())
    if count is None:
        return
    refuse_beside(settings.method, WITH_NEAR_ROWS, neighbours=count)
    for option, given in (
        ("--layers", settings.layers),
        ("--patch-shape", settings.patch_shape),
        ("--latents", settings.latents),
        ("--mpi", settings.group),
        (f"--likelihood {task.likelihood}", task.kind == "multiclass"),
        (f"--likelihood {task.likelihood}", task.likelihood in VARYING),
        ("a missing target", targets.weights_of(task.y[~task.test]) is not None),
    ):
        if given:
            raise UsageError(f"--neighbours: {option} cannot be combined with it; leave one out")
    if count >= rows:
        raise UsageError(f"--neighbours {count} is not below the {rows} training rows; give fewer")


def _check_functions(settings, task):
    """Check the arguments against several latent functions, and several targets."""
    several = task.y.ndim == 2
    what = (
        f"--latents {settings.latents}"
        if settings.latents is not None
        else f"--likelihood {task.likelihood}"
        if task.likelihood in VARYING
        else "several targets"
        if several
        else None
    )
    if what is None:
        return
    for option, given in (("--layers", settings.layers), ("--patch-shape", settings.patch_shape)):
        if given is not None:
            raise UsageError(f"{option}: {what} cannot be combined with it; leave {option} out")
    methods = (
        tuple(name for name in METHODS if name != "qsgp")
        if what == "several targets"
        else WITH_LATENTS
    )
    if settings.method not in methods:
        raise UsageError(
            f"--method {settings.method}: {what} need{'s'[: what[0] == '-']} --method"
            f" {', '.join(methods)}"
        )
    if settings.method == "sgpr" and targets.weights_of(task.y[~task.test]) is not None:
        raise UsageError(
            "--method sgpr needs every target of every row, and some are missing; use --method svgp"
        )
