"""Near rows on real data: RMSE, NLPD and coverage on held-out rows, against the SVGP below.

``python bench/near_rows.py FOLDER [SPLIT ...]`` reads NAME.data.csv.gz and NAME.test_mask.csv.gz of
a folder, and prints a table. GPBoost's Vecchia approximation is a row where it is installed.
Seconds are those of one thread of the process.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

import numpy as np

import fastsvgp as fs

TABLES = "kin40k", "airfoil", "elevators", "bike", "pol", "energy"
INDUCING, FIRST_STEPS = 256, 300


def read(folder, name, split):
    data = np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")
    mask = np.loadtxt(folder / f"{name}.test_mask.csv.gz", delimiter=",").astype(bool)
    test = mask if mask.ndim == 1 else mask[:, split]
    X, y = data[:, :-1], data[:, -1]
    varies = X[~test].std(axis=0) > 0
    X = (X[:, varies] - X[~test][:, varies].mean(axis=0)) / X[~test][:, varies].std(axis=0)
    y = (y - y[~test].mean()) / y[~test].std()
    return X[~test], y[~test], X[test], y[test]


def scores(mean, var, y):
    error = y - mean
    nlpd = np.mean(0.5 * np.log(2 * np.pi * var) + 0.5 * error**2 / var)
    inside = np.mean(np.abs(error) < 1.645 * np.sqrt(var))
    return f"{np.sqrt(np.mean(error**2)):.4f} | {nlpd:.3f} | {inside:.3f}"


def plain(X, y):
    Z = fs.inducing.kmeans(X, min(INDUCING, len(X)), rng=0)
    covariance = fs.Matern32(1.0, np.full(X.shape[1], 2.0))
    start = fs.SVGP(
        covariance, Z, fs.posteriors.at_prior(fs.Whitened, covariance, Z), fs.Gaussian(0.1)
    )
    return fs.fit(start, X, y, steps=FIRST_STEPS, natural_step_size=0.1, rng=0,
                  optimiser=fs.adam(0.03))[0]  # fmt: skip


def boosted(X, y, Xs):
    import gpboost

    model = gpboost.GPModel(
        gp_coords=X, cov_function="matern_ard", cov_fct_shape=1.5, gp_approx="vecchia",
        num_neighbors=20,
    )  # fmt: skip
    model.fit(y=y)
    found = model.predict(gp_coords_pred=Xs, predict_var=True, predict_response=True)
    return found["mu"], found["var"]


def rows(folder, split):
    for name in TABLES:
        X, y, Xs, ys = read(folder, name, split)
        began = time.process_time()
        model = plain(X, y)
        seconds = time.process_time() - began
        found = scores(*fs.predict_y(model, Xs), ys)
        yield f"| {name} | {split} | SVGP | {found} | {seconds:.0f} |"
        detailed, _ = fs.recipes.near_rows(model, X, y)
        seconds = time.process_time() - began
        found = scores(*fs.predict_y(detailed, Xs), ys)
        yield f"| {name} | {split} | near rows | {found} | {seconds:.0f} |"
        try:
            began = time.process_time()
            found = scores(*boosted(X, y, Xs), ys)
            seconds = time.process_time() - began
            yield f"| {name} | {split} | GPBoost | {found} | {seconds:.0f} |"
        except ImportError:
            pass


if __name__ == "__main__":
    fs.set_num_threads(1)
    print("| table | split | model | RMSE | NLPD | inside 90 % | CPU s |", flush=True)
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for number in map(int, sys.argv[2:] or "0"):
        for row in rows(Path(sys.argv[1]), number):
            print(row, flush=True)
