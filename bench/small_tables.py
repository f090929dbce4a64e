"""Averages over the parameters on few rows: NLPD, RMSE and coverage on held-out rows.

``python bench/small_tables.py FOLDER SPLITS parameters [N ...]`` reads NAME.data.csv.gz of a folder
and prints a table. Of each table N random rows train an exact process (Matern 5/2 ARD, Z = X) by
L-BFGS-B, with and without priors, and up to 500 others test it; ``fs.laplace`` averages over 16
draws around each mode. Inputs and targets are standardised by the N rows. "lower in": splits in
which the NLPD is below that of the first line. Seconds are those of one thread of the process.

``python bench/small_tables.py FOLDER SPLITS estimators [N ...]`` compares estimators without
settings, on the same splits of two more tables, too: ``SVGPRegressor`` with and without its
average, scikit-learn's GPR (Matern 5/2 ARD and noise, by its own defaults), and LightGBM, whose
Gaussian density has the variance of residuals of five folds. Needs scikit-learn and LightGBM.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
import warnings
from pathlib import Path

import numpy as np

import fastsvgp as fs

TABLES, SIZES = ("airfoil", "energy", "kin40k", "pol"), (50, 150, 300)
TESTED = 500


def table(folder, name):
    """Return inputs and targets side by side."""
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return np.column_stack(load_diabetes(return_X_y=True))
    if name == "friedman":
        from sklearn.datasets import make_friedman1

        return np.column_stack(make_friedman1(1500, noise=1.0, random_state=7))
    return np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")


def read(folder, name, N, split):
    """Return X and y of N rows, and of others, in the standard units of the former."""
    data = table(folder, name)
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


def parameters(X, y, Xs, ys, split):
    """Yield scores and seconds of each line of a split."""
    for priors in ({}, priors_of(X.shape[1])):
        yield from measured(X, y, Xs, ys, priors, split)


def gaussian_scores(mean, sd, y):
    z = (y - mean) / sd
    nlpd = np.mean(0.5 * z**2 + np.log(sd) + 0.5 * np.log(2 * np.pi))
    return nlpd, np.sqrt(np.mean((y - mean) ** 2)), np.mean(np.abs(z) < 1.6448536)


def of_search(average):
    def made(X, y, Xs, ys):
        from fastsvgp.sklearn import SVGPRegressor

        found = SVGPRegressor(random_state=0, average=average).fit(X, y)
        nlpd, rmse, inside = scores(found.model_, found.scale_.X(Xs), found.scale_.y(ys))
        return nlpd + np.log(found.scale_.y_scale), rmse * found.scale_.y_scale, inside

    return made


def of_gpr(X, y, Xs, ys):
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import ConstantKernel, Matern, WhiteKernel

    kernel = ConstantKernel() * Matern(np.ones(X.shape[1]), nu=2.5) + WhiteKernel(0.1)
    found = GaussianProcessRegressor(kernel, normalize_y=True, random_state=0).fit(X, y)
    return gaussian_scores(*found.predict(Xs, return_std=True), ys)


def of_lightgbm(X, y, Xs, ys):
    from lightgbm import LGBMRegressor
    from sklearn.model_selection import cross_val_predict

    model = LGBMRegressor(n_jobs=1, verbose=-1, random_state=0)
    sd = np.std(y - cross_val_predict(model, X, y, cv=5))
    return gaussian_scores(model.fit(X, y).predict(Xs), sd, ys)


ESTIMATORS = {
    "SVGPRegressor(average=False)": of_search(False),
    "SVGPRegressor()": of_search(True),
    "scikit-learn GPR": of_gpr,
    "LightGBM": of_lightgbm,
}


def estimators(X, y, Xs, ys, split):
    """As ``parameters``."""
    for made in ESTIMATORS.values():
        began = time.process_time()
        found = made(X, y, Xs, ys)
        yield *found, time.process_time() - began


LINES = {
    "parameters": (
        parameters,
        ("point estimate", "average", "with priors", "average, with priors"),
        TABLES,
    ),
    "estimators": (estimators, tuple(ESTIMATORS), (*TABLES, "diabetes", "friedman")),
}


def rows(folder, splits, what, sizes):
    of_split, labels, tables = LINES[what]
    for name in tables:
        for N in sizes:
            found = np.array(
                [[*of_split(*read(folder, name, N, split), split)] for split in range(splits)]
            )  # (splits, lines, 4)
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
    warnings.simplefilter("ignore")  # of other packages, at the ends of their ranges
    folder, splits, what, *sizes = sys.argv[1:]
    print(f"| table | N | {what} | NLPD | lower in | RMSE | inside 90 % | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for row in rows(Path(folder), int(splits), what, [*map(int, sizes)] or SIZES):
        print(row, flush=True)
