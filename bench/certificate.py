"""The certificate on real data: its ends against the exact evidence as M grows, and its cost.

``python bench/certificate.py FOLDER`` reads NAME.data.csv.gz of a folder, writes
bench/results/certificate.md, and prints it. Parameters are trained once, at 800 greedy inducing
inputs, and are the same in all rows of a table. Seconds are those of one thread of the process.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

import numpy as np
import report
from scipy.linalg import cho_factor, cho_solve

import fastsvgp as fs

TABLES = {"airfoil": fs.Matern32, "energy": fs.Matern32, "kin40k": fs.RBF}
MOST_ROWS, TRAINED_AT, NUMBERS = 3000, 800, (50, 100, 200, 400, 800)
OUT = Path(__file__).resolve().parent / "results" / "certificate.md"
ABOUT = (
    "Nats a row from the exact evidence: below it the collapsed and the tighter bound, above it",
    "the product bound and that of Titsias; `per_row` is the width of `fs.certificate`. The same",
    "parameters in all rows, greedy inducing inputs. Seconds of one thread of the process.",
)
HEAD = (
    "| M | per_row | collapsed | tighter | product | Titsias | bound, s | certificate, s |\n"
    "| --- | --- | --- | --- | --- | --- | --- | --- |"
)


def read(folder, name):
    data = np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")
    data = data[np.random.default_rng(0).permutation(len(data))[:MOST_ROWS]]
    X, y = data[:, :-1], data[:, -1]
    X = X[:, X.std(axis=0) > 0]
    return (X - X.mean(axis=0)) / X.std(axis=0), (y - y.mean()) / y.std()


def exact_evidence(model, X, y):
    K = model.covariance.matrix(X)
    K.flat[:: len(y) + 1] += model.noise_variance
    factor = cho_factor(K, lower=True, overwrite_a=True)
    log_det = 2 * np.log(factor[0].diagonal()).sum()
    return -0.5 * (len(y) * np.log(2 * np.pi) + log_det + y @ cho_solve(factor, y))


def timed(function, *arguments, **options):
    began = time.process_time()
    return function(*arguments, **options), time.process_time() - began


def table(name, X, y):
    """Return the lines of one table."""
    k = TABLES[name](1.0, np.ones(X.shape[1]))
    M = min(TRAINED_AT, len(X))
    start = fs.SGPR(k, fs.inducing.greedy_variance(X, M, k, rng=0), 0.1)
    model, _ = fs.fit(start, X, y, fixed="inducing")
    exact = exact_evidence(model, X, y)
    Z = fs.inducing.greedy_variance(X, min(max(NUMBERS), len(X)), model.covariance, rng=0)
    lines = [
        f"## {name}: {len(y)} rows, {X.shape[1]} inputs, {type(k).__name__}, noise variance"
        f" {model.noise_variance:.2g}, exact evidence {exact / len(y):.4f} a row",
        "",
        HEAD,
    ]
    for M in NUMBERS:
        if M > len(Z):
            break
        sgpr = fs.replace(model, inducing=Z[:M])
        lower, of_bound = timed(fs.collapsed_bound, sgpr, X, y)
        found, of_interval = timed(fs.certificate, sgpr, X, y)
        ends = (
            exact - lower,
            exact - fs.bounds.tighter_bound(sgpr, X, y),
            found.upper - exact,
            fs.certificate(sgpr, X, y, within=1e-12).upper - exact,
        )
        shown = " | ".join(f"{end / len(y):.5f}" for end in ends)
        lines.append(
            f"| {M} | {found.per_row:.5f} | {shown} | {of_bound:.2f} | {of_interval:.2f} |"
        )
    return [*lines, ""]


def main(folder):
    command = "python bench/certificate.py FOLDER"
    lines = ["# certificate", "", report.header(command, blas=report.computing()), "", *ABOUT, ""]
    for name in TABLES:
        lines += table(name, *read(Path(folder), name))
    text = "\n".join(lines).rstrip() + "\n"
    OUT.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    fs.set_num_threads(1)
    main(sys.argv[1])
