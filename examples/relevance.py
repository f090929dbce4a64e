"""Train a relevance vector machine on sinc, and plot augmented predictive variances.

    python examples/relevance.py                # tables and two pictures; half a minute
    python examples/relevance.py sinc --rows 2000 --steps 0
    python examples/relevance.py augmented

The figures are Fig. 3 and 2 of Evans and Nair 2018. sinc: one basis function per datum, with
learned precisions. In turns: the optimal mean, variances and precisions, then irrelevant functions
are pruned permanently. From samples: half of the functions and 100 data per step, AdaGrad with a
kriged control, with variances and precisions in closed form every 20 steps. augmented: standard
deviations of f by an exact GP and by a QSGP with a function at each of its 20 data, mean field and
full.
"""

import argparse
import pathlib
import time

import numpy as np

import fastsvgp as fs

NOISE = 0.1  # standard deviation
EDGE = 10.0  # inputs are between -EDGE and EDGE
LOOKS = 10, 20, 50, 300, 1000, 3000  # turns or steps after which the scores are computed
PLACES = np.array([0.0, 5.0, 10.0, 11.0, 12.0, 15.0])


def sinc(n, seed):
    """Return ``(X, Y)``, sorted."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(-EDGE, EDGE, n))[:, None]
    return X, np.sinc(X[:, 0] / np.pi) + NOISE * rng.standard_normal(n)


def at_start(basis):
    """Return the mean-field start, at weights of 0."""
    m = basis.num_functions()
    return fs.QSGP(
        basis,
        fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m)),
        fs.Gaussian(NOISE**2),
    )


# --- relevance vectors ----------------------------------------------------------------------------


def in_turns(model, X, Y, turns, look):
    """Alternate optimal mean and variances, precisions, and pruning.

    Calls ``look(model, turn)`` after some of the turns.
    """
    for turn in range(1, turns + 1):
        model, _ = fs.qsgp.optimal_weights(model, X, Y, iterations=50)
        model = fs.qsgp.optimal_precision(model)
        model = fs.qsgp.prune(model, fs.qsgp.relevance_vectors(model))
        look(model, turn)
    return model


def from_samples(model, X, Y, steps, look, batch=100, points=50):
    """Train the mean from samples of functions and of data."""
    rng, n = np.random.default_rng(0), len(X)
    optimiser = fs.optim.adagrad(
        0.05, fixed=("basis", "likelihood", "posterior.columns", "posterior.diagonal")
    )
    model = fs.qsgp.optimal_diagonal(model, X)
    state, control = (
        optimiser.init(model),
        fs.qsgp.kriging_control_variate(model, X[:: max(1, n // points)].copy()),
    )
    for step in range(1, steps + 1):
        rows = rng.choice(n, min(batch, n), replace=False)
        sample = fs.qsgp.draw_basis_sample(model.basis, n // 2, rng=rng)
        value, grad, _ = fs.qsgp.sampled_bound_and_grad(
            model, X[rows], Y[rows], sample, num_data=n, wrt="posterior.mean", control=control
        )
        moved = grad.posterior.mean.rows
        before = model.posterior.mean[moved]
        model, state = optimiser.step(model, grad, state, value)
        change = fs.qsgp.SparseRows(moved, model.posterior.mean[moved] - before)
        control = fs.qsgp.update_control_variate(
            model, control, fs.qsgp.ChevronWeights(change, None, None)
        )
        if step % 20 == 0:
            model = fs.qsgp.optimal_precision(fs.qsgp.optimal_diagonal(model, X))
        look(model, step)
    return fs.qsgp.prune(model, fs.qsgp.relevance_vectors(model))


def vectors(n, turns, steps):
    """Return ``(X, Y, {how: pruned model})``, and print a table."""
    X, Y = sinc(n, 0)
    grid = np.linspace(-EDGE, EDGE, 400)[:, None]
    model = at_start(fs.qsgp.RelevanceBasis(fs.RBF(1.0, 1.0), X, np.ones(n)))
    print(
        "| how | turns or steps | seconds | relevance vectors | bound | RMSE to sinc |\n|"
        + " --- |" * 6
    )
    found = {}
    for how, train, count in (("in turns", in_turns, turns), ("from samples", from_samples, steps)):
        started, aside = time.perf_counter(), 0.0

        def look(there, at, how=how, count=count, started=started):
            nonlocal aside
            if at in LOOKS or at == count:
                now = time.perf_counter()
                error = fs.predict_f(there, grid)[0] - np.sinc(grid[:, 0] / np.pi)
                left, bound = len(fs.qsgp.relevance_vectors(there)), fs.qsgp.bound(there, X, Y)
                scores = f"{left} | {bound:.1f} | {np.sqrt(np.mean(error**2)):.4f}"
                print(f"| {how} | {at:,} | {now - started - aside:.1f} | {scores} |", flush=True)
                aside += time.perf_counter() - now

        if count:
            found[how] = train(model, X, Y, count, look)
    return X, Y, found


# --- augmented predictions ------------------------------------------------------------------------


def deviations(grid):
    """Return ``(X, Y, mean, {name: standard deviations at the grid})``.

    The names are the exact GP, and QSGPs with a function at each datum.
    """
    X, Y = sinc(20, 1)
    covariance = fs.RBF(0.3, 1.5)
    exact = fs.optimal_svgp(fs.SGPR(covariance, X, noise_variance=NOISE**2), X, Y)
    mean, var = fs.predict_f(exact, grid)
    field, _ = fs.qsgp.optimal_weights(
        at_start(fs.qsgp.InducingBasis(covariance, X)), X, Y, iterations=300
    )
    K = covariance.Kff(X)
    weights = np.linalg.inv(K @ K / NOISE**2 + K + 1e-6 * np.eye(len(X)))
    full = fs.replace(
        field,
        posterior=fs.qsgp.ChevronWeights(
            field.posterior.mean, np.linalg.cholesky(weights), np.empty(0)
        ),
    )
    found = {"exact GP": np.sqrt(var)}
    for name, model in (("mean field", field), ("full", full)):
        found[name] = np.sqrt(fs.predict_f(model, grid)[1])
        found[f"{name}, augmented"] = np.sqrt(fs.predict_f(model, grid, augmented=True)[1])
    return X, Y, mean, found


def table():
    """Return rows of standard deviations at some inputs."""
    *_, found = deviations(PLACES[:, None])
    print(
        "| standard deviation of f at | "
        + " | ".join(f"{x:g}" for x in PLACES)
        + " |\n|"
        + " --- |" * (1 + len(PLACES))
    )
    for name, values in found.items():
        print(f"| {name} | " + " | ".join(f"{value:.3f}" for value in values) + " |")
    return found


# --- the pictures ---------------------------------------------------------------------------------


def panels(count, height=3.4):
    """Return ``(figure, axes)`` without a display. Needs Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.4 * count, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(1, count, sharey=True, squeeze=False)[0]


