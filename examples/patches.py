"""Score convolutional GPs and a plain covariance on ten digits, and draw inducing patches.

    python examples/patches.py                        # all rows of the table, one after the other
    python examples/patches.py convolutional RBF      # some of them
    python examples/patches.py picture                # the inducing patches of the first row (PNG)
    python examples/patches.py settings               # the first row by other settings: 20 minutes

8,000 of MNIST's 10,000 test images for training, 2,000 for testing; ten latent functions with a
softmax. Windows of 5 x 5 pixels, whose function has a squared exponential covariance; a weight for
each of the 576 windows; inducing patches by k-means. Batches of 100, 600 steps of decreasing size.
Whitened posteriors and SOLVE-GP train by natural steps, with Adam for the rest; L- and R-SVGP,
whose diagonal S~ has no natural steps, only by Adam. The settings were chosen by scores of 1,600 of
the training images, which "settings" keeps back. Finished rows are kept in --out. Reads
../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import itertools
import json
import pathlib
import sys
from typing import NamedTuple

import mnist
import numpy as np

import fastsvgp as fs

CLASSES, PATCH, IMAGE = 10, (5, 5), (28, 28)
ROWS = {  # the posterior, the number of inducing inputs, and whether they are patches
    "convolutional": (fs.Whitened, 150, True),
    "RBF": (fs.Whitened, 100, False),
    "L-SVGP": (fs.posteriors.LikelihoodForm, 150, True),
    "R-SVGP": (fs.posteriors.Relaxed, 150, True),
    "SOLVE-GP": (fs.posteriors.WhitenedOrthogonal, (75, 75), True),
}
NOISE = 0.1  # start of S~ of L- and R-SVGP


class Setting(NamedTuple):
    """Variance and lengthscale of the start, and first step sizes."""

    variance: float = 100.0
    lengthscale: float = 2.0
    adam: float = 0.02
    weights: float = 1e-4  # Adam's for the weights of the windows, which start at 1 / 576
    natural: float = 0.05


TRIED = (  # what differs from the first
    {},
    {"variance": 30.0},
    {"variance": 300.0},
    {"lengthscale": 4.0},
    {"adam": 0.01},
    {"adam": 0.04},
    {"weights": 3e-4},
    {"natural": 0.1},
    {"variance": 30.0, "natural": 0.1},
    {"variance": 10.0, "natural": 0.1},
    {"variance": 30.0, "natural": 0.2},
)
CHOSEN = Setting(variance=30.0, natural=0.1)


def start(name, X, size=1.0, seed=0, setting=CHOSEN):
    """Return a model at the prior; ``size`` scales M, 1 for the table."""
    kind, M, of_patches = ROWS[name]
    M = tuple(int(size * m) for m in M) if isinstance(M, tuple) else int(size * M)
    if of_patches:
        count = (IMAGE[0] - PATCH[0] + 1) * (IMAGE[1] - PATCH[1] + 1)
        covariance = fs.covariances.Convolutional(
            fs.RBF(setting.variance, setting.lengthscale),
            np.full(count, 1 / count, X.dtype),
            image_shape=IMAGE,
            patch_shape=PATCH,
        )
        inducing = fs.inducing.patches(X, M, covariance, rng=seed)
    else:
        covariance = fs.RBF(
            variance=4.0, lengthscales=fs.inducing.median_lengthscales(X, rng=seed, ard=False)
        )
        inducing = fs.inducing.kmeans(X, M, rng=seed)
    return fs.SVGP(
        covariance, inducing, posterior(kind, covariance, inducing), fs.Softmax(num_classes=CLASSES)
    )


def posterior(kind, covariance, inducing):
    """Return a posterior with one output per class."""
    if kind in (fs.Whitened, fs.posteriors.WhitenedOrthogonal):
        return fs.posteriors.at_prior(kind, covariance, inducing, CLASSES)
    M = len(inducing)
    mean, noise = np.zeros((CLASSES, M), inducing.dtype), np.full(M, NOISE, inducing.dtype)
    if kind is fs.posteriors.LikelihoodForm:
        return fs.posteriors.LikelihoodForm(mean, noise)
    inverse = np.linalg.inv(covariance.Kuu(inducing) + (NOISE + 1e-6) * np.eye(M))
    return fs.posteriors.Relaxed(mean, noise, np.linalg.cholesky(inverse).astype(inducing.dtype))


def falling(size, steps, last=0.005, warm=1):
    """Return a half-cosine decay from ``size`` to ``last`` times it, after a warm-up."""

    def at(step):
        fall = 0.5 * (1 + np.cos(np.pi * min(step / steps, 1)))
        return float(size * (last + (1 - last) * fall) * min(1, 0.2 + 0.8 * step / warm))

    return at


def digits(args, validation):
    """Return digits for training and for scores; validation keeps a fifth of the former back."""
    X, y = mnist.digits()
    X = X.astype(np.float32) if args.float32 else X
    train, end = mnist.TRAIN, mnist.TRAIN + args.test
    if validation:
        train, end = 4 * train // 5, train
    return X[:train], y[:train], X[train:end], y[train:end]


def score(name, args, setting=CHOSEN, tried=""):
    """Return error and NLPD on held-out digits, and seconds, from a file if it exists.

    ``tried`` names a setting that is tried on digits kept from the training.
    """
    finished, checkpoint = (
        pathlib.Path(args.out, f"{name}{tried}-{args.steps}{end}") for end in (".json", ".npz")
    )
    if finished.is_file():
        return json.loads(finished.read_text())
    X, y, test, y_test = digits(args, validation=bool(tried))
    kind, _, of_patches = ROWS[name]
    sizes = {"covariance.weights": falling(setting.weights, args.steps)} if of_patches else None
    natural = (
        falling(setting.natural, args.steps, 0.2, warm=50)
        if kind in (fs.Whitened, fs.posteriors.WhitenedOrthogonal)
        else None
    )

    def report(step, value, info):
        if step % args.report_every == 0:
            print(
                f"{name}{tried}, step {step}: bound per datum {info.smoothed / len(X):.4f},"
                f" {info.seconds:.0f} s",
                flush=True,
            )

    model, info = fs.fit(
        start(name, X, args.size, args.seed, setting),
        X,
        y,
        steps=args.steps,
        batch_size=args.batch_size,
        rng=args.seed,
        optimiser=fs.adam(falling(setting.adam, args.steps), transform="log", step_sizes=sizes),
        natural_step_size=natural,
        callback=report,
        checkpoint=checkpoint,
        resume=checkpoint if checkpoint.is_file() else None,
    )
    if info.interrupted:
        sys.exit(f"interrupted; run the same command to resume from {checkpoint}")
    probabilities, _ = fs.predict_y(model, test)
    error = 1 - float(np.mean(probabilities.argmax(axis=1) == y_test))
    found = [error, -float(np.mean(fs.predict_log_density(model, test, y_test))), info.seconds]
    finished.write_text(json.dumps(found))
    return found


def settings(args):
    """Yield rows of a table: the first model by each setting, scored on digits kept back."""
    for others in TRIED:
        said = "".join(f", {name} {value:g}" for name, value in others.items()) or ", the first"
        yield f"convolutional{said}", score("convolutional", args, Setting(**others), said)


def picture(path, args):
    """Draw the inducing patches of the convolutional row, from k-means and after training.

    Needs Matplotlib.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    score("convolutional", args)
    before = start("convolutional", mnist.digits()[0][: mnist.TRAIN], args.size, args.seed).inducing
    after = fs.load(pathlib.Path(args.out, f"convolutional-{args.steps}.npz")).model.inducing
    figure = Figure(figsize=(9.6, 4.2), layout="constrained")
    FigureCanvasAgg(figure)
    for ax, patches, title in zip(
        figure.subplots(1, 2),
        (before, after),
        ("k-means", f"after {args.steps} steps"),
        strict=True,
    ):
        ax.imshow(tiled(patches), cmap="gray", interpolation="nearest")
        ax.set_title(title, fontsize="medium")
        ax.set_axis_off()
    figure.savefig(path, dpi=130)


