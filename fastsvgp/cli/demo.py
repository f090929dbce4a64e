"""``fastsvgp demo``: a regression and a classification on data sets that scikit-learn contains.

Nothing is downloaded.
"""

import io
import json
import os
import time
from argparse import Namespace
from contextlib import suppress

import numpy as np

from ..runtime.extras import install_hint
from . import fit
from .arguments import parser
from .errors import UsageError
from .mpi import refuse_copies
from .progress import compiling
from .report.outputs import CHECKPOINT, METRICS, write_file, writing

# the ten labels are classes, not numbers
DIGITS = "--likelihood softmax --inducing 100 --steps 200 --learning-rate 0.05".split()
# data set of scikit-learn, name of the target, arguments of `fastsvgp fit`
PROBLEMS = (("diabetes", "progression", ["--seconds", "10"]), ("digits", "digit", DIGITS))
# kernels that both compile with an empty cache, counted with Numba 0.68
KERNELS = 210


def run(args):
    """Fit each data set, write one sub-folder per data set, and print the table."""
    refuse_copies("start one, without the launcher")
    started = time.perf_counter()
    rows = []
    with compiling(KERNELS, args.quiet):
        for name, target, options in PROBLEMS:
            folder, table = (os.path.join(args.out, one) for one in (name, f"{name}.csv"))
            content = _as_csv(name, target)
            with writing(args.out):
                os.makedirs(args.out, exist_ok=True)
            write_file(table, content)
            with suppress(FileNotFoundError):
                # of an interrupted demo, which takes half a minute only
                os.unlink(os.path.join(folder, CHECKPOINT))
            if args.steps:  # the steps of a method, not of a search
                options = [] if "--seconds" in options else options
                options = [*options, "--steps", str(args.steps)]
            given = [table, "--test-fraction", "0.2", *options, "--out", folder]
            given += ["--quiet"] * args.quiet
            if code := fit.run(parser().parse_args(["fit", *given], Namespace(words=args.words))):
                return code
            print()
            with open(os.path.join(folder, METRICS), encoding="utf-8") as file:
                rows.append((name, json.load(file)))
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


def _as_csv(name, target):
    """Return a data set of scikit-learn as csv; the last column is the target."""
    try:
        import sklearn.datasets
    except ImportError as error:
        raise UsageError(
            "the data of the demo come with scikit-learn, which is not installed;"
            f" {install_hint('cli')}"
        ) from error
    data, text = getattr(sklearn.datasets, f"load_{name}")(), io.StringIO()
    rows, header = np.column_stack([data.data, data.target]), [*data.feature_names, target]
    np.savetxt(text, rows, "%.17g", ",", header=",".join(header), comments="")
    return text.getvalue().encode()


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
