"""One training step, value and all gradients, of each posterior.

Also the collapsed bound, a natural step, and a prediction.
"""

import device
import numpy as np
import pytest
from harness import record, relative_error
from oracles import gp_gradients
from problems import STEP_SIZES, outputs_flops, step_flops, step_problem

import fastsvgp as fs

JITTER = {"float64": 1e-6, "float32": 1e-4}
COLLAPSED_SIZES = [(100, 1000), (512, 2048), (1000, 2000)]
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])


def ours(p, posterior):
    return fs.SVGP(
        covariance=fs.RBF(variance=p["variance"], lengthscales=p["lengthscales"]),
        inducing=p["Z"],
        posterior=posterior(mean=p["mean"], scale_tril=p["scale_tril"]),
        likelihood=fs.Gaussian(variance=p["noise"]),
    )


def worst_error(value, grad, truth, truth_grad):
    """Return the largest error of value and gradients, against other formulas in float64."""
    errors = [relative_error(value, truth)]
    errors += [
        relative_error(np.tril(g) if kind == "tril" else g, truth_grad[path])
        for path, kind, g in fs.records.leaves(grad)
    ]
    return max(errors)


def unwhiten(p, jitter):
    """Return the same q in terms of u = L v."""
    L = np.linalg.cholesky(
        gp_gradients.blocks(p["Z"], p["X"][:1], p["variance"], p["lengthscales"], jitter)[1]
    )
    return p | dict(mean=L @ p["mean"], scale_tril=L @ p["scale_tril"])


every_posterior = pytest.mark.parametrize("posterior", ["whitened", "marginal"])


def model_and_batch(posterior, M, B, dtype):
    """Return ``(model, X, y, (value, gradients) in float64)``."""
    p = step_problem(M, B, np.float64)
    if posterior == "marginal":
        p = unwhiten(p, JITTER[dtype])
    truth = getattr(gp_gradients, posterior)(**p, jitter=JITTER[dtype], scale=10.0)
    p = {name: a.astype(dtype) for name, a in p.items()}
    return (
        ours(p, {"whitened": fs.Whitened, "marginal": fs.Marginal}[posterior]),
        p["X"],
        p["y"],
        truth,
    )


@every_dtype
@pytest.mark.parametrize("M, B", STEP_SIZES)
@every_posterior
def bench_step(benchmark, posterior, M, B, dtype):
    model, X, y, truth = model_and_batch(posterior, M, B, dtype)

    def step():
        return fs.elbo_and_grad(model, X, y, num_data=10.0 * B, jitter=JITTER[dtype])

    record(
        benchmark,
        step,
        floor_flops=step_flops(M, B),
        error=worst_error(*step(), *truth),
        gemm=(M, B, dtype),
        unit=(M * M + M * B) * np.dtype(dtype).itemsize,
    )


@every_dtype
@every_posterior
def bench_step_with_inputs(benchmark, posterior, dtype, M=512, B=1024):
    """Time a step with the gradient in the inputs; the error is that of the other gradients."""
    model, X, y, truth = model_and_batch(posterior, M, B, dtype)

    def step():
        return fs.elbo_and_grad(model, X, y, num_data=10.0 * B, jitter=JITTER[dtype], inputs=True)

    record(
        benchmark,
        step,
        floor_flops=step_flops(M, B),
        error=worst_error(*step()[:2], *truth),
        gemm=(M, B, dtype),
        unit=(M * M + M * B) * np.dtype(dtype).itemsize,
    )


@pytest.mark.parametrize("M, B, P", [(100, 256, 10), (512, 1024, 10), (256, 8192, 10)])
def bench_outputs(benchmark, M, B, P):
    """Time a step of several outputs; the error is that of the value, and of the gradient in Z."""
    p, rng = step_problem(M, B), np.random.default_rng(1)
    means = rng.standard_normal((P, M))
    trils = p["scale_tril"] * rng.uniform(0.5, 1.5, (P, 1, 1))
    targets = np.sin(p["X"].sum(1) + np.arange(P)[:, None]).T
    model = ours(p | {"mean": means, "scale_tril": trils}, fs.Whitened)

    def step():
        return fs.elbo_and_grad(model, p["X"], targets, num_data=10.0 * B)

    total = gradient = 0.0
    for mean, tril, y in zip(means, trils, targets.T, strict=True):
        one = ours(p | {"mean": mean, "scale_tril": tril}, fs.Whitened)
        value, grad = fs.elbo_and_grad(one, p["X"], y, num_data=10.0 * B)
        total, gradient = total + value, gradient + grad.inducing
    value, grad = step()
    record(
        benchmark,
        step,
        floor_flops=outputs_flops(M, B, P),
        error=max(relative_error(value, total), relative_error(grad.inducing, gradient)),
        gemm=(M, B, "float64"),
        unit=(P * M * M + P * M * B) * 8,
    )


