"""``fastsvgp demo``: a regression and a classification on data sets that scikit-learn contains.

Nothing is downloaded.
"""

import os
import time
from argparse import Namespace
from contextlib import suppress

import numpy as np

from ..runtime.extras import install_hint
from .arguments import parser
from .compiling import compiling
from .data.task import Task, interpret_target, split
from .errors import UsageError
from .fit import fit_task
from .model_search import search_of, search_task
from .mpi import refuse_copies
from .report.outputs import CHECKPOINT
from .settings.resolve import resolve

# the ten labels are classes, not numbers
DIGITS = [
    "--likelihood",
    "softmax",
    "--inducing",
    "100",
    "--steps",
    "200",
    "--learning-rate",
    "0.05",
]
# loader in scikit-learn, title, name of the target, arguments of `fastsvgp fit`
PROBLEMS: tuple[tuple[str, str, str, list[str]], ...] = (
    ("load_diabetes", "diabetes progression", "progression", ["--seconds", "10"]),
    ("load_digits", "handwritten digits", "digit", DIGITS),
)
# kernels that both compile with an empty cache, counted with Numba 0.68
KERNELS = 210


def run(args):
    """Fit each data set, write one sub-folder per data set, and print the table."""
    refuse_copies("start one, without the launcher")
    started = time.perf_counter()
    rows = []
    with compiling(KERNELS, args.quiet):
        for loader, title, target, options in PROBLEMS:
            name = loader.removeprefix("load_")
            folder = os.path.join(args.out, name)
            with suppress(FileNotFoundError):
                # of an interrupted demo, which takes half a minute only
                os.unlink(os.path.join(folder, CHECKPOINT))
            if args.steps:  # the steps of a method, not of a search
                options = [] if "--seconds" in options else options
                options = [*options, "--steps", str(args.steps)]
            given = [*options, "--out", folder] + ["--quiet"] * args.quiet
            fit = parser().parse_args(["fit", name, *given], Namespace(words=args.words))
            task = load(loader, target, fit.likelihood)
            search = search_of(fit, task)
            if search is None:
                code, results = fit_task(task, resolve(fit, task), folder, title)
            else:
                code, results = search_task(task, search, folder, title)
            print()
            rows.append((title, results))
            if code:
                return code
    print(summary(rows))
    print(
        f"\n{time.perf_counter() - started:.0f} s in all; models, metrics and plots are in"
        f" {args.out}{os.sep}"
    )
    print(
        "next: fastsvgp fit YOUR_DATA.csv   (the last column is the target; see fastsvgp fit"
        " --help)"
    )
    return 0


def load(loader, target, likelihood):
    """Load a data set of scikit-learn and split it into a task."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise UsageError(
            "the data of the demo come with scikit-learn, which is not installed;"
            f" {install_hint('cli')}"
        ) from error
    data = getattr(sklearn.datasets, loader)()
    y, likelihood, reason, classes = interpret_target(data.target, target, likelihood)
    names = [str(name) for name in data.feature_names]
    width = data.data.shape[1]
    columns = {"named": True, "width": width + 1, "inputs": list(range(width)), "target": width}
    return split(
        Task(
            np.asarray(data.data, np.float64),
            y,
            likelihood,
            reason,
            classes,
            names,
            target,
            columns,
        ),
        fraction=0.2,
    )


def summary(rows):
    """Format one line per metric: the model and the trivial predictor."""
    lines = [
        f"{'data set':<24}{'rows':>7}{'inputs':>8} "
        f" {'held-out metric':<20}{'model':>10}{'trivial':>10}"
    ]
    for title, results in rows:
        size = f"{title:<24}{results['rows']:>7}{len(results['inputs']):>8}  "
        test = results["test"]
        for metric, value in test["model"].items():
            label = {"rmse": "RMSE (standardised)", "nlpd": "NLPD", "accuracy": "accuracy"}[metric]
            lines.append(f"{size:<41}{label:<20}{value:>10.3f}{test['trivial'][metric]:>10.3f}")
            size = ""
    return "\n".join(lines)
