"""The arguments of every command, and nothing that needs an import beyond argparse: ``--help`` answers at once."""

import argparse

from .argument_types import add_text_layout, add_traceback, count, levels
from .errors import UsageError
from .fit_arguments import add_fit


class Parser(argparse.ArgumentParser):
    """Reports a bad argument as a ``UsageError``, so that it ends like every other bad input."""

    def error(self, message):
        raise UsageError(f"{message} (see {self.prog} --help)")


class _Version(argparse.Action):
    """Looks the version up only when it is asked for."""

    def __call__(self, parser, *_):
        from .info import version

        print(f"fastsvgp {version('fastsvgp')}")
        parser.exit()


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
    add_fit(commands)
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
        type=levels,
        help=(
            "quantiles of the target to write, such as 0.05,0.5,0.95 (default: 0.025,0.975; none"
            " for a gaussian likelihood, whose mean and sd say all)"
        ),
    )
    add_text_layout(predict)
    add_traceback(predict)


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
    demo.add_argument("--steps", metavar="N", type=count, help="training steps of each fit")
    demo.add_argument(
        "--quiet", action="store_true", help="no progress bar and no notes: the tables alone"
    )
    add_traceback(demo)


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
