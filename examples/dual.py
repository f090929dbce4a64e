"""Compare dual sites with a fixed q(u): bounds as the prior changes, EM, influence, and scores.

    python examples/dual.py picture                  # dual.png: a minute
    python examples/dual.py rounds                   # rounds of EM of 24 problems: two minutes
    python examples/dual.py banana airfoil elevators # a table of scores: an hour on one core
    python examples/dual.py mnist --rows 1 6         # rows of its table 1: half an hour each
    python examples/dual.py banana --steps 20        # a quick test that everything runs

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

import fastsvgp as fs

DATA = mnist.FOLDER
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


def banana():
    return np.loadtxt(DATA / "banana.X.csv", delimiter=","), np.loadtxt(
        DATA / "banana.y.csv", delimiter=","
    )


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
        return X[:300], y[:300], X[300:], y[300:], fs.BernoulliLogit(), None
    rows = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / f"{name}.test_mask.csv.gz", delimiter=",")[:, seed] == 1
    sd = rows[~test].std(axis=0)
    rows = (rows - rows[~test].mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    return X[~test], y[~test], X[test], y[test], fs.Gaussian(0.1), None


# --- held-out scores ------------------------------------------------------------------------------


def start(kind, covariance, inducing, likelihood, outputs=None):
    """Return the model with q = prior."""
    return fs.SVGP(
        covariance, inducing, fs.at_prior(kind, covariance, inducing, outputs=outputs), likelihood
    )


def train(method, setting, data, seed, **options):
    """Return the trained model and the info of ``fs.fit``, which takes ``options``.

    ``data`` are those of ``split_rows``. With ``resume`` the start is not computed.
    """
    X, y, _, _, likelihood, outputs = data
    if options.get("resume"):
        model = fs.load(options["resume"]).model
    else:
        kind = fs.Matern32 if outputs is None else fs.Matern52
        covariance = kind(variance=1.0, lengthscales=fs.median_lengthscales(X, rng=0, ard=False))
        inducing = fs.kmeans_inducing(X, setting.inducing, rng=seed)
        q = fs.AbsorbedDualSites if method == "t-SVGP" else fs.Whitened
        model = start(q, covariance, inducing, likelihood, outputs)
    rounds = {"m_steps": setting.m_steps}
    if method != "Adam":
        rounds["e_steps"] = setting.e_steps
        rounds["natural_step_size"] = fs.schedules.log_linear(1e-3, setting.natural, 100)
    return fs.fit(
        model,
        X,
        y,
        steps=setting.steps,
        batch_size=setting.batch,
        optimiser=fs.adam(setting.adam),
        rng=seed,
        **rounds,
        **options,
    )


def score(model, data):
    """Return ``(RMSE or error, NLPD)`` on the test rows of the data."""
    _, _, Xs, ys, likelihood, outputs = data
    mean = fs.predict_y(model, Xs)[0]
    if outputs is not None:
        off = np.mean(mean.argmax(axis=-1) != ys)
    elif isinstance(likelihood, fs.BernoulliLogit):
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


# --- rounds of EM ---------------------------------------------------------------------------------


HELD = {
    "absorbed sites": fs.AbsorbedDualSites,
    "a site for each datum": fs.SiteSVGP,
    "dual sites": fs.DualSites,
    "whitened q": fs.Whitened,
    "q": fs.Marginal,
}
# variance and lengthscale, far from the optimum
STARTS = (4.0, 0.4), (0.2, 1.5), (5.0, 2.0), (0.1, 0.3), (1.0, 0.2), (8.0, 1.0)


def em_of(kind, covariance, inducing, likelihood, X, y, **options):
    """Return the bound after each M-step with this held fixed, and the final model.

    Inducing inputs are fixed.
    """
    if kind is fs.SiteSVGP:
        model = kind(covariance, inducing, fs.Sites(np.zeros(len(X)), np.zeros(len(X))), likelihood)
    else:
        model = start(kind, covariance, inducing, likelihood)
    fixed = ("inducing", "likelihood") if any(fs.leaves(likelihood)) else ("inducing",)
    found, info = fs.em(model, X, y, m_iterations=100, fixed=fixed, **options)
    return info.values, found


def rounds_needed(likelihood, seed, rounds, N=100, M=10):
    """Return ``{held: rounds until the bound is within 0.01 nats of the best of all}``.

    More than ``rounds`` is infinity.
    """
    rng = np.random.default_rng(seed)
    X, inducing = rng.uniform(-2, 2, (N, 1)), np.linspace(-2, 2, M)[:, None]
    f = 2 * np.sin(2.5 * X[:, 0] + seed)
    y = {
        "Gaussian": f + 0.3 * rng.standard_normal(N),
        "StudentT": f + 0.2 * rng.standard_t(3, N),
        "BernoulliLogit": (rng.random(N) < 1 / (1 + np.exp(-2 * f))) * 1.0,
        "Poisson": rng.poisson(np.exp(0.7 * f)) * 1.0,
    }[type(likelihood).__name__]
    covariance = fs.RBF(*STARTS[seed % len(STARTS)])
    traces = {
        name: em_of(kind, covariance, inducing, likelihood, X, y, rounds=rounds, tolerance=0.0)[0]
        for name, kind in HELD.items()
    }
    best = max(values.max() for values in traces.values())
    near = {name: np.flatnonzero(values > best - 0.01) for name, values in traces.items()}
    return {name: int(at[0]) + 1 if len(at) else np.inf for name, at in near.items()}


def table_of_rounds(rounds, seeds=6):
    """Return the rows of a table: successes in three rounds, the median and the largest number."""
    likelihoods = fs.Gaussian(0.1), fs.StudentT(0.3, df=4.0), fs.BernoulliLogit(), fs.Poisson()
    found = [
        rounds_needed(likelihood, seed, rounds)
        for likelihood in likelihoods
        for seed in range(seeds)
    ]
    for name in HELD:
        counts = np.array([one[name] for one in found])
        yield (f"| {name} | {np.sum(counts <= 3)} | {np.median(counts):g} | {counts.max():g} | "
               f"{np.sum(np.isinf(counts))} of {len(counts)} |")  # fmt: skip


def epochs_without_noise(likelihood, epochs=3, N=1000, M=20):
    """Return the nats below the optimal q after each epoch of batches of 100.

    A site per datum takes steps of 1, tied sites take steps of 0.1.
    """
    rng = np.random.default_rng(0)
    X, inducing, covariance = (
        rng.uniform(-2, 2, (N, 1)),
        np.linspace(-2, 2, M)[:, None],
        fs.RBF(1.0, 0.6),
    )
    f = np.sin(3 * X[:, 0])
    y = (
        rng.poisson(np.exp(f))
        if isinstance(likelihood, fs.Poisson)
        else rng.random(N) < 1 / (1 + np.exp(-2 * f))
    )
    y = y.astype(float)
    each = fs.SiteSVGP(covariance, inducing, fs.Sites(np.zeros(N), np.zeros(N)), likelihood)
    tied = start(fs.AbsorbedDualSites, covariance, inducing, likelihood)
    best = fs.elbo(
        fs.natural_steps(tied, X, y, steps=300, step_size=1.0, monotone=True, tolerance=1e-12)[0],
        X,
        y,
    )
    for epoch in range(1, epochs + 1):
        rows = np.random.default_rng(epoch).permutation(N).reshape(-1, 100)
        each, _ = fs.natural_steps(each, X, y, rows=rows, step_size=1.0)
        tied, _ = fs.natural_steps(tied, X, y, rows=rows, step_size=0.1)
    return best - fs.site_bound(each, X, y), best - fs.elbo(tied, X, y)


# --- the picture ----------------------------------------------------------------------------------


def toy(seed=0, N=60, M=8):
    """Return data of two classes, and their model at the prior."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 1))
    y = (rng.random(N) < 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0])))) * 1.0
    return (
        start(
            fs.AbsorbedDualSites,
            fs.RBF(1.0, 0.7),
            np.linspace(-2, 2, M)[:, None],
            fs.BernoulliLogit(),
        ),
        X,
        y,
    )