def tiled(patches, columns=15):
    """Return patches side by side, one pixel apart, each scaled to its own black and white."""
    h, w = PATCH
    low, high = patches.min(axis=1, keepdims=True), patches.max(axis=1, keepdims=True)
    scaled = (patches - low) / np.maximum(high - low, 0.1)
    sheet = np.full((-(-len(patches) // columns) * (h + 1), columns * (w + 1)), np.nan)
    for at, patch in enumerate(scaled):
        i, j = at // columns * (h + 1), at % columns * (w + 1)
        sheet[i : i + h, j : j + w] = patch.reshape(h, w)
    return sheet


def main(argv=None):
    """Print the rows, or write the picture; return the rows."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names",
        nargs="*",
        metavar="NAME",
        help=f"some of {', '.join(ROWS)} (default: all), or picture, or settings",
    )
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument(
        "--size",
        type=float,
        default=1.0,
        help="factor for the numbers of inducing inputs, 1 for the table",
    )
    parser.add_argument("--test", type=int, default=2000, help="number of test digits")
    parser.add_argument("--float32", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--report-every", type=int, default=50, metavar="STEPS")
    parser.add_argument(
        "--out", default="patches", help="folder of the checkpoints, the scores and the picture"
    )
    args = parser.parse_args(argv)
    unknown = set(args.names) - {*ROWS, "picture", "settings"}
    if unknown:
        parser.error(
            f"no row {', '.join(sorted(unknown))}; there are {', '.join(ROWS)}, picture, settings"
        )
    pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
    rows = []
    try:
        if "picture" in args.names:
            picture(pathlib.Path(args.out, "patches.png"), args)
        names = [name for name in args.names or ROWS if name in ROWS]
        found = ((name, score(name, args)) for name in names)
        if "settings" in args.names:
            found = itertools.chain(found, settings(args))
        for name, (error, nlpd, seconds) in found:
            rows.append(f"| {name} | {100 * error:.2f} % | {nlpd:.4f} | {seconds:.0f} |")
            print(rows[-1], flush=True)
    except FileNotFoundError as error:
        sys.exit(f"no MNIST files: {error}; set FASTSVGP_DATA to the folder that has them")
    return rows


if __name__ == "__main__":
    main()
