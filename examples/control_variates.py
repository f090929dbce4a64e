"""Measure the effect of two control variates on sampled bounds and on the tangent bound.

    python examples/control_variates.py kin40k     # tables, control_variates.png: minutes
    python examples/control_variates.py classes    # the tangent bound of labels: a minute

The first is Fig. 1 of Evans and Nair 2018, variances against the number of points: samples of 500
rows and 500 of 10,000 random Fourier features, at a mean from the prior with zero targets, and at a
fitted mean with the targets of the data. Variances are divided by those without a control. Reads
../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import pathlib
import sys

import numpy as np
import weight_space

import fastsvgp as fs

DATA = weight_space.DATA
TINY = 1e-8  # standard deviations of the weights; small, so only the terms of the mean vary
KINDS = {
    "eq. 3": lambda model, points, targets: fs.qsgp.paired_control_variate(model, points),
    "eq. 3, targets, running": lambda model, points, targets: fs.qsgp.paired_control_variate(
        model, points, "running", targets=targets
    ),
    "kriged": lambda model, points, targets: fs.qsgp.kriging_control_variate(model, points),
}
COLOURS = {"eq. 3": "#c9762c", "eq. 3, targets, running": "#a03b6a", "kriged": "#2c6fbb"}


def spread(model, X, Y, control, args):
    """Return ``(variance of the data term, mean variance of the gradient in the mean)``."""
    rng, m = np.random.default_rng(2), len(model.posterior.mean)
    values, sums = [], np.zeros((2, m))
    for _ in range(args.evaluations):
        rows = rng.choice(len(X), args.batch, replace=False)
        sample = fs.qsgp.draw_basis_sample(model.basis, args.size, rng=rng)
        _, grad, info = fs.qsgp.sampled_bound_and_grad(
            model, X[rows], Y[rows], sample, num_data=len(X), wrt="posterior.mean", control=control
        )
        control = info.control
        values.append(info.terms[0])
        found = grad.posterior.mean.dense(m)
        sums += found, found**2
    first, second = sums / args.evaluations
    return np.var(values), np.mean(second - first**2)


def against_points(model, X, Y, args):
    """Return ``{kind: (points, value left, gradient left)}``, and print a row for each."""
    order, found = np.random.default_rng(1).permutation(len(X)), {kind: [] for kind in KINDS}
    plain = spread(model, X, Y, None, args)
    for count in args.points:
        some = order[:count]
        for kind, make in KINDS.items():
            left = np.divide(spread(model, X, Y, make(model, X[some], Y[some]), args), plain)
            found[kind].append((count, *left))
            print(f"| {kind} | {count} | {left[0]:.4f} | {left[1]:.4f} |", flush=True)
    return {kind: np.transpose(rows) for kind, rows in found.items()}


def figure_1(name, args):
    """Print the tables of both means, and draw the picture."""
    X, y, _, _ = weight_space.rows_of(name)
    covariance, noise = weight_space.hyperparameters(X, y, args.exact, np.random.default_rng(0))
    m = args.features
    q = fs.qsgp.ChevronWeights(
        np.random.default_rng(0).standard_normal(m), np.zeros((m, 0)), np.full(m, TINY)
    )
    prior = fs.QSGP(
        fs.qsgp.RandomFourier(covariance, num_features=m, seed=0), q, fs.Gaussian(variance=noise)
    )
    some = np.random.default_rng(3).choice(len(X), min(len(X), 4000), replace=False)
    zeros = fs.records.replace_at(prior, "posterior.mean", np.zeros(m))
    best, _ = fs.qsgp.optimal_weights(zeros, X[some], y[some], iterations=args.iterations)
    fitted = fs.records.replace_at(best, "posterior.diagonal", q.diagonal)
    panels = {}
    for title, model, Y in (
        ("a mean from the prior", prior, np.zeros_like(y)),
        ("a fitted mean", fitted, y),
    ):
        print(f"{title}\n\n| control | points | value | gradient |\n| --- | --- | --- | --- |")
        panels[title] = against_points(model, X, Y, args)
    return panels


def picture(path, panels):
    """Plot the remaining variance against the number of points. Needs Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (title, curves) in zip(axes, panels.items(), strict=True):
        for kind, (points, value, gradient) in curves.items():
            ax.loglog(points, value, "o-", color=COLOURS[kind], label=f"{kind}: value")
            ax.loglog(
                points,
                gradient,
                "s--",
                color=COLOURS[kind],
                label="gradient",
                markerfacecolor="none",
            )
        ax.axhline(1, color="#8a8a8a", linewidth=1)
        ax.set_title(title, fontsize="medium")
        ax.set_xlabel("points of the control")
    axes[0].set_ylabel("variance, of that without a control")
    axes[1].legend(fontsize="small")
    figure.savefig(path, dpi=110)


