"""Train t-SVGP on minibatches beside other natural steps and Adam, and score held-out rows.

    python examples/dual_minibatches.py banana airfoil elevators # a table of scores: minutes
    python examples/dual_minibatches.py mnist --rows 1 6         # of its table 1: ten minutes each
    python examples/dual_minibatches.py banana --steps 20        # a quick test that everything runs

Scores are RMSE or error, and NLPD, of rows held out, mean and standard deviation over --seeds. The
paper is Adam et al. 2021. "t-SVGP" has absorbed sites, which take natural steps; "natural" is
whitened with the same steps; "Adam" is whitened and trained only by Adam. All have the same start:
variance 1, the median distance as lengthscale, inducing inputs by k-means, which are trained.
Finished scores are read from --out. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import json
import pathlib
from typing import NamedTuple

import mnist
import numpy as np
from dual import DATA, banana, start

import fastsvgp as fs

METHODS = "t-SVGP", "natural", "Adam"
TABLE_1 = {  # natural step size, Adam's step size, E-steps and M-steps per round
    1: (0.04, 0.05, 1, 1),
    2: (0.035, 0.1, 2, 1),
    3: (0.03, 0.1, 3, 1),
    4: (0.025, 0.03, 4, 2),
    5: (0.05, 0.03, 4, 2),
    6: (0.03, 0.03, 4, 1),
}


class Setting(NamedTuple):
    """Training settings of a data set."""

    inducing: int
    batch: int
    steps: int
    natural: float = 0.1
    adam: float = 0.02
    e_steps: int = 1
    m_steps: int = 1


SETTINGS = {
    "banana": Setting(50, 100, 1000),
    "airfoil": Setting(100, 200, 4000),
    "elevators": Setting(100, 200, 4000),
}


# --- data -----------------------------------------------------------------------------------------


def split_rows(name, seed):
    """Return ``(X, y, test X, test y, likelihood, outputs)``.

    Banana is split by shuffling, regressions by the masks, on the standardised scale.
    """
    if name == "mnist":
        # always the same 8,000 training rows: seeds change the inducing inputs and the batches
        X, y = mnist.digits()
        return (
            X[: mnist.TRAIN],
            y[: mnist.TRAIN],
            X[mnist.TRAIN :],
            y[mnist.TRAIN :],
            fs.Softmax(num_classes=10),
            10,
        )
    if name == "banana":
        X, y = banana()
        order = np.random.default_rng(seed).permutation(len(X))
        X, y = X[order], y[order]
        return X[:300], y[:300], X[300:], y[300:], fs.likelihoods.BernoulliLogit(), None
    rows = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / f"{name}.test_mask.csv.gz", delimiter=",")[:, seed] == 1
    sd = rows[~test].std(axis=0)
    rows = (rows - rows[~test].mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    return X[~test], y[~test], X[test], y[test], fs.Gaussian(0.1), None


# --- held-out scores ------------------------------------------------------------------------------


def own_start(q, setting, data, seed):
    """Return the model that all methods start from: one lengthscale, and k-means."""
    X, _, _, _, likelihood, outputs = data
    kind = fs.Matern32 if outputs is None else fs.Matern52
    covariance = kind(
        variance=1.0, lengthscales=fs.inducing.median_lengthscales(X, rng=0, ard=False)
    )
    inducing = fs.inducing.kmeans(X, setting.inducing, rng=seed)
    return start(q, covariance, inducing, likelihood, outputs)


def authors_start(q, setting, data, seed):
    """Return the start of the authors' program for MNIST: lengthscales of 1, random digits."""
    X, _, _, _, likelihood, outputs = data
    covariance = fs.Matern52(variance=1.0, lengthscales=np.ones(X.shape[1]))
    chosen = np.random.default_rng(seed).permutation(len(X))[: setting.inducing]
    return start(q, covariance, X[chosen], likelihood, outputs)


def train(method, setting, data, seed, begin=own_start, **options):
    """Return the trained model and the info of ``fs.fit``, which takes ``options``.

    ``data`` are those of ``split_rows``. With ``resume`` the start is not computed.
    """
    X, y, *_ = data
    if options.get("resume"):
        model = fs.load(options["resume"]).model
    else:
        q = fs.posteriors.AbsorbedDualSites if method == "t-SVGP" else fs.Whitened
        model = begin(q, setting, data, seed)
    settings = {"m_steps": setting.m_steps, "optimiser": fs.adam(setting.adam)}
    if method != "Adam":
        settings["e_steps"] = setting.e_steps
        settings["natural_step_size"] = fs.optim.schedules.log_linear(1e-3, setting.natural, 100)
    settings |= options
    return fs.fit(model, X, y, steps=setting.steps, batch_size=setting.batch, rng=seed, **settings)


def score(model, data):
    """Return ``(RMSE or error, NLPD)`` on the test rows of the data."""
    _, _, Xs, ys, likelihood, outputs = data
    mean = fs.predict_y(model, Xs)[0]
    if outputs is not None:
        off = np.mean(mean.argmax(axis=-1) != ys)
    elif isinstance(likelihood, fs.likelihoods.BernoulliLogit):
        off = np.mean((mean > 0.5) != ys)
    else:
        off = np.sqrt(np.mean((mean - ys) ** 2))
    return float(off), -float(np.mean(fs.predict_log_density(model, Xs, ys)))


def table(names, args):
    """The rows of a Markdown table."""
    cases = [(name, name, SETTINGS[name]) for name in names if name in SETTINGS]
    if "mnist" in names:
        cases += [
            (f"mnist {row}", "mnist", Setting(100, 200, 1500, *TABLE_1[row])) for row in args.rows
        ]
    for title, name, setting in cases:
        setting = setting._replace(steps=args.steps or setting.steps)
        for method in METHODS:
            found = []
            for seed in range(args.seeds):
                path = pathlib.Path(
                    args.out, f"{title}-{method}-{setting.steps}-{seed}.json".replace(" ", "-")
                )
                if not path.is_file():
                    data = split_rows(name, seed)
                    model, info = train(method, setting, data, seed)
                    bound = float(info.smoothed / len(data[0]))
                    path.write_text(json.dumps([*score(model, data), bound]))
                found.append(json.loads(path.read_text()))
            numbers = " | ".join(
                f"{m:.3f} ± {s:.3f}"
                for m, s in zip(np.mean(found, 0), np.std(found, 0), strict=True)
            )
            yield f"| {title} | {method} | {numbers} |"


def main(argv=None):
    """Train and print the table; return its rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = *SETTINGS, "mnist"
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(known)} (default: all)"
    )
    parser.add_argument(
        "--rows", nargs="+", type=int, choices=TABLE_1, default=list(TABLE_1), help="for mnist"
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="replaces the default of each data set")
    parser.add_argument("--out", default="dual")
    args = parser.parse_args(argv)
    names = args.names or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"no data set {min(unknown)!r}; there are {', '.join(known)}")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    print("| data | method | RMSE or error | NLPD | bound per datum |\n|" + "---|" * 5)
    rows = []
    for line in table(names, args):
        rows.append(line)
        print(line, flush=True)
    return rows


if __name__ == "__main__":
    main()
