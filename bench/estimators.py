"""Score the estimators against scikit-learn's exact GP, and their solvers on several data sizes.

    FASTSVGP_DATA=... python bench/estimators.py solvers      # the basis of "auto"
    FASTSVGP_DATA=... python bench/estimators.py defaults     # RMSE, NLPD and seconds

Each prints a Markdown table: held-out rows of split 0, standardised by the training rows
(docs/real_data.md says where the data come from). The time is CPU time of the process, over all
threads; OPENBLAS_NUM_THREADS=1 and OMP_NUM_THREADS=1 restrict it to one thread.
"""

import argparse
import gzip
import os
import pathlib
import shlex
import sys
import time

import numpy as np
import report
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

from fastsvgp.sklearn import SVGPRegressor

DATA = pathlib.Path(os.environ.get("FASTSVGP_DATA", "."))
SOLVERS = ("lbfgs", "natural", "adam")
SIZES = 500, 1000, 2000, 5000, 14_000
EXACT = 1000  # rows for the exact GP
NAMES = "kin40k", "elevators", "bike"


def data(name):
    """Return standardised ``X, y, X_test, y_test`` of split 0."""
    table, mask = (
        np.loadtxt(gzip.open(DATA / f"{name}.{part}.csv.gz"), delimiter=",")
        for part in ("data", "test_mask")
    )
    test = mask[:, 0] == 1
    scale = table[~test].std(axis=0)
    table = (table - table[~test].mean(axis=0)) / np.where(scale > 0, scale, 1)
    return table[~test, :-1], table[~test, -1], table[test, :-1], table[test, -1]


def measured(estimator, X, y, X_test, y_test):
    """Return RMSE, NLPD, and seconds of the process."""
    started = time.process_time()
    estimator.fit(X, y)
    seconds = time.process_time() - started
    mean, std = estimator.predict(X_test, return_std=True)
    nlpd = np.mean(0.5 * np.log(2 * np.pi * std**2) + 0.5 * ((y_test - mean) / std) ** 2)
    return float(np.sqrt(np.mean((mean - y_test) ** 2))), float(nlpd), seconds


def row(*cells):
    print("| " + " | ".join(str(cell) for cell in cells) + " |", flush=True)


def solvers(names, sizes):
    row("data", "rows", *(f"{solver}: RMSE, NLPD, s" for solver in SOLVERS))
    row(*["---"] * (2 + len(SOLVERS)))
    for name in names:
        X, y, *test = data(name)
        order = np.random.default_rng(0).permutation(len(X))
        for size in sizes:
            some = order[:size]
            if size > len(X):
                continue
            cells = [
                measured(SVGPRegressor(solver=solver, random_state=0), X[some], y[some], *test)
                for solver in SOLVERS
            ]
            row(
                name,
                size,
                *(f"{rmse:.3f}, {nlpd:.3f}, {seconds:.0f}" for rmse, nlpd, seconds in cells),
            )


def defaults(names):
    row(
        "data",
        "rows",
        "SVGPRegressor(): RMSE, NLPD, s",
        f"GaussianProcessRegressor on {EXACT} rows: RMSE, NLPD, s",
    )
    row(*["---"] * 4)
    for name in names:
        X, y, *test = data(name)
        some = np.random.default_rng(0).permutation(len(X))[:EXACT]
        kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=1.5) + WhiteKernel(0.1)
        ours = measured(SVGPRegressor(random_state=0), X, y, *test)
        exact = measured(GaussianProcessRegressor(kernel), X[some], y[some], *test)
        row(
            name,
            len(X),
            *(f"{rmse:.3f}, {nlpd:.3f}, {seconds:.0f}" for rmse, nlpd, seconds in (ours, exact)),
        )


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    arguments.add_argument("table", choices=("solvers", "defaults"))
    arguments.add_argument("--data", nargs="+", default=NAMES)
    arguments.add_argument("--sizes", nargs="+", type=int, default=SIZES)
    given = arguments.parse_args()
    print(
        report.header(
            shlex.join(["python", "bench/estimators.py", *sys.argv[1:]]),
            (*report.PACKAGES, "scikit-learn"),
        )
        + "\n"
    )
    solvers(given.data, given.sizes) if given.table == "solvers" else defaults(given.data)
