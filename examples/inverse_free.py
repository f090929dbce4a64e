"""Compare L-SVGP and inverse-free R-SVGP with whitened SVGP: same start, batches and optimiser.

    python examples/inverse_free.py snelson banana        # the bound by steps: Fig. 1 of the paper
    python examples/inverse_free.py kin40k elevators      # scores and time per step: hours
    python examples/inverse_free.py kin40k --steps 5000 --resume    # from the checkpoints in --out
    python examples/inverse_free.py kin40k --steps 100 --turn 10 --rest 0    # time of a step

The paper is Cortinovis et al. 2026. On kin40k and elevators the methods take turns of a few steps
each, so other load on the machine affects all of them; the time of a step is a median. Training as
in appendix S5 of the paper: squared exponential with one lengthscale per input, a start at
variances and lengthscales 1 and S~ = 1e-4 I, batches of 100, Adam with 5e-3, inducing inputs that
are fixed for 1000 steps and then change slowly. The paper stops the inner loop at a residual of
5e-3; here it is 1e-3, because skipped updates of the factor add up to a lag behind L-SVGP
(--direction likelihood tolerates them). Reads ../shared/data or the folder that FASTSVGP_DATA
names.
"""

import argparse
import math
import os
import sys
import time
from typing import NamedTuple

import mnist
import numpy as np

import fastsvgp as fs

DATA = mnist.FOLDER
PSEUDO_NOISE, COLD = 1e-4, 1e-3  # start of S~ and of the factor L of R-SVGP, times I
# fixed inducing inputs, and the step size of Adam
TOYS = {"snelson": (10, 5e-3), "banana": (64, 1e-2)}
TABLES = ("kin40k", "elevators")
TRACE_POINTS = 100
METHODS = ("W-SVGP", "L-SVGP", "R-SVGP")
# curves of the figure; "plain": the mean is not preconditioned, "by Adam": the factor of R-SVGP is
# trained with the rest
CURVES = (
    "W-SVGP",
    "L-SVGP, plain",
    "L-SVGP",
    "R-SVGP, plain, by Adam",
    "R-SVGP, by Adam",
    "R-SVGP, plain",
    "R-SVGP",
)


def slow_inducing(after):
    """Return the optimiser of Cortinovis et al., section 3.4: inducing inputs late and slowly."""
    slow = fs.adam(fs.optim.schedules.plateau(1e-3, factor=0.95, patience=100), beta1=0.99)
    return fs.optim.by_field(fs.adam(5e-3), {"inducing": slow}, after={"inducing": after})


def posterior(method, M):
    """Return the start of each method or curve."""
    mean, noise, preconditioned = np.zeros(M), np.full(M, PSEUDO_NOISE), "plain" not in method
    if method == "W-SVGP":
        return fs.Whitened(mean, np.eye(M))
    if method.startswith("R-SVGP"):
        return fs.posteriors.Relaxed(mean, noise, COLD * np.eye(M), preconditioned=preconditioned)
    return fs.posteriors.LikelihoodForm(mean, noise, preconditioned=preconditioned)


def read(name):
    """Return the numbers of a csv file of the data folder."""
    return np.loadtxt(DATA / name, delimiter=",", ndmin=2)


# --- traces of the bound --------------------------------------------------------------------------


def toy(name):
    """Return inputs, targets, likelihood and inducing inputs, unscaled as in the paper."""
    M, _ = TOYS[name]
    if name == "snelson":
        X, y = np.hsplit(read("snelson.csv.gz"), 2)
        return X, y[:, 0], fs.Gaussian(variance=1.0), np.linspace(X.min(), X.max(), M)[:, None]
    X = read("banana.X.csv")
    return X, read("banana.y.csv")[:, 0], fs.BernoulliProbit(), fs.inducing.kmeans(X, M, rng=0)


class Trace(NamedTuple):
    """The bound of all data at some of the steps, and the final NLPD of the training data."""

    method: str
    steps: list
    elbos: list
    nlpd: float


