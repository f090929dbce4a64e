"""The arguments of every command, and nothing that needs an import beyond argparse: ``--help`` answers at once."""

import argparse
import math

from .errors import UsageError
from .settings.defaults import ALL, BASIS, COLLAPSED, FEATURES, FEW, LAYER, POINTS, SAMPLED, SOME
from .settings.names import COVARIANCES, LEVELS, LIKELIHOODS, METHODS, POLICIES

MOST = 10**15  # of steps or points: without end in practice, and still an int of C


class Parser(argparse.ArgumentParser):
    """Reports a bad argument as a ``UsageError``, so that it ends like every other bad input."""

    def error(self, message):
        raise UsageError(f"{message} (see {self.prog} --help)")


class _Lines(argparse.HelpFormatter):
    """Keeps the line breaks of a help text, which are those of its lists."""

    def _split_lines(self, text, width):
        return [
            line
            for part in text.splitlines()
            for line in super(_Lines, self)._split_lines(part, width)
        ]


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser, *_):
        from .info import version

        print(f"fastsvgp {version('fastsvgp')}")
        parser.exit()


def _number(kind, low, high=math.inf, *, open_low=False, closed_high=False):
    """A type for argparse: a number in [low, high), or in (low, high) with ``open_low``, or [low, high] with ``closed_high``."""
    name = {int: "a whole number", float: "a number"}[kind]
    bounds = f"{name} {'above' if open_low else 'from'} {low}"
    if high < math.inf:
        bounds += f" to {high}" if closed_high else f" and below {high}"

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = None
        above = value is not None and (value > low if open_low else value >= low)
        if not above or not (value <= high if closed_high else value < high):
            raise argparse.ArgumentTypeError(f"expected {bounds}, got {text!r}")
        return value

    return parse


_count = _number(int, 1, MOST, closed_high=True)
_positive = _number(float, 0, open_low=True)


def _shape(least, most):
    """A type for argparse: ``least`` to ``most`` whole numbers with x between them."""

    def parse(text):
        sizes = text.lower().split("x")
        if not least <= len(sizes) <= most or not all(
            size.isdecimal() and 0 < int(size) <= MOST for size in sizes
        ):
            example = "5x5" if most == 2 else "28x28 or 32x32x3"
            raise argparse.ArgumentTypeError(
                f"expected whole numbers above 0 and x between them, as in {example}, got {text!r}"
            )
        return tuple(map(int, sizes))

    return parse


def _columns(text):
    return [part.strip() for part in text.split(",") if part.strip()]


def _levels(text):
    level = _number(float, 0, 1, open_low=True)
    return [level(part) for part in _columns(text)]


