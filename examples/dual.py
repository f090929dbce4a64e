"""Compare dual sites with a fixed q(u): bounds as the prior changes, rounds of EM, influence.

    python examples/dual.py picture                  # dual.png: a minute
    python examples/dual.py rounds                   # rounds of EM of 24 problems: two minutes

The paper is Adam et al. 2021. Inducing inputs are fixed. Reads ../shared/data or the folder that
FASTSVGP_DATA names.
"""

import argparse
import pathlib

import mnist
import numpy as np

import fastsvgp as fs

DATA = mnist.FOLDER


def banana():
    return np.loadtxt(DATA / "banana.X.csv", delimiter=","), np.loadtxt(
        DATA / "banana.y.csv", delimiter=","
    )


def start(kind, covariance, inducing, likelihood, outputs=None):
    """Return the model with q = prior."""
    return fs.SVGP(
        covariance,
        inducing,
        fs.posteriors.at_prior(kind, covariance, inducing, outputs=outputs),
        likelihood,
    )


# --- rounds of EM ---------------------------------------------------------------------------------


HELD = {
    "absorbed sites": fs.posteriors.AbsorbedDualSites,
    "a site for each datum": fs.sites.SiteSVGP,
    "dual sites": fs.posteriors.DualSites,
    "whitened q": fs.Whitened,
    "q": fs.Marginal,
}
# variance and lengthscale, far from the optimum
STARTS = (4.0, 0.4), (0.2, 1.5), (5.0, 2.0), (0.1, 0.3), (1.0, 0.2), (8.0, 1.0)


def em_of(kind, covariance, inducing, likelihood, X, y, **options):
    """Return the bound after each M-step with this held fixed, and the final model.

    Inducing inputs are fixed.
    """
    if kind is fs.sites.SiteSVGP:
        model = kind(
            covariance, inducing, fs.sites.Sites(np.zeros(len(X)), np.zeros(len(X))), likelihood
        )
    else:
        model = start(kind, covariance, inducing, likelihood)
    fixed = ("inducing", "likelihood") if any(fs.records.leaves(likelihood)) else ("inducing",)
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
    likelihoods = (
        fs.Gaussian(0.1),
        fs.StudentT(0.3, df=4.0),
        fs.likelihoods.BernoulliLogit(),
        fs.Poisson(),
    )
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
    each = fs.sites.SiteSVGP(
        covariance, inducing, fs.sites.Sites(np.zeros(N), np.zeros(N)), likelihood
    )
    tied = start(fs.posteriors.AbsorbedDualSites, covariance, inducing, likelihood)
    best = fs.elbo(
        fs.sites.natural_steps(
            tied, X, y, steps=300, step_size=1.0, monotone=True, tolerance=1e-12
        )[0],
        X,
        y,
    )
    for epoch in range(1, epochs + 1):
        rows = np.random.default_rng(epoch).permutation(N).reshape(-1, 100)
        each, _ = fs.sites.natural_steps(each, X, y, rows=rows, step_size=1.0)
        tied, _ = fs.sites.natural_steps(tied, X, y, rows=rows, step_size=0.1)
    return best - fs.sites.bound(each, X, y), best - fs.elbo(tied, X, y)


# --- the picture ----------------------------------------------------------------------------------


def toy(seed=0, N=60, M=8):
    """Return data of two classes, and their model at the prior."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (N, 1))
    y = (rng.random(N) < 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0])))) * 1.0
    return (
        start(
            fs.posteriors.AbsorbedDualSites,
            fs.RBF(1.0, 0.7),
            np.linspace(-2, 2, M)[:, None],
            fs.likelihoods.BernoulliLogit(),
        ),
        X,
        y,
    )


def converged(model, X, y):
    """Return the model after E-steps until convergence."""
    return fs.sites.natural_steps(
        model, X, y, steps=200, step_size=1.0, monotone=True, tolerance=1e-10
    )[0]


def bounds_as_the_prior_moves(field, factors):
    """Return ``{held: the bound at each factor}``, all equal at the factor 1."""
    model, X, y = toy()
    model = converged(model, X, y)
    sites = fs.sites.dual_parameters(model, X, y)
    held = {
        "absorbed sites": model,
        "dual sites": fs.posteriors.convert(model, fs.posteriors.DualSites),
        "whitened q": fs.posteriors.convert(model, fs.Whitened),
        "q": fs.posteriors.convert(model, fs.Marginal),
        "a site for each datum": fs.sites.SiteSVGP(
            model.covariance, model.inducing, sites, model.likelihood
        ),
    }
    path, found = f"covariance.{field}", {name: [] for name in (*held, "optimal q")}
    for factor in factors:
        covariance = fs.records.replace_at(
            model, path, getattr(model.covariance, field) * factor
        ).covariance
        for name, one in held.items():
            moved = fs.replace(one, covariance=covariance)
            found[name].append(
                (fs.sites.bound if name == "a site for each datum" else fs.elbo)(moved, X, y)
            )
        afresh = start(
            fs.posteriors.AbsorbedDualSites, covariance, model.inducing, model.likelihood
        )
        found["optimal q"].append(fs.elbo(converged(afresh, X, y), X, y))
    return found


def em_on_banana(rounds):
    """Return ``{held: the bound after each M-step}`` and the first model: Fig. 1 of the paper.

    Inducing inputs are fixed.
    """
    X, y = banana()
    given = (
        fs.RBF(1.0, 1.0),
        fs.inducing.kmeans(X, 50, rng=0),
        fs.likelihoods.BernoulliLogit(),
        X,
        y,
    )
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
    influence = fs.sites.dual_parameters(model, X, y).lambda2
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
    """Write the picture, print its bounds and the table of rounds."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    known = "picture", "rounds"
    parser.add_argument("names", nargs="*", metavar="NAME", help="picture, rounds (default: both)")
    parser.add_argument(
        "--rounds",
        type=int,
        default=20,
        help="of EM in the picture; for `rounds` three times as many",
    )
    parser.add_argument("--seeds", type=int, default=6, help="of each likelihood, for `rounds`")
    parser.add_argument("--out", default="dual")
    args = parser.parse_args(argv)
    names = args.names or known
    if unknown := set(names) - set(known):
        parser.error(f"no {min(unknown)!r}; there are {' and '.join(known)}")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    if "picture" in names:
        path = pathlib.Path(args.out, "dual.png")
        for name, values in picture(path, args.rounds).items():
            print(f"{name}: {', '.join(f'{value:.2f}' for value in values)}")
        print(f"wrote {path}")
    if "rounds" in names:
        print("| held | in 3 rounds | median | most | not at all |\n|" + "---|" * 5)
        for line in table_of_rounds(3 * args.rounds, args.seeds):
            print(line, flush=True)
        for likelihood in (fs.likelihoods.BernoulliLogit(), fs.Poisson()):
            each, tied = epochs_without_noise(likelihood)
            print(
                f"{type(likelihood).__name__}, three epochs of batches: {each:.1g} nats off, tied"
                f" {tied:.2g}"
            )


if __name__ == "__main__":
    main()
