"""Make the table of docs/real_data.md: fit each data set by the command line, print a row each.

    python examples/real_data.py                        # all; about an hour on two cores
    python examples/real_data.py kin40k --split 3       # one data set, another test split
    python examples/real_data.py --steps 5              # a quick test that everything runs

Reads ../shared/data or the folder that FASTSVGP_DATA names; models, metrics and plots go to --out.
"""

import argparse
import json
import os
import pathlib
import sys

import mnist

from fastsvgp.cli import main as fastsvgp

DATA = mnist.FOLDER
SVGP = ["--inducing", "1024", "--batch-size", "1024", "--epochs", "100", "--covariance", "matern32"]
SGPR = ["--method", "sgpr", "--inducing", "1024", "--steps", "200", "--covariance", "matern32"]
PROBLEMS = {
    "airfoil": ["--method", "sgpr"],
    "energy": ["--method", "sgpr"],
    "kin40k": SVGP,
    "elevators": SVGP,
    "bike": SGPR,
    "banana": [
        "--target-file",
        "{data}/banana.y.csv",
        "--inducing",
        "64",
        "--test-fraction",
        "0.25",
    ],
}
MASKED = ("airfoil", "energy", "kin40k", "elevators", "bike")


def arguments(name, split, out):
    """Return the arguments of ``fastsvgp fit`` for one data set."""
    options = [option.format(data=DATA) for option in PROBLEMS[name]]
    if name in MASKED:
        options += ["--test-mask", f"{DATA}/{name}.test_mask.csv.gz:{split}"]
    return [
        "fit",
        f"{DATA}/{name}.{'data.csv.gz' if name in MASKED else 'X.csv'}",
        *options,
        "--out",
        os.path.join(out, name),
    ]


def fitted(name, split, steps, out, options=()):
    """Fit a data set by the command line, with further ``options``; return its metrics."""
    command = [*arguments(name, split, out), *options]
    if steps:
        at = command.index("--epochs") if "--epochs" in command else None
        command = command[:at] + command[at + 2 :] if at else command
        command += ["--steps", str(steps)]
    print("fastsvgp " + " ".join(command), flush=True)
    code = fastsvgp(command)
    if code:
        sys.exit(code)
    return json.loads(pathlib.Path(out, name, "metrics.json").read_text())


def row(name, model, trivial, seconds, steps, what):
    """Return a row of the table; ``model`` and ``trivial`` are (score, NLPD)."""
    cells = [
        name,
        what,
        *(f"{a:.4f}" for a in model),
        *(f"{a:.4f}" for a in trivial),
        str(steps),
        f"{seconds:.0f}",
    ]
    return "| " + " | ".join(cells) + " |"


def main(argv=None):
    """Fit, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"some of {', '.join(PROBLEMS)}, mnist (default: all)",
    )
    parser.add_argument("--split", type=int, default=0, help="column of the test masks, 0 to 9")
    parser.add_argument("--steps", type=int, help="few steps instead of a full training")
    parser.add_argument("--out", default="real-data")
    args = parser.parse_args(argv)
    unknown = set(args.names) - set(PROBLEMS) - {"mnist"}
    if unknown:
        parser.error(
            f"no data set {', '.join(sorted(unknown))}; there are {', '.join(PROBLEMS)}, mnist"
        )
    rows = []
    for name in args.names or [*PROBLEMS, "mnist"]:
        if name == "mnist":
            epochs = ["--epochs", str(args.steps / 32)] if args.steps else []
            scores = mnist.main(["--inducing", "500", *epochs])
            rows.append(
                row(
                    name,
                    scores["model"],
                    scores["trivial"],
                    scores["seconds"],
                    scores["steps"],
                    "accuracy, NLPD",
                )
            )
            continue
        results = fitted(name, args.split, args.steps, args.out)
        score = "accuracy" if results["classes"] else "rmse"
        pairs = [
            (results["test"][who][score], results["test"][who]["nlpd"])
            for who in ("model", "trivial")
        ]
        rows.append(
            row(
                name,
                *pairs,
                results["seconds"],
                results["steps"],
                {"rmse": "RMSE", "accuracy": "accuracy"}[score] + ", NLPD",
            )
        )
    print(
        "\n| data | scores | model | | trivial predictor | | steps | seconds"
        " |\n|---|---|---|---|---|---|---|---|"
    )
    print("\n".join(rows))


if __name__ == "__main__":
    main()