@device.needs_device
@every_dtype
@pytest.mark.parametrize("M, B", [(1000, 1000), (1000, 10_000), (4000, 1000)])
@every_posterior
def bench_step_on_device(benchmark, posterior, M, B, dtype):
    model, *batch, truth = model_and_batch(posterior, M, B, dtype)
    model, (X, y) = fs.to_device(model), device.moved(*batch)

    def step():
        return fs.elbo_and_grad(model, X, y, num_data=10.0 * B, jitter=JITTER[dtype])

    value, grad = step()
    error = worst_error(value, fs.to_host(grad), *truth)
    device.record(benchmark, step, step_flops(M, B), error, (M, B, dtype))


@every_dtype
@pytest.mark.parametrize("M, N", COLLAPSED_SIZES)
def bench_collapsed(benchmark, M, N, dtype):
    jitter = JITTER[dtype]
    p = step_problem(M, N, np.float64)
    arguments = [p[name] for name in ("Z", "X", "y", "variance", "lengthscales", "noise")]
    truth = gp_gradients.collapsed(*arguments, jitter)
    Z, X, y, variance, lengthscales, noise = (a.astype(dtype) for a in arguments)
    model = fs.SGPR(
        covariance=fs.RBF(variance=variance, lengthscales=lengthscales),
        inducing=Z,
        noise_variance=noise,
    )

    def step():
        return fs.collapsed_bound_and_grad(model, X, y, jitter=jitter)

    record(
        benchmark,
        step,
        floor_flops=4 * M**2 * N + 10 / 3 * M**3,
        error=worst_error(*step(), *truth),
        gemm=(M, N, dtype),
        unit=(M * M + M * N) * np.dtype(dtype).itemsize,
    )


@pytest.mark.parametrize("M, B", STEP_SIZES)
@pytest.mark.parametrize("posterior", ["whitened", "marginal"])
def bench_natural_step(benchmark, posterior, M, B):
    """Floor: L^-1 Kuf, Lam diag(b) Lam' (2 M^2 B), and 2 M^3.

    The M^3 part is W W', the factors of Kuu and of the precision of q, and inverses of both q. For
    short batches W' Lam is cheaper than W W': 3 M^2 B + 5/3 M^3.
    """
    p = step_problem(M, B)
    if posterior == "marginal":
        p = unwhiten(p, 1e-6)
    model = ours(p, {"whitened": fs.Whitened, "marginal": fs.Marginal}[posterior])
    sgpr = fs.SGPR(covariance=model.covariance, inducing=model.inducing, noise_variance=p["noise"])

    def step(size=0.5):
        return fs.natural_step(model, p["X"], p["y"], step_size=size, jitter=1e-6)[0]

    optimum = fs.collapsed_bound_and_grad(sgpr, p["X"], p["y"], jitter=1e-6)[0]
    record(
        benchmark,
        step,
        floor_flops=2 * M**2 * B + 5 / 3 * M**3 + M**2 * min(B, M / 3),
        # a unit step reaches the collapsed bound
        error=relative_error(fs.elbo(step(1.0), p["X"], p["y"], jitter=1e-6), optimum),
        gemm=(M, B, "float64"),
        unit=(M * M + M * B) * 8,
    )


@pytest.mark.parametrize("full_cov", [False, True], ids=["marginal", "full_cov"])
@pytest.mark.parametrize("M, N", [(512, 1024), (1000, 1000)])
def bench_predict(benchmark, M, N, full_cov):
    p = step_problem(M, N)
    model = ours(p, fs.Whitened)
    K, Kuu, Kuf, kff = gp_gradients.blocks(p["Z"], p["X"], p["variance"], p["lengthscales"], 1e-6)
    Lam = np.linalg.solve(np.linalg.cholesky(Kuu), Kuf)
    truth = (
        Lam.T @ p["mean"],
        kff - (Lam**2).sum(axis=0) + ((p["scale_tril"].T @ Lam) ** 2).sum(axis=0),
    )

    def predict():
        return fs.predict_f(model, p["X"], full_cov=full_cov)

    mean, var = predict()
    record(
        benchmark,
        predict,
        floor_flops=2 * M**2 * N + M**3 / 3 + (2 * M * N**2 if full_cov else 0),
        error=max(
            relative_error(mean, truth[0]),
            relative_error(np.diag(var) if full_cov else var, truth[1]),
        ),
        gemm=(M, N, "float64"),
        unit=(M * M + M * N) * 8,
    )
