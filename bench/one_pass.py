"""One pass, then free: sums of rows in a fixed basis, and training from them, against an SVGP.

``python bench/one_pass.py [CASE ...]`` prints a table; a case is COLUMNSxROWS, such as 2x1e6. Rows
are draws of a smooth function with noise of standard deviation 0.3, whose true density is the ideal
NLPD. Seconds are those of one thread of the process. The memory's time is that of one sum over the
same arrays.
"""

import os

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import sys
import time

import numpy as np

import fastsvgp as fs

CASES = "1x1e5", "1x1e6", "1x1e7", "2x1e5", "2x1e6", "2x1e7", "3x1e5", "3x1e6"
FUNCTIONS = {1: 300, 2: 32, 3: 13}  # in each column
BOUNDARY = {1: 1.2, 2: 1.3, 3: 1.7}
NOISE, TEST = 0.3, 10_000
RIVAL_ROWS, RIVAL_SECONDS = 10**6, 30  # of the SVGP: the most rows, and its training


def make(D, n, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-1, 1, (n, D))
    W = rng.standard_normal((40, D)) * {1: 40, 2: 8, 3: 3}[D]
    b, a, f = rng.uniform(0, 6.3, 40), rng.standard_normal(40) / np.sqrt(20), np.empty(n)
    for i in range(0, n, 65_536):
        f[i : i + 65_536] = np.cos(X[i : i + 65_536] @ W.T + b) @ a
    return X, f + NOISE * rng.standard_normal(n), f


def nlpd(y, mean, var):
    return float(np.mean(0.5 * np.log(2 * np.pi * var) + 0.5 * (y - mean) ** 2 / var))


def timed(function):
    start = time.process_time()
    found = function()
    return found, time.process_time() - start


def one_pass(D, X, y, test):
    basis = fs.bounds.HilbertBasis(X.min(0), X.max(0), FUNCTIONS[D], BOUNDARY[D])
    sums, passing = timed(lambda: fs.bounds.sufficient_sums(basis, X, y))
    start = fs.bounds.BasisGP(fs.RBF(1.0, np.full(D, 0.3)), basis, 0.3)
    (model, info), fitting = timed(lambda: fs.fit(start, sums))
    inside = basis.half_width >= np.abs(test[0]).max(axis=0)
    assert inside.all()
    (mean, var), predicting = timed(lambda: fs.predict_y(info.svgp, test[0]))
    missing = model.missing(sums)
    return basis.size, passing, fitting, info.steps, predicting, nlpd(test[1], mean, var), missing


def rival(D, X, y, test):
    """An SVGP of 256 inducing inputs, natural steps and Adam, for about half a minute."""
    Z = fs.inducing.kmeans(X[:20_000], 256, rng=0)
    covariance = fs.RBF(1.0, np.full(D, 0.3))
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z)
    model = fs.SVGP(covariance, Z, q, fs.Gaussian(0.3))
    options = dict(natural_step_size=0.1, optimiser=fs.adam(0.03), rng=0)
    fs.fit(model, X, y, steps=3, **options)
    each = timed(lambda: fs.fit(model, X, y, steps=20, **options))[1] / 20
    steps = max(1, int(RIVAL_SECONDS / each))
    (model, _), spent = timed(lambda: fs.fit(model, X, y, steps=steps, **options))
    return spent, nlpd(test[1], *fs.predict_y(model, test[0]))


def main(cases):
    fs.set_num_threads(1)
    warm = make(1, 2000)
    one_pass(1, *warm[:2], (warm[0][:100], warm[1][:100]))
    print("| columns | rows | m | pass s | memory s | fit s | iterations | 10^4 predictions s |"
          " NLPD over ideal | missing | SVGP s | its NLPD over ideal |")  # fmt: skip
    print("|" + " --- |" * 12)
    for case in cases:
        D, n = int(case[0]), int(float(case[2:]))
        X, y, f = make(D, n + TEST)
        test, ideal = (X[n:], y[n:]), nlpd(y[n:], f[n:], np.full(TEST, NOISE**2))
        X, y = X[:n], y[:n]
        memory = min(timed(lambda both=(X, y): [one.sum() for one in both])[1] for _ in range(3))
        m, passing, fitting, steps, predicting, found, missing = one_pass(D, X, y, test)
        line = f"| {D} | {n:.0e} | {m} | {passing:.2f} | {memory:.3f} | {fitting:.2f} | {steps}"
        line += f" | {predicting:.3f} | {found - ideal:.5f} | {missing:.1e}"
        if n <= RIVAL_ROWS:
            spent, theirs = rival(D, X, y, test)
            line += f" | {spent:.1f} | {theirs - ideal:.4f} |"
        else:
            line += " | | |"
        print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:] or CASES)
