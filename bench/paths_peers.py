"""Compare functions drawn from a posterior with those of BoTorch: times, and Thompson sampling.

    python bench/paths_peers.py            # times and regrets; writes results/paths_peers.md
    python bench/paths_peers.py --rounds 20 --seeds 0 1 2 --results FOLDER

64 functions of a whitened SVGP in float64 with 512 inducing inputs in 8 dimensions, from 1,024
random features that they share, on one thread. Times are CPU seconds of the process, so other load
on the machine matters less; the programs alternate in rounds, and medians are compared.

Thompson sampling maximises minus Hartmann's function of six variables: 16 random points, then 20
rounds of 16 points, each the maximiser of one drawn function. Both programs draw from the same
model, an RBF process whose hyperparameters are fitted by L-BFGS to all points so far.
"""

import argparse
import os
import pathlib
import shlex
import sys
import time
import tracemalloc

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # read once, when the libraries load

import numpy as np  # noqa: E402
import report  # noqa: E402
import scipy.optimize  # noqa: E402

import fastsvgp as fs  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
S, M, FEATURES, D = 64, 512, 1024, 8
SHARED, EACH = 2000, 10  # points of all functions, and of each function
BARS = {"making": 1 / 6, "shared": 1 / 12, "own": 1 / 2}
WORDS = {
    "making": f"making {S} functions",
    "shared": f"values at {SHARED:,} shared points",
    "own": f"values and gradients at {S} x {EACH} own points",
}
CALLS = 3  # timed calls per round
JITTER = 1e-6
PACKAGES = (*report.PACKAGES, "torch", "gpytorch", "botorch")
ROUNDS, BATCH, CANDIDATES = 20, 16, 1000
BEST = 3.32236801141551  # the maximum of minus Hartmann's function
LEAST_NOISE = 1e-4  # of standardised targets; the least that BoTorch takes

LEGEND = f"""\
{S} functions of a whitened SVGP, RBF with a lengthscale per input, M = {M}, {FEATURES:,} shared
random features, D = {D}, float64. CPU time of one thread. Ours / its: median over median, and the
bar that it must not exceed."""
SIZES_LEGEND = """\
Values at more shared points, and the peak of memory beyond the result."""
THOMPSON_LEGEND = f"""\
Thompson sampling, {ROUNDS} rounds of {BATCH} points after {BATCH} random ones, of minus Hartmann's
function of six variables. Regret: its maximum minus the best value found, after 5, 10 and {ROUNDS}
rounds; medians, and the largest at the end. Seconds of drawing and maximising functions."""


def problem():
    rng = np.random.default_rng(0)
    Z = rng.uniform(-1, 1, (M, D))
    tril = np.tril(0.05 * rng.standard_normal((M, M)) / np.sqrt(M), -1) + 0.3 * np.eye(M)
    points = rng.uniform(-1, 1, (SHARED, D)), rng.uniform(-1, 1, (S, EACH, D))
    return {
        "Z": Z,
        "mean": rng.standard_normal(M),
        "scale_tril": tril,
        "lengthscales": np.linspace(0.8, 1.5, D),
        "points": points,
    }


def ours(p):
    """Return a call per row of the table."""
    q = fs.Whitened(p["mean"], p["scale_tril"])
    model = fs.SVGP(fs.RBF(1.0, p["lengthscales"]), p["Z"], q, fs.Gaussian(0.1))
    settings = {"num_features": FEATURES, "frequencies": "shared", "jitter": JITTER}
    paths = fs.sample_paths(model, S, rng=0, **settings)
    shared, own = p["points"]
    return {
        "making": lambda: fs.sample_paths(model, S, rng=0, **settings),
        "shared": lambda: paths(shared),
        "own": lambda: paths.and_grad(own),
    }