def converged(model, X, y):
    """Return the model after E-steps until convergence."""
    return fs.natural_steps(model, X, y, steps=200, step_size=1.0, monotone=True, tolerance=1e-10)[
        0
    ]


def bounds_as_the_prior_moves(field, factors):
    """Return ``{held: the bound at each factor}``, all equal at the factor 1."""
    model, X, y = toy()
    model = converged(model, X, y)
    sites = fs.dual_parameters(model, X, y)
    held = {
        "absorbed sites": model,
        "dual sites": fs.convert(model, fs.DualSites),
        "whitened q": fs.convert(model, fs.Whitened),
        "q": fs.convert(model, fs.Marginal),
        "a site for each datum": fs.SiteSVGP(
            model.covariance, model.inducing, sites, model.likelihood
        ),
    }
    path, found = f"covariance.{field}", {name: [] for name in (*held, "optimal q")}
    for factor in factors:
        covariance = fs.replace_at(
            model, path, getattr(model.covariance, field) * factor
        ).covariance
        for name, one in held.items():
            moved = fs.replace(one, covariance=covariance)
            found[name].append(
                (fs.site_bound if name == "a site for each datum" else fs.elbo)(moved, X, y)
            )
        afresh = start(fs.AbsorbedDualSites, covariance, model.inducing, model.likelihood)
        found["optimal q"].append(fs.elbo(converged(afresh, X, y), X, y))
    return found


