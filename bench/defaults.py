"""Score ``recipes.search`` per data set and time budget, and compare with boosting at its defaults.

    FASTSVGP_DATA=... OPENBLAS_NUM_THREADS=1 python bench/defaults.py kin40k bike \\
        --budgets 10 30 60 --splits 0 1 2
    python bench/defaults.py --synthetic --budgets 30

Held-out rows of each split, targets standardised by the training rows: RMSE and Gaussian NLPD, the
median over the splits. Budgets are seconds at 40 GFLOP/s: they are divided by this machine's rate
of a matrix product, measured before each search. The column "before" is a regressor with an
explicit solver, the default before there was a search. A second table pairs the test rows: how many
nats a budget is worse than the one before it and than each other program, the median over the
splits, and the largest number of standard errors among them.
"""

import argparse
import gzip
import importlib.util
import os
import pathlib
import shlex
import sys
import time

import numpy as np
import report

import fastsvgp as fs
from fastsvgp.sklearn import SVGPRegressor

DATA = pathlib.Path(os.environ.get("FASTSVGP_DATA", "."))
NAMES = "kin40k", "bike", "pol", "elevators", "airfoil", "energy"
RATE = 40.0  # a budget is in seconds at this rate, GFLOP/s
ROWS = 4000
RATES, LATE = [], []  # per search: GFLOP/s before it, and seconds from its budget to its end
SOLVER = {"tol": 1.0001e-4}  # any setting disables the search


def table_of(name, split):
    """Return ``X, y, X_test, y_test`` of a split, in their original units."""
    if name in SYNTHETIC:
        return SYNTHETIC[name](np.random.default_rng(split))
    table, mask = (
        np.loadtxt(gzip.open(DATA / f"{name}.{part}.csv.gz"), delimiter=",")
        for part in ("data", "test_mask")
    )
    test = mask[:, split] == 1
    return table[~test, :-1], table[~test, -1], table[test, :-1], table[test, -1]


# --- synthetic tables -----------------------------------------------------------------------------


def _halves(X, y):
    return X[:ROWS], y[:ROWS], X[ROWS:], y[ROWS:]


def _smooth(rng, D=4, noise=0.1):
    X = rng.uniform(-2, 2, (ROWS + 1000, D))
    f = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + np.cos(X[:, 3])
    return X, f, noise * rng.standard_normal(len(X))


def _heavy(rng):
    X, f, _ = _smooth(rng)
    return _halves(X, f + 0.1 * rng.standard_t(1.5, len(X)))


def _quiet(rng):
    X, f, noise = _smooth(rng, noise=1e-3)
    return _halves(X, f + noise)


def _irrelevant(rng):
    X, f, noise = _smooth(rng, D=30)
    return _halves(X, f + noise)


def _repeated(rng):
    X, f, _ = _smooth(rng)
    X, f = np.repeat(X[:500], 8, axis=0), np.repeat(f[:500], 8)
    y = f + 0.3 * rng.standard_normal(len(f))
    others, g, noise = _smooth(rng, noise=0.3)
    return X, y, others[:1000], (g + noise)[:1000]


def _exponentials(rng):
    X, f, noise = _smooth(rng)
    return _halves(np.exp(2 * X), np.exp(f + noise))


def _diabetes(rng):
    from sklearn.datasets import load_diabetes

    X, y = load_diabetes(return_X_y=True)
    order = rng.permutation(len(X))
    return X[order[44:]], y[order[44:]], X[order[:44]], y[order[:44]]


SYNTHETIC = {
    "Student-t noise": _heavy,
    "noise of 1e-3": _quiet,
    "25 of 30 irrelevant": _irrelevant,
    "rows eight times": _repeated,
    "exponentials": _exponentials,
    "diabetes": _diabetes,
}

# --- programs -------------------------------------------------------------------------------------


def scores(mean, var, y, scale):
    """Return RMSE and each row's Gaussian NLPD, in units of ``scale``, the sd of the targets."""
    nlpd = 0.5 * np.log(2 * np.pi * var) + 0.5 * np.square(y - mean) / var - np.log(scale)
    return float(np.sqrt(np.mean(np.square(mean - y))) / scale), nlpd


def worse(rows, reference):
    """Return by how many nats ``rows`` of NLPD are worse: the median, and the worst paired z."""
    gaps = [ours - theirs for ours, theirs in zip(rows, reference, strict=True)]
    z = [gap.mean() / (gap.std(ddof=1) / np.sqrt(len(gap)) or np.inf) for gap in gaps]
    return f"{np.median([gap.mean() for gap in gaps]):+.3f} (z {max(z):+.1f})"