def botorch(p):
    import torch
    from botorch.models import SingleTaskVariationalGP
    from botorch.sampling.pathwise import draw_matheron_paths
    from gpytorch.kernels import RBFKernel, ScaleKernel

    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    covariance = ScaleKernel(RBFKernel(ard_num_dims=D))
    covariance.outputscale = 1.0
    covariance.base_kernel.lengthscale = torch.tensor(p["lengthscales"])
    Z = torch.tensor(p["Z"])
    model = SingleTaskVariationalGP(
        Z, num_outputs=1, covar_module=covariance, inducing_points=Z, learn_inducing_points=False
    )
    strategy = model.model.variational_strategy
    strategy.variational_params_initialized.fill_(1)
    q = strategy._variational_distribution
    q.variational_mean.data[:] = torch.tensor(p["mean"])
    q.chol_variational_covar.data[:] = torch.tensor(p["scale_tril"])
    model.eval()
    shape = torch.Size([S])
    shared, own = (torch.tensor(points) for points in p["points"])

    def making():
        with torch.no_grad():
            return draw_matheron_paths(model, shape)

    paths = making()

    def at_shared():
        with torch.no_grad():
            return paths(shared)

    def at_own():
        points = own.clone().requires_grad_(True)
        values = paths(points)
        return values, torch.autograd.grad(values.sum(), points)[0]

    assert at_shared().shape == (S, SHARED) and at_own()[0].shape == (S, EACH)
    return {"making": making, "shared": at_shared, "own": at_own}


def seconds_of(calls, rounds):
    """Return CPU seconds of each call, alternating; the first of each round is not timed."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            for _ in range(CALLS):
                start = time.process_time()
                call()
                times[name].append(time.process_time() - start)
    return {name: (np.median(each), min(each)) for name, each in times.items()}


def time_rows(rounds):
    p = problem()
    our_calls, their_calls = ours(p), botorch(p)
    for what, words in WORDS.items():
        times = seconds_of({"fastsvgp": our_calls[what], "BoTorch": their_calls[what]}, rounds)
        ratio = times["fastsvgp"][0] / times["BoTorch"][0]
        for name, (median, best) in times.items():
            last = (f"{ratio:.3f}", f"{BARS[what]:.3f}") if name == "BoTorch" else ("", "")
            yield [words, name, report.duration(median), report.duration(best), *last]


def size_rows(rounds):
    """Yield the time and the memory of values at several numbers of shared points."""
    p = problem()
    model = fs.SVGP(
        fs.RBF(1.0, p["lengthscales"]), p["Z"], fs.Whitened(p["mean"], p["scale_tril"]),
        fs.Gaussian(0.1),
    )  # fmt: skip
    paths = fs.sample_paths(
        model, S, num_features=FEATURES, frequencies="shared", rng=0, jitter=JITTER
    )
    for N in (1000, 4000, 16_000, 64_000):
        X = np.random.default_rng(1).uniform(-1, 1, (N, D))
        median, best = seconds_of({"ours": lambda X=X: paths(X)}, max(1, rounds // 4))["ours"]
        tracemalloc.start()
        values = paths(X)
        extra = tracemalloc.get_traced_memory()[1] - values.nbytes
        tracemalloc.stop()
        each = report.duration(median / N)
        yield [f"{N:,}", report.duration(median), report.duration(best), each, report.size(extra)]


# --- Thompson sampling ----------------------------------------------------------------------------

ALPHA = np.array([1.0, 1.2, 3.0, 3.2])
A = np.array(
    [[10, 3, 17, 3.5, 1.7, 8], [0.05, 10, 17, 0.1, 8, 14],
     [3, 3.5, 1.7, 10, 17, 8], [17, 8, 0.05, 10, 0.1, 14]]
)  # fmt: skip
P = 1e-4 * np.array(
    [[1312, 1696, 5569, 124, 8283, 5886], [2329, 4135, 8307, 3736, 1004, 9991],
     [2348, 1451, 3522, 2883, 3047, 6650], [4047, 8828, 8732, 5743, 1091, 381]]
)  # fmt: skip


def objective(X):
    """Return minus Hartmann's function at X (n, 6) in the unit cube."""
    return np.exp(-(A * (X[:, None] - P) ** 2).sum(axis=-1)) @ ALPHA


def fitted(X, y):
    """Return an exact process for targets y, as an SGPR with all points as inducing inputs."""
    sgpr = fs.SGPR(fs.RBF(1.0, np.full(6, 0.4)), X, noise_variance=1e-3)
    sgpr, _ = fs.fit(sgpr, X, y, steps=40, fixed="inducing")
    noise = max(float(sgpr.noise_variance), LEAST_NOISE)
    return fs.replace_at(sgpr, "noise_variance", noise)


def draw_ours(sgpr, X, y, rng):
    """Return a function: own points (S, n, 6) to values and gradients of the drawn functions."""
    model = fs.optimal_svgp(sgpr, X, y, jitter=JITTER)
    return fs.sample_paths(model, BATCH, num_features=FEATURES, rng=rng, jitter=JITTER).and_grad