def trace(name, method, steps):
    """Train one method on a toy problem."""
    X, y, likelihood, Z = toy(name)
    M, rate = TOYS[name]
    model = fs.SVGP(
        fs.RBF(variance=1.0, lengthscales=np.ones(X.shape[1])), Z, posterior(method, M), likelihood
    )
    # evenly spaced on a logarithmic axis
    at = {round(steps ** (k / TRACE_POINTS)) for k in range(TRACE_POINTS + 1)}
    found = Trace(method, [], [], math.nan)

    def watch(step, value, info):
        if step in at:
            found.steps.append(step)
            found.elbos.append(fs.elbo(info.model, X, y))

    options = {"optimiser": fs.adam(rate, fixed="inducing"), "batch_size": M, "rng": 0}
    if "by Adam" in method:
        options["inverse_updates"] = False
    model, _ = fs.fit(model, X, y, steps=steps, callback=watch, **options)
    return found._replace(nlpd=-float(np.mean(fs.predict_log_density(model, X, y))))


def plot(path, traces):
    """Plot all traces as a PNG, one panel per data set; needs Matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5.2 * len(traces), 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    styles = {"W": "-", "L": "--", "R": ":"}
    for ax, (name, found) in zip(
        figure.subplots(1, len(traces), squeeze=False)[0], traces.items(), strict=True
    ):
        for t in found:
            ax.plot(
                t.steps,
                [-elbo for elbo in t.elbos],
                styles[t.method[0]],
                label=t.method,
                linewidth=2,
            )
        ax.set(title=name, xlabel="steps", ylabel="negative ELBO", xscale="log")
        ax.legend()
    figure.savefig(path, dpi=130)


# --- held-out scores and the time of a step -------------------------------------------------------


def table(name, split):
    """Return (X, y, test X, test y), standardised by the training part."""
    rows, test = read(f"{name}.data.csv.gz"), read(f"{name}.test_mask.csv.gz")[:, split] > 0
    rows = (rows - rows[~test].mean(axis=0)) / rows[~test].std(axis=0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    return X[~test], y[~test], X[test], y[test]


class Contestant:
    """One method during the training."""

    def __init__(self, method, model, options, path):
        self.method, self.model, self.path, self.options = method, model, path, options
        self.done = 0
        self.resume = None
        # seconds of each step except the first of a turn; inner updates of each step
        self.seconds, self.updates = [], []

    def go_on(self):
        """Resume from the checkpoint of an earlier run."""
        state = fs.load(self.path)
        self.model, self.done, self.resume = state.model, state.step, self.path

    def turn(self, X, y, steps):
        """Continue until ``steps`` steps are done."""
        last = None

        def watch(step, value, info):
            nonlocal last
            now = time.perf_counter()
            if last is not None:
                self.seconds.append(now - last)
                self.updates.append(info.inverse.steps if info.inverse else 0)
            last = time.perf_counter()

        self.model, info = fs.fit(
            self.model,
            X,
            y,
            steps=steps,
            callback=watch,
            checkpoint=self.path,
            resume=self.resume,
            **self.options,
        )
        self.done, self.resume, self.elbo = info.steps, self.path, info.smoothed
        return info


def scores(model, X, y):
    """Return RMSE and NLPD."""
    mean, _ = fs.predict_y(model, X)
    return float(np.sqrt(np.mean((mean - y) ** 2))), -float(
        np.mean(fs.predict_log_density(model, X, y))
    )


def prepared(
    method,
    X,
    inducing,
    *,
    batch_size=100,
    rest=1000,
    tolerance=1e-3,
    direction="exact",
    seed=0,
):
    """Return ``(start, options of fs.fit)`` of a method on a table.

    ``inducing`` are the inducing inputs at the start, from ``fs.inducing.kmeans``.
    """
    covariance = fs.RBF(variance=1.0, lengthscales=np.ones(X.shape[1]))
    q = posterior(method, len(inducing))
    options = {
        "optimiser": slow_inducing(rest),
        "batch_size": batch_size,
        "rng": seed,
    }
    if method == "R-SVGP":
        options["inverse_updates"] = fs.optim.inverse_updates(tolerance, direction=direction)
    return fs.SVGP(covariance, inducing, q, fs.Gaussian(variance=1.0)), options


def contest(name, args):
    """Train all methods in turns; return the contestants and the test data."""
    X, y, X_test, y_test = table(name, args.split)
    Z = fs.inducing.kmeans(X, args.inducing, rng=args.seed)
    settings = {
        key: getattr(args, key) for key in ("batch_size", "rest", "tolerance", "direction", "seed")
    }
    contestants = []
    for method in (m for m in METHODS if m[0] in args.methods):
        path = os.path.join(args.out, f"{name}-{method[0]}.npz")
        contestants.append(Contestant(method, *prepared(method, X, Z, **settings), path))
        if args.resume and os.path.exists(path):
            contestants[-1].go_on()
    started = time.perf_counter()
    while (behind := min(c.done for c in contestants)) < args.steps:
        goal = min(behind + args.turn, args.steps)
        for contestant in contestants:
            if contestant.done < goal and contestant.turn(X, y, goal).interrupted:
                sys.exit(f"interrupted; --resume continues from {args.out}")
        if goal % args.report_every == 0:
            found = ", ".join(
                "{} {:.4f} {:.4f}".format(c.method, *scores(c.model, X_test, y_test))
                for c in contestants
            )
            print(
                f"{name}, step {goal}: RMSE and NLPD {found};"
                f" {time.perf_counter() - started:.0f} s",
                flush=True,
            )
    return contestants, X_test, y_test


def contest_rows(name, args):
    """Return the rows of the table of held-out scores."""
    contestants, X_test, y_test = contest(name, args)
    medians = [float(np.median(c.seconds)) if c.seconds else math.nan for c in contestants]
    for c, seconds in zip(contestants, medians, strict=True):
        rmse, nlpd = scores(c.model, X_test, y_test)
        updates = f"{np.mean(c.updates):.2f}" if c.method == "R-SVGP" and c.updates else ""
        times = f"{1e3 * seconds:.3g} | {seconds / medians[0]:.2f}"
        yield f"| {name} | {c.method} | {rmse:.4f} | {nlpd:.4f} | {c.done} | {updates} | {times} |"


def main(argv=None):
    """Train, print the tables, write the plot; return the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = (*TOYS, *TABLES)
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(names)} (default: all)"
    )
    parser.add_argument(
        "--steps", type=int, help="default 10000 for snelson and banana, 5000 for the others"
    )
    parser.add_argument(
        "--inducing", type=int, default=1000, help="for kin40k and elevators, like the following"
    )
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--methods", default="WLR", help="times are relative to the first of them")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-3,
        help="largest normalised residual of the factor of R-SVGP",
    )
    parser.add_argument(
        "--direction",
        choices=("exact", "likelihood"),
        default="exact",
        help="of the steps of R-SVGP",
    )
    parser.add_argument(
        "--rest",
        type=int,
        default=1000,
        metavar="STEPS",
        help="number of steps with fixed inducing inputs",
    )
    parser.add_argument(
        "--turn",
        type=int,
        default=50,
        metavar="STEPS",
        help="steps of a method per turn",
    )
    parser.add_argument("--split", type=int, default=0, help="column of the test masks, 0 to 9")
    parser.add_argument("--report-every", type=int, default=500, metavar="STEPS")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--out", default="inverse-free", help="folder of the checkpoints and the plot"
    )
    args = parser.parse_args(argv)
    unknown = set(args.names) - set(names)
    if not args.methods or set(args.methods) - {m[0] for m in METHODS}:
        parser.error(f"--methods must be some of the letters WLR, got {args.methods!r}")
    if unknown:
        parser.error(f"no data set {', '.join(sorted(unknown))}; there are {', '.join(names)}")
    chosen = args.names or names
    os.makedirs(args.out, exist_ok=True)
    toys = [name for name in chosen if name in TOYS]
    rows = []
    traces = {}
    try:
        for name in toys:
            traces[name] = [trace(name, curve, args.steps or 10_000) for curve in CURVES]
            print(f"{name}: done", flush=True)
        args.steps = args.steps or 5000
        for name in chosen:
            if name in TABLES:
                rows += contest_rows(name, args)
    except FileNotFoundError as error:
        sys.exit(f"no such data: {error}; set FASTSVGP_DATA to the folder that has them")
    if traces:
        print("\n| data | method | ELBO | NLPD of the data | steps |\n|---|---|---|---|---|")
        for name, found in traces.items():
            for t in found:
                print(f"| {name} | {t.method} | {t.elbos[-1]:.2f} | {t.nlpd:.4f} | {t.steps[-1]} |")
        try:
            plot(os.path.join(args.out, "traces.png"), traces)
        except ImportError:
            print("no plot: matplotlib is not installed")
    if rows:
        print(
            "\n| data | method | RMSE | NLPD | steps | inner updates per step | ms per step |"
            " relative |\n" + "|---" * 8 + "|"
        )
        print("\n".join(rows))
    return traces, rows


if __name__ == "__main__":
    main()
