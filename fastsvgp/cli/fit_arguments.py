"""The arguments of ``fastsvgp fit``. Imports nothing beyond argparse."""

import argparse

from ..runtime.thresholds import (
    COLUMNS,
    EXACT_ROWS,
    FEW_ROWS,
    INDUCING,
    MANY,
    MOST_LATENTS,
    MOST_ROWS,
)
from .argument_types import (
    MOST,
    LineBreaks,
    add_fit_help,
    add_held_out,
    add_output,
    add_text_layout,
    columns,
    count,
    count_or,
    number,
    periods,
    positive,
    shape,
)  # fmt: skip
from .settings.defaults import BASIS, FEATURES, LAYER, POINTS, SECONDS
from .settings.names import COVARIANCES, LEVELS, LIKELIHOODS, METHODS, POLICIES


def add_fit(commands):
    """Add ``fastsvgp fit`` and its groups of arguments."""
    fit = commands.add_parser(
        "fit",
        help="fit a model to a table of data",
        description=(
            "Standardise and split the data, fit a sparse Gaussian process, and compare its"
            " held-out metrics with those of a trivial predictor. Write the model, metrics.json,"
            " plots, and report.html, which shows all results on one page."
        ),
        allow_abbrev=False,
        formatter_class=LineBreaks,
        add_help=False,
    )
    add_fit_help(fit)
    fit.add_argument(
        "file",
        metavar="FILE",
        help="csv or csv.gz (header detected), npz with X and y, or npy; - reads standard input",
    )
    _add_data(fit)
    _add_columns(fit.add_argument_group("second column of the target (no input)"))
    model = fit.add_argument_group("model")
    _add_model(model)
    _add_structure(model)
    _add_features(model)
    training = fit.add_argument_group("training")
    _add_steps(training)
    _add_sampling(training)
    _add_numbers(training)
    add_output(fit.add_argument_group("output"))


def _add_data(fit):
    data = fit.add_argument_group(
        "data",
        f"A text column becomes one input per level, for the {LEVELS} most frequent levels in the"
        " training rows, and one input for all other text. Dates become a day number and their"
        " place in the year, the week and the day. Numbers can have units.",
    )
    data.add_argument(
        "--target",
        metavar="COLUMN,...",
        help=(
            "name of the target column, or its index from 0 (default: the last column; for an npz"
            " file y, or the last column of X if there is no y); several with commas between:"
            " numbers, of which some can be missing"
        ),
    )
    data.add_argument(
        "--target-file",
        metavar="FILE",
        help="read the target from this file; all columns of FILE are then inputs",
    )
    data.add_argument(
        "--ignore",
        metavar="COLUMN,...",
        type=columns,
        default=[],
        help="columns to leave out, by name or index",
    )
    data.add_argument(
        "--missing",
        choices=POLICIES,
        default=POLICIES[0],
        metavar="POLICY",
        help=(
            "how to treat missing inputs (rows without a target are left out of training, and"
            " predicted)\nerror: stop with"
            " a message that names the first one (default)\nmedian: fill in the median of the"
            " training rows, and add an input that is 1 where a value was missing; missing text"
            " is a level"
        ),
    )
    data.add_argument(
        "--na",
        metavar="CODE,...",
        type=columns,
        default=[],
        help="further codes that mark missing values, in all columns, for example -99.99,***",
    )
    add_held_out(data)
    add_text_layout(data)


def _add_columns(group):
    """Add the options that name the second column of a target."""
    for option, what in (
        ("trials", "trials of each row, of which the target counts the successes: binomial"),
        (
            "exposure",
            "exposure of each row, the factor on the mean of its count: poisson (default) or"
            " negative-binomial",
        ),
        ("noise", "known variance of the noise of each row: known-noise"),
        ("side", "0 where the target was seen, 1 if it is at least that, -1 at most: censored"),
    ):
        group.add_argument(f"--{option}", metavar="COLUMN", help=f"{what}; by name or index")
    group.add_argument(
        "--no-extra-noise",
        action="store_true",
        help="with --noise: the known variance is all noise, and no more is learnt",
    )


