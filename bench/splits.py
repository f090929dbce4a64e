"""New groups and the future: the search beside LightGBM and ridge, on twelve tables.

``python bench/splits.py FOLDER [SECONDS]`` reads airfoil, energy and bike (NAME.data.csv.gz) of a
folder, makes the others, and prints a table. Tests are a third of the groups, or the last tenth of
the time. RMSE and NLPD are in units of the standard deviation of the training targets. "reported"
is the NLPD that the search reports. The NLPD of the others is that of their residuals' variance
where groups, or the last fifth, are left out of the training rows. The search counts operations:
SECONDS at 4e10 per second.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import GroupKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import fastsvgp as fs

LATEST, ROWS = 0.9, 1200


def made_groups(seed, G, rows, *, effect, slope, smooth):
    """Make inputs of groups, inputs of rows, and targets with an effect of each group."""
    rng = np.random.default_rng(seed)
    of_group, who = rng.standard_normal((G, 3)), np.repeat(np.arange(G), rows)
    x = rng.uniform(-2, 2, (G * rows, 2))
    f = slope * of_group[who, 0] + smooth * np.sin(2 * x[:, 0]) + x[:, 1] * of_group[who, 1] / 2
    y = f + effect * rng.standard_normal(G)[who] + 0.3 * rng.standard_normal(G * rows)
    return np.c_[of_group[who], x], y, who


def made_series(seed, N, *, trend, walk, period):
    """Make a time, two inputs, and targets with a trend, a random walk and a cycle."""
    rng = np.random.default_rng(seed)
    t, x = np.arange(float(N)), rng.standard_normal((N, 2))
    level = trend * t / N + walk * np.cumsum(rng.standard_normal(N)) / np.sqrt(N)
    y = level + np.sin(2 * np.pi * t / period) + 0.5 * np.sin(2 * x[:, 0])
    return np.c_[t, x], y + 0.4 * rng.standard_normal(N), None


def read(folder, name):
    return np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=",")


def grouped_by(data, columns):
    """Return X, y, and groups of rows that agree in these columns."""
    _, who = np.unique(data[:, columns], axis=0, return_inverse=True)
    return data[:, :-1], data[:, -1], who.ravel()


def bike(folder, step):
    """Return the last rows of every ``step``-th hour, without the parts of the count."""
    data = read(folder, "bike")
    hours = data[:, [0, 1, 2, 6]] @ [12 * 31 * 24, 31 * 24, 24, 1]
    data, hours = data[np.argsort(hours)][::step], np.sort(hours)[::step]
    return np.c_[hours, data[:, 1:15]][-ROWS:], data[-ROWS:, -1], None


def tables(folder):
    """Yield names, inputs, targets, and groups; without groups column 0 is the time."""
    yield "patients", *made_groups(0, 60, 20, effect=1.2, slope=0.4, smooth=0.6)
    yield "machines", *made_groups(1, 30, 40, effect=0.5, slope=1.0, smooth=1.0)
    yield "sites, no effects", *made_groups(2, 90, 12, effect=0.0, slope=1.0, smooth=0.5)
    yield "few groups", *made_groups(3, 12, 60, effect=1.0, slope=0.5, smooth=1.0)
    yield "airfoil by experiment", *grouped_by(read(folder, "airfoil"), [1, 2, 3, 4])
    yield "energy by shape", *grouped_by(read(folder, "energy"), [0])
    yield "drift", *made_series(4, 1000, trend=0.0, walk=3.0, period=365.25)
    yield "trend and week", *made_series(5, 700, trend=3.0, walk=0.0, period=7.0)
    yield "level and season", *made_series(6, 1100, trend=1.0, walk=1.0, period=365.25)
    yield "no time", *made_series(7, 600, trend=0.0, walk=0.0, period=1e9)
    yield "bike, hours", *bike(folder, 1)
    yield "bike, every 13th hour", *bike(folder, 13)


def split_of(y, who, seed=0):
    """Return the test rows (N,), and the folds of the training rows."""
    if who is None:
        N = len(y)
        test = np.arange(N) >= LATEST * N
        cut = int(0.8 * (~test).sum())
        return test, [(np.arange(cut), np.arange(cut, (~test).sum()))]
    groups = np.random.default_rng(seed).permutation(who.max() + 1)
    test = np.isin(who, groups[: -(-len(groups) // 3)])
    return test, list(GroupKFold(5).split(y[~test], groups=who[~test]))


def peers():
    from lightgbm import LGBMRegressor

    yield "LightGBM", lambda: LGBMRegressor(verbose=-1, n_jobs=1, random_state=0)
    yield "ridge", lambda: make_pipeline(StandardScaler(), RidgeCV(np.logspace(-3, 3, 13)))


def scores(y, mean, var):
    squares = np.square(y - mean)
    nlpd = 0.5 * np.mean(np.log(2 * np.pi * var) + squares / var)
    return np.sqrt(squares.mean()), nlpd


def rows(folder, seconds):
    for name, X, y, who in tables(folder):
        test, folds = split_of(y, who)
        y = (y - y[~test].mean()) / y[~test].std()
        train, targets = X[~test], y[~test]
        split = fs.recipes.Split(time=0) if who is None else fs.recipes.Split(groups=who[~test])
        began = time.process_time()
        found = fs.search(train, targets, seconds, by_work=True, rng=0, split=split)
        mean, var = found.scale.back(*fs.predict_y(found.model, found.scale.X(X[test])))
        reported = found.holds.partition("NLPD ")[2].split()[0]
        own = *scores(y[test], mean, var), reported, time.process_time() - began
        yield name, len(train), found.chosen, *own
        for label, make in peers():
            began = time.process_time()
            left = [
                make().fit(train[a], targets[a]).predict(train[b]) - targets[b] for a, b in folds
            ]
            var = np.mean(np.square(np.concatenate(left)))
            mean = make().fit(train, targets).predict(X[test])
            yield "", "", label, *scores(y[test], mean, var), "", time.process_time() - began


def main():
    folder, seconds = Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 4.0
    print("| table | rows | model | RMSE | NLPD | reported | CPU s |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for name, N, model, rmse, nlpd, reported, spent in rows(folder, seconds):
        numbers = f"{rmse:.3f} | {nlpd:.3f} | {reported} | {spent:.1f}"
        print(f"| {name} | {N} | {model} | {numbers} |", flush=True)


if __name__ == "__main__":
    main()
