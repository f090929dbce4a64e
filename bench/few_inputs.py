"""Score starts by relevance and from equal lengthscales, on data with few relevant inputs.

    python bench/few_inputs.py    # a Markdown table: RMSE, NLPD, seconds of the process

The estimator and the command line train on 7,400 rows of 32 inputs, with 800 rows held out. The
targets depend on 6 or on 4 of the inputs, with noise of standard deviation 0.2, and are
standardised. Every model is an SVGP, Matérn 3/2 ARD, M = 256, trained for 60 epochs with seed 0.
"""

import json
import os
import tempfile
import time

import numpy as np

import fastsvgp as fs
from fastsvgp.cli import main
from fastsvgp.sklearn import SVGPRegressor

TRAIN, HELD, INPUTS, EPOCHS = 7400, 800, 32, 60


def arm(x):
    """Return the acceleration of a link: torque less gravity and friction, over inertia.

    An interaction is added.
    """
    force = x[3] - 1.5 * np.sin(0.9 * (x[0] + x[1])) - 0.4 * x[2] * np.abs(x[2])
    return force / (1.3 + np.cos(0.9 * x[1])) + 0.3 * x[4] * np.cos(1.5 * x[5])


def interactions(x):
    return np.sin(2 * x[0]) * x[1] + np.cos(2 * x[2]) * x[3]


def problem(function):
    rng = np.random.default_rng(0)
    X = np.sqrt(3) * rng.uniform(-1, 1, (TRAIN + HELD, INPUTS))
    f = function(X.T)
    y = (f - f.mean()) / f.std() + 0.2 * rng.standard_normal(len(X))
    return X, (y - y.mean()) / y.std()


def estimator(X, y, equal):
    """Return RMSE and NLPD of the estimator; ``equal`` skips the start by relevance."""
    covariance = "matern32"
    if equal:
        scaled = (X[:TRAIN] - X[:TRAIN].mean(axis=0)) / X[:TRAIN].std(axis=0)
        covariance = fs.Matern32(1.0, fs.inducing.median_lengthscales(scaled, rng=0))
    model = SVGPRegressor(covariance, max_iter=EPOCHS, random_state=0).fit(X[:TRAIN], y[:TRAIN])
    scale, density = model.scale_.y_scale, model.log_predictive_density(X[TRAIN:], y[TRAIN:])
    return np.sqrt(np.mean((model.predict(X[TRAIN:]) - y[TRAIN:]) ** 2)) / scale, -np.mean(
        density
    ) - np.log(scale)


def command(X, y):
    with tempfile.TemporaryDirectory() as folder:
        data, mask, out = (os.path.join(folder, name) for name in ("data.npz", "mask.csv", "out"))
        np.savez(data, X=X, y=y)
        np.savetxt(mask, np.arange(len(X)) >= TRAIN, fmt="%d")
        main(
            [
                "fit",
                data,
                "--out",
                out,
                "--test-mask",
                f"{mask}:0",
                "--epochs",
                str(EPOCHS),
                "--quiet",
            ]
        )
        with open(os.path.join(out, "metrics.json")) as file:
            found = json.load(file)["test"]["model"]
    return found["rmse"], found["nlpd"]


if __name__ == "__main__":
    print(
        "| data | estimator, equal lengthscales | estimator | command line |\n| --- | --- | --- |"
        " --- |"
    )
    for function in (arm, interactions):
        X, y = problem(function)
        cells = []
        for train, *how in ((estimator, True), (estimator, False), (command,)):
            began = time.process_time()
            rmse, nlpd = train(X, y, *how)
            cells.append(f"{rmse:.4f}, {nlpd:.4f}, {time.process_time() - began:.0f}")
        print("| " + " | ".join([function.__name__, *cells]) + " |", flush=True)