def _add_model(model):
    """Add the arguments that apply to every model."""
    model.add_argument(
        "--likelihood",
        choices=LIKELIHOODS,
        metavar="NAME",
        help=(
            f"{', '.join(LIKELIHOODS)}\nby default chosen from the target: bernoulli-probit for"
            " two classes; softmax for more classes (text, or at most five different whole"
            " numbers); poisson for whole numbers that look like counts; otherwise gaussian, and"
            " for several targets\nheteroskedastic: gaussian noise whose variance is a function of"
            " the inputs\nnegative-binomial, zero-inflated-poisson: counts that vary more, or have"
            " more zeros\ngamma, exponential: positive numbers; beta: numbers between 0 and 1\n"
            "ordinal: grades, numbered in their order\nbinomial, known-noise, censored: with"
            " --trials, --noise, --side"
        ),
    )
    model.add_argument(
        "--covariance",
        choices=COVARIANCES,
        metavar="NAME",
        help=f"{', '.join(COVARIANCES)} (default matern32)",
    )
    model.add_argument(
        "--periodic",
        metavar="COLUMN=PERIOD,...",
        type=periods,
        help=(
            "add a part that repeats after PERIOD in this input, and depends on the others by"
            " --covariance; the period stays as given (not for qsgp, --layers, --patch-shape)"
        ),
    )
    model.add_argument(
        "--ard",
        action=argparse.BooleanOptionalAction,
        help=(
            "one lengthscale per input (default), or one for all inputs (default with"
            " --patch-shape)"
        ),
    )
    model.add_argument(
        "--inducing",
        metavar="M",
        type=count,
        help=(
            f"number of inducing inputs (default {INDUCING}, or {LAYER} per layer with several"
            f" --layers)\nsgpr: by default every distinct training row, held fixed, if there are"
            f" at most {EXACT_ROWS}; else {MANY} up to {MOST_ROWS} rows"
        ),
    )
    model.add_argument(
        "--method",
        choices=METHODS,
        metavar="NAME",
        help=(
            f"by default chosen from the data: sgpr for gaussian noise and up to {MOST_ROWS}"
            f" training rows, unless --inducing is below {MANY} with more than {FEW_ROWS} rows, or"
            " --batch-size, --learning-rate or another minibatch option is given; otherwise"
            " svgp, on all rows by L-BFGS if they fit into one batch\nsvgp: minibatches, any"
            " likelihood\ntsvgp: as svgp, with the"
            " posterior stored as sites, which are independent of the prior\nlsvgp: as svgp, with"
            " fewer parameters and the fewest operations per step\nrsvgp: as lsvgp, with matrix"
            " products only; the inducing inputs are trained later, at a smaller step size\n"
            "solvegp: as svgp, with a second set of inducing inputs for the residual of the first\n"
            "odvgp: as"
            " solvegp, but the second set serves the mean only and can be large at little cost\n"
            "sgpr: the collapsed bound on all data at once, by L-BFGS; gaussian only\nqsgp: very"
            " many random Fourier features, sampled in each step; hyperparameters come from an"
            " exact Gaussian process on a subset of the rows"
        ),
    )


def _add_structure(model):
    """Add the arguments for a second set of inducing inputs, layers and patches."""
    model.add_argument(
        "--orthogonal",
        metavar="M2",
        type=count,
        help=(
            "solvegp, odvgp: number of inducing inputs in the second set (default: as in the first)"
        ),
    )
    model.add_argument(
        "--latents",
        metavar="L",
        type=count_or("separate", MOST_LATENTS),
        help=(
            "svgp, tsvgp, lsvgp, rsvgp, solvegp: number of latent functions, each with a covariance"
            " of its own, that are mixed linearly into the targets; separate: one for each target"
            " (default: all targets share one covariance)"
        ),
    )
    model.add_argument(
        "--neighbours", metavar="K", type=count,
        help="svgp, tsvgp, sgpr: then train on with the K nearest rows of each row (20, say)",
    )  # fmt: skip
    model.add_argument(
        "--layers",
        metavar="L",
        type=count,
        help=(
            "svgp, lsvgp, rsvgp, solvegp: number of layers of a deep Gaussian process; each layer"
            " takes samples of the one below (default 1)"
        ),
    )
    model.add_argument(
        "--width", metavar="W", type=count,
        help="number of outputs of each hidden layer (default: the number of inputs, at most 30)",
    )  # fmt: skip
    model.add_argument(
        "--patch-shape",
        metavar="HxW",
        type=shape(2, 2),
        help=(
            "treat rows as images, and sum one function over their patches of H x W pixels;"
            " --covariance then applies to patches, inducing inputs are patches, and all pixels"
            " share one mean and scale (not for sgpr, qsgp)"
        ),
    )
    model.add_argument(
        "--image-shape",
        metavar="HxW[xC]",
        type=shape(2, 3),
        help=(
            "with --patch-shape: image height, width and channels (default: the shape of X in an"
            " npz file, (N, H, W) or (N, H, W, C); else square with one channel); a table holds"
            " pixels row by row, channels last"
        ),
    )
    model.add_argument(
        "--stride", metavar="S", type=count,
        help="with --patch-shape: step in pixels from one patch to the next (default 1)",
    )  # fmt: skip


