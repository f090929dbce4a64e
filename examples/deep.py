"""Deep GPs: a step function by one, two and three layers, and held-out scores of kin40k.

    python examples/deep.py step                            # the picture (PNG): two minutes
    python examples/deep.py kin40k --layers 2 --method lsvgp              # 20,000 steps
    python examples/deep.py kin40k --layers 2 --method svgp --natural 0.1 --steps 3000
    python examples/deep.py kin40k --layers 2 --method svgp --natural 0.1 0.01 --steps 3000
    python examples/deep.py kin40k --layers 2 --method svgp --steps 6000  # Adam, equal time
    python examples/deep.py kin40k --layers 2 --method rsvgp --steps 1000

kin40k as in appendix S5 of Cortinovis et al. 2026: split 0, squared exponential with one
lengthscale per input, M = 500 in each layer, batches of 1000, Adam with 5e-3, reduced by 5 % if the
objective does not rise for 1000 steps. Each run prints a Markdown row every --report-every steps
and keeps a checkpoint in --out. The same command, or one with more steps, resumes from it. Reads
../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import pathlib
import sys

import numpy as np
from inverse_free import DATA, table

import fastsvgp as fs

METHODS = {
    "svgp": fs.Whitened,
    "lsvgp": fs.posteriors.LikelihoodForm,
    "rsvgp": fs.posteriors.Relaxed,
}
DEPTHS = 1, 2, 3
COLUMNS = (
    "| layers | method | step | seconds | bound per datum | RMSE | NLPD |\n" + "|---" * 7 + "|"
)


# --- a step function ------------------------------------------------------------------------------


def step_function(N=100, rng=None):
    """Return (X, y): two levels, with little noise."""
    rng = np.random.default_rng(rng)
    X = np.sort(rng.uniform(-1, 1, (N, 1)), axis=0)
    return X, np.where(X[:, 0] > 0, 0.5, -0.5) + 0.03 * rng.standard_normal(N)


def on_steps(layers, steps, M=20):
    """Return a model of the step function, and its bound by 64 draws."""
    X, y = step_function(rng=0)
    model = fs.layers.deep_gp(X, fs.Gaussian(variance=0.01), layers, M, rng=0)
    model, _ = fs.fit(
        model,
        X,
        y,
        steps=steps,
        optimiser=fs.adam(0.01),
        natural_step_size=0.1,
        num_samples=4,
        rng=0,
    )
    return model, fs.elbo(model, X, y, num_samples=64, rng=0)


def picture(path, steps):
    """Plot samples of the function, and the mean of the targets ± two standard deviations.

    Needs Matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    X, y = step_function(rng=0)
    figure, grid = (
        Figure(figsize=(4.2 * len(DEPTHS), 3.6), layout="constrained"),
        np.linspace(-1.5, 1.5, 201)[:, None],
    )
    FigureCanvasAgg(figure)
    for ax, layers in zip(figure.subplots(1, len(DEPTHS), sharey=True), DEPTHS, strict=True):
        model, bound = on_steps(layers, steps)
        mean, var = fs.predict_y(model, grid)
        ax.fill_between(
            grid[:, 0],
            mean - 2 * np.sqrt(var),
            mean + 2 * np.sqrt(var),
            color="#2c6fbb",
            alpha=0.18,
            linewidth=0,
        )
        ax.plot(
            grid[:, 0],
            fs.sample_f(model, grid, 10, rng=0).T,
            color="#2c6fbb",
            linewidth=0.6,
            alpha=0.7,
        )
        ax.plot(X[:, 0], y, ".", color="black", markersize=4)
        ax.set(xlim=(grid[0, 0], grid[-1, 0]), ylim=(-1.2, 1.2))
        ax.set_title(f"{layers} layer{'s' * (layers > 1)}: bound {bound:.0f}", fontsize="medium")
        print(f"{layers} layers: bound {bound:.1f}", flush=True)
    figure.savefig(path, dpi=130)


# --- kin40k ---------------------------------------------------------------------------------------


