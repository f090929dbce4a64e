"""Thompson sampling on Hartmann-6, with functions of ours and of BoTorch from the same model.

    python bench/thompson.py                         # writes bench/results/thompson.md
    python bench/thompson.py --seeds 2 --rounds 5 --out FILE

Each round fits a new model of all data, by the same code for both programs: an ``SGPR``
and its optimal q(u). Each function of a batch is maximised by L-BFGS-B, from the best of shared
candidates, and observed there without noise. Only the functions and their gradients differ. A
program that is not installed is left out.
"""

import argparse
import os
import pathlib
import shlex
import sys
import textwrap
import time

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # read once, when the libraries load

import numpy as np  # noqa: E402
import report  # noqa: E402
import scipy.optimize  # noqa: E402

import fastsvgp as fs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
D, START, BATCH, ROUNDS, SEEDS = 6, 20, 16, 20, 10
MOST, FEATURES, CANDIDATES, STEPS, JITTER = 100, 1024, 2000, 30, 1e-6
BEST = 3.32236801141551  # of Hartmann-6, a maximum
SCALES = np.array([1.0, 1.2, 3.0, 3.2])
WIDTHS = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14], [3, 3.5, 1.7, 10, 17, 8]]
    + [[17, 8, 0.05, 10, 0.1, 14]]
)
PLACES = 1e-4 * np.array(
    [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991]]
    + [[2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
)
ABOUT = f"""
{START} uniform data, then {{rounds}} batches of {BATCH}. Model: `SGPR` with an ARD `RBF`, at most
{MOST} inducing inputs from k-means, targets standardised, at most {STEPS} steps of L-BFGS-B a round
from the last values; jitter {JITTER:g}, {FEATURES} random features. Each function starts at the
best of {CANDIDATES} uniform candidates that all share. Regret: the maximum less the best value
observed; median and quartiles of {{seeds}} seeds. Seconds: CPU time of drawing and maximising the
functions of all batches, one thread, median of the seeds.
"""


def hartmann(X):
    """Return Hartmann-6 at (N, 6) in the unit cube; its maximum is ``BEST``."""
    return np.exp(-(WIDTHS * (X[:, None] - PLACES) ** 2).sum(-1)) @ SCALES


def fitted(X, Y, covariance, noise, seed):
    """Return an SGPR of these values, fitted, and its optimal SVGP."""
    Z = fs.inducing.kmeans(X, min(MOST, len(X)), rng=seed)
    model = fs.SGPR(covariance, Z, noise_variance=noise)
    model, info = fs.fit(model, X, (Y - Y.mean()) / Y.std(), steps=STEPS, jitter=JITTER)
    return model, info.svgp


class Ours:
    """Functions of ``fs.sample_paths``."""

    def __init__(self, frequencies):
        self.settings = {"num_features": FEATURES, "frequencies": frequencies, "jitter": JITTER}

    def __call__(self, model, rng):
        paths = fs.sample_paths(model, BATCH, rng=rng, **self.settings)
        return paths, paths.and_grad


def botorch():
    """Return the drawing of BoTorch's functions."""
    import path_peers
    import torch

    def draw(model, rng):
        torch.manual_seed(int(rng.integers(2**31)))
        paths = path_peers.sample_paths(path_peers.OfModel(model, JITTER), BATCH, FEATURES)
        return (
            lambda X: path_peers.values(paths, X),
            lambda X: path_peers.values_and_slopes(paths, X),
        )

    return draw


def maximised(values, values_and_slopes, candidates):
    """Return the maximisers (S, D) of functions in the unit cube, found together."""
    start = candidates[values(candidates).argmax(axis=1)]

    def negative_sum(flat):
        f, slopes = values_and_slopes(flat.reshape(len(start), 1, D))
        return -f.sum(), -slopes.ravel()

    bounds, options = [(0, 1)] * start.size, {"maxiter": 100}
    found = scipy.optimize.minimize(
        negative_sum, start.ravel(), jac=True, method="L-BFGS-B", bounds=bounds, options=options
    )
    return found.x.reshape(start.shape)


def run(draw, seed, rounds):
    """Return the regret after each batch, and CPU seconds."""
    rng = np.random.default_rng(seed)
    X, seconds, regrets = rng.uniform(size=(START, D)), 0.0, []
    Y, covariance, noise = hartmann(X), fs.RBF(1.0, np.full(D, 0.5)), 1e-2
    for _ in range(rounds):
        model, svgp = fitted(X, Y, covariance, noise, seed)
        covariance, noise = model.covariance, max(1e-5, float(model.noise_variance))
        started = time.process_time()
        trials = maximised(*draw(svgp, rng), rng.uniform(size=(CANDIDATES, D)))
        seconds += time.process_time() - started
        X, Y = np.concatenate([X, trials]), np.concatenate([Y, hartmann(trials)])
        regrets.append(BEST - Y.max())
    return np.array(regrets), seconds


def table(seeds, rounds):
    """Return the lines of the table."""
    programs = {"fastsvgp, own frequencies": Ours("own"), "fastsvgp, shared": Ours("shared")}
    try:
        programs["BoTorch"] = botorch()
    except ImportError as error:
        print(f"(left out: BoTorch; {error.name} is not installed)", file=sys.stderr)
    after = sorted({max(1, rounds // 4), max(1, rounds // 2), rounds})
    names = *(f"after {count} batches" for count in after), "seconds"
    found = {name: [] for name in programs}
    for seed in range(seeds):
        for name, draw in programs.items():
            found[name].append(run(draw, seed, rounds))
            print(seed, name, found[name][-1][0][-1], found[name][-1][1], flush=True)
    lines = [["functions", *names]]
    for name, runs in found.items():
        regrets = np.array([regret for regret, _ in runs])[:, np.array(after) - 1]
        low, median, high = np.quantile(regrets, [0.25, 0.5, 0.75], axis=0)
        cells = [f"{m:.2g} ({a:.2g}, {b:.2g})" for a, m, b in zip(low, median, high, strict=True)]
        lines.append([name, *cells, f"{np.median([seconds for _, seconds in runs]):.2f}"])
    return report.markdown(lines)


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--out", type=pathlib.Path, default=HERE / "results" / "thompson.md")
    args = parser.parse_args(argv)
    packages = *report.PACKAGES, "torch", "gpytorch", "botorch"
    command = shlex.join(["python", "bench/thompson.py", *argv])
    with fs.set_num_threads(1):
        head = report.header(command, packages, blas=report.computing())
        rows = table(args.seeds, args.rounds)
    about = textwrap.fill(ABOUT.strip().format(seeds=args.seeds, rounds=args.rounds), 100)
    text = "\n\n".join([f"# {args.out.stem}", head, about, rows])
    args.out.write_text(text + "\n", encoding="utf-8")
    print(args.out)


if __name__ == "__main__":
    main(sys.argv[1:])
