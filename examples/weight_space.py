"""A hundred thousand random Fourier features on kin40k: the mean by conjugate gradients, the variances in closed form.

    python examples/weight_space.py kin40k                              # a Markdown table: a quarter of an hour on two cores
    python examples/weight_space.py kin40k --features 2000 --iterations 20
    python examples/weight_space.py kin40k --steps 3000          # from samples, with a kriged control: some minutes
    python examples/weight_space.py kin40k --steps 3000 --control 0
    python examples/weight_space.py steps                        # milliseconds of a sampled step against m: a minute

    python examples/weight_space.py kin40k                       # a Markdown table: a quarter of an hour on two cores
training rows: mean-field bounds are no guide to them where m is not small against n. Scores are taken after some of the
iterations. Reads ../shared/data or the folder that FASTSVGP_DATA names.
"""

import argparse
import sys
import time

import mnist
import numpy as np

import fastsvgp as fs

DATA = mnist.FOLDER
LOOKS = 10, 30, 60, 100, 150, 200, 300  # iterations after which the scores are taken


def rows_of(name):
    """(X, y, test X, test y) in the standardised scale of the training part."""
    rows = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / f"{name}.test_mask.csv.gz", delimiter=",")[:, 0] > 0
    rows = (rows - rows[~test].mean(axis=0)) / rows[~test].std(axis=0)
    X, y = np.ascontiguousarray(rows[:, :-1]), np.ascontiguousarray(rows[:, -1])
    return X[~test], y[~test], X[test], y[test]


def hyperparameters(X, y, count, rng):
    """``(covariance, noise variance)`` of an exact GP on some rows."""
    some = rng.choice(len(X), min(count, len(X)), replace=False)
    covariance = fs.RBF(1.0, fs.median_lengthscales(X[some], rng=0, ard=True))
    model, _ = fs.fit(fs.SGPR(covariance, X[some].copy(), noise_variance=0.1), X[some], y[some], steps=200, fixed="inducing")
    return model.covariance, float(model.noise_variance)


def steps(features, rows=500, size=5000, D=8, repeats=30):
    """A table: a step of ``sampled_bound_and_grad`` and ``adagrad`` for the mean and the variances, sampling included."""
    rng, found = np.random.default_rng(0), []
    X, y = rng.standard_normal((rows, D)), rng.standard_normal(rows)
    optimiser = fs.adagrad(0.1, fixed=("basis", "likelihood", "posterior.columns"))
    print("| m | ms a step | quartiles |\n| --- | --- | --- |")
    for m in features:
        q = fs.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
        model = fs.QSGP(fs.RandomFourier(fs.RBF(1.0, np.ones(D)), m, seed=1), q, fs.Gaussian(variance=0.1))
        state, times = optimiser.init(model), []
        for step in range(repeats + 2):  # the first one copies, and compiles
            begun = time.perf_counter()
            sample = fs.draw_basis_sample(model.basis, min(size, m // 2), rng=step)
            value, grad, _ = fs.sampled_bound_and_grad(
                model, X, y, sample, num_data=1e6, wrt=("posterior.mean", "posterior.diagonal")
            )
            model, state = optimiser.step(model, grad, state, value)
            times.append(1e3 * (time.perf_counter() - begun))
        low, middle, high = np.quantile(times[2:], (0.25, 0.5, 0.75))
        found.append((m, middle))
        print(f"| {m:,} | {middle:.1f} | {low:.1f} - {high:.1f} |", flush=True)
    return found


def from_samples(model, X, y, count, control, score, size=5000, batch=500):
    """Train the mean from samples of the functions and of the data; ``score(model, steps, seconds)`` now and then."""
    rng = np.random.default_rng(1)
    optimiser = fs.adagrad(fs.schedules.log_linear(0.1, 0.02, count), fixed=("basis", "likelihood", "posterior.columns",
                                                                            "posterior.diagonal"))  # fmt: skip
    state, looks = optimiser.init(model), {round(count * part) for part in (0.1, 0.3, 0.6, 1.0)}
    kriging = fs.kriged_control(model, X[rng.choice(len(X), control, replace=False)]) if control else None
    spent = 0.0
    for step in range(1, count + 1):
        begun = time.perf_counter()
        rows = rng.choice(len(X), batch, replace=False)
        sample = fs.draw_basis_sample(model.basis, min(size, len(model.posterior.mean) // 2), rng=rng)
        value, grad, _ = fs.sampled_bound_and_grad(
            model, X[rows], y[rows], sample, num_data=len(X), wrt="posterior.mean", control=kriging
        )
        moved, before = grad.posterior.mean.rows, model.posterior.mean[grad.posterior.mean.rows]
        model, state = optimiser.step(model, grad, state, value)
        if kriging is not None:
            change = fs.SparseRows(moved, model.posterior.mean[moved] - before)
            kriging = fs.advance_control(model, kriging, fs.ChevronWeights(change, None, None))
        spent += time.perf_counter() - begun
        if step in looks:
            score(model, step, spent)


def main(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", help="a data set, or: steps")
    parser.add_argument("--features", type=int, default=100_000)
    parser.add_argument("--iterations", type=int, default=150)
    parser.add_argument("--steps", type=int, help="train from samples, so many steps, in place of conjugate gradients")
    parser.add_argument("--control", type=int, default=500, help="points of the kriged control; 0 is none")
    parser.add_argument("--exact", type=int, default=1000, help="rows that the hyperparameters are learned from")
    args = parser.parse_args(arguments)
    if args.name == "steps":
        return steps([10**5, 10**6, 10**7] if args.features == 100_000 else [args.features])
    X, y, Xt, yt = rows_of(args.name)
    covariance, noise = hyperparameters(X, y, args.exact, np.random.default_rng(0))
    m = args.features
    q = fs.ChevronWeights(np.zeros(m), np.zeros((m, 0)), np.ones(m))
    model = fs.QSGP(fs.RandomFourier(covariance, m, seed=0), q, fs.Gaussian(variance=noise))
    model = fs.optimal_diagonal(model, X)
    print(f"| {'steps' if args.steps else 'iterations'} | seconds | RMSE | NLPD |\n| --- | --- | --- | --- |")
    begun, aside, scores = time.perf_counter(), 0.0, []

    def score(there, count, seconds):
        mean, _ = fs.predict_y(there, Xt)
        rmse, nlpd = np.sqrt(np.mean((mean - yt) ** 2)), -np.mean(fs.predict_log_density(there, Xt, yt))
        scores.append((count, seconds, rmse, nlpd))
        print(f"| {count:,} | {seconds:.0f} | {rmse:.4f} | {nlpd:.4f} |", flush=True)

    def look(there, info):
        nonlocal aside
        if info.iterations in LOOKS or info.iterations == args.iterations:
            at = time.perf_counter()
            score(fs.replace_at(there, "posterior.diagonal", model.posterior.diagonal), info.iterations, at - begun - aside)
            aside += time.perf_counter() - at

    if args.steps:
        from_samples(model, X, y, args.steps, args.control, score)
        return scores
    fs.optimal_weights(model, X, y, iterations=args.iterations, callback=look)
    return scores


if __name__ == "__main__":
    main(sys.argv[1:])
