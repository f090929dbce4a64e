"""Compare SOLVE-GP with SVGP and ODVGP: scores as in Shi et al. 2020, appendix G, and its Fig. 2.

    python examples/solve_gp.py kin40k elevators bike     # a table; many hours on two cores
    python examples/solve_gp.py kin40k --rows "SVGP 1024" "SOLVE 1024+1024" --split 1
    python examples/solve_gp.py snelson                   # the picture (PNG): a minute
    python examples/solve_gp.py bike --epochs 1 --size 16 # a quick test that everything runs

Matern 3/2 with one lengthscale, batches of 1024, 100 epochs, Adam with 0.01 for all parameters from
q = prior; 64 % of the rows for training, 16 % unused, 20 % for testing. All methods start at the
same variance, noise and lengthscale (the median distance), with inducing inputs by k-means. They
are unwhitened, as in the paper's tables, except ODVGP and rows with "whitened". ODVGP's parameters
are weights of the mean, which become large: in the table their step size falls from 0.3 to 0.03,
and natural steps of 0.1 move q(u). An interrupted row resumes from its checkpoint in --out, and a
finished one is read from there. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import json
import pathlib
import sys

import mnist
import numpy as np

import fastsvgp as fs

DATA = mnist.FOLDER
TABLES = ("kin40k", "elevators", "bike")
BATCH = COLUMNS = 1024  # rows, and rows of O, per step
METHODS = {  # the posterior, and the number of inducing inputs of each set
    "SVGP 1024": (fs.Marginal, 1024, 0),
    "SVGP 2048": (fs.Marginal, 2048, 0),
    "SOLVE 1024+1024": (fs.posteriors.Orthogonal, 1024, 1024),
    "ODVGP 1024+8096": (fs.posteriors.DecoupledWeights, 1024, 8096),
    "SVGP 1536": (fs.Marginal, 1536, 0),
    "ODVGP 1024+1024": (fs.posteriors.DecoupledWeights, 1024, 1024),
    "SVGP 1024 whitened": (fs.Whitened, 1024, 0),
    "SVGP 2048 whitened": (fs.Whitened, 2048, 0),
    "SOLVE 1024+1024 whitened": (fs.posteriors.WhitenedOrthogonal, 1024, 1024),
}
TOY = {
    "SVGP 5": (fs.Marginal, 5, 0),
    "ODVGP 5+100": (fs.posteriors.DecoupledWeights, 5, 100),
    "SOLVE 5+5": (fs.posteriors.Orthogonal, 5, 5),
    "SVGP 10": (fs.Marginal, 10, 0),
}


def start(kind, M, M2, covariance, X, noise, seed):
    """Return q = prior, with k-means inducing inputs, jointly for both sets if possible."""
    if M + M2 <= len(X):
        inducing = fs.inducing.kmeans(X, (M, M2) if M2 else M, rng=seed)
    else:
        inducing = fs.posteriors.InducingPair(
            *(fs.inducing.kmeans(X, size, rng=seed) for size in (M, M2))
        )
    return fs.SVGP(
        covariance,
        inducing,
        fs.posteriors.at_prior(kind, covariance, inducing),
        fs.Gaussian(variance=noise),
    )


def training(model):
    """Return arguments of ``fit`` that depend on the posterior."""
    if type(model.posterior) is not fs.posteriors.DecoupledWeights:
        return {"optimiser": fs.adam(0.01)}
    falling = {"posterior.weights_v": fs.optim.schedules.cosine(0.3, 0.03, "all")}
    found = {"optimiser": fs.adam(0.01, step_sizes=falling), "natural_step_size": 0.1}
    # up to this size all columns cost no more than the rest of a step
    few = len(model.inducing.O) <= 2 * (len(model.inducing.Z) + BATCH)
    return found if few else found | {"sampled": COLUMNS}


# --- held-out scores ------------------------------------------------------------------------------


def split_rows(name, split, part="test"):
    """Return (X, y, test X, test y), standardised by the training part.

    The ``part`` "validation" has the 16 % between training and test rows in place of these.
    """
    rows = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    rows = rows[np.random.default_rng(split).permutation(len(rows))]
    train = rows[: int(0.64 * len(rows))]
    sd = train.std(axis=0)
    rows = (rows - train.mean(axis=0)) / np.where(sd > 0, sd, 1.0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    end = int(0.8 * len(rows))
    held = slice(end, None) if part == "test" else slice(len(train), end)
    return X[: len(train)], y[: len(train)], X[held], y[held]


def train(method, X, y, seed, epochs=100, size=1024, lengthscale=None, **options):
    """Return the trained model of a row, and the info of ``fs.fit``, which takes ``options``.

    ``size`` replaces 1024 in the row, and the other number in proportion; ``lengthscale`` is that
    of the start, the median distance if it is None. With ``resume`` the start is not computed.
    """
    kind, *sizes = METHODS[method]
    if options.get("resume"):
        model = fs.load(options["resume"]).model
    else:
        if lengthscale is None:
            lengthscale = fs.inducing.median_lengthscales(X, rng=0, ard=False)
        covariance = fs.Matern32(variance=1.0, lengthscales=lengthscale)
        model = start(kind, *(M * size // 1024 for M in sizes), covariance, X, 0.1, seed)
    settings = {"batch_size": BATCH} | training(model) | options
    return fs.fit(model, X, y, epochs=epochs, rng=seed, **settings)


def measured(model, info, data):
    """Return scores and hyperparameters of a trained model; ``data`` are those of its split."""
    X, _, Xs, ys = data
    return {
        "rmse": float(np.sqrt(np.mean((fs.predict_y(model, Xs)[0] - ys) ** 2))),
        "log density": float(np.mean(fs.predict_log_density(model, Xs, ys))),
        "bound a datum": float(info.smoothed / len(X)),
        "lengthscale": float(model.covariance.lengthscales),
        "noise sd": float(np.sqrt(model.likelihood.variance)),
    }


def scores(name, method, args):
    """Return the scores of one method on one data set, from a file or by training."""
    folder = pathlib.Path(args.out, name, f"split{args.split}", method.replace(" ", "-"))
    finished, checkpoint = folder / "scores.json", folder / "checkpoint.npz"
    if finished.is_file():
        return json.loads(finished.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    data = split_rows(name, args.split)
    resume = checkpoint if checkpoint.is_file() else None
    model, info = train(
        method, *data[:2], args.split, args.epochs, args.size, checkpoint=checkpoint, resume=resume
    )
    if info.interrupted:
        sys.exit(f"interrupted; run the same command to resume from {checkpoint}")
    found = measured(model, info, data)
    finished.write_text(json.dumps(found))
    checkpoint.unlink()
    return found


def trivial(name, split):
    """Return RMSE and log density of the training part's mean and variance."""
    _, y, _, ys = split_rows(name, split)
    log_density = -0.5 * np.mean(np.log(2 * np.pi * y.var()) + (ys - y.mean()) ** 2 / y.var())
    return float(np.sqrt(np.mean((ys - y.mean()) ** 2))), float(log_density)