def em_on_banana(rounds):
    """Return ``{held: the bound after each M-step}`` and the first model: Fig. 1 of the paper.

    Inducing inputs are fixed.
    """
    X, y = banana()
    given = fs.RBF(1.0, 1.0), fs.kmeans_inducing(X, 50, rng=0), fs.BernoulliLogit(), X, y
    found = {name: em_of(kind, *given, rounds=rounds) for name, kind in HELD.items() if name != "q"}
    return {name: values for name, (values, _) in found.items()}, found["absorbed sites"][1]


def picture(path, rounds):
    """Draw the four panels. Needs Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 4), layout="constrained")
    FigureCanvasAgg(figure)
    colours = {
        "absorbed sites": "#2c6fbb",
        "dual sites": "#c9762c",
        "whitened q": "#4a9a5b",
        "q": "#8a8a8a",
        "a site for each datum": "#a03b6a",
        "optimal q": "black",
    }
    axes, factors = figure.subplots(1, 4), np.geomspace(0.4, 2.5, 31)
    for ax, field in zip(axes, ("variance", "lengthscales"), strict=False):
        curves = bounds_as_the_prior_moves(field, factors)
        for name, values in curves.items():
            dashed = name == "a site for each datum"
            ax.plot(
                factors,
                values,
                color=colours[name],
                label=name,
                linestyle="--" if dashed else "-",
                linewidth=1 + dashed,
            )
        best = max(curves["optimal q"])
        ax.set_ylim(best - 6, best + 0.5)
        ax.set_xscale("log")
        ax.set_xlabel(f"{field}, times")
        ax.set_title("bound with this held", fontsize="medium")
    axes[0].legend(fontsize="small")
    traces, model = em_on_banana(rounds)
    for name, values in traces.items():
        axes[2].plot(np.arange(1, len(values) + 1), values, ".-", color=colours[name], label=name)
    axes[2].set_xlabel("round")
    axes[2].set_title("bound after each M-step, banana", fontsize="medium")
    X, y = banana()
    influence = fs.dual_parameters(model, X, y).lambda2
    for label, colour in ((0, "#2c6fbb"), (1, "#c9762c")):
        rows = y == label
        axes[3].scatter(
            X[rows, 0], X[rows, 1], s=250 * influence[rows], color=colour, alpha=0.6, linewidth=0
        )
    grid = [np.linspace(X[:, i].min() - 0.3, X[:, i].max() + 0.3, 80) for i in (0, 1)]
    points = np.stack(np.meshgrid(*grid), -1).reshape(-1, 2)
    axes[3].contour(
        *grid,
        fs.predict_y(model, points)[0].reshape(80, 80),
        levels=[0.5],
        colors="black",
        linewidths=1,
    )
    axes[3].set_title("influence of each datum", fontsize="medium")
    figure.savefig(path, dpi=110)
    return traces


def main(argv=None):
    """Train, print the table, write the picture; return the rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = *SETTINGS, "mnist", "picture", "rounds"
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(known)} (default: all)"
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        type=int,
        choices=TABLE_1,
        default=list(TABLE_1),
        help="of table 1, for mnist",
    )
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, help="replaces the default of each data set")
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="of EM in the picture; for `rounds` three times as many",
    )
    parser.add_argument("--out", default="dual")
    args = parser.parse_args(argv)
    names = args.names or list(known)
    if unknown := set(names) - set(known):
        parser.error(f"no data set {min(unknown)!r}; there are {', '.join(known)}")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    if "picture" in names:
        path = pathlib.Path(args.out, "dual.png")
        for name, values in picture(path, args.rounds).items():
            print(f"{name}: {', '.join(f'{value:.2f}' for value in values)}")
        print(f"wrote {path}")
    if "rounds" in names:
        print("| held | in 3 rounds | median | most | not at all |\n|" + "---|" * 5)
        for line in table_of_rounds(3 * args.rounds, 6 if args.steps is None else 1):
            print(line, flush=True)
        for likelihood in (fs.BernoulliLogit(), fs.Poisson()):
            each, tied = epochs_without_noise(likelihood)
            print(
                f"{type(likelihood).__name__}, three epochs of batches: {each:.1g} nats off, tied"
                f" {tied:.2g}"
            )
    print("| data | method | RMSE or error | NLPD | bound per datum |\n|" + "---|" * 5)
    rows = []
    for line in table(names, args):
        rows.append(line)
        print(line, flush=True)
    return rows


if __name__ == "__main__":
    main()
