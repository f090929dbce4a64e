"""Measure the error of the covariance of paths that share their frequencies.

    python bench/shared_frequencies.py               # writes bench/results/shared_frequencies.md
    python bench/shared_frequencies.py --seeds 2 --out FILE

Given the frequencies, paths are Gaussian, and their covariance C is a product of features: no path
is drawn. The features of M inducing inputs do not fit the covariance exactly; what they leave over
of the prior is in C.
"""

import argparse
import os
import pathlib
import shlex
import sys
import textwrap

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # read once, when the libraries load

import numpy as np  # noqa: E402
from scipy.linalg import cho_solve  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fastsvgp as fs  # noqa: E402
from fastsvgp import kernels  # noqa: E402

N, M, JITTER, POINTS, SEEDS = 400, 40, 1e-6, 15, 20
FEATURES = 256, 1024, 4096, 16384
COVARIANCES = {
    "RBF": fs.RBF(1.2, np.array([0.9, 1.3])),
    "Matern32": fs.Matern32(1.2, np.array([0.9, 1.3])),
}
ABOUT = f"""
{N} data sin(2 x1) cos(x2) + noise of standard deviation 0.1 on [-2, 2]², the optimal q(u) of
M = {M} inducing inputs from k-means, jitter {JITTER:g}. The error is the root mean square of
(C - cov) / (sd sd') over pairs of {POINTS} points, where cov is that of q and C that of paths given
their shared frequencies: at data, and on [-4, 4]². Last column: the same for C averaged over all
seeds, as paths with own frequencies have it. Medians and ranges over seeds 0 to {{last}}.
"""


def features(covariance, m, seed, X):
    """Return the features (N, m) of points."""
    arguments = covariance.family, seed, np.arange(m // 2), m // 2, covariance.variance
    return kernels.fourier_multiply(
        X, np.eye(len(X)), *arguments, covariance.lengthscales, transpose=True
    )


def problem(covariance):
    """Return an SVGP, and points at data and elsewhere."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(2 * X[:, 0]) * np.cos(X[:, 1]) + 0.1 * rng.standard_normal(N)
    sgpr = fs.SGPR(covariance, fs.inducing.kmeans(X, M, rng=0), noise_variance=0.01)
    model = fs.optimal_svgp(sgpr, X, Y, jitter=JITTER)
    return model, np.concatenate([X[:POINTS], rng.uniform(-4, 4, (POINTS, 2))])


def errors(covariance, m, seeds):
    """Return the errors (seeds, points in two groups) and those of the average (2,)."""
    model, Xs = problem(covariance)
    _, cov = fs.predict_f(model, Xs, full_cov=True, jitter=JITTER)
    K = covariance.matrix(model.inducing) + JITTER * np.eye(M)
    L = np.linalg.cholesky(K)
    Psi = cho_solve((L, True), covariance.matrix(model.inducing, Xs))
    root = Psi.T @ L @ np.tril(model.posterior.scale_tril)
    fixed = root @ root.T + JITTER * Psi.T @ Psi
    scale, average = np.sqrt(np.outer(cov.diagonal(), cov.diagonal())), np.zeros_like(cov)
    found = []
    for seed in range(seeds):
        rest = features(covariance, m, seed, Xs) - Psi.T @ features(
            covariance, m, seed, model.inducing
        )
        C = rest @ rest.T + fixed
        average += C / seeds
        found.append(of_groups((C - cov) / scale))
    return np.array(found), of_groups((average - cov) / scale)


def of_groups(error):
    """Return the root mean square of the errors among points at data, and among the others."""
    groups = slice(0, POINTS), slice(POINTS, None)
    return [np.sqrt(np.mean(np.square(error[at, at]))) for at in groups]


def table(seeds):
    """Return the lines of the table."""
    lines = [
        "| covariance | points | features | median | smallest, largest | average of all seeds |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for name, covariance in COVARIANCES.items():
        for m in FEATURES:
            found, average = errors(covariance, m, seeds)
            for where, one, mean in zip(("at data", "elsewhere"), found.T, average, strict=True):
                lines.append(
                    f"| `{name}` | {where} | {m} | {np.median(one):.3f} | {one.min():.3f},"
                    f" {one.max():.3f} | {mean:.3f} |"
                )
    return lines


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "bench" / "results" / "shared_frequencies.md"
    )
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    lines = table(args.seeds)
    print(*lines, sep="\n")
    from report import header

    head = header(shlex.join(["python", "bench/shared_frequencies.py", *argv]))
    about = textwrap.fill(ABOUT.strip().format(last=args.seeds - 1), 100)
    text = "\n".join([f"# {args.out.stem}", "", head, "", about, "", *lines])
    args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
