"""Classify odd and even MNIST digits by 100,000 random Fourier features, or by an SVGP.

    python examples/odd_even.py                              # ten minutes, a row each minute
    python examples/odd_even.py --minutes 2 --features 20000
    python examples/odd_even.py --svgp 1000                  # an SVGP with 1000 inducing inputs

Pixels in [0, 1], an RBF covariance of variance 10 and lengthscale 5, a logit likelihood; 8,000 of
the 10,000 test images for training, 2,000 for testing, for both models. Scores are computed at the
median of f, as by Evans and Nair, and with its whole distribution. The time of scores is not
counted. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import sys
import time

import mnist
import numpy as np

import fastsvgp as fs

VARIANCE, LENGTHSCALE = 10.0, 5.0
TRAIN = mnist.TRAIN


def data(dtype):
    """Return ``(X, y, test X, test y)``; y is 1 for odd digits."""
    try:
        X, labels = mnist.digits()
    except OSError as error:
        sys.exit(f"no MNIST files: {error}; set FASTSVGP_DATA to the folder that has them")
    X, y = np.ascontiguousarray(X, dtype), (labels % 2).astype(dtype)
    return X[:TRAIN], y[:TRAIN], X[TRAIN:], y[TRAIN:]


def features(count, dtype):
    """Return a QSGP at its prior."""
    covariance = fs.RBF(dtype(VARIANCE), dtype(LENGTHSCALE))
    q = fs.qsgp.ChevronWeights(
        np.zeros(count, dtype), np.zeros((count, 0), dtype), np.ones(count, dtype)
    )
    return fs.QSGP(
        fs.qsgp.RandomFourier(covariance, num_features=count, seed=0),
        q,
        fs.likelihoods.BernoulliLogit(),
    )


def svgp(X, count, dtype):
    """Return an SVGP at its prior with the same covariance, and images as inducing inputs."""
    covariance, Z = fs.RBF(dtype(VARIANCE), dtype(LENGTHSCALE)), fs.inducing.kmeans(X, count, rng=0)
    return fs.SVGP(
        covariance,
        Z,
        fs.posteriors.at_prior(fs.Whitened, covariance, Z),
        fs.likelihoods.BernoulliLogit(),
    )


def scored(model, X, y):
    """Return accuracy, NLPD at the median of f, and NLPD."""
    f, _ = fs.predict_f(model, X)
    wrong = np.logaddexp(0, np.where(y > 0, -f, f))
    density = np.mean(fs.predict_log_density(model, X, y))
    return float(np.mean((f > 0) == (y > 0))), float(np.mean(wrong)), -float(density)


class Scores:
    """A callback that prints a row at regular seconds of training, and stops it after ``limit``."""

    def __init__(self, X, y, every, limit):
        self._X, self._y, self._every, self._limit = X, y, every, limit
        self._started, self._aside, self._next = time.perf_counter(), 0.0, every
        self.rows = []
        print(
            "| seconds | steps | accuracy | NLPD at the median | NLPD |\n| --- | --- | --- | --- |"
            " --- |",
            flush=True,
        )

    def __call__(self, step, value, info):
        now, spent = time.perf_counter(), self.spent()
        if spent < self._next:
            return False
        self._next = self._every * (spent // self._every + 1)
        self.take(info.model, step, spent)
        self._aside += time.perf_counter() - now
        return spent >= self._limit

    def spent(self):
        """Return the seconds of training so far."""
        return time.perf_counter() - self._started - self._aside

    def take(self, model, step, spent):
        """Add a row of the table."""
        self.rows.append((spent, step, *scored(model, self._X, self._y)))
        print("| {:.0f} | {:,} | {:.4f} | {:.4f} | {:.4f} |".format(*self.rows[-1]), flush=True)


def main(arguments=None):
    """Train for the given time; return the rows of the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--basis-size", type=int, default=10_000, help="functions per step")
    parser.add_argument("--batch-size", type=int, default=500)
    parser.add_argument("--step-size", type=float, default=0.1, help="of AdaGrad")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--steps", type=int, default=10**9, help="largest number of steps")
    parser.add_argument("--rows", type=int, default=10, help="of the table")
    parser.add_argument(
        "--svgp",
        type=int,
        metavar="M",
        help="an SVGP with M inducing inputs instead of the features",
    )
    parser.add_argument("--dtype", choices=("float64", "float32"), default="float32")
    args = parser.parse_args(arguments)
    dtype = np.dtype(args.dtype).type
    X, y, test, y_test = data(dtype)
    limit = 60 * args.minutes
    if args.svgp:
        model = svgp(X, args.svgp, dtype)
        options = {
            "natural_step_size": fs.optim.schedules.log_linear(1e-3, 0.1, 100),
            "fixed": "covariance",
        }
    else:
        model = features(args.features, dtype)
        options = {"basis_size": args.basis_size, "optimiser": fs.optim.adagrad(args.step_size)}
    scores = Scores(test, y_test, limit / args.rows, limit)
    model, info = fs.fit(
        model, X, y, steps=args.steps, batch_size=args.batch_size, rng=0, callback=scores, **options
    )
    if info.reason == "steps":
        scores.take(model, info.steps, scores.spent())
    return scores.rows


if __name__ == "__main__":
    main()
