"""Compare a training step (value and all gradients, float64) with other programs, in one table.

    python bench/peers.py                      # every peer that is installed, two threads each
    python bench/peers.py --sizes 100,256 1000,1000 --seconds 20
    python bench/peers.py --device cuda        # all of them on one GPU; every step synchronises
    python bench/peers.py --step natural       # natural-gradient steps of q; natural_peers.py
    python bench/peers.py --step deep          # value and gradients of two layers; layered_peers.py
    python bench/peers.py --step convolutional # of images by their patches; the same

All of them compute the whitened ELBO of one q(v) = N(m, W W'), ARD RBF, Gaussian noise, over one
batch of the data (num_data = 10 B), and its gradient in all parameters: m, W, Z, lengthscales,
variance, noise. How close the problems are:

- JAX: the same formula in plain ``jax.numpy``, ``jit(value_and_grad)``; the same jitter, the same
  natural parameters.
- GPyTorch, default ``VariationalStrategy`` and ``LargeBatchVariationalStrategy``, both with
  ``CholeskyVariationalDistribution``,
  ``ScaleKernel(RBFKernel)`` and ``VariationalELBO``; value and ``backward()``. Its objective is the
  ELBO divided by num_data and its parameters are unconstrained (softplus): both are converted
  before the comparison, outside the clock. It adds its jitter (set to fastsvgp's) to Kuu, and also
  to the variances of the batch, so value and noise gradient differ by about jitter / (2 noise) per
  datum, a few 1e-7 relative; the other gradients agree to rounding.

The programs alternate in rounds, so other load on the machine affects all of them; medians and
minima are printed.
"""

import argparse
import contextlib
import os
import shlex
import sys
import time

THREADS = 2
for variable in ("OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OMP_NUM_THREADS"):
    os.environ.setdefault(variable, str(THREADS))  # read once, when the libraries load
# set as fastsvgp does when it loads OpenBLAS: here SciPy's is loaded first
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "20")

import layered_peers  # noqa: E402
import natural_peers  # noqa: E402
import numpy as np  # noqa: E402
import report  # noqa: E402
from harness import gemm_rates, relative_error  # noqa: E402
from problems import natural_step_flops, step_flops, step_problem  # noqa: E402

JITTER = 1e-6
SCALE = 10.0  # num_data / batch


def ours(p, device):
    import fastsvgp as fs

    fs.set_num_threads(THREADS)
    X, y = p["X"], p["y"]
    model = fs.SVGP(
        covariance=fs.RBF(variance=p["variance"], lengthscales=p["lengthscales"]),
        inducing=p["Z"],
        posterior=fs.Whitened(mean=p["mean"], scale_tril=p["scale_tril"]),
        likelihood=fs.Gaussian(variance=p["noise"]),
    )
    num_data = SCALE * len(y)
    wait = no_wait
    if device == "cuda":
        import cupy

        model, X, y = fs.to_device(model), cupy.asarray(X), cupy.asarray(y)
        wait = cupy.cuda.get_current_stream().synchronize

    def step():
        result = fs.elbo_and_grad(model, X, y, num_data=num_data, jitter=JITTER)
        wait()
        return result

    def answer(result):
        value, grad = result
        grad = fs.to_host(grad)
        return value, dict(
            variance=grad.covariance.variance,
            lengthscales=grad.covariance.lengthscales,
            Z=grad.inducing,
            mean=grad.posterior.mean,
            scale_tril=grad.posterior.scale_tril,
            noise=grad.likelihood.variance,
        )

    step.answer = answer
    return step


def no_wait():
    """Do nothing: a call on the CPU is complete when it returns."""


def jax_step(p, device):
    # by default JAX reserves most of the GPU's memory, which the other programs need
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("JAX_PLATFORMS", device)  # read once, when JAX loads
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import solve_triangular

    jax.config.update("jax_enable_x64", True)

    def covariance(A, B, variance, lengthscales):
        A, B = A / lengthscales, B / lengthscales
        r2 = (A**2).sum(1)[:, None] + (B**2).sum(1)[None, :] - 2 * A @ B.T
        return variance * jnp.exp(-0.5 * jnp.maximum(r2, 0.0))

    def elbo(q, X, y):
        W = jnp.tril(q["scale_tril"])
        Kuu = covariance(q["Z"], q["Z"], q["variance"], q["lengthscales"]) + JITTER * jnp.eye(
            len(W)
        )
        Kuf = covariance(q["Z"], X, q["variance"], q["lengthscales"])
        Lam = solve_triangular(jnp.linalg.cholesky(Kuu), Kuf, lower=True)
        mean = Lam.T @ q["mean"]
        var = q["variance"] - (Lam**2).sum(0) + ((W.T @ Lam) ** 2).sum(0)
        data = -0.5 * jnp.log(2 * jnp.pi * q["noise"]) - ((y - mean) ** 2 + var) / (2 * q["noise"])
        kl = 0.5 * ((W**2).sum() + q["mean"] @ q["mean"] - len(W)) - jnp.log(jnp.diag(W)).sum()
        return SCALE * data.sum() - kl

    compiled = jax.jit(jax.value_and_grad(elbo))
    q = {
        name: jnp.asarray(p[name])
        for name in ("Z", "variance", "lengthscales", "noise", "mean", "scale_tril")
    }
    X, y = jnp.asarray(p["X"]), jnp.asarray(p["y"])

    def step():
        value, grad = jax.block_until_ready(compiled(q, X, y))
        return float(value), grad

    return step


