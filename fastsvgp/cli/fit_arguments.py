"""The arguments of ``fastsvgp fit``, and nothing that needs an import beyond argparse."""

import argparse

from .argument_types import (
    MOST,
    Lines,
    add_text_layout,
    add_traceback,
    columns,
    count,
    number,
    positive,
    shape,
)
from .settings.defaults import (
    ALL,
    BASIS,
    COLLAPSED,
    FEATURES,
    FEW,
    LAYER,
    POINTS,
    SAMPLED,
    SECONDS,
    SOME,
)
from .settings.names import COVARIANCES, LEVELS, LIKELIHOODS, METHODS, POLICIES


def add_fit(commands):
    """The arguments of ``fastsvgp fit``, in their groups."""
    fit = commands.add_parser(
        "fit",
        help="fit a model to a table of data",
        description=(
            "Standardises and splits the data, fits a sparse Gaussian process, reports held-out"
            " metrics beside the trivial predictor's, and writes the model, metrics.json, plots,"
            " and report.html with all of it on one page."
        ),
        allow_abbrev=False,
        formatter_class=Lines,
    )
    fit.add_argument(
        "file",
        metavar="FILE",
        help="csv, csv.gz (header detected), npz with X and y, or npy; - is standard input",
    )
    _add_data(fit)
    model = fit.add_argument_group("model")
    _add_model(model)
    _add_structure(model)
    _add_features(model)
    training = fit.add_argument_group("training")
    _add_steps(training)
    _add_sampling(training)
    _add_numbers(training)
    _add_output(fit.add_argument_group("output"))


def _add_data(fit):
    data = fit.add_argument_group(
        "data",
        f"Columns of text are inputs too: one input for each of the {LEVELS} most frequent levels"
        " of the training rows, and one for all other text. Columns of dates become three: day"
        " number, month and weekday.",
    )
    data.add_argument(
        "--target",
        metavar="COLUMN",
        help=(
            "name of the target column, or its index from 0 (default: the last; of an npz file y,"
            " and where it has none the last column of X)"
        ),
    )
    data.add_argument(
        "--target-file",
        metavar="FILE",
        help="the target is in this file; all columns of FILE are inputs",
    )
    data.add_argument(
        "--ignore",
        metavar="COLUMN,...",
        type=columns,
        default=[],
        help="columns to leave out, names or indices",
    )
    data.add_argument(
        "--missing",
        choices=POLICIES,
        default=POLICIES[0],
        metavar="POLICY",
        help=(
            "what becomes of missing values of inputs (a missing target is an error)\nerror: a"
            " message that names the first (default)\nmedian: that of the training rows in their"
            " place, and one more input that is 1 where they were; missing text is a level"
        ),
    )
    held_out = data.add_mutually_exclusive_group()
    held_out.add_argument(
        "--test-mask",
        metavar="FILE:COLUMN",
        help="hold out the rows where this column is 1 (else 0)",
    )
    held_out.add_argument(
        "--test-fraction",
        metavar="F",
        type=number(float, 0, 1),
        default=0.1,
        help="share of rows held out at random (default 0.1; 0 holds out nothing)",
    )
    add_text_layout(data)


def _add_model(model):
    """What every model has."""
    model.add_argument(
        "--likelihood",
        choices=LIKELIHOODS,
        metavar="NAME",
        help=(
            f"{', '.join(LIKELIHOODS)}\ndefault by the target: bernoulli-probit for two classes,"
            " softmax for more (text, or at most five different whole numbers); poisson for whole"
            " numbers that look like counts; else gaussian"
        ),
    )
    model.add_argument(
        "--covariance",
        choices=COVARIANCES,
        metavar="NAME",
        help=f"{', '.join(COVARIANCES)} (default matern32)",
    )
    model.add_argument(
        "--ard",
        action=argparse.BooleanOptionalAction,
        help="one lengthscale per input (default), or one for all (default with --patch-shape)",
    )
    model.add_argument(
        "--inducing",
        metavar="M",
        type=count,
        help=(
            f"number of inducing inputs (default {FEW}; of each of several --layers {LAYER}; sgpr:"
            f" up to {ALL} distinct training rows all of them, held fixed, up to {COLLAPSED} rows"
            f" {SOME})"
        ),
    )
    model.add_argument(
        "--method",
        choices=METHODS,
        metavar="NAME",
        help=(
            f"default by the size of the data: sgpr for gaussian noise and up to {COLLAPSED}"
            " training rows, unless --batch-size, --learning-rate or another option of minibatches"
            " is given; else svgp\nsvgp: minibatches, any likelihood\ntsvgp: the same with the"
            " posterior held as sites, which leaves the prior free\nlsvgp: svgp with fewer"
            " parameters and the fewest operations a step\nrsvgp: lsvgp from matrix products"
            " alone, the inducing inputs trained gently\nsolvegp: svgp with a second set of"
            " inducing inputs for what the first leaves over\nodvgp: the same for the mean alone,"
            " many of them at little cost\nsgpr: the collapsed bound on all data at once, gaussian"
            " only, by L-BFGS\nqsgp: very many random Fourier features, trained on samples of"
            " them, with the hyperparameters of an exact Gaussian process on some rows"
        ),
    )


