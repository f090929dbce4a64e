"""Train a network under a Gaussian process, and compare with the process on the inputs.

    python bench/deep_kernel.py --out bench/results/deep_kernel.md
    python bench/deep_kernel.py kin40k --split 3       # one data set, another test split
    python bench/deep_kernel.py --epochs 1             # a quick test that everything runs
    python bench/deep_kernel.py --step                 # one step against GPyTorch, if installed

The network and the optimiser are PyTorch's, the process is ``fastsvgp.interop.torch.SVGP``. Reads
../shared/data or the folder that FASTSVGP_DATA names. One thread; seconds are CPU seconds.
"""

import argparse
import os
import pathlib
import shlex
import sys
import time

for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ[variable] = "1"  # read once, when the libraries load

import numpy as np  # noqa: E402
import torch  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import fastsvgp as fs  # noqa: E402
from fastsvgp.interop.torch import SVGP  # noqa: E402

DATA = pathlib.Path(os.environ.get("FASTSVGP_DATA") or ROOT.parent / "shared" / "data")
NAMES = "kin40k", "elevators", "bike"
HIDDEN, FEATURES, INDUCING, BATCH, EPOCHS, RATE = (100, 50), 4, 128, 512, 30, 0.01
ABOUT = f"""\
Whitened SVGP, M = {INDUCING}, Matérn 3/2 with one lengthscale per input or feature, Gaussian noise,
float64; batches of {BATCH}, {{epochs}} epochs of Adam at {RATE} decaying to 0 by a half cosine, one
optimiser for network and process; split {{split}}, standardised, seed 0; one thread."""
STEP = """\
A step at M = 512, B = 1024, two features: whitened SVGP, ARD RBF, Gaussian noise, float64; value,
all gradients including that in the features, and Adam; one thread, both programs in turn."""


def load(name, split):
    """Return ``(X, y, Xt, yt)`` in standardised units, as tensors."""
    table = np.loadtxt(DATA / f"{name}.data.csv.gz", delimiter=",")
    test = np.loadtxt(DATA / f"{name}.test_mask.csv.gz", delimiter=",", ndmin=2)[:, split] > 0
    scale = table[~test].std(axis=0)
    table = (table - table[~test].mean(axis=0)) / np.where(scale > 0, scale, 1)
    parts = (table[~test][:, :-1], table[~test][:, -1], table[test][:, :-1], table[test][:, -1])
    return [torch.from_numpy(np.ascontiguousarray(part)) for part in parts]


def network(D, features):
    """Return layers with ReLU, or the identity."""
    if not features:
        return torch.nn.Identity()
    widths, layers = (D, *HIDDEN), []
    for before, after in zip(widths, widths[1:], strict=False):
        layers += [torch.nn.Linear(before, after), torch.nn.ReLU()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(widths[-1], features)).double()


def process(H, rng):
    """Return a Gaussian process for these features (N, D).

    Inducing inputs are among them, lengthscales have their size, and q is the prior.
    """
    Z = fs.inducing.kmeans(H, INDUCING, rng=rng, subset=5000)
    lengthscales = fs.inducing.median_lengthscales(H, rng=rng, ard=True)
    covariance = fs.Matern32(variance=1.0, lengthscales=lengthscales)
    posterior = fs.Whitened(mean=np.zeros(INDUCING), scale_tril=np.eye(INDUCING))
    return SVGP(
        fs.SVGP(
            covariance=covariance,
            inducing=Z,
            posterior=posterior,
            likelihood=fs.Gaussian(variance=0.1),
        )
    )


def train(X, y, features, epochs, seed=0):
    """Return ``(network, process)`` after ``epochs`` of Adam, with a half-cosine decay to 0."""
    torch.manual_seed(seed)
    net = network(X.shape[1], features)
    with torch.no_grad():
        gp = process(net(X).numpy(), seed)
    optimiser = torch.optim.Adam([*net.parameters(), *gp.parameters()], lr=RATE)
    steps = len(X) // BATCH
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * steps)
    for _ in range(epochs):
        for rows in torch.randperm(len(X))[: steps * BATCH].reshape(steps, BATCH):
            optimiser.zero_grad()
            loss = -gp(net(X[rows]), y[rows], num_data=len(X)) / len(X)
            loss.backward()
            optimiser.step()
            scheduler.step()
    return net, gp


def scores(net, gp, Xt, yt):
    """Return ``(RMSE, NLPD)`` of held-out data."""
    with torch.no_grad():
        H = net(Xt).numpy()
    mean, _ = fs.predict_y(gp.model, H)
    return float(np.sqrt(np.mean((mean - yt.numpy()) ** 2))), float(
        -np.mean(fs.predict_log_density(gp.model, H, yt.numpy()))
    )


