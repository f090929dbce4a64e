"""Classify ten digits of the 10,000 MNIST test images: 8,000 for training, 2,000 for testing.

    python examples/mnist.py                       # softmax, 200 inducing inputs
    python examples/mnist.py --likelihood robustmax --inducing 500 --epochs 40

Reads the IDX files of ../shared/data or of the folder that FASTSVGP_DATA names. One latent function
per class, with a shared covariance and one set of inducing images; natural gradients for the
posterior, Adam for the rest.
"""

import argparse
import gzip
import os
import pathlib
import sys
import time

import numpy as np

import fastsvgp as fs

FOLDER = pathlib.Path(
    os.environ.get("FASTSVGP_DATA", pathlib.Path(__file__).resolve().parents[2] / "shared" / "data")
)
TRAIN = 8000


def read_idx(path):
    """Read an IDX file, gzipped or not, as an array of bytes.

    The format is the magic bytes 0 0 8 ndim, then ndim big-endian sizes, then the data.
    """
    raw = pathlib.Path(path).read_bytes()
    raw = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
    if raw[:3] != b"\0\0\x08":
        raise ValueError(f"{path} is no IDX file of bytes: it begins with {raw[:4].hex()}")
    shape = np.frombuffer(raw, ">u4", count=raw[3], offset=4)
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def digits(folder=FOLDER):
    """Return images (10000, 784) in [0, 1] and labels (10000,)."""
    images = read_idx(folder / "mnist_t10k.images-idx3-ubyte.gz")
    labels = read_idx(folder / "mnist_t10k.labels-idx1-ubyte.gz")
    return images.reshape(len(images), -1) / 255.0, labels.astype(np.int64)


def main(argv=None):
    """Train, print held-out accuracy and NLPD after each epoch, and return the last."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--likelihood", choices=("softmax", "robustmax"), default="softmax")
    parser.add_argument("--inducing", type=int, default=200)
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument("--learning-rate", type=float, default=0.01)
    parser.add_argument("--natural-step", type=float, default=0.1)
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float64")
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args(argv)
    try:
        X, y = digits()
    except OSError as error:
        sys.exit(f"no MNIST files: {error}; set FASTSVGP_DATA to the folder that has them")
    X = X.astype(args.dtype)
    test, y_test = X[TRAIN:], y[TRAIN:]
    X, y = X[:TRAIN], y[:TRAIN]

    M, classes = args.inducing, 10
    lengthscale = fs.inducing.median_lengthscales(X, rng=args.seed, ard=False)
    model = fs.SVGP(
        covariance=fs.RBF(variance=4.0, lengthscales=lengthscale),
        inducing=fs.inducing.kmeans(X, M, rng=args.seed),
        posterior=fs.Whitened(
            np.zeros((classes, M), args.dtype),
            np.tile(np.eye(M, dtype=args.dtype), (classes, 1, 1)),
        ),
        likelihood=(
            fs.Softmax(num_classes=classes)
            if args.likelihood == "softmax"
            else fs.likelihoods.RobustMax(num_classes=classes)
        ),
    )
    per_epoch = -(-TRAIN // args.batch_size)
    started = time.perf_counter()

    def score(model):
        probabilities, _ = fs.predict_y(model, test)
        return float(np.mean(probabilities.argmax(axis=1) == y_test)), -float(
            np.mean(fs.predict_log_density(model, test, y_test))
        )

    def report(step, value, info):
        if step % per_epoch == 0:
            accuracy, nlpd = score(info.model)
            seconds = time.perf_counter() - started
            scores = f"ELBO {info.smoothed:10.1f}  accuracy {accuracy:.4f}  NLPD {nlpd:.4f}"
            print(f"epoch {info.epoch:5.1f}  {scores}  {seconds:6.1f} s", flush=True)

    model, info = fs.fit(
        model, X, y,
        epochs=args.epochs,
        batch_size=args.batch_size,
        optimiser=fs.adam(args.learning_rate, transform="log"),
        natural_step_size=fs.optim.schedules.log_linear(1e-3, args.natural_step, 100),
        rng=args.seed,
        callback=report,
    )  # fmt: skip
    accuracy, nlpd = score(model)
    frequency = np.bincount(y, minlength=10) / len(y)
    trivial = (
        float(np.mean(y_test == frequency.argmax())),
        -float(np.mean(np.log(frequency[y_test]))),
    )
    print(
        f"{args.likelihood}, M = {M}, {info.steps} steps in {info.seconds:.0f} s on {len(y)}"
        f" digits; on {len(y_test)} others:"
    )
    print(
        f"accuracy {accuracy:.4f} (most frequent class {trivial[0]:.4f}), NLPD {nlpd:.4f} (class"
        f" frequencies {trivial[1]:.4f})"
    )
    return {
        "model": (accuracy, nlpd),
        "trivial": trivial,
        "seconds": info.seconds,
        "steps": info.steps,
    }


if __name__ == "__main__":
    main()
