"""New rows without the old ones, on real data: RMSE, NLPD and coverage on held-out rows.

    python bench/new_rows.py FOLDER               # writes bench/results/new_rows.md
    python bench/new_rows.py FOLDER --split 3 --out FILE

Reads NAME.data.csv.gz and NAME.test_mask.csv.gz of a folder.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import pathlib
import shlex
import textwrap
import time
import warnings

import numpy as np
from near_rows import read, scores
from report import header
from scipy.optimize import minimize

import fastsvgp as fs

TABLES = "airfoil", "energy", "kin40k", "bike"
MOST, BATCHES, INDUCING, ADDED, STEPS, ITERATIONS = 10_000, 10, 200, 20, 100, 10
OUT = pathlib.Path(__file__).resolve().parent / "results" / "new_rows.md"
ABOUT = f"""
At most {MOST:,} training rows of a split, in random order. The first fifth trains an SGPR with
{INDUCING} inducing inputs, or all of its rows ({STEPS} iterations of L-BFGS, Matérn 3/2 ARD); the
others come in {BATCHES} batches, each seen once. "More": each batch adds {ADDED} of its rows as
inducing inputs. "Others": each batch brings {INDUCING} of its rows, or all, in place of the old
ones. "Parameters follow": {ITERATIONS} iterations of L-BFGS on the streaming bound for each batch.
"All at once": an SGPR of {INDUCING} inducing inputs trained on all rows. Coverage is that of 90 %
intervals. CPU seconds of one thread, for all batches.
"""


def trained(X, y):
    """Return the SVGP of an SGPR trained on these rows."""
    Z = fs.inducing.kmeans(X, min(INDUCING, len(X)), rng=0)
    start = fs.SGPR(fs.Matern32(1.0, np.full(X.shape[1], 2.0)), Z, 0.1)
    return fs.fit(start, X, y, steps=STEPS)[1].svgp


def chosen(X, count):
    """Return random rows of a batch."""
    return X[np.random.default_rng(0).choice(len(X), min(count, len(X)), replace=False)]


def conditioned(model, X, y):
    return fs.condition(model, X, y)


def with_more(model, X, y):
    Z = np.unique(np.concatenate([model.inducing, chosen(X, ADDED)]), axis=0)
    return fs.condition(model, X, y, inducing=Z)


def with_others(model, X, y):
    return fs.condition(model, X, y, inducing=np.unique(chosen(X, INDUCING), axis=0))


def following(model, X, y):
    start = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    vector, unravel = fs.ravel(start, fixed="inducing")

    def loss(vector):
        value, grad = fs.bounds.streaming_bound_and_grad(
            model, unravel(vector), X, y, wrt=unravel.paths
        )
        return -value, -unravel.pullback(vector, grad)

    found = minimize(loss, vector, jac=True, method="L-BFGS-B", options={"maxiter": ITERATIONS})
    return fs.bounds.streaming_svgp(model, unravel(found.x), X, y)


WAYS = {
    "`fs.condition`": conditioned,
    "more inducing inputs": with_more,
    "others in place of them": with_others,
    "parameters follow": following,
}


def rows(folder, split):
    """Yield the rows of the table."""
    for name in TABLES:
        X, y, Xs, ys = read(folder, name, split)
        order = np.random.default_rng(split).permutation(len(X))[:MOST]
        first, rest = np.split(order, [len(order) // 5])
        start = trained(X[first], y[first])
        yield f"| {name} | the first fifth alone | {scores(*fs.predict_y(start, Xs), ys)} |  |"
        for way, take_in in WAYS.items():
            model, began = start, time.process_time()
            for batch in np.array_split(rest, BATCHES):
                model = take_in(model, X[batch], y[batch])
            seconds = time.process_time() - began
            found = scores(*fs.predict_y(model, Xs), ys)
            yield f"| {name} | {way} | {found} | {seconds:.1f} |"
        began = time.process_time()
        model = trained(X[order], y[order])
        seconds = time.process_time() - began
        found = scores(*fs.predict_y(model, Xs), ys)
        yield f"| {name} | all at once | {found} | {seconds:.1f} |"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--split", type=int, default=0)
    parser.add_argument("--out", type=pathlib.Path, default=OUT)
    args = parser.parse_args(argv)
    fs.set_num_threads(1)
    warnings.filterwarnings("ignore", "condition: `inducing` leaves out")
    lines = ["| data | new rows | RMSE | NLPD | coverage | s |", "| --- " * 6 + "|"]
    print(*lines, sep="\n")
    for row in rows(args.folder, args.split):
        print(row, flush=True)
        lines.append(row)
    words = ["FOLDER", *(["--split", str(args.split)] if args.split else [])]
    head = header(shlex.join(["python", "bench/new_rows.py", *words]))
    about = textwrap.fill(ABOUT.strip(), 100)
    text = "\n".join([f"# {args.out.stem}", "", head, "", about, "", *lines])
    args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
