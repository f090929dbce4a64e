"""The method and the inducing inputs where the user names none: by the likelihood and the number of training rows.

Small data under Gaussian noise go to the collapsed bound. Up to ``ALL`` distinct rows they are
their own inducing inputs, held fixed: the bound is then the marginal likelihood of an exact GP, but
for the jitter, and needs no gradient in the inducing inputs. Measured on held-out rows (test split
0, Matérn 3/2 ARD; RMSE, NLPD, processor seconds of the whole command):

    data                          minibatches, M = 256    scikit-learn's exact GP    chosen here
    airfoil, 1353 rows            0.254,  0.061, 36 s     0.164, -0.360, 21 s        0.164, -0.360, 16 s
    energy, 692 rows              0.043, -1.718, 39 s     0.043, -1.725, 10 s        0.032, -2.063,  8 s
    kin40k, 2250 of its rows      0.387,  0.483, 35 s                                0.331,  0.275, 38 s (training alone)
    elevators, 2250 of its rows   0.399,  0.494, 40 s                                0.400,  0.495, 35 s (training alone)

Steps on the way do not pay. From the hyperparameters of 500 random rows airfoil takes 31
evaluations of the bound, from scratch 27; from those of 300, energy ends at a maximum that is 65
nats lower. From those of 256 inducing inputs, kin40k takes 69 s for what it takes 65 s without.
1000 inducing inputs that stay where k-means put them have an NLPD of 0.41 there.
"""

from dataclasses import dataclass

from ..errors import UsageError
from .names import LOG_CONCAVE, METHODS, PAIRED

COLLAPSED = 5000  # training rows up to which the collapsed bound is the default
ALL = 1500  # distinct ones up to which they all are inducing inputs
SOME = 1000  # inducing inputs of the collapsed bound above that
FEW = 256  # of everything else, at most half of the rows for each of two sets
LAYER = 128  # of each layer of a deep model
SAMPLED = 1024  # inducing inputs of the second set at each step of odvgp
# of qsgp: random Fourier features, those of a step, points of the control
FEATURES, BASIS, POINTS = 100_000, 10_000, 500
# of all rows in float64: the bound loses up to N jitter / (2 noise), 1e-6 costs energy 0.012 of
# NLPD
JITTER = 1e-7
MINIBATCH = (  # arguments that only minibatches have
    "batch_size", "learning_rate", "natural_step", "e_steps", "m_steps", "layers", "patch_shape",
)  # fmt: skip


@dataclass(frozen=True)
class Choice:
    """``at_data``: the inducing inputs are the distinct training inputs, held fixed.

    ``reason`` says why, in words.
    """

    method: str
    inducing: int
    at_data: bool
    reason: str