def searched(X, y, X_test, seconds, seed):
    RATES.append(rate())
    budget, began = seconds * RATE / RATES[-1], time.perf_counter()
    found = fs.search(X, y, budget, rng=seed)
    LATE.append(time.perf_counter() - began - found.compiling - budget)
    mean, var = fs.predict_y(found.model, found.scale.X(X_test))
    return (*found.scale.back(mean, var), found.chosen)


def before(X, y, X_test, seed):
    mean, sd = SVGPRegressor(random_state=seed, **SOLVER).fit(X, y).predict(X_test, return_std=True)
    return mean, sd**2, ""


def boosted(X, y, X_test, seed):
    """Fit LightGBM if installed, else scikit-learn's boosting, with a held-out variance."""
    if importlib.util.find_spec("lightgbm"):
        from lightgbm import LGBMRegressor

        model = LGBMRegressor(verbose=-1, n_jobs=1)
    else:
        from sklearn.ensemble import HistGradientBoostingRegressor

        model = HistGradientBoostingRegressor()
    held = np.random.default_rng(seed).random(len(X)) < 0.1
    var = np.mean(np.square(model.fit(X[~held], y[~held]).predict(X[held]) - y[held]))
    return model.fit(X, y).predict(X_test), np.full(len(X_test), var), ""


def rate(size=1000):
    """Return the GFLOP/s of a matrix product, the best of five."""
    A, best = np.random.default_rng(0).standard_normal((size, size)), np.inf
    for _ in range(5):
        began = time.perf_counter()
        A @ A
        best = min(best, time.perf_counter() - began)
    return 2e-9 * size**3 / best


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", default=None)
    parser.add_argument("--synthetic", action="store_true")
    parser.add_argument("--budgets", type=float, nargs="+", default=[10, 30, 60])
    parser.add_argument("--splits", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument(
        "--before", action="store_true", help="add a regressor with an explicit solver"
    )
    parser.add_argument("--boosting", action="store_true", help="add gradient boosting")
    args = parser.parse_args(arguments)
    names = args.names or (list(SYNTHETIC) if args.synthetic else NAMES)
    programs = {
        f"{T:g} s": (lambda *data, T=T: searched(*data[:3], T, data[3])) for T in args.budgets
    }
    programs |= {"before": before} if args.before else {}
    programs |= {"boosting": boosted} if args.boosting else {}
    budgets, others = [f"{T:g} s" for T in args.budgets], list(programs)[len(args.budgets) :]
    pairs = list(zip(budgets[1:], budgets, strict=False))
    pairs += [(budget, other) for other in others for budget in budgets]
    paired = []
    print("| data | " + " | ".join(programs) + " | chosen |")
    print("| --- " * (len(programs) + 2) + "|")
    for name in names:
        row, rows, kinds = [], {}, []
        for label, program in programs.items():
            found = []
            for split in args.splits:
                X, y, X_test, y_test = table_of(name, split)
                mean, var, chosen = program(X, y, X_test, split)
                found.append(scores(mean, var, y_test, y.std()))
                kinds += [chosen] if chosen else []
            rows[label] = [nlpd for _, nlpd in found]
            rmse, nlpd = np.median([(rmse, nlpd.mean()) for rmse, nlpd in found], axis=0)
            row.append(f"{rmse:.3g}, {nlpd:.3g}")
        paired.append([name, *(worse(rows[ours], rows[theirs]) for ours, theirs in pairs)])
        print(
            f"| {name} | " + " | ".join(row) + f" | {'; '.join(dict.fromkeys(kinds))} |", flush=True
        )
    if pairs:
        print("\n| worse than | " + " | ".join(f"{a}, {b}" for a, b in pairs) + " |")
        print("| --- " * (len(pairs) + 1) + "|")
        for cells in paired:
            print("| " + " | ".join(cells) + " |")
    print(
        f"\nGFLOP/s: {min(RATES):.0f} to {max(RATES):.0f}; seconds after the budget:"
        f" {min(LATE):.1f} to {max(LATE):.1f}, median {np.median(LATE):.1f}\n"
    )
    print(report.header("python bench/defaults.py " + shlex.join(sys.argv[1:])))


if __name__ == "__main__":
    main()
