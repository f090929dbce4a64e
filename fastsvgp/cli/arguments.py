"""The arguments of every command.

Imports nothing beyond the standard library, so that ``--help`` answers at once.
"""

import argparse
import sys

from ..names import ELSEWHERE, did_you_mean
from .argument_types import add_text_layout, add_traceback, count, levels
from .errors import UsageError
from .fit_arguments import add_fit

FEW = 8  # choices that a message lists


class Parser(argparse.ArgumentParser):
    """Raise ``UsageError`` for a bad argument, so that it is reported like all other bad input."""

    def parse_known_args(self, args=None, namespace=None):
        """Read the word after --na as its codes even if it begins with a minus."""
        words, rest = [], iter(sys.argv[1:] if args is None else args)
        for word in rest:
            code = next(rest, None) if word == "--na" else None
            # argparse drops a word that is --, but not one with a comma
            words.append(word if code is None else f"{word}={code},")
        return super().parse_known_args(words, namespace)

    def error(self, message):
        raise UsageError(f"{message} (see {self.prog} --help)")

    def _check_value(self, action, value):
        """Refuse what is none of many choices with the nearest ones, in place of all."""
        try:
            super()._check_value(action, value)
        except argparse.ArgumentError:
            choices = [str(one) for one in action.choices]
            meant = did_you_mean(str(value).lower(), choices, "'", ELSEWHERE)
            if not meant or len(action.choices) <= FEW:
                raise
            raise argparse.ArgumentError(action, f"invalid choice: {value!r:.80}{meant}") from None


class _Version(argparse.Action):
    """Look the version up only if it is requested."""

    def __call__(self, parser, *_):
        from .info import version

        print(f"fastsvgp {version('fastsvgp')}")
        parser.exit()


def parser():
    """Return the parser of the ``fastsvgp`` command."""
    top = Parser(
        prog="fastsvgp",
        description="Fit sparse variational Gaussian processes to tables, and predict with them.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    commands = top.add_subparsers(
        dest="command", metavar="COMMAND", required=True, parser_class=Parser
    )
    add_fit(commands)
    _add_predict(commands)
    _add_update(commands)
    _add_export(commands)
    _add_demo(commands)
    info = commands.add_parser(
        "info",
        help="show versions, BLAS, threads, and whether CUDA works and if not why",
        allow_abbrev=False,
    )
    info.add_argument(
        "--mpi",
        action="store_true",
        help="also show ranks, hosts and a timed all-reduce: mpiexec -n 4 fastsvgp info --mpi",
    )
    _add_completion(commands)
    return top


def _add_predict(commands):
    predict = commands.add_parser(
        "predict",
        help="predict with a fitted model",
        description=(
            "Write one row per row of FILE, in the original scale: mean and sd, with quantiles of"
            " the predictive distribution if the likelihood is not Gaussian; or the class and all"
            " class probabilities."
        ),
        allow_abbrev=False,
    )
    predict.add_argument(
        "model", metavar="MODEL", help="model.npz written by fastsvgp fit, or its folder"
    )
    predict.add_argument(
        "file",
        metavar="FILE",
        help=(
            "table with the same input columns, with or without the target; - reads standard input"
        ),
    )
    predict.add_argument("--out", metavar="FILE", help="csv to write (default: standard output)")
    predict.add_argument(
        "--quantiles",
        metavar="Q,...",
        type=levels,
        help=(
            "quantiles of the target to write, for example 0.05,0.5,0.95 (default 0.025,0.975;"
            " none for a gaussian likelihood, which mean and sd describe fully)"
        ),
    )
    add_text_layout(predict)
    add_traceback(predict)


def _add_update(commands):
    update = commands.add_parser(
        "update",
        help="take new rows into a fitted model, without the old ones",
        description=(
            "Add the rows of FILE to what a fitted model knows, in its scaling and with its"
            " parameters. Give each row once: a row given twice counts twice."
        ),
        allow_abbrev=False,
    )
    update.add_argument(
        "model", metavar="MODEL", help="model.npz written by fastsvgp fit, or its folder"
    )
    update.add_argument(
        "file",
        metavar="FILE",
        help="table with the same columns and the target; - reads standard input",
    )
    update.add_argument(
        "--out", metavar="FILE", help="model to write (default: MODEL, in place of the old one)"
    )
    add_text_layout(update)
    add_traceback(update)


def _add_export(commands):
    export = commands.add_parser(
        "export",
        help="write a fitted model as C or Python that needs no fastsvgp",
        description=(
            "Write predictions of new targets, in the original scale, as source: one C99 file, or"
            " Python that needs NumPy alone, with its arrays beside it as .npz."
        ),
        allow_abbrev=False,
    )
    export.add_argument(
        "model", metavar="MODEL", help="model.npz written by fastsvgp fit, or its folder"
    )
    export.add_argument(
        "out", metavar="FILE", help="gp.c or gp.py; its name begins the names of the C functions"
    )
    add_traceback(export)


def _add_demo(commands):
    demo = commands.add_parser(
        "demo",
        help="fit two real data sets that come with scikit-learn",
        description="Fit one regression and one classification in under two minutes on two cores.",
        allow_abbrev=False,
    )
    demo.add_argument(
        "--out",
        metavar="DIR",
        default="fastsvgp-demo",
        help="folder for the results (default fastsvgp-demo)",
    )
    demo.add_argument("--steps", metavar="N", type=count, help="training steps per fit")
    demo.add_argument(
        "--quiet", action="store_true", help="print the tables only: no progress bar, no notes"
    )
    add_traceback(demo)


def _add_completion(commands):
    completion = commands.add_parser(
        "completion",
        help="print a script that lets the shell complete commands and options",
        description=(
            "Print a completion script for the shell. bash, this session only: eval"
            ' "$(fastsvgp completion bash)"; every session: add that line to ~/.bashrc. zsh:'
            " fastsvgp completion zsh > ~/.zfunc/_fastsvgp, in a folder of $fpath."
        ),
        allow_abbrev=False,
    )
    completion.add_argument("shell", metavar="SHELL", choices=("bash", "zsh"), help="bash or zsh")