def scores(model, X, y):
    """Return RMSE and NLPD."""
    mean, _ = fs.predict_y(model, X, num_samples=16)
    return float(np.sqrt(np.mean((mean - y) ** 2))), -float(
        np.mean(fs.predict_log_density(model, X, y, num_samples=16))
    )


def natural_sizes(given):
    """Return the sizes of natural steps as ``fit`` takes them: none, one, or a falling one."""
    if len(given) == 2:
        return fs.optim.schedules.cosine(*given, "all")
    return given[0] if given else None


def prepared(method, X, layers, *, inducing=500, batch_size=1000, draws=2, seed=0):
    """Return ``(start, options of fs.fit)`` of a model of kin40k."""
    noise = fs.Gaussian(variance=0.1)
    model = fs.layers.deep_gp(X, noise, layers, inducing, posterior=METHODS[method], rng=seed)
    options = {
        "batch_size": batch_size,
        "optimiser": fs.adam(fs.optim.schedules.plateau(5e-3, 0.95, 1000)),
        "num_samples": draws,
        "rng": seed,
    }
    return model, options


def kin40k(args):
    """Train one model; return its rows (step, seconds, bound per datum, RMSE, NLPD)."""
    X, y, Xs, ys = table("kin40k", 0)
    name = "-".join(
        [
            args.method,
            *(["natural"] if args.natural else []),
            *(["falling"] if len(args.natural) > 1 else []),
            *(["float32"] if args.float32 else []),
        ]
    )
    if args.float32:
        X, y, Xs, ys = (a.astype(np.float32) for a in (X, y, Xs, ys))
    path, rows = pathlib.Path(args.out, f"kin40k-{args.layers}-{name}-{args.inducing}.npz"), []
    model, options = prepared(
        args.method,
        X,
        args.layers,
        inducing=args.inducing,
        batch_size=args.batch_size,
        draws=args.draws,
        seed=args.seed,
    )

    def report(step, value, info):
        if step % args.report_every and step != args.steps:
            return
        rows.append(
            (step, info.seconds, float(info.smoothed / len(X)), *scores(info.model, Xs, ys))
        )
        numbers = "{} | {:.0f} | {:.4f} | {:.4f} | {:.4f}".format(*rows[-1])
        print(f"| {args.layers} | {name} | {numbers} |", flush=True)

    print(COLUMNS)
    _, info = fs.fit(
        model,
        X,
        y,
        steps=args.steps,
        natural_step_size=natural_sizes(args.natural),
        callback=report,
        checkpoint=path,
        resume=path if path.is_file() else None,
        **options,
    )
    if info.interrupted:
        sys.exit(f"interrupted; run the same command to resume from {path}")
    return rows


def main(argv=None):
    """Run one of the two; return the rows of kin40k."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=("step", "kin40k"))
    parser.add_argument("--steps", type=int, help="default 2000 for step, 20000 for kin40k")
    parser.add_argument("--layers", type=int, default=2, help="for kin40k, like the following")
    parser.add_argument("--method", choices=METHODS, default="lsvgp")
    parser.add_argument(
        "--natural",
        type=float,
        nargs="+",
        default=[],
        metavar="SIZE",
        help="of natural steps in all layers (svgp); two: the first and the last, along a cosine",
    )
    parser.add_argument("--inducing", type=int, default=500)
    parser.add_argument("--batch-size", type=int, default=1000)
    parser.add_argument(
        "--draws", type=int, default=2, help="of the hidden layers, for each row of a batch"
    )
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--out", default="deep", help="folder of the checkpoints and the picture")
    args = parser.parse_args(argv)
    if len(args.natural) > 2:
        parser.error("--natural takes one size, or the first and the last")
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    if args.name == "step":
        return picture(pathlib.Path(args.out, "deep.png"), args.steps or 2000)
    args.steps = args.steps or 20_000
    try:
        return kin40k(args)
    except FileNotFoundError as error:
        sys.exit(f"no such data: {error}; set FASTSVGP_DATA to the folder that has them ({DATA})")


if __name__ == "__main__":
    main()