def table(names, args):
    """The rows of a Markdown table."""
    for name in names:
        numbers = " | ".join(f"{value:.3f}" for value in trivial(name, args.split))
        yield f"| {name} | {args.split} | trivial | {numbers} | | | |"
        for method in args.rows:
            numbers = " | ".join(f"{value:.3f}" for value in scores(name, method, args).values())
            yield f"| {name} | {args.split} | {method} | {numbers} |"


# --- the picture ----------------------------------------------------------------------------------


def toy_rows():
    """Return 100 of Snelson's points."""
    rows = np.loadtxt(DATA / "snelson.csv.gz", delimiter=",")
    rows = rows[np.random.default_rng(0).choice(len(rows), 100, replace=False)]
    return rows[:, :1].copy(), rows[:, 1].copy()


def toy(method, X, y, steps):
    """Return the trained model of a method of the picture (RBF, batches of 20), and the info."""
    kind, M, M2 = TOY[method]
    model = start(kind, M, M2, fs.RBF(variance=1.0, lengthscales=1.0), X, 0.1, 0)
    return fs.fit(model, X, y, steps=steps, batch_size=20, optimiser=fs.adam(0.01), rng=0)


def toys(steps):
    """Return the points, and the trained model of each method."""
    X, y = toy_rows()
    return X, y, {method: toy(method, X, y, steps)[0] for method in TOY}