def row(name, split, features, epochs):
    X, y, Xt, yt = load(name, split)
    train(X[:BATCH], y[:BATCH], features, 1)  # compilation
    started = time.process_time()
    net, gp = train(X, y, features, epochs)
    seconds = time.process_time() - started
    rmse, nlpd = scores(net, gp, Xt, yt)
    what = (
        f"{X.shape[1]}-{'-'.join(map(str, HIDDEN))}-{features} ReLU under the process"
        if features
        else "the process alone"
    )
    return f"| {name}, {len(X)} × {X.shape[1]} | {what} | {rmse:.3f} | {nlpd:.3f} | {seconds:.0f} |"


def our_step(X, y, Z):
    """Return a function that takes a step of Adam on the bound, with the gradient in X."""
    M, D = Z.shape
    posterior = fs.Whitened(mean=np.zeros(M), scale_tril=np.eye(M))
    covariance = fs.RBF(variance=1.0, lengthscales=np.full(D, 0.5))
    gp = SVGP(
        fs.SVGP(
            covariance=covariance,
            inducing=Z.numpy(),
            posterior=posterior,
            likelihood=fs.Gaussian(variance=0.1),
        )
    )
    optimiser = torch.optim.Adam(gp.parameters(), lr=1e-3)
    return lambda: _stepped(optimiser, lambda: -gp(X, y, num_data=40_000) / 40_000)


def peers_step(X, y, Z):
    """Return a function that takes the same step with GPyTorch."""
    import gpytorch

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            q = gpytorch.variational.CholeskyVariationalDistribution(len(Z))
            super().__init__(gpytorch.variational.VariationalStrategy(self, Z, q, jitter_val=1e-6))
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=Z.shape[1])
            )

        def forward(self, X):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(X), self.covar_module(X)
            )

    gp, likelihood = Model().double(), gpytorch.likelihoods.GaussianLikelihood().double()
    gp.covar_module.base_kernel.lengthscale, gp.covar_module.outputscale, likelihood.noise = (
        0.5,
        1.0,
        0.1,
    )
    bound = gpytorch.mlls.VariationalELBO(likelihood, gp, num_data=40_000)
    optimiser = torch.optim.Adam([*gp.parameters(), *likelihood.parameters()], lr=1e-3)
    return lambda: _stepped(optimiser, lambda: -bound(gp(X), y))


def _stepped(optimiser, loss):
    optimiser.zero_grad()
    value = loss()
    value.backward()
    optimiser.step()
    return value.item()


def step_rows(M=512, B=1024, D=2, calls=25):
    """Return the median CPU milliseconds of a step, with the programs in turn."""
    rng = np.random.default_rng(0)
    X, Z = (torch.from_numpy(rng.uniform(-3, 3, (n, D))) for n in (B, M))
    steps = {"fastsvgp.interop.torch": our_step(X.requires_grad_(), torch.sin(X[:, 0]).detach(), Z)}
    steps["GPyTorch"] = peers_step(X, torch.sin(X[:, 0]).detach(), Z)
    losses, spent = {name: step() for name, step in steps.items()}, {name: [] for name in steps}
    for _ in range(calls):
        for name, step in steps.items():
            started = time.process_time()
            step()
            spent[name].append(time.process_time() - started)
    for name, times in spent.items():
        yield (
            f"| {name} | {1e3 * np.median(times):.0f} | {1e3 * min(times):.0f} |"
            f" {losses[name]:.3f} |"
        )


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)} (default: all)"
    )
    parser.add_argument("--split", type=int, default=0, help="column of the test masks, 0 to 9")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    parser.add_argument(
        "--step", action="store_true", help="CPU milliseconds of one step, compared with GPyTorch"
    )
    parser.add_argument("--out", type=pathlib.Path, help="a file for the table (default: print it)")
    argv = sys.argv[1:] if argv is None else argv
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    fs.set_num_threads(1)
    if args.step:
        lines = [
            "| program | median CPU ms | best | loss at the start |",
            "| --- | --- | --- | --- |",
            *step_rows(),
        ]
        print(*lines[2:], sep="\n")
        about = STEP
    else:
        lines = ["| data | model | RMSE | NLPD | CPU seconds |", "| --- | --- | --- | --- | --- |"]
        for name in args.names or NAMES:
            for features in (FEATURES, 0):
                lines.append(row(name, args.split, features, args.epochs))
                print(lines[-1], flush=True)
        about = ABOUT.format(epochs=args.epochs, split=args.split)
    if args.out:
        from report import header

        command = shlex.join(["python", "bench/deep_kernel.py", *argv])
        head = header(
            command,
            packages=("numpy", "scipy", "numba", "torch", *(["gpytorch"] if args.step else [])),
        )
        args.out.write_text(
            "\n".join([f"# {args.out.stem}", "", head, "", about, "", *lines]) + "\n",
            encoding="utf-8",
        )


if __name__ == "__main__":
    main()