def draw_botorch(sgpr, X, y, rng):
    import torch
    from botorch.models import SingleTaskGP
    from botorch.sampling.pathwise import draw_matheron_paths
    from gpytorch.kernels import RBFKernel, ScaleKernel
    from gpytorch.means import ZeroMean

    torch.manual_seed(int(rng.integers(2**31)))
    covariance = ScaleKernel(RBFKernel(ard_num_dims=6))
    covariance.outputscale = float(sgpr.covariance.variance)
    covariance.base_kernel.lengthscale = torch.tensor(sgpr.covariance.lengthscales)
    exact = SingleTaskGP(
        torch.tensor(X), torch.tensor(y)[:, None], covar_module=covariance, mean_module=ZeroMean(),
        outcome_transform=None,
    )  # fmt: skip
    exact.likelihood.noise = float(sgpr.noise_variance)
    exact.eval()
    with torch.no_grad():
        paths = draw_matheron_paths(exact, torch.Size([BATCH]))

    def values_and_grads(points):
        points = torch.tensor(points, requires_grad=True)
        values = paths(points)
        return values.detach().numpy(), torch.autograd.grad(values.sum(), points)[0].numpy()

    return values_and_grads


def maximisers(draw, rng):
    """Return the maximiser in the unit cube of each drawn function (S, 6).

    The best of random candidates starts L-BFGS-B, of all functions at once.
    """
    found = rng.uniform(size=(BATCH, CANDIDATES, 6))
    best = draw(found)[0].argmax(axis=1)
    start = found[np.arange(BATCH), best].ravel()

    def minus(x):
        values, slopes = draw(x.reshape(BATCH, 1, 6))
        return -values.sum(), -slopes.ravel()

    x = scipy.optimize.minimize(
        minus, start, jac=True, method="L-BFGS-B", bounds=[(0, 1)] * start.size,
        options={"maxiter": 60},
    ).x  # fmt: skip
    return x.reshape(BATCH, 6)


def regrets(draw, seed):
    """Return the regret after each round, and CPU seconds of drawing and maximising."""
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(BATCH, 6))
    y, spent, found = objective(X), 0.0, []
    for _ in range(ROUNDS):
        targets = (y - y.mean()) / y.std()
        sgpr = fitted(X, targets)
        start = time.process_time()
        x = maximisers(draw(sgpr, X, targets, rng), rng)
        spent += time.process_time() - start
        X, y = np.concatenate([X, x]), np.concatenate([y, objective(x)])
        found.append(BEST - y.max())
    return np.array(found), spent


def thompson_rows(seeds):
    for name, draw in ("fastsvgp", draw_ours), ("BoTorch", draw_botorch):
        runs = [regrets(draw, seed) for seed in seeds]
        found = np.array([regret for regret, _ in runs])
        middle = np.median(found, axis=0)
        at = [f"{middle[k - 1]:.4f}" for k in (5, 10, ROUNDS)]
        seconds = np.median([spent for _, spent in runs])
        yield [name, *at, f"{found[:, -1].max():.4f}", f"{seconds:.1f}"]


def measured(words, heads, rows):
    table = [heads]
    for row in rows:
        print(" | ".join(row), flush=True)
        table.append(row)
    return words, report.markdown(table)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--results", type=pathlib.Path, default=HERE / "results")
    given = parser.parse_args()
    command = shlex.join(["python", "bench/paths_peers.py", *sys.argv[1:]])
    with fs.set_num_threads(1):
        head = report.header(command, PACKAGES, blas=report.computing())
        programs = "program", "median", "best", "ours / its", "bar"
        parts = [
            *measured(LEGEND, ["call", *programs], time_rows(given.rounds)),
            *measured(
                SIZES_LEGEND, ["points", "median", "best", "each", "extra"], size_rows(given.rounds)
            ),
            *measured(
                f"{THOMPSON_LEGEND} Seeds {min(given.seeds)} to {max(given.seeds)}.",
                ["program", "after 5", "after 10", f"after {ROUNDS}", "largest", "CPU s"],
                thompson_rows(given.seeds),
            ),
        ]
    path = given.results / "paths_peers.md"
    path.write_text("\n\n".join(["# paths_peers", head, *parts]) + "\n", encoding="utf-8")
    print(path)


if __name__ == "__main__":
    main()