def parser():
    """The parser of the ``fastsvgp`` command."""
    top = Parser(
        prog="fastsvgp",
        description="Sparse variational Gaussian processes: fit, predict, look.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    _add_fit(commands)
    _add_predict(commands)
    _add_demo(commands)
    info = commands.add_parser(
        "info", help="versions, BLAS, threads, CUDA (and why not)", allow_abbrev=False
    )
    info.add_argument(
        "--mpi",
        action="store_true",
        help="also ranks, hosts and a timed sum: mpiexec -n 4 fastsvgp info --mpi",
    )
    _add_completion(commands)
    return top


def _add_fit(commands):
    fit = commands.add_parser(
        "fit",
        help="fit a model to a table of data",
        description=(
            "Standardises and splits the data, fits a sparse Gaussian process, reports held-out"
            " metrics beside the trivial predictor's, and writes the model, metrics.json, plots,"
            " and report.html with all of it on one page."
        ),
        allow_abbrev=False,
        formatter_class=_Lines,
    )
    fit.add_argument(
        "file",
        metavar="FILE",
        help="csv, csv.gz (header detected), npz with X and y, or npy; - is standard input",
    )
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
        type=_columns,
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
        type=_number(float, 0, 1),
        default=0.1,
        help="share of rows held out at random (default 0.1; 0 holds out nothing)",
    )
    _add_text_layout(data)

    model = fit.add_argument_group("model")
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
        default="matern32",
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
        type=_count,
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
    model.add_argument(
        "--orthogonal",
        metavar="M2",
        type=_count,
        help=(
            "solvegp, odvgp: number of inducing inputs of the second set (default as many as of the"
            " first)"
        ),
    )
    model.add_argument(
        "--layers",
        metavar="L",
        type=_count,
        help=(
            "svgp, lsvgp, rsvgp, solvegp: layers of a deep Gaussian process, each on draws of the"
            " one below (default 1)"
        ),
    )
    model.add_argument(
        "--width",
        metavar="W",
        type=_count,
        help="outputs of each hidden layer (default as many as inputs, at most 30)",
    )
    model.add_argument(
        "--patch-shape",
        metavar="HxW",
        type=_shape(2, 2),
        help=(
            "rows are images: sum one function over their patches of H x W pixels; --covariance is"
            " then of patches, inducing inputs are patches, and all pixels share one mean and scale"
            " (not for sgpr, qsgp)"
        ),
    )
    model.add_argument(
        "--image-shape",
        metavar="HxW[xC]",
        type=_shape(2, 3),
        help=(
            "with --patch-shape: rows and columns of pixels, and channels (default: as X of an npz"
            " file, (N, H, W) or (N, H, W, C); else square, one channel); in a table pixels are row"
            " by row, channels last"
        ),
    )
    model.add_argument(
        "--stride",
        metavar="S",
        type=_count,
        help="with --patch-shape: pixels from one patch to the next (default 1)",
    )
    model.add_argument(
        "--features",
        metavar="M",
        type=_number(int, 2, MOST, closed_high=True),
        help=f"qsgp: number of random Fourier features, even (default {FEATURES})",
    )
    model.add_argument(
        "--dense-columns",
        metavar="K",
        type=_number(int, 0, MOST),
        help="qsgp: dense columns of the factor of the weights' covariance (default 0: mean field)",
    )

    training = fit.add_argument_group("training")
    training.add_argument(
        "--mpi",
        action="store_true",
        help="one training on all ranks: mpiexec -n 4 fastsvgp fit FILE --mpi",
    )
    fit.set_defaults(group=None, trained=False)
    length = training.add_mutually_exclusive_group()
    length.add_argument(
        "--steps",
        metavar="N",
        type=_count,
        help=(
            "training steps (default 2000; sgpr: at most 200 iterations, fewer where the bound no"
            " longer rises)"
        ),
    )
    length.add_argument(
        "--epochs",
        metavar="N",
        type=_positive,
        help="passes over the training data, instead of --steps",
    )
    training.add_argument(
        "--batch-size",
        metavar="B",
        type=_count,
        help="rows in a minibatch (default 512; not for sgpr)",
    )
    training.add_argument(
        "--learning-rate",
        metavar="R",
        type=_positive,
        help="step size of Adam (default 0.01; not for sgpr), for qsgp of AdaGrad (default 0.1)",
    )
    training.add_argument(
        "--natural-step",
        metavar="S",
        type=_number(float, 0, 1, closed_high=True),
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
            type=_count,
            help=f"svgp, tsvgp, solvegp, odvgp: {what}, in each step (default 1)",
        )
    training.add_argument(
        "--sampled",
        metavar="S",
        type=_count,
        help=(
            "odvgp: inducing inputs of the second set that a step samples for the size of the mean"
            f" (default {SAMPLED}, or all)"
        ),
    )
    training.add_argument(
        "--basis-batch",
        metavar="M",
        type=_count,
        help=f"qsgp: features that a step samples, twice (default {BASIS}, or all)",
    )
    training.add_argument(
        "--control-points",
        metavar="P",
        type=_number(int, 0, MOST),
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
    training.add_argument(
        "--jitter",
        metavar="J",
        type=_positive,
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
        type=_number(int, 0),
        default=0,
        help="of the split, inducing inputs, minibatches (default 0)",
    )

    output = fit.add_argument_group("output")
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
    _add_traceback(output)
    fit.set_defaults(parser=fit)


def _add_traceback(group):
    group.add_argument(
        "--traceback",
        action="store_true",
        help="above the message of an error, where in the program it arose",
    )


def _add_text_layout(group):
    group.add_argument(
        "--delimiter",
        metavar="C",
        default="auto",
        help="auto, comma, semicolon, tab, space, or one character",
    )
    group.add_argument(
        "--header",
        choices=("auto", "yes", "no"),
        default="auto",
        help="whether the first line names the columns",
    )


def _add_predict(commands):
    predict = commands.add_parser(
        "predict",
        help="predict with a fitted model",
        description=(
            "Writes one row per row of FILE, in the original scale: mean and sd, with quantiles of"
            " the likelihood's own law where that is not Gaussian; or the class and its"
            " probabilities."
        ),
        allow_abbrev=False,
    )
    predict.add_argument("model", metavar="MODEL", help="model.npz of fastsvgp fit, or its folder")
    predict.add_argument(
        "file",
        metavar="FILE",
        help=(
            "a table with the same input columns; the target may be there or not; - is standard"
            " input"
        ),
    )
    predict.add_argument("--out", metavar="FILE", help="csv to write (default: the terminal)")
    predict.add_argument(
        "--quantiles",
        metavar="Q,...",
        type=_levels,
        help=(
            "quantiles of the target to write, such as 0.05,0.5,0.95 (default: 0.025,0.975; none"
            " for a gaussian likelihood, whose mean and sd say all)"
        ),
    )
    _add_text_layout(predict)
    _add_traceback(predict)


def _add_demo(commands):
    demo = commands.add_parser(
        "demo",
        help="fit two real data sets that come with scikit-learn",
        description="One regression and one classification, under two minutes on two cores.",
        allow_abbrev=False,
    )
    demo.add_argument(
        "--out",
        metavar="DIR",
        default="fastsvgp-demo",
        help="folder for the results (default fastsvgp-demo)",
    )
    demo.add_argument("--steps", metavar="N", type=_count, help="training steps of each fit")
    demo.add_argument(
        "--quiet", action="store_true", help="no progress bar and no notes: the tables alone"
    )
    _add_traceback(demo)


def _add_completion(commands):
    completion = commands.add_parser(
        "completion",
        help="a script by which the shell completes commands and options",
        description=(
            'Prints a script for the shell. In bash, for this session: eval "$(fastsvgp completion'
            ' bash)"; for all: put that line into ~/.bashrc. In zsh: fastsvgp completion zsh >'
            " ~/.zfunc/_fastsvgp, in a folder of $fpath."
        ),
        allow_abbrev=False,
    )
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")
