"""Score ``SVGPRegressor()`` against learners of tables with their best settings.

    OPENBLAS_NUM_THREADS=1 python bench/rivals.py [TABLE ...] --splits 0 1 [--folder DATA]

Rivals are used where they are installed: CatBoost (the better of two losses for each score, early
stopping), LightGBM (the best of four settings, early stopping), RealMLP of pytabkit, GPBoost. Each
has the CPU seconds that it takes. Tables are made here (a thousand rows, more or less, two thousand
held out), those of ``sklearn.datasets``, and parts of the data sets in a folder, whose other rows
are held out. A row has RMSE, Gaussian NLPD and the share inside 90 % intervals, with targets
standardised by the training rows; CPU seconds are those of one thread.
"""

import argparse
import importlib.util
import pathlib
import time
import warnings

import numpy as np
import report

import fastsvgp as fs
from fastsvgp.sklearn import SVGPRegressor

HELD_OUT = 2000
PARTS = {"airfoil": 1200, "energy": 600, "bike": 900, "elevators": 900, "kin40k": 1000, "pol": 1400}
LEAVES = (7, 0.05, 5), (31, 0.05, 20), (15, 0.03, 5), (63, 0.05, 10)  # of LightGBM


# --- tables: X, y of all rows, and the number of training rows ------------------------------------


def piecewise(rng, X):
    steps = 2.0 * (X[:, 0] > 0) + 3.0 * (X[:, 1] > 0.5) * (X[:, 2] < 0)
    return X, steps + (X[:, 3] > -0.3) * X[:, 0] + 0.2 * rng.standard_normal(len(X))


def additive(rng, X):
    f = np.sin(2 * X[:, 0]) + np.abs(X[:, 1]) + (X[:, 2] > 0) + 0.3 * X[:, 3] ** 2
    return X, f + np.tanh(3 * X[:, 4]) + 0.2 * rng.standard_normal(len(X))


def local(rng, X):
    peak = 3 * np.exp(-4 * ((X[:, 0] - 0.5) ** 2 + X[:, 1] ** 2))
    return X, peak + 0.2 * X[:, 2] + 0.1 * rng.standard_normal(len(X))


def codes(rng, X):
    code, X = rng.integers(0, 30, len(X)), X.copy()
    effect, slope, X[:, 7] = 2 * rng.standard_normal(30), rng.standard_normal(30), code
    y = effect[code] + slope[code] * X[:, 0] + np.sin(2 * X[:, 1])
    return X, y + 0.2 * rng.standard_normal(len(X))