def choose(likelihood, rows, distinct, *, method=None, inducing=None, minibatch=None, few=FEW):
    """The method and the number of inducing inputs.

    Parameters
    ----------
    likelihood : str
        One of ``names.LIKELIHOODS``.
    rows, distinct : int
        Training rows, and how many differ in their inputs.
    method, inducing : str, int, optional
        What the user asked for; it is taken.
    minibatch : str, optional
        An option that the user gave and that only minibatches have.
    few : int
        Inducing inputs where these do not depend on the data.
    """
    if method is not None:
        reason = "as asked"
    elif likelihood != "gaussian":
        method, reason = "svgp", f"the {likelihood} likelihood has no collapsed bound"
    elif minibatch is not None:
        method, reason = "svgp", f"{minibatch} is for minibatches"
    elif rows > COLLAPSED:
        method, reason = "svgp", f"more than {COLLAPSED} training rows"
    else:
        method, reason = "sgpr", f"Gaussian noise, and at most {COLLAPSED} training rows"
    collapsed = method == "sgpr"
    if method == "qsgp":
        return Choice(method, 0, False, reason)
    if inducing is None:
        small = collapsed and rows <= COLLAPSED
        inducing = (
            (distinct if distinct <= ALL else SOME)
            if small
            else min(few, rows // 2)
            if method in PAIRED
            else few
        )
    at_data = collapsed and inducing >= distinct
    return Choice(method, distinct if at_data else inducing, at_data, reason)


def settle(args, task):
    """Fill in what the arguments of ``fastsvgp fit`` leave to the data; ``args.choice`` is the ``Choice``."""
    import numpy as np  # not above: ``--help`` names the numbers of this file, and answers at once

    from ..data import images
    from . import deep

    X = task.X[~task.test]
    given = next(
        (f"--{name.replace('_', '-')}" for name in MINIBATCH if getattr(args, name) is not None),
        None,
    )
    distinct = len(np.unique(X, axis=0)) if len(X) <= COLLAPSED else len(X)
    images.settle(args, task)
    deep.settle(args, X.shape[1])
    _settle_basis(args, task, len(X))
    asked = {"method": args.method, "inducing": args.inducing, "minibatch": given}
    choice = choose(task.likelihood, len(X), distinct, **asked, few=LAYER if args.layers else FEW)
    args.ard = args.patch_shape is None if args.ard is None else args.ard
    args.choice, args.method = choice, choice.method
    if args.inducing is None:
        args.inducing = choice.inducing
    _settle_second_set(args, len(X))
    if args.jitter is None and choice.at_data and args.dtype == "float64":
        args.jitter = JITTER


def _settle_second_set(args, rows):
    """The sizes of the second set, and of its sample."""
    if args.method not in PAIRED:
        if args.orthogonal is not None:
            raise UsageError(
                f"--orthogonal is for --method {' and '.join(PAIRED)}; with {args.method} leave"
                " it out"
            )
    else:
        args.orthogonal = args.orthogonal or args.inducing
        if args.patch_shape is None and not 0 < args.inducing <= rows - args.orthogonal:
            raise UsageError(
                f"--inducing {args.inducing} and --orthogonal {args.orthogonal} are more than the"
                f" {rows} training rows; give fewer, or --method svgp"
            )
    if args.method != "odvgp":
        if args.sampled is not None:
            raise UsageError(f"--sampled is for --method odvgp; with {args.method} leave it out")
    elif args.sampled is None:
        args.sampled = min(SAMPLED, args.orthogonal)
    elif args.sampled > args.orthogonal:
        raise UsageError(
            f"--sampled {args.sampled} is more than the {args.orthogonal} of --orthogonal; give at"
            " most that"
        )


def _settle_basis(args, task, rows):
    """The sizes of qsgp."""
    own = "features", "dense_columns", "basis_batch", "control_points", "learn_hyperparameters"
    given = [
        f"--{name.replace('_', '-')}" for name in own if getattr(args, name) not in (None, False)
    ]
    if args.method != "qsgp":
        if given:
            here = f"with {args.method}" if args.method else "ask for it, or"
            raise UsageError(f"{given[0]} is for --method qsgp; {here} leave it out")
        return
    if task.likelihood not in LOG_CONCAVE:
        names = ", ".join(LOG_CONCAVE)
        raise UsageError(
            f"--method qsgp needs a log-concave likelihood ({names}), but here it is"
            f" {task.likelihood}; use --method svgp"
        )
    if args.inducing is not None:
        raise UsageError(
            "--inducing: --method qsgp has --features in place of inducing inputs; leave it out"
        )
    args.features = args.features or FEATURES
    if args.features % 2:
        raise UsageError(
            f"--features {args.features}: sines and cosines come in pairs; give an even number"
        )
    args.dense_columns, args.basis_batch = (
        args.dense_columns or 0,
        args.basis_batch or min(BASIS, args.features),
    )
    for option, value in (
        ("--dense-columns", args.dense_columns),
        ("--basis-batch", args.basis_batch),
    ):
        if value > args.features:
            raise UsageError(
                f"{option} {value} is more than the {args.features} of --features; give at most"
                " that"
            )
    if args.control_points is None:
        args.control_points = min(POINTS, rows) if task.likelihood == "gaussian" else 0
    elif args.control_points > rows:
        raise UsageError(
            f"--control-points {args.control_points} is more than the {rows} training rows; give at"
            " most that"
        )


def words(choice):
    """The choice in a line of the report."""
    changes = "" if choice.reason == "as asked" else " (--method changes it)"
    return f"{choice.reason} -> {METHODS[choice.method]}{changes}"
