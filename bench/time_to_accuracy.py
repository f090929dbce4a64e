"""Measure the held-out negative log predictive density (NLPD) against seconds of training.

    python bench/time_to_accuracy.py start kin40k.data.csv.gz kin40k.test_mask.csv.gz --out DIR
    python bench/time_to_accuracy.py train "fastsvgp, natural + Adam" --out DIR
    python bench/time_to_accuracy.py table --out DIR --picture docs/time_to_accuracy.png

``train`` needs the named program. All programs train the whitened SVGP with an ARD RBF covariance
and Gaussian noise from one start (``start`` writes it: inducing inputs are training rows, q is the
prior) with the same rows at each step, in float64 on two threads, by Adam at 0.01 and, if the name
says so, natural-gradient steps of 0.1. The clock starts after compilation, and is stopped while the
parameters are copied. One function computes the NLPD of the copies at the end, for all programs.
"""

import argparse
import json
import pathlib
import shlex
import sys
import time

import numpy as np
from accuracy_programs import (  # sets the number of BLAS threads, before NumPy loads
    JITTER,
    PROGRAMS,
)

INDUCING, BATCH, STEPS = 512, 1024, 12_000
LOOKS = 40  # evaluations, at evenly growing times
LEVELS = 0.3, 0.2, 0.1, 0.05, 0.0, -0.05, -0.1, -0.15, -0.2, -0.25


def start(data, mask, out):
    """Write the problem: standardised data of split 0, the start, and the rows of each step."""
    table, test = np.loadtxt(data, delimiter=","), np.loadtxt(mask, delimiter=",")[:, 0] > 0
    table = (table - table[~test].mean(0)) / table[~test].std(0)
    (X, y), (Xt, yt) = ((part[:, :-1], part[:, -1]) for part in (table[~test], table[test]))
    rng = np.random.default_rng(0)
    per_epoch = len(X) // BATCH
    orders = [
        rng.permutation(len(X))[: per_epoch * BATCH].reshape(per_epoch, BATCH)
        for _ in range(-(-STEPS // per_epoch))
    ]
    Z = X[np.sort(rng.choice(len(X), INDUCING, replace=False))]
    rows = np.concatenate(orders)[:STEPS].astype(np.int32)
    begin = {"Z": Z, "variance": 1.0, "lengthscales": np.full(X.shape[1], 2.0), "noise": 0.1}
    np.savez(out / "start.npz", X=X, y=y, Xt=Xt, yt=yt, rows=rows, **begin)


def nlpd(p, X, y):
    """Return the mean NLPD of the held-out data, computed from the parameters."""
    from scipy.linalg import solve_triangular

    A, B = p["Z"] / p["lengthscales"], X / p["lengthscales"]

    def covariance(P, Q):
        return p["variance"] * np.exp(
            -0.5 * np.maximum((P**2).sum(1)[:, None] + (Q**2).sum(1) - 2 * P @ Q.T, 0)
        )

    L = np.linalg.cholesky(covariance(A, A) + JITTER * np.eye(len(A)))
    Lam = solve_triangular(L, covariance(A, B), lower=True)
    mean, var = (
        Lam.T @ p["mean"],
        p["variance"] - (Lam**2).sum(0) + ((p["scale_tril"].T @ Lam) ** 2).sum(0) + p["noise"],
    )
    return float(np.mean(0.5 * np.log(2 * np.pi * var) + (y - mean) ** 2 / (2 * var)))


def train(name, out, seconds):
    """Train one program for a given time, and write its parameters over time."""
    problem = dict(np.load(out / "start.npz"))
    program = PROGRAMS[name](problem)
    program.warm()
    looks = iter(seconds * np.linspace(0.02, 1, LOOKS) ** 1.5)
    due, spent, found, steps = next(looks), 0.0, [], 0
    for rows in problem["rows"]:
        started = time.perf_counter()
        program.step(rows)
        spent, steps = spent + time.perf_counter() - started, steps + 1
        if spent >= due:
            found.append((spent, steps, program.parameters()))
            due = next((look for look in looks if look > spent), np.inf)
        if due == np.inf:
            break
    else:
        found.append((spent, steps, program.parameters()))
    curve = [(spent, steps, nlpd(p, problem["Xt"], problem["yt"])) for spent, steps, p in found]
    (out / f"{name}.json").write_text(
        json.dumps({"program": name, "versions": program.versions, "curve": curve}, indent=1)
    )
    print(
        f"{name}: {1e3 * spent / steps:.3g} ms per step, NLPD {curve[-1][2]:.3f} after"
        f" {spent:.0f} s"
    )


def reached(curve, level):
    """Return the seconds until the NLPD passes a level, or None.

    Interpolates between two evaluations; the NLPD must be below the level at two of them.
    """
    values = [value for _, _, value in curve] + [-np.inf]
    for i in range(len(curve)):
        if max(values[i : i + 2]) <= level:
            if i == 0:
                return curve[0][0]
            part = (values[i - 1] - level) / (values[i - 1] - values[i])
            return curve[i - 1][0] + min(1.0, max(0.0, part)) * (curve[i][0] - curve[i - 1][0])
    return None


def table(out, picture, command):
    import report

    curves = {
        (one := json.loads(path.read_text()))["program"]: one for path in sorted(out.glob("*.json"))
    }
    versions = sorted({version for one in curves.values() for version in one["versions"]})
    lines = [
        report.header(command, report.PACKAGES, None, report.computing()),
        "",
        ", ".join(versions) + ".",
        "",
    ]
    levels = [
        level for level in LEVELS if any(reached(one["curve"], level) for one in curves.values())
    ]
    lines.append(
        "| program | ms per step | last NLPD |" + "".join(f" {level:g} |" for level in levels)
    )
    lines.append("|" + " --- |" * (3 + len(levels)))
    for name, one in sorted(curves.items(), key=lambda item: item[1]["curve"][-1][2]):
        seconds, steps, value = one["curve"][-1]
        times = (reached(one["curve"], level) for level in levels)
        cells = "".join(f" {t:.3g} |" if t else " |" for t in times)
        lines.append(f"| {name} | {1e3 * seconds / steps:.3g} | {value:.3f} |{cells}")
    print("\n".join(lines))
    if picture:
        draw(curves, picture)


def draw(curves, picture):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for name, one in curves.items():
        seconds, _, values = zip(*one["curve"], strict=True)
        ours = name.startswith("fastsvgp")
        axes.plot(seconds, values, "-" if ours else "--", lw=2 if ours else 1.2, label=name)
    axes.set(xlabel="seconds of training", ylabel="held-out NLPD", xscale="log", ylim=(None, 0.8))
    axes.legend(fontsize=8, frameon=False)
    axes.grid(alpha=0.3)
    figure.savefig(picture, dpi=130)


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("start", "train", "table"))
    parser.add_argument(
        "names", nargs="*", help="start: the files of data and of test marks; train: programs"
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--picture", type=pathlib.Path)
    args = parser.parse_args(arguments)
    args.out.mkdir(parents=True, exist_ok=True)
    if args.what == "start":
        start(*args.names, args.out)
    elif args.what == "train":
        for name in args.names:
            train(name, args.out, args.seconds)
    else:
        table(
            args.out, args.picture, shlex.join(["python", "bench/time_to_accuracy.py", *arguments])
        )


if __name__ == "__main__":
    main(sys.argv[1:])