def repeated(rng, X):
    X = X[rng.integers(0, len(X) // 4, len(X)), :4]
    y = np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]
    return X, y + 0.5 * rng.standard_normal(len(X))


def heavy(rng, X):
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return X, y + 0.2 * rng.standard_t(2.5, len(X))


def varying(rng, X):
    y = np.sin(2 * X[:, 0]) + 0.5 * X[:, 1]
    return X, y + np.exp(X[:, 2] - 1.5) * rng.standard_normal(len(X))


def wide(rng, X):
    X = rng.standard_normal((len(X), 100))
    y = X[:, 0] + np.sin(2 * X[:, 1]) + X[:, 2] * X[:, 3]
    return X, y + 0.3 * rng.standard_normal(len(X))


def periodic(rng, X):
    X = np.column_stack([rng.uniform(0, 20, len(X)), X[:, 1]])
    return X, np.sin(2 * np.pi * X[:, 0] / 3) * X[:, 1] + 0.1 * rng.standard_normal(len(X))


def linear(rng, X):
    return X, X @ np.linspace(1, -1, 8) + 0.5 * rng.standard_normal(len(X))


MADE = {
    piecewise: 700, additive: 500, local: 800, codes: 1500, repeated: 1200, heavy: 800,
    varying: 1000, wide: 400, periodic: 400, linear: 300,
}  # fmt: skip


def table_of(name, split, folder):
    """Return X, y, and held-out rows; targets are standardised by the training rows."""
    rng = np.random.default_rng([split, 7])
    made = {kind.__name__: (kind, count) for kind, count in MADE.items()}
    if name in made:
        kind, n = made[name]
        X, y = kind(rng, rng.standard_normal((n + HELD_OUT, 8)))
    elif name == "diabetes":
        from sklearn.datasets import load_diabetes

        (X, y), n = load_diabetes(return_X_y=True), 354
    else:
        table, n = np.loadtxt(folder / f"{name}.data.csv.gz", delimiter=","), PARTS[name]
        X, y = table[:, :-1], table[:, -1]
    order = rng.permutation(len(X))[: n + HELD_OUT]
    X, y = X[order], y[order]
    y = (y - y[:n].mean()) / y[:n].std()
    return X[:n], y[:n], X[n:], y[n:]


# --- learners: mean and variance at held-out rows -------------------------------------------------


def ours(X, y, Xs):
    mean, sd = SVGPRegressor(random_state=0).fit(X, y).predict(Xs, return_std=True)
    return mean, sd**2


def _halves(X, y):
    order, n = np.random.default_rng(0).permutation(len(X)), int(0.85 * len(X))
    fit, stop = order[:n], order[n:]
    return X[fit], y[fit], X[stop], y[stop]


def catboost(X, y, Xs):
    from catboost import CatBoostRegressor

    fit, target, stop, stopping = _halves(X, y)
    found = []
    for loss in ("RMSEWithUncertainty", "RMSE"):
        model = CatBoostRegressor(
            loss_function=loss, iterations=2000, verbose=0, thread_count=1, random_seed=0,
            allow_writing_files=False,
        )  # fmt: skip
        model.fit(fit, target, eval_set=(stop, stopping), early_stopping_rounds=100)
        found.append(model.predict(Xs))
    (mean, var), best = found[0].T, found[1]
    return mean, var, best


def lightgbm(X, y, Xs):
    from lightgbm import LGBMRegressor, early_stopping

    fit, target, stop, stopping = _halves(X, y)
    models = []
    for leaves, rate, least in LEAVES:
        model = LGBMRegressor(
            n_estimators=2000, num_leaves=leaves, learning_rate=rate, min_child_samples=least,
            verbose=-1, n_jobs=1,
        )  # fmt: skip
        model.fit(
            fit, target, eval_set=[(stop, stopping)], callbacks=[early_stopping(100, verbose=False)]
        )
        models.append((np.mean((model.predict(stop) - stopping) ** 2), model))
    square, best = min(models, key=lambda pair: pair[0])
    mean = best.predict(Xs)
    return mean, np.full(len(mean), square)


def gpboost(X, y, Xs):
    import gpboost as gb

    varies = X.std(axis=0) > 0
    scale = X[:, varies].std(axis=0)
    model = gb.GPModel(
        gp_coords=X[:, varies] / scale, cov_function="matern_ard", cov_fct_shape=1.5,
        gp_approx="vecchia", num_neighbors=20, num_parallel_threads=1,
    )  # fmt: skip
    model.fit(y=y)
    found = model.predict(
        gp_coords_pred=Xs[:, varies] / scale, predict_var=True, predict_response=True
    )
    return found["mu"], found["var"]


def realmlp(X, y, Xs):
    from pytabkit import RealMLP_TD_Regressor

    fit, target, stop, stopping = _halves(X, y)
    model = RealMLP_TD_Regressor(device="cpu", random_state=0, n_threads=1).fit(fit, target)
    mean = np.ravel(model.predict(Xs))
    return mean, np.full(len(mean), np.mean((np.ravel(model.predict(stop)) - stopping) ** 2))


RIVALS = {"catboost": catboost, "lightgbm": lightgbm, "gpboost": gpboost, "pytabkit": realmlp}


def scores(found, y):
    """Return RMSE, NLPD and the share inside 90 % intervals."""
    mean, var, *better = found
    error = y - mean
    rmse = np.sqrt(np.mean((y - better[0] if better else error) ** 2))
    nlpd = np.mean(0.5 * np.log(2 * np.pi * var) + 0.5 * error**2 / var)
    return rmse, nlpd, np.mean(np.abs(error) < 1.645 * np.sqrt(var))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("tables", nargs="*")
    parser.add_argument("--splits", type=int, nargs="+", default=[0])
    parser.add_argument("--folder", type=pathlib.Path)
    args = parser.parse_args()
    fs.set_num_threads(1)
    learners = {"ours": ours}
    learners |= {name: run for name, run in RIVALS.items() if importlib.util.find_spec(name)}
    names = args.tables or [
        *(kind.__name__ for kind in MADE), "diabetes", *(PARTS if args.folder else ()),
    ]  # fmt: skip
    print(report.machine())
    print("\n| table, split | learner | RMSE | NLPD | inside 90 % | CPU s |")
    print("| --- | --- | --- | --- | --- | --- |")
    for name in names:
        for split in args.splits:
            X, y, Xs, ys = table_of(name, split, args.folder)
            for learner, run in learners.items():
                began = time.process_time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    rmse, nlpd, share = scores(run(X, y, Xs), ys)
                seconds = time.process_time() - began
                print(
                    f"| {name}, {split} | {learner} | {rmse:.4g} | {nlpd:.3f} | {share:.2f} |"
                    f" {seconds:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
