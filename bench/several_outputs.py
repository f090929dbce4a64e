"""Score several outputs: linear mixing against separate processes, and noise that varies.

    python bench/several_outputs.py               # writes bench/results/several_outputs.md
    python bench/several_outputs.py --seeds 2 --out FILE

Models climb in turn: natural steps of q(u), then L-BFGS on everything else. A model of several
outputs starts from several lengthscales, and the highest bound goes on. One thread; seconds are CPU
seconds.
"""

import argparse
import os
import pathlib
import shlex
import sys
import textwrap
import time

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, "1")  # read once, when the libraries load

import numpy as np  # noqa: E402
import scipy.optimize  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fastsvgp as fs  # noqa: E402

N, P, L, M, MISSING = 150, 5, 2, 15, 50
ROUNDS, FIRST_ROUNDS, ITERATIONS, RISE = 100, 10, 8, 1e-4
SHORTER = 1, 2, 4  # starting lengthscales are those of multi_gp, divided by these
SEEDS, NOISY = 10, 200
GAPS = f"""
**Gaps.** {P} outputs y = W g + noise of standard deviation 0.1, with g = (sin x, cos(0.6 x + 1))
and normal entries of W; {N} rows on [0, 10], and a block of {MISSING} rows is missing in each
output. The score is the mean log density of the missing targets. M = {M}. Starts are those of
`fs.layers.multi_gp`, with its lengthscales divided by {", ".join(map(str, SHORTER))}:
{FIRST_ROUNDS} rounds from each, then at most {ROUNDS} rounds from the one with the highest bound.
A round is a natural step of 1 and {ITERATIONS} iterations of L-BFGS. "One start": all rounds from
`fs.layers.multi_gp`.
"""
NOISE = f"""
**Noise that varies.** y = sin(x) + exp(h(x) / 2) e with h = -3 + 2 sin(0.7 x) on [0, 10], normal e.
The score is the mean log density of 1,000 other rows. {NOISY} rows to train, M = {M}, `fs.em` from
the start of `fs.layers.multi_gp`.
"""
ABOUT = """
Medians over seeds 0 to {last}. Last column but one: the number of
seeds in which the first model of the table
has the larger log density. One thread.
"""


def with_gaps(seed):
    """Return ``(X, Y, seen)``: all targets (N, P), and False where one is missing."""
    rng = np.random.default_rng(seed)
    X = np.sort(rng.uniform(0, 10, (N, 1)), axis=0)
    G = np.stack([np.sin(X[:, 0]), np.cos(0.6 * X[:, 0] + 1)], axis=1)
    Y = G @ rng.standard_normal((P, L)).T + 0.1 * rng.standard_normal((N, P))
    seen = np.ones((N, P), bool)
    for p in range(P):
        first = rng.integers(0, N - MISSING)
        seen[first : first + MISSING, p] = False
    return X, Y, seen