def _add_features(model):
    """Add the arguments for the basis of qsgp."""
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
        help=(
            "qsgp: number of dense columns in the factor of the weights' covariance (default 0:"
            " mean field)"
        ),
    )


def _add_steps(training):
    """Add the arguments for the length of training and the step sizes."""
    training.add_argument(
        "--seconds",
        metavar="S",
        type=positive,
        help=(
            "search for the best model for S seconds, scored on held-out rows"
            f" of the training part (default {SECONDS:g}; no search if a method or an option of a"
            " method is given)"
        ),
    )
    training.add_argument(
        "--extrapolate",
        action="store_true",
        help=(
            "search without ranks and networks, for a model that goes on outside the training range"
            " (by default it is unsure there)"
        ),
    )
    training.add_argument(
        "--no-average", dest="average", action="store_false",
        help="search without an average over parameters, which is the model of at most 300 rows",
    )  # fmt: skip
    training.add_argument(
        "--mpi",
        action="store_true",
        help="train one model on all ranks: mpiexec -n 4 fastsvgp fit FILE --mpi",
    )
    training.add_argument(
        "--within",
        metavar="W",
        type=positive,
        help=(
            "sgpr: double the inducing inputs, rows held fixed, until the evidence is within W nats"
            f" a row of the exact process's, 0.01 for example (from --inducing, default {INDUCING})"
        ),
    )
    length = training.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        metavar="N",
        type=count,
        help=(
            "number of training steps (default 2000; L-BFGS, of sgpr and on few rows: at most 200"
            " iterations, fewer if the bound stops rising)"
        ),
    )
    length.add_argument(
        "--epochs",
        metavar="N",
        type=positive,
        help="number of passes over the training data, instead of --steps",
    )
    training.add_argument(
        "--batch-size",
        metavar="B",
        type=count,
        help="rows per minibatch (default 512; not for sgpr)",
    )
    training.add_argument(
        "--learning-rate",
        metavar="R",
        type=positive,
        help=(
            "step size of Adam (default 0.01; not for sgpr); odvgp: the weights of its mean start"
            " at 30 times this, and end at 3 times; qsgp: of AdaGrad (default 0.1)"
        ),
    )
    training.add_argument(
        "--natural-step",
        metavar="S",
        type=number(float, 0, 1, closed_high=True),
        help=(
            "svgp, tsvgp, solvegp, odvgp: step size of natural-gradient steps for the posterior,"
            " at most 1 (default 0.1); with 0, Adam trains the posterior as well (not for tsvgp)"
        ),
    )
    natural = "natural-gradient steps of the posterior per step, each on its own minibatch"
    for letter, what in (("e", natural), ("m", "steps of Adam per step")):
        training.add_argument(
            f"--{letter}-steps",
            metavar="K",
            type=count,
            help=f"svgp, tsvgp, solvegp, odvgp: {what} (default 1)",
        )


def _add_sampling(training):
    """Add the arguments for the samples that a step of odvgp or qsgp takes."""
    training.add_argument(
        "--sampled",
        metavar="S",
        type=count,
        help=(
            "odvgp: inducing inputs of the second set sampled per step to estimate the KL term of"
            f" the mean (default: all, or {COLUMNS} if all would take most of the step)"
        ),
    )
    training.add_argument(
        "--basis-batch",
        metavar="M",
        type=count,
        help=f"qsgp: features per sample, two samples per step (default {BASIS}, or all if fewer)",
    )
    training.add_argument(
        "--control-points",
        metavar="P",
        type=number(int, 0, MOST),
        help=(
            "qsgp: training rows at which the exact mean is stored as a control variate, which"
            f" reduces the noise of the steps (default {POINTS} for gaussian, else 0: none)"
        ),
    )
    training.add_argument(
        "--learn-hyperparameters",
        action="store_true",
        help=(
            "qsgp: train the hyperparameters too, after the first fifth of the steps; the bound is"
            " a poor guide to them unless features are few"
        ),
    )


def _add_numbers(training):
    """Add jitter, dtype and seed."""
    training.add_argument(
        "--jitter",
        metavar="J",
        type=positive,
        help=(
            "number added to the diagonal of Kuu (default 1e-6; 1e-7 if all rows are inducing"
            " inputs; 1e-4 in float32)"
        ),
    )
    training.add_argument(
        "--dtype",
        choices=("float64", "float32"),
        default="float64",
        help="floating-point type of the model (default float64)",
    )
    training.add_argument(
        "--seed",
        metavar="N",
        type=number(int, 0),
        default=0,
        help="seed of the split, the inducing inputs and the minibatches (default 0)",
    )
