"""Compare ways to train the mean of a QSGP: by blocks of data, and from samples.

    FASTSVGP_DATA=... OPENBLAS_NUM_THREADS=1 python bench/qsgp_mean.py blocks
    FASTSVGP_DATA=... OPENBLAS_NUM_THREADS=1 python bench/qsgp_mean.py samples kin40k pol elevators

One thread, CPU seconds; RMSE and NLPD of held-out rows (split 0, standardised). "blocks": a line
per epoch of ``optimal_weights(method="blocks")``, of kin40k, with 100,000 Fourier features and with
a function at each training row. "samples": ``fit`` from samples, with AdaGrad; covariance and noise
are those of an exact GP on 1,000 rows.
"""

import argparse
import pathlib
import shlex
import sys
import time

import numpy as np
import report

import fastsvgp as fs

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "examples"))
import weight_space  # noqa: E402

HELD = "basis", "likelihood", "posterior.diagonal"


def problem(name):
    """Return ``(covariance, noise, rows)`` of a data set."""
    rows = weight_space.rows_of(name)
    return *weight_space.hyperparameters(*rows[:2], 1000, np.random.default_rng(0)), rows


def model_of(basis, m, noise):
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    return fs.QSGP(basis, q, fs.Gaussian(noise))


def scores(model, X, y):
    """Return ``(RMSE, NLPD)``."""
    mean, _ = fs.predict_y(model, X)
    nlpd = -np.mean(fs.predict_log_density(model, X, y))
    return float(np.sqrt(np.mean(np.square(mean - y)))), float(nlpd)


def blocks(epochs):
    """Print a line per epoch of each basis."""
    covariance, noise, (X, y, X_test, y_test) = problem("kin40k")
    bases = {
        "100,000 Fourier features": (
            fs.qsgp.RandomFourier(covariance, num_features=100_000, seed=0),
            100_000,
        ),
        "a function at each row": (fs.qsgp.InducingBasis(covariance, X), len(X)),
    }
    print("| basis | epoch | CPU s | RMSE | residual |\n| --- | --- | --- | --- | --- |")
    for label, (basis, m) in bases.items():
        began, aside, done = time.process_time(), 0.0, 0

        def look(model, info, label=label, began=began):
            nonlocal aside, done
            if len(info.residuals) == done:
                return
            now, done = time.process_time(), len(info.residuals)
            f, _ = fs.predict_f(model, X_test)
            error = np.sqrt(np.mean(np.square(f - y_test)))
            print(
                f"| {label} | {done} | {now - began - aside:.0f} | {error:.3f} |"
                f" {info.residuals[-1]:.3f} |",
                flush=True,
            )
            aside += time.process_time() - now

        found, _ = fs.qsgp.optimal_weights(
            model_of(basis, m, noise), X, y, method="blocks", epochs=epochs, rng=0, callback=look
        )
        seconds = time.process_time() - began - aside
        rmse, nlpd = scores(found, X_test, y_test)
        print(f"| {label}, with the diagonal | | {seconds:.0f} | {rmse:.3f}, NLPD {nlpd:.3f} | |")


def samples(names, functions, size, steps, seeds):
    """Print a line per data set and seed."""
    print("| data | seed | AdaGrad | CPU s |\n| --- | --- | --- | --- |")
    for name in names:
        covariance, noise, (X, y, X_test, y_test) = problem(name)
        for seed in seeds:
            basis = fs.qsgp.RandomFourier(covariance, num_features=functions, seed=seed)
            start = fs.qsgp.optimal_diagonal(model_of(basis, functions, noise), X)
            options = {
                "basis_size": size,
                "rng": seed,
                "fixed": HELD,
                "optimiser": fs.optim.adagrad(),
            }
            began = time.process_time()
            found, _ = fs.fit(start, X, y, steps=steps, **options)
            seconds = time.process_time() - began
            rmse, nlpd = scores(found, X_test, y_test)
            print(f"| {name} | {seed} | {rmse:.4f}, {nlpd:.3f} | {seconds:.0f} |", flush=True)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("blocks", "samples"))
    parser.add_argument("names", nargs="*", default=["kin40k", "pol", "elevators"])
    parser.add_argument("--epochs", type=int, default=7)
    parser.add_argument("--functions", type=int, default=20_000)
    parser.add_argument("--size", type=int, default=10_000, help="functions of a sample")
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    args = parser.parse_args(arguments)
    fs.set_num_threads(1)
    if args.what == "blocks":
        blocks(args.epochs)
    else:
        samples(args.names, args.functions, args.size, args.steps, args.seeds)
    print()
    print(report.header("python bench/qsgp_mean.py " + shlex.join(sys.argv[1:])))


if __name__ == "__main__":
    main()
