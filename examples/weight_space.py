"""Train 100,000 random Fourier features on kin40k, by conjugate gradients or from samples.

    python examples/weight_space.py kin40k                       # conjugate gradients: minutes
    python examples/weight_space.py kin40k --steps 3000          # samples, kriged control
    python examples/weight_space.py kin40k --steps 3000 --control none      # or paired
    python examples/weight_space.py kin40k --basis inducing      # all rows inducing: an hour
    python examples/weight_space.py kin40k --features 2000 --iterations 20
    python examples/weight_space.py picture                      # all four by steps and seconds
    python examples/weight_space.py features                     # scores against m
    python examples/weight_space.py collapse                     # learned hyperparameters

Hyperparameters are those of an exact GP on 1,000 of the training rows, because the mean-field bound
is a poor objective for them unless m is small compared with n. The variances have a closed form.
The time of scores is not counted. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import pathlib
import sys
import time

import mnist
import numpy as np

import fastsvgp as fs

DATA = mnist.FOLDER
DOCS = pathlib.Path(__file__).resolve().parents[1] / "docs"
LOOKS = 10, 30, 60, 100, 150, 200, 300  # iterations after which the scores are taken,
PARTS = 0.03, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8, 1.0  # and parts of the steps
BATCH, FUNCTIONS = 500, 10_000


def rows_of(name, split=0):
    """Return (X, y, test X, test y) of a split, standardised by the training part."""
    rows = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / f"{name}.test_mask.csv.gz", delimiter=",")[:, split] > 0
    rows = (rows - rows[~test].mean(axis=0)) / rows[~test].std(axis=0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    return X[~test], y[~test], X[test], y[test]


def hyperparameters(X, y, count, rng):
    """Return ``(covariance, noise variance)`` of an exact GP on some rows."""
    some = rng.choice(len(X), min(count, len(X)), replace=False)
    covariance = fs.RBF(1.0, fs.inducing.median_lengthscales(X[some], rng=0, ard=True))
    model, _ = fs.fit(
        fs.SGPR(covariance, X[some].copy(), noise_variance=0.1),
        X[some],
        y[some],
        steps=200,
        fixed="inducing",
    )
    return model.covariance, float(model.noise_variance)


def scores(model, X, y):
    """Return RMSE and NLPD."""
    mean, _ = fs.predict_y(model, X)
    return float(np.sqrt(np.mean((mean - y) ** 2))), -float(
        np.mean(fs.predict_log_density(model, X, y))
    )


class Table:
    """A callback of ``fit`` and ``optimal_weights`` that prints scores at some steps."""

    def __init__(self, unit, looks, X, y, model):
        self._looks, self._data, self._diagonal = looks, (X, y), model.posterior.diagonal
        self._started, self._aside, self.rows = time.perf_counter(), 0.0, []
        print(f"| {unit} | seconds | RMSE | NLPD |\n| --- | --- | --- | --- |", flush=True)

    def take(self, count, model):
        if count not in self._looks:
            return
        now = time.perf_counter()
        found = scores(
            fs.records.replace_at(model, "posterior.diagonal", self._diagonal), *self._data
        )
        self.rows.append((count, now - self._started - self._aside, *found))
        print("| {:,} | {:.0f} | {:.4f} | {:.4f} |".format(*self.rows[-1]), flush=True)
        self._aside += time.perf_counter() - now


def by_conjugate_gradients(model, data, iterations):
    X, y, Xt, yt = data
    table = Table("iterations", {*LOOKS, iterations}, Xt, yt, model)
    fs.qsgp.optimal_weights(
        model,
        X,
        y,
        iterations=iterations,
        callback=lambda there, info: table.take(info.iterations, there),
    )
    return table.rows


def train(model, X, y, steps, kind, points, size=FUNCTIONS, **options):
    """Train the mean by ``fs.fit`` from samples of functions and data, with this control.

    ``options`` are those of ``fs.fit``.
    """
    at = np.random.default_rng(1).choice(len(X), points, replace=False)
    control = {
        "none": lambda: 0,
        "paired": lambda: fs.qsgp.paired_control_variate(model, X[at]),
        "kriged": lambda: points,
    }[kind]()
    settings = {
        "batch_size": BATCH,
        "optimiser": fs.optim.adagrad(fs.optim.schedules.log_linear(0.1, 0.02, steps)),
    }
    return fs.fit(
        model,
        X,
        y,
        steps=steps,
        basis_size=size,
        control=control,
        rng=1,
        fixed=HELD,
        **settings | options,
    )


def from_samples(model, data, steps, kind, points, size=FUNCTIONS):
    """Train from samples, and print scores."""
    X, y, Xt, yt = data
    table = Table("steps", {max(1, round(part * steps)) for part in PARTS}, Xt, yt, model)
    report = lambda step, value, info: table.take(step, info.model)  # noqa: E731
    train(model, X, y, steps, kind, points, size, callback=report)
    return table.rows


HELD = "basis", "likelihood", "posterior.diagonal"


def prepared(X, y, features, *, basis="fourier", dense_columns=0, exact=1000):
    """Return a model: zeros as the mean, variances in closed form."""
    covariance, noise = hyperparameters(X, y, exact, np.random.default_rng(0))
    m, k = features, dense_columns
    if basis == "inducing":
        inducing = X[:features].copy()
        basis, m = fs.qsgp.InducingBasis(covariance, inducing), len(inducing)
    else:
        basis = fs.qsgp.RandomFourier(covariance, num_features=m, seed=0)
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.eye(m, k), np.ones(m - k))
    return fs.qsgp.optimal_diagonal(fs.QSGP(basis, q, fs.Gaussian(variance=noise)), X)


def start(name, args, m=None):
    """Return ``(model, data)`` of a data set."""
    data, settings = rows_of(name), ("basis", "dense_columns", "exact")
    settings = {key: getattr(args, key) for key in settings}
    return prepared(*data[:2], args.features if m is None else m, **settings), data


def kin40k(args):
    model, data = start("kin40k", args)
    if args.steps:
        return from_samples(model, data, args.steps, args.control, args.points, args.basis_size)
    return by_conjugate_gradients(model, data, args.iterations)


def picture(args):
    """Plot scores against steps and seconds for each way to the mean."""
    from matplotlib.figure import Figure

    model, data = start("kin40k", args)
    curves = {}
    for kind, label in (("none", "no control"), ("paired", "equation 3"), ("kriged", "kriged")):
        print(f"\n{label}, {args.points} points\n")
        curves[label] = from_samples(model, data, args.steps or 3000, kind, args.points)
    print("\nconjugate gradients\n")
    curves["conjugate gradients"] = by_conjugate_gradients(model, data, args.iterations)
    figure = Figure(figsize=(9, 3.6), layout="constrained")
    axes = figure.subplots(1, 2)
    for label, rows in curves.items():
        counts, seconds, rmse, _ = np.transpose(rows)
        for axis, x in zip(axes, (counts, seconds), strict=True):
            axis.plot(x, rmse, "o-", ms=3, label=label)
    for axis, name in zip(axes, ("steps or iterations", "seconds"), strict=True):
        axis.set(xlabel=name, ylabel="RMSE", xscale="log", title=f"kin40k, m = {args.features:,}")
        axis.grid(alpha=0.3)
    axes[0].legend()
    figure.savefig(args.out / "qsgp.png", dpi=110)
    return curves


def features(args):
    """Print scores against the number of features."""
    print("| m | RMSE | NLPD | mean variance of f |\n| --- | --- | --- | --- |")
    found = []
    for m in (1000, 3000, 10_000, 30_000, 100_000):
        if m > args.features:
            break
        model, (X, y, Xt, yt) = start("kin40k", args, m)
        best, _ = fs.qsgp.optimal_weights(model, X, y, iterations=args.iterations)
        found.append((m, *scores(best, Xt, yt), float(np.mean(fs.predict_f(best, Xt)[1]))))
        print("| {:,} | {:.4f} | {:.4f} | {:.3f} |".format(*found[-1]), flush=True)
    return found


def collapse(args):
    """Compare hyperparameters learned by the mean-field bound with those of an exact GP."""
    X, y, Xt, yt = rows_of("kin40k")
    covariance, noise = hyperparameters(X, y, args.exact, np.random.default_rng(0))
    some = np.random.default_rng(0).choice(len(X), min(args.exact, len(X)), replace=False)
    X, y, m, found = X[some], y[some], args.features, []
    print("| hyperparameters | noise variance | RMSE |\n| --- | --- | --- |")
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(covariance, num_features=m, seed=0), q, fs.Gaussian(variance=noise)
    )
    for name in ("kept", "learned"):
        if name == "learned":
            held = ("posterior.columns",)
            model, _ = fs.fit(
                model,
                X,
                y,
                steps=args.steps or 2000,
                batch_size=len(X),
                basis_size=m,
                control=0,
                fixed=held,
                rng=0,
                optimiser=fs.optim.by_field(
                    fs.optim.adagrad(0.1),
                    dict.fromkeys(("basis.covariance", "likelihood"), fs.adam(0.01)),
                ),
                closed_form_every=20,
            )
        model, _ = fs.qsgp.optimal_weights(model, X, y, iterations=args.iterations)
        found.append((name, float(model.likelihood.variance), scores(model, Xt, yt)[0]))
        print("| {} | {:.4f} | {:.4f} |".format(*found[-1]), flush=True)
    return found


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("task", choices=("kin40k", "picture", "features", "collapse"))
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--basis", choices=("fourier", "inducing"), default="fourier")
    parser.add_argument("--dense-columns", type=int, default=0, help="trained from samples")
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument(
        "--steps",
        type=int,
        help="train by this number of steps from samples, not by conjugate gradients",
    )
    parser.add_argument(
        "--basis-size",
        type=int,
        default=FUNCTIONS,
        help="functions per sample, of two samples per step",
    )
    parser.add_argument("--control", choices=("none", "paired", "kriged"), default="kriged")
    parser.add_argument("--points", type=int, default=500, help="of the control")
    parser.add_argument(
        "--exact", type=int, default=1000, help="rows that the hyperparameters are learned from"
    )
    parser.add_argument("--out", type=pathlib.Path, default=DOCS, help="folder of the picture")
    args = parser.parse_args(arguments)
    return {"kin40k": kin40k, "picture": picture, "features": features, "collapse": collapse}[
        args.task
    ](args)


if __name__ == "__main__":
    main(sys.argv[1:])