def band(ax, grid, mean, sd, **style):
    ax.fill_between(grid[:, 0], mean - sd, mean + sd, linewidth=0, **style)
    ax.set_xlim(grid[0, 0], grid[-1, 0])


def picture_of_vectors(path, X, Y, models):
    """Plot mean and one standard deviation of the targets, the data, and the relevance vectors."""
    figure, axes = panels(len(models))
    grid = np.linspace(-EDGE, EDGE, 400)[:, None]
    for ax, (how, model) in zip(axes, models.items(), strict=True):
        mean, var = fs.predict_y(model, grid)
        band(ax, grid, mean, np.sqrt(var), color="#2c6fbb", alpha=0.25)
        ax.plot(grid[:, 0], mean, color="#2c6fbb")
        ax.plot(X[:, 0], Y, ".", color="#8a8a8a", markersize=3)
        there = np.isin(X[:, 0], model.basis.inducing[:, 0])
        ax.plot(X[there, 0], Y[there], "o", color="black", markersize=7)
        ax.set_title(f"{how}: {there.sum()} of {len(X)} functions stay", fontsize="medium")
    figure.savefig(path, dpi=110)


def picture_of_variance(path):
    """Plot one standard deviation of f, plain and augmented, and that of the exact GP."""
    grid = np.linspace(-1.8 * EDGE, 1.8 * EDGE, 400)[:, None]
    X, Y, mean, found = deviations(grid)
    figure, axes = panels(2)
    for ax, name in zip(axes, ("mean field", "full"), strict=True):
        band(
            ax,
            grid,
            mean,
            found[f"{name}, augmented"],
            color="#2c6fbb",
            alpha=0.2,
            label=f"{name}, augmented",
        )
        band(ax, grid, mean, found[name], color="#2c6fbb", alpha=0.45, label=name)
        for sign in (-1, 1):
            ax.plot(
                grid[:, 0],
                mean + sign * found["exact GP"],
                "k--",
                linewidth=1,
                label="exact GP" if sign > 0 else None,
            )
        ax.plot(grid[:, 0], mean, color="#2c6fbb")
        ax.plot(X[:, 0], Y, ".", color="black", markersize=6)
        ax.legend(loc="upper left", fontsize="small")
    figure.savefig(path, dpi=110)


def main(argv=None):
    """Train, print tables, write pictures if Matplotlib is installed; return the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="sinc, augmented (default: both)")
    parser.add_argument("--rows", type=int, default=500, help="for sinc")
    parser.add_argument("--turns", type=int, default=100, help="for sinc")
    parser.add_argument("--steps", type=int, default=5000, help="for sinc, from samples; 0 is none")
    parser.add_argument("--out", default="relevance", help="the folder of the pictures")
    args = parser.parse_args(argv)
    unknown = set(args.names) - {"sinc", "augmented"}
    if unknown:
        parser.error(f"unknown name {unknown.pop()!r}; choose sinc or augmented")
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        drawing = False
        print("no pictures without Matplotlib")
    else:
        drawing = True
        pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    names, found = args.names or ("sinc", "augmented"), {}
    if "sinc" in names:
        X, Y, found["sinc"] = vectors(args.rows, args.turns, args.steps)
        if drawing:
            picture_of_vectors(pathlib.Path(args.out, "relevance.png"), X, Y, found["sinc"])
    if "augmented" in names:
        found["augmented"] = table()
        if drawing:
            picture_of_variance(pathlib.Path(args.out, "augmented.png"))
    return found


if __name__ == "__main__":
    main()