def _add_structure(model):
    """A second set of inducing inputs, layers, patches."""
    model.add_argument(
        "--orthogonal",
        metavar="M2",
        type=count,
        help=(
            "solvegp, odvgp: number of inducing inputs of the second set (default as many as of the"
            " first)"
        ),
    )
    model.add_argument(
        "--layers",
        metavar="L",
        type=count,
        help=(
            "svgp, lsvgp, rsvgp, solvegp: layers of a deep Gaussian process, each on draws of the"
            " one below (default 1)"
        ),
    )
    model.add_argument(
        "--width",
        metavar="W",
        type=count,
        help="outputs of each hidden layer (default as many as inputs, at most 30)",
    )
    model.add_argument(
        "--patch-shape",
        metavar="HxW",
        type=shape(2, 2),
        help=(
            "rows are images: sum one function over their patches of H x W pixels; --covariance is"
            " then of patches, inducing inputs are patches, and all pixels share one mean and scale"
            " (not for sgpr, qsgp)"
        ),
    )
    model.add_argument(
        "--image-shape",
        metavar="HxW[xC]",
        type=shape(2, 3),
        help=(
            "with --patch-shape: rows and columns of pixels, and channels (default: as X of an npz"
            " file, (N, H, W) or (N, H, W, C); else square, one channel); in a table pixels are row"
            " by row, channels last"
        ),
    )
    model.add_argument(
        "--stride",
        metavar="S",
        type=count,
        help="with --patch-shape: pixels from one patch to the next (default 1)",
    )


def _add_features(model):
    """The basis of qsgp."""
    model.add_argument(
        "--features",
        metavar="M",
        type=number(int, 2, MOST, closed_high=True),
        help=f"qsgp: number of random Fourier features, even (default {FEATURES})",
    )
    model.add_argument(
        "--dense-columns",
        metavar="K",
        type=number(int, 0, MOST),
        help="qsgp: dense columns of the factor of the weights' covariance (default 0: mean field)",
    )


def _add_steps(training):
    """How long, and how many steps of which sizes."""
    training.add_argument(
        "--seconds",
        metavar="S",
        type=positive,
        help=(
            f"for real-valued targets: search so long for the best model, by held-out rows of the"
            f" training part (default {SECONDS:g} s, where neither a method nor an option of one is"
            " given)"
        ),
    )
    training.add_argument(
        "--mpi",
        action="store_true",
        help="one training on all ranks: mpiexec -n 4 fastsvgp fit FILE --mpi",
    )
    length = training.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        metavar="N",
        type=count,
        help=(
            "training steps (default 2000; sgpr: at most 200 iterations, fewer where the bound no"
            " longer rises)"
        ),
    )
    length.add_argument(
        "--epochs",
        metavar="N",
        type=positive,
        help="passes over the training data, instead of --steps",
    )
    training.add_argument(
        "--batch-size",
        metavar="B",
        type=count,
        help="rows in a minibatch (default 512; not for sgpr)",
    )
    training.add_argument(
        "--learning-rate",
        metavar="R",
        type=positive,
        help="step size of Adam (default 0.01; not for sgpr), for qsgp of AdaGrad (default 0.1)",
    )
    training.add_argument(
        "--natural-step",
        metavar="S",
        type=number(float, 0, 1, closed_high=True),
        help=(
            "svgp, tsvgp, solvegp, odvgp: step size of the natural gradient for the posterior, at"
            " most 1 (default 0.1; 0, not for tsvgp: Adam moves it too)"
        ),
    )
    each = "natural-gradient steps of the posterior, each on a minibatch of its own"
    for letter, what in (("e", each), ("m", "steps of Adam")):
        training.add_argument(
            f"--{letter}-steps",
            metavar="K",
            type=count,
            help=f"svgp, tsvgp, solvegp, odvgp: {what}, in each step (default 1)",
        )


def _add_sampling(training):
    """What a step of odvgp or qsgp samples."""
    training.add_argument(
        "--sampled",
        metavar="S",
        type=count,
        help=(
            "odvgp: inducing inputs of the second set that a step samples for the size of the mean"
            f" (default {SAMPLED}, or all)"
        ),
    )
    training.add_argument(
        "--basis-batch",
        metavar="M",
        type=count,
        help=f"qsgp: features that a step samples, twice (default {BASIS}, or all)",
    )
    training.add_argument(
        "--control-points",
        metavar="P",
        type=number(int, 0, MOST),
        help=(
            "qsgp: training rows at which the exact mean is kept, which takes noise off the steps"
            f" (default {POINTS} for gaussian, else 0: none)"
        ),
    )
    training.add_argument(
        "--learn-hyperparameters",
        action="store_true",
        help=(
            "qsgp: go on learning them after a fifth of the steps; the bound is no guide to them"
            " where features are not few"
        ),
    )


def _add_numbers(training):
    """Jitter, dtype and seed."""
    training.add_argument(
        "--jitter",
        metavar="J",
        type=positive,
        help=(
            "added to the diagonal of Kuu (default 1e-6, or 1e-7 where all rows are inducing"
            " inputs; in float32 1e-4)"
        ),
    )
    training.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="of the model (default float64)",
    )
    training.add_argument(
        "--seed",
        metavar="N",
        type=number(int, 0),
        default=0,
        help="of the split, inducing inputs, minibatches (default 0)",
    )


def _add_output(output):
    output.add_argument(
        "--out", metavar="DIR", help="folder for the results (default: the name of FILE with -fit)"
    )
    output.add_argument(
        "--resume",
        action="store_true",
        help="go on from the checkpoint that an interrupted run left in --out",
    )
    output.add_argument(
        "--quiet",
        action="store_true",
        help="no progress bar and no words on the terminal; only errors",
    )
    add_traceback(output)