def logistic(m, iterations, n=300):
    """Return a model of labels at two inputs, trained almost to the maximum, and its data."""
    from scipy.optimize import minimize

    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (n, 2))
    chances = 1 / (1 + np.exp(-3 * np.sin(2 * X[:, 0]) * np.cos(X[:, 1])))
    Y = (rng.random(n) < chances) * 1.0
    q = fs.qsgp.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.full(m, 0.7))
    model = fs.QSGP(
        fs.qsgp.RandomFourier(fs.RBF(2.0, 0.7), num_features=m, seed=0),
        q,
        fs.likelihoods.BernoulliLogit(),
    )
    start, unravel = fs.ravel(model, fixed=("basis", "posterior.columns", "posterior.diagonal"))

    def loss(vector):
        value, grad = fs.qsgp.bound_and_grad(unravel(vector), X, Y, wrt="posterior.mean")
        return -value, -unravel.pullback(vector, grad)

    return (
        unravel(
            minimize(loss, start, jac=True, method="L-BFGS-B", options={"maxiter": iterations}).x
        ),
        X,
        Y,
    )


def classes(args):
    """Return the rows of a table: the tangent bound with its best t, without and with a control."""
    m = args.features // 5
    model, X, Y = logistic(m, args.iterations)
    t = np.sqrt(fs.predict_f(model, X)[1])
    everything = fs.qsgp.BasisSample(*[np.arange(m // 2)] * 2)
    exact = fs.qsgp.sampled_bound_and_grad(model, X, Y, everything, wrt=(), tangent=t)[2].terms[0]
    print(
        "| features | control | gap per datum | variance of the gradient |\n"
        "| --- | --- | --- | --- |"
    )
    found = []
    for size in (25, 250):
        for points in (0, 20, 60):
            control = fs.qsgp.kriging_control_variate(model, X[:points]) if points else None
            values, sums = [], np.zeros((2, m))
            for seed in range(args.evaluations):
                sample = fs.qsgp.draw_basis_sample(model.basis, min(size, m // 2), rng=seed)
                _, grad, info = fs.qsgp.sampled_bound_and_grad(
                    model, X, Y, sample, wrt="posterior.mean", control=control, tangent=t
                )
                values.append(info.terms[0])
                bar = grad.posterior.mean.dense(m)
                sums += bar, bar**2
            first, second = sums / args.evaluations
            found.append(
                (2 * size, points, (exact - np.mean(values)) / len(X), np.sum(second - first**2))
            )
            name = f"{points} points" if points else "none"
            print(f"| {2 * size} | {name} | {found[-1][2]:.5f} | {found[-1][3]:.0f} |", flush=True)
    return found


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", help="a data set, or: classes")
    parser.add_argument("--features", type=int, default=10_000, help="for classes a fifth of them")
    parser.add_argument(
        "--size", type=int, default=250, help="frequencies of a sample, of two features each"
    )
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--points", type=int, nargs="+", default=[10, 30, 100, 300, 1000])
    parser.add_argument("--evaluations", type=int, default=1000)
    parser.add_argument(
        "--iterations",
        type=int,
        default=30,
        help="conjugate-gradient iterations of the fitted mean",
    )
    parser.add_argument(
        "--exact", type=int, default=1000, help="rows that the hyperparameters are learned from"
    )
    parser.add_argument("--out", default=".")
    args = parser.parse_args(arguments)
    if args.name == "classes":
        return classes(args)
    panels = figure_1(args.name, args)
    path = pathlib.Path(args.out, "control_variates.png")
    picture(path, panels)
    print(f"wrote {path}")
    return panels


if __name__ == "__main__":
    main(sys.argv[1:])