def with_noise(seed, rows):
    """Return ``(X, Y)``, whose noise varies with X."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(0, 10, (rows, 1))
    x, e = X[:, 0], rng.standard_normal(rows)
    return X, np.sin(x) + np.exp(-1.5 + np.sin(0.7 * x)) * e


def in_turn(model, X, Y, seen, rounds=ROUNDS):
    """Return a ``MultiGP`` after natural steps of q(u) and L-BFGS on the rest, in turn.

    One step of size 1 is the whole E-step, because the noise is Gaussian. With a mixing the
    variances are held fixed: its columns have their scale.
    """
    latents = range(len(model.latents))
    fixed = [f"latents.{number}.posterior" for number in latents]
    if model.mixing is not None:
        fixed += [f"latents.{number}.covariance.variance" for number in latents]
    before = -np.inf
    for _ in range(rounds):
        model, _ = fs.natural_step(model, X, Y, step_size=1.0, weights=seen)
        vector, unravel = fs.ravel(model, fixed=fixed)

        def loss(vector, unravel=unravel):
            value, grad = fs.elbo_and_grad(unravel(vector), X, Y, weights=seen, wrt=unravel.paths)
            return -value, -unravel.pullback(vector, grad)

        options = {"maxiter": ITERATIONS}
        found = scipy.optimize.minimize(loss, vector, jac=True, method="L-BFGS-B", options=options)
        model = unravel(found.x)
        if -found.fun - before < RISE:
            break
        before = -found.fun
    return fs.natural_step(model, X, Y, step_size=1.0, weights=seen)[0]


def start(X, Y, seen, num_latents, shorter):
    """Return the ``MultiGP`` of ``multi_gp`` with shorter lengthscales."""
    model = fs.layers.multi_gp(X, Y, num_latents, M, weights=seen, rng=0)
    latents = []
    for layer in model.latents:
        lengthscales = layer.covariance.lengthscales / shorter
        own = fs.replace(layer.covariance, lengthscales=lengthscales)
        latents.append(fs.replace(layer, covariance=own))
    return fs.replace(model, latents=tuple(latents))


def trained(X, Y, seen, num_latents):
    """Return the model from the best of several starts."""
    starts = [start(X, Y, seen, num_latents, shorter) for shorter in SHORTER]
    found = [in_turn(model, X, Y, seen, FIRST_ROUNDS) for model in starts]
    best = max(found, key=lambda model: fs.elbo(model, X, Y, weights=seen))
    return in_turn(best, X, Y, seen)


def log_density(model, X, Y, missing):
    """Return the mean log density of the missing targets, of Gaussian predictions."""
    mean, var = (values.reshape(missing.shape) for values in fs.predict_y(model, X))
    every = -0.5 * (np.log(2 * np.pi * var) + (Y - mean) ** 2 / var)
    return every[missing].mean()


def mixed(X, Y, seen):
    """Return the score of a linear mixing of two functions."""
    model = trained(X, np.where(seen, Y, np.nan), seen, L)
    return log_density(model, X, Y, ~seen)


def mixed_from_one_start(X, Y, seen):
    """Return the score of a linear mixing, all rounds from the start of ``multi_gp``."""
    targets = np.where(seen, Y, np.nan)
    model = in_turn(start(X, targets, seen, L, 1), X, targets, seen)
    return log_density(model, X, Y, ~seen)


def separate(X, Y, seen):
    """Return the score of one SVGP per output: inducing inputs and noise of its own."""
    scores = []
    for y, rows in zip(Y.T, seen.T, strict=True):
        model = trained(X[rows], y[rows], None, "separate")
        scores.append(log_density(model, X[~rows], y[~rows], np.ones(MISSING, bool)))
    return np.mean(scores)


def separate_sharing(X, Y, seen):
    """Return the score of separate covariances in one model: shared inducing inputs and noise."""
    model = trained(X, np.where(seen, Y, np.nan), seen, "separate")
    return log_density(model, X, Y, ~seen)


def noise_score(likelihood, X, Y, Xs, Ys):
    """Return the mean log density of other rows."""
    start = fs.layers.multi_gp(X, Y, "separate", M, likelihood=likelihood, rng=0)
    model, _ = fs.em(start, X, Y)
    return fs.predict_log_density(model, Xs, Ys).mean()


def constant(*data):
    return noise_score(None, *data)


def heteroskedastic(*data):
    return noise_score(fs.likelihoods.HeteroskedasticGaussian(), *data)


MODELS = {
    "gaps": {
        "two functions, mixed linearly": mixed,
        "the same from one start": mixed_from_one_start,
        "five SVGPs": separate,
        "separate covariances, one Z and noise": separate_sharing,
    },
    "noise": {
        "`HeteroskedasticGaussian`": heteroskedastic,
        "`Gaussian`": constant,
    },
}


def problem(name, seed):
    """Return the arguments of the models of a problem."""
    if name == "gaps":
        return with_gaps(seed)
    return (*with_noise(seed, NOISY), *with_noise(1000 + seed, 1000))


def scores(name, seeds):
    """Return ``{model: scores}`` and ``{model: CPU seconds}`` of seeds 0, 1, ..."""
    found, seconds = ({model: [] for model in MODELS[name]} for _ in range(2))
    for seed in range(seeds):
        data = problem(name, seed)
        for model, score in MODELS[name].items():
            started = time.process_time()
            found[model].append(float(score(*data)))
            seconds[model].append(time.process_time() - started)
        print(name, seed, *(f"{values[-1]:.3f}" for values in found.values()), flush=True)
    return found, seconds


def table(name, seeds):
    """Return the lines of a table: the first model of a problem, and the others against it."""
    found, seconds = scores(name, seeds)
    first, *_ = MODELS[name]
    lines = [
        "| model | median log density | smallest, largest | first model better in | CPU s |",
        "| --- | --- | --- | --- | --- |",
    ]
    for model, values in found.items():
        wins = sum(one > other for one, other in zip(found[first], values, strict=True))
        better = "" if model == first else f"{wins} of {seeds}"
        lines.append(
            f"| {model} | {np.median(values):.3f} | {min(values):.3f}, {max(values):.3f} |"
            f" {better} | {np.median(seconds[model]):.1f} |"
        )
    return lines


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=SEEDS)
    parser.add_argument(
        "--out", type=pathlib.Path, default=ROOT / "bench" / "results" / "several_outputs.md"
    )
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    fs.set_num_threads(1)
    lines = []
    for name, about in (("gaps", GAPS), ("noise", NOISE)):
        lines += ["", textwrap.fill(about.strip(), 100), "", *table(name, args.seeds)]
    print(*lines, sep="\n")
    from report import header

    head = header(shlex.join(["python", "bench/several_outputs.py", *argv]))
    about = textwrap.fill(ABOUT.strip().format(last=args.seeds - 1), 100)
    text = "\n".join([f"# {args.out.stem}", "", head, "", about, *lines])
    args.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
