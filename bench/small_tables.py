"""Averages over the parameters on few rows: NLPD, RMSE and coverage on held-out rows.

``python bench/small_tables.py FOLDER [SPLITS]`` reads NAME.data.csv.gz of a folder and prints a
table. Of each table N random rows train an exact process (Matern 5/2 ARD, Z = X) by L-BFGS-B, with
and without priors, and up to 500 others test it; ``fs.laplace`` averages over 16 draws around each
mode. Inputs and targets are standardised by the N rows. "lower in": splits in which the NLPD is
below that of the point estimate without priors. Seconds are those of one thread of the process.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

import numpy as np

import fastsvgp as fs

TABLES, SIZES = ("airfoil", "energy", "kin40k", "pol"), (50, 150, 300)
TESTED = 500


def read(folder, name, N, split):
    """Return X and y of N rows, and of others, in the standard units of the former."""
    data = np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")
    order = np.random.default_rng(100 + split).permutation(len(data))
    data = data[order[: N + TESTED]]
    varies = np.r_[data[:N, :-1].std(axis=0) > 0, True]
    data = (data[:, varies] - data[:N, varies].mean(axis=0)) / data[:N, varies].std(axis=0)
    return data[:N, :-1], data[:N, -1], data[N:, :-1], data[N:, -1]


def priors_of(D):
    return {
        "covariance.lengthscales": fs.priors.dimension_scaled(D),
        "noise_variance": fs.priors.LogNormal(-4.0, 1.0),
    }


def scores(model, X, y):
    """Return NLPD, RMSE, and the share of targets inside central intervals of 90 %."""
    mean, _ = fs.predict_y(model, X)
    inside = np.abs(fs.predict_cdf(model, X, y) - 0.5) < 0.45
    density = fs.predict_log_density(model, X, y)
    return -density.mean(), np.sqrt(np.mean((mean - y) ** 2)), inside.mean()


def measured(X, y, Xs, ys, priors, split):
    """Yield scores and seconds of the point estimate, and of the average around it."""
    D = X.shape[1]
    start = fs.SGPR(fs.Matern52(1.0, np.full(D, np.sqrt(D))), X, 0.1)
    began = time.process_time()
    model, info = fs.fit(start, X, y, fixed="inducing", priors=priors)
    seconds = time.process_time() - began
    yield *scores(info.svgp, Xs, ys), seconds
    began = time.process_time()
    average = averaged(model, info.svgp, X, y, priors, split)
    yield *scores(average, Xs, ys), seconds + time.process_time() - began


def averaged(model, svgp, X, y, priors, split):
    """Return the average around the mode, to which logarithms move a model that is far from it."""
    try:
        return fs.laplace(model, X, y, priors=priors, rng=split)
    except ValueError as error:
        print(f"split {split}: {error}", file=sys.stderr)
        names = {"noise_variance": "likelihood.variance"}
        priors = {names.get(path, path): prior for path, prior in priors.items()}
        svgp, _ = fs.fit(svgp, X, y, fixed="inducing", priors=priors, collapsed=True)
        return fs.laplace(svgp, X, y, priors=priors, rng=split)


def rows(folder, splits):
    labels = "point estimate", "average", "with priors", "average, with priors"
    for name in TABLES:
        for N in SIZES:
            found = []
            for split in range(splits):
                X, y, Xs, ys = read(folder, name, N, split)
                of_split = []
                for priors in ({}, priors_of(X.shape[1])):
                    of_split += measured(X, y, Xs, ys, priors, split)
                found.append(of_split)
            found = np.array(found)  # (splits, 4, 4)
            better = (found[:, :, 0] < found[:, :1, 0]).sum(axis=0)
            for label, one, wins in zip(labels, found.mean(axis=0), better, strict=True):
                nlpd, rmse, inside, seconds = one
                wins = "" if label == labels[0] else f"{wins}/{splits}"
                yield (
                    f"| {name} | {N} | {label} | {nlpd:.3f} | {wins} | {rmse:.3f} |"
                    f" {inside:.3f} | {seconds:.2f} |"
                )


if __name__ == "__main__":
    fs.set_num_threads(1)
    print("| table | N | parameters | NLPD | lower in | RMSE | inside 90 % | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in rows(Path(sys.argv[1]), *map(int, sys.argv[2:] or ["20"])):
        print(row, flush=True)