def gpytorch_step(p, device, strategy_name):
    import gpytorch
    import torch

    torch.set_num_threads(THREADS)
    torch.set_default_dtype(torch.float64)
    tensors = {name: torch.as_tensor(np.array(a), device=device) for name, a in p.items()}
    wait = torch.cuda.synchronize if device == "cuda" else no_wait
    M, B = len(p["Z"]), len(p["y"])

    class Model(gpytorch.models.ApproximateGP):
        def __init__(self):
            distribution = gpytorch.variational.CholeskyVariationalDistribution(M)
            strategy = getattr(gpytorch.variational, strategy_name)(
                self,
                tensors["Z"].clone(),
                distribution,
                learn_inducing_locations=True,
                jitter_val=JITTER,
            )
            super().__init__(strategy)
            self.mean_module = gpytorch.means.ZeroMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(
                gpytorch.kernels.RBFKernel(ard_num_dims=p["Z"].shape[1])
            )

        def forward(self, x):
            return gpytorch.distributions.MultivariateNormal(
                self.mean_module(x), self.covar_module(x)
            )

    model = Model().to(device)
    likelihood = gpytorch.likelihoods.GaussianLikelihood(
        noise_constraint=gpytorch.constraints.Positive()
    ).to(device)
    model.covar_module.outputscale = tensors["variance"]
    model.covar_module.base_kernel.lengthscale = tensors["lengthscales"]
    likelihood.noise = tensors["noise"]
    q = model.variational_strategy._variational_distribution
    # otherwise the first call overwrites q with the prior
    model.variational_strategy.variational_params_initialized.fill_(1)
    with torch.no_grad():
        q.variational_mean.copy_(tensors["mean"])
        q.chol_variational_covar.copy_(tensors["scale_tril"])
    model.train()
    likelihood.train()
    objective = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=SCALE * B)
    raw = dict(
        variance=model.covar_module.raw_outputscale,
        lengthscales=model.covar_module.base_kernel.raw_lengthscale,
        noise=likelihood.noise_covar.raw_noise,
        Z=model.variational_strategy.inducing_points,
        mean=q.variational_mean,
        scale_tril=q.chol_variational_covar,
    )

    def step():
        for parameter in raw.values():
            parameter.grad = None
        with gpytorch.settings.cholesky_jitter(double_value=JITTER):
            value = objective(model(tensors["X"]), tensors["y"])
            value.backward()
        wait()
        return value, raw

    def answer(result):
        """Return the result in the units of fastsvgp: the whole ELBO, natural parameters."""
        value, raw = result
        grad = {name: SCALE * B * parameter.grad.cpu().numpy() for name, parameter in raw.items()}
        for name in ("variance", "lengthscales", "noise"):
            u = raw[name].detach().cpu().numpy()
            # d softplus / du = 1 / (1 + e^-u)
            grad[name] = (grad[name] * (1 + np.exp(-u))).reshape(np.shape(p[name]))
        return SCALE * B * value.item(), grad

    step.answer = answer
    return step


PEERS = {
    "fastsvgp": ours,
    "JAX, jit": jax_step,
    "GPyTorch, default": lambda p, device: gpytorch_step(p, device, "VariationalStrategy"),
    "GPyTorch, LargeBatch": lambda p, device: gpytorch_step(
        p, device, "LargeBatchVariationalStrategy"
    ),
}


def installed(p, device, peers):
    for name, build in peers.items():
        try:
            yield name, build(p, device)
        except ModuleNotFoundError as error:
            print(f"(left out: {name}; {error.name} is not installed)", file=sys.stderr)
        except Exception as error:
            leave_out(name, error)


def leave_out(name, error):
    """Say that another program fails; an error of ours is raised."""
    if name.startswith("fastsvgp"):
        raise error
    said = f"{type(error).__name__}: {error}".splitlines()[0]
    print(f"(left out: {name}; {said[:200]})", file=sys.stderr)


def agreement(result, truth):
    """Return the relative difference of the value, and the largest difference of the gradients.

    Gradients are scaled by their largest entry (or 1).
    """
    (value, grad), (true_value, true_grad) = result, truth
    lower = {name: np.tril(g) if name.endswith("scale_tril") else g for name, g in grad.items()}
    return abs(value - true_value) / abs(true_value), max(
        relative_error(lower[name], true_grad[name]) for name in true_grad
    )