def picture(path, X, y, models):
    """Plot mean and three standard deviations of the targets, a panel each; Z below, O above.

    Needs Matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4.2 * len(models), 3.6), layout="constrained")
    FigureCanvasAgg(figure)
    grid = np.linspace(X.min() - 1, X.max() + 1, 400)[:, None]
    for ax, (method, model) in zip(
        figure.subplots(1, len(models), sharey=True), models.items(), strict=True
    ):
        mean, var = fs.predict_y(model, grid)
        ax.fill_between(
            grid[:, 0],
            mean - 3 * np.sqrt(var),
            mean + 3 * np.sqrt(var),
            color="#2c6fbb",
            alpha=0.18,
            linewidth=0,
        )
        ax.plot(grid[:, 0], mean, color="#2c6fbb")
        ax.plot(X[:, 0], y, ".", color="#8a8a8a", markersize=4)
        pair = isinstance(model.inducing, fs.posteriors.InducingPair)
        marks = (
            ((model.inducing.Z, "^", 0.03), (model.inducing.O, "v", 0.97))
            if pair
            else ((model.inducing, "^", 0.03),)
        )
        for inputs, marker, height in marks:
            at = np.full(len(inputs), height)
            ax.plot(
                inputs[:, 0],
                at,
                marker,
                color="black",
                markersize=5,
                transform=ax.get_xaxis_transform(),
            )
        ax.set_xlim(grid[0, 0], grid[-1, 0])
        ax.set_title(f"{method}: ELBO {fs.elbo(model, X, y):.1f}", fontsize="medium")
    figure.savefig(path, dpi=130)


def main(argv=None):
    """Train, print the table, write the picture; return the rows of the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"some of {', '.join(TABLES)}, snelson (default: all)",
    )
    parser.add_argument(
        "--rows",
        nargs="+",
        metavar="ROW",
        default=list(METHODS),
        help=f"some of {', '.join(METHODS)}",
    )
    parser.add_argument(
        "--split", type=int, default=0, help="seed of the split, of k-means and of the batches"
    )
    parser.add_argument("--epochs", type=float, default=100)
    parser.add_argument("--steps", type=int, default=10_000, help="for snelson")
    parser.add_argument(
        "--size",
        type=int,
        default=1024,
        help="inducing inputs for rows with 1024, the others in proportion",
    )
    parser.add_argument("--out", default="solve-gp")
    args = parser.parse_args(argv)
    names = args.names or [*TABLES, "snelson"]
    unknown = [*set(names) - {*TABLES, "snelson"}, *set(args.rows) - set(METHODS)]
    if unknown:
        parser.error(
            f"no data set or row {unknown[0]!r}; there are {', '.join(TABLES)}, snelson, and rows"
            f" {', '.join(METHODS)}"
        )
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    if "snelson" in names:
        path = pathlib.Path(args.out, "solve_gp.png")
        picture(path, *toys(args.steps))
        print(f"wrote {path}")
    print(
        "| data | split | method | RMSE | log density | bound per datum | lengthscale |"
        " noise sd |\n|" + "---|" * 8
    )
    rows = []
    for line in table([name for name in names if name in TABLES], args):
        rows.append(line)
        print(line, flush=True)
    return rows


if __name__ == "__main__":
    main()