def rates_of(M, B, device):
    """Return a function that measures the flop/s of (M, M) times (M, B) on the device."""
    if device == "cpu":
        return lambda: gemm_rates(M, B)
    from device import gemm_seconds

    seconds = gemm_seconds(1.0, M, B, "float64")
    return lambda: [1 / seconds()]


def facts(device):
    """Describe the GPU for the table."""
    if device == "cpu":
        return None
    import device as gpu

    if gpu.REASON:
        raise SystemExit(f"--device {device}: {gpu.REASON}")
    return gpu.facts()


def started(steps):
    """Compile the steps, and compare them with the first; return the agreements.

    Steps of other programs that fail are left out.
    """
    truth, rows = None, {}
    for name, step in steps.items():
        try:
            result = getattr(step, "answer", lambda r: r)(step())
            truth = result if truth is None else truth
            rows[name] = agreement(result, truth)
            step()
        except Exception as error:
            rows.pop(name, None)
            leave_out(name, error)
    return rows


def compare(p, M, B, seconds, device, peers, flops):
    """Return a row per peer: name, median, best, ratio of medians, agreement; and the gemm rate.

    Agreement is in the value and in the gradients.
    """
    steps, measure = dict(installed(p, device, peers)), rates_of(M, B, device)
    rows = started(steps)
    steps = {name: steps[name] for name in rows}
    times, rates = {name: [] for name in steps}, []
    deadline = time.perf_counter() + seconds
    while time.perf_counter() < deadline or len(rates) < 15:
        rates.extend(measure())
        for name, step in steps.items():
            pause()
            step()  # caches and threads as in a training loop
            for _ in range(3):
                start = time.perf_counter()
                step()
                times[name].append((time.perf_counter() - start) / getattr(step, "count", 1))
    floor = flops / np.median(rates)
    base = np.median(times["fastsvgp"])
    return float(np.median(rates)), [
        (name, np.median(t), min(t), np.median(t) / base, np.median(t) / floor, *rows[name])
        for name, t in times.items()
    ]


def pause():
    """Wait until the threads of the previous program stop spinning."""
    time.sleep(0.2)


def gradient(M, B):
    return step_problem(M, B), PEERS, step_flops(M, B)


def natural(M, B, columns, P):
    return step_problem(M, B, D=columns), natural_peers.peers(P), natural_step_flops(M, B, P)


def deep(M, B):
    return layered_peers.deep_problem(M, B), layered_peers.DEEP, layered_peers.deep_flops(M, B)


def convolutional(M, B):
    return (
        layered_peers.convolutional_problem(M, B),
        layered_peers.CONVOLUTIONAL,
        layered_peers.convolutional_flops(M, B),
    )


STEPS = {  # name: (functions for problem, peers and flops of a size, sizes)
    "gradient": (gradient, ("100,256", "512,1024", "256,8192", "1000,1000", "2000,1000")),
    "natural": (natural, ("512,1024,8,1", "100,200,784,10")),
    "deep": (deep, ("100,1024", "128,1024", "500,1000")),
    "convolutional": (convolutional, ("150,100", "750,100")),
}


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--step", choices=tuple(STEPS), default="gradient")
    parser.add_argument("--sizes", nargs="+", help="M,B of each; with --step natural M,B,D,P")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--seconds", type=float, default=20.0, help="approximate duration per size")
    args = parser.parse_args(arguments)
    command = shlex.join(["python", "bench/peers.py", *arguments])
    packages = *report.PACKAGES, "jax", "torch", "gpytorch", "gpflow", "tensorflow"
    print(report.header(command, packages, facts(args.device), report.computing()), end="\n\n")
    print(
        "| size | program | median ms | best ms | times ours | times floor | value differs by |"
        " gradients differ by |"
    )
    print("|" + " --- |" * 8)
    problem, sizes = STEPS[args.step]
    for size in args.sizes or sizes:
        numbers = tuple(map(int, size.split(",")))
        p, peers, flops = problem(*numbers)
        rate, rows = compare(p, *numbers[:2], args.seconds, args.device, peers, flops)
        for name, median, best, ratio, floors, value, grad in rows:
            entries = (
                f"{1e3 * median:.3g} | {1e3 * best:.3g} | {ratio:.2f} | {floors:.2f} | {value:.1e}"
                f" | {grad:.1e}"
            )
            print(f"| {size.replace(',', ', ')} | {name} | {entries} |")
        print(
            f"| {size.replace(',', ', ')} | gemm: {rate / 1e9:.0f} GFLOP/s | | | | | | |",
            flush=True,
        )


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        main(sys.argv[1:])
