"""Steps, natural steps and collapsed bounds of SOLVE-GP and its relatives, also compared with SVGP.

In rows named ``..._beside_...`` the floor is the other model's step, timed at the same moments: the
ratio is SOLVE : SVGP. M2 = M, D = 8, ARD RBF, as in the other benchmarks.
"""

import time

import numpy as np
import pytest
from harness import record, relative_error
from oracles import gp_gradients
from problems import step_problem

import fastsvgp as fs

JITTER = {"float64": 1e-6, "float32": 1e-4}
STEPS = [(256, 8192), (512, 1024), (1000, 1000)]
every_dtype = pytest.mark.parametrize("dtype", ["float64", "float32"])
every_kind = pytest.mark.parametrize("kind", ["WhitenedOrthogonal", "Orthogonal"])


def tiled(array, P):
    return array if P is None else np.repeat(array[None], P, axis=0)


def models(M, B, dtype="float64", P=None, M2=None, scale=0.1):
    """Return ``(X, y, {name: model})``, with the same q of both sets if the posterior has one."""
    M2 = M if M2 is None else M2
    p = step_problem(M + M2, B)
    jitter = JITTER[dtype]
    X, y = p["X"], p["y"] if P is None else np.stack([p["y"]] * P, axis=1)
    W = [np.ascontiguousarray(p["scale_tril"][at, at]) for at in (slice(0, M), slice(M, None))]
    m = p["mean"][:M], p["mean"][M:]
    pair = fs.posteriors.InducingPair(p["Z"][:M].copy(), p["Z"][M:].copy())
    covariance, likelihood = fs.RBF(p["variance"], p["lengthscales"]), fs.Gaussian(p["noise"])
    whitened = fs.posteriors.WhitenedOrthogonal(*(tiled(a, P) for a in (m[0], W[0], m[1], W[1])))
    found = {"WhitenedOrthogonal": fs.SVGP(covariance, pair, whitened, likelihood)}
    found["SVGP"] = fs.SVGP(
        covariance, pair.Z, fs.Whitened(tiled(m[0], P), tiled(W[0], P)), likelihood
    )
    found["DecoupledWeights"] = fs.replace(
        found["WhitenedOrthogonal"],
        posterior=fs.posteriors.DecoupledWeights(
            tiled(m[0], P), tiled(W[0], P), scale * tiled(m[1], P)
        ),
    )
    if M2 == M:
        found["SVGP of both"] = fs.SVGP(
            covariance,
            np.vstack([pair.Z, pair.O]),
            fs.Whitened(tiled(p["mean"], P), tiled(p["scale_tril"], P)),
            likelihood,
        )
        L = np.linalg.cholesky(
            gp_gradients.blocks(p["Z"], X[:1], p["variance"], p["lengthscales"], jitter)[1]
        )
        blocks = L[:M, :M], L[M:, M:]
        fields = [tiled(a, P) for L, m, W in zip(blocks, m, W, strict=True) for a in (L @ m, L @ W)]
        found["Orthogonal"] = fs.replace(
            found["WhitenedOrthogonal"], posterior=fs.posteriors.Orthogonal(*fields)
        )
        found["Decoupled"] = fs.replace(
            found["WhitenedOrthogonal"], posterior=fs.posteriors.Decoupled(*fields[:3])
        )
    cast = {
        name: fs.records.tree_map(lambda a: np.asarray(a, dtype)[()], model)
        for name, model in found.items()
    }
    return X.astype(dtype), y.astype(dtype), cast


def error_of(model, X, y, dtype):
    """Return the error of value and all gradients.

    The reference is the SVGP on both sets with the same q in float64, and float64 for float32.
    Gradients of unwhitened parameters, and gradients with those fixed, have no counterpart in that
    SVGP: for those posteriors only the gradient of the noise counts.
    """
    options = {"num_data": 10.0 * len(X), "jitter": JITTER[dtype]}
    value, grad = fs.elbo_and_grad(model, X, y, **options)
    if dtype == "float64":
        joint = fs.posteriors.joint_posterior(model, jitter=options["jitter"])
        other, same = fs.elbo_and_grad(joint, X, y, **options)
        errors = [
            relative_error(value, other),
            relative_error(grad.likelihood.variance, same.likelihood.variance),
        ]
        if isinstance(model.posterior, fs.posteriors.WhitenedOrthogonal):
            q, M = grad.posterior, len(grad.inducing.Z)
            pairs = (
                (np.vstack([grad.inducing.Z, grad.inducing.O]), same.inducing),
                (
                    q.mean_v,
                    same.posterior.mean[..., M:],
                ),
            )
            pairs += (
                (q.scale_tril_u, same.posterior.scale_tril[..., :M, :M]),
                (q.mean_u, same.posterior.mean[..., :M]),
            )
            pairs += ((q.scale_tril_v, same.posterior.scale_tril[..., M:, M:]),)
            pairs += ((grad.covariance.lengthscales, same.covariance.lengthscales),)
            errors += [relative_error(*pair) for pair in pairs]
        return max(errors)
    wide = fs.records.tree_map(lambda a: np.asarray(a, float)[()], model)
    other, same = fs.elbo_and_grad(wide, X.astype(float), y.astype(float), **options)
    pairs = zip(fs.records.leaves(grad), fs.records.leaves(same), strict=True)
    return max(
        relative_error(value, other), *(relative_error(a, b) for (_, _, a), (_, _, b) in pairs)
    )


def floor(kind, M, B, P=1):
    """Return the flops of the cheaper form, by products of sets: batch or long."""
    batch, long = (
        (12 + 6 * P) * M**2 * B + 26 / 3 * M**3,
        (8 + 6 * P) * M**2 * B + (32 / 3 + 6 * P) * M**3,
    )
    return min(batch, long) + (14 / 3 * P * M**3 if kind == "Orthogonal" else 0)


def unit(M, B, dtype="float64"):
    """Return the bytes of a stacked (M + M2, M + M2) and a (M + M2, B) array."""
    return (4 * M * M + 2 * M * B) * np.dtype(dtype).itemsize


def seconds(call):
    """Return the time of one call, as a floor."""

    def timed():
        start = time.perf_counter()
        call()
        return time.perf_counter() - start

    return timed


def step(model, X, y, dtype="float64", **options):
    return lambda: fs.elbo_and_grad(
        model, X, y, num_data=10.0 * len(X), jitter=JITTER[dtype], **options
    )


@every_dtype
@pytest.mark.parametrize("M, B", STEPS)
@every_kind
def bench_orthogonal(benchmark, kind, M, B, dtype):
    X, y, found = models(M, B, dtype)
    error = error_of(found[kind], X, y, dtype)
    record(
        benchmark,
        step(found[kind], X, y, dtype),
        floor_flops=floor(kind, M, B),
        error=error,
        gemm=(M, B, dtype),
        unit=unit(M, B, dtype),
    )


@pytest.mark.parametrize("kind", ["WhitenedOrthogonal", "Orthogonal", "Decoupled", "SVGP"])
@pytest.mark.parametrize(
    "M, B, P",
    [(256, 1024, None), (512, 1024, None), (1024, 1024, None), (256, 8192, None), (512, 1024, 10)],
)
def bench_orthogonal_beside_svgp_of_both(benchmark, M, B, P, kind):
    X, y, found = models(M, B, P=P)
    error = None if kind == "SVGP" else error_of(found[kind], X, y, "float64")
    other = seconds(step(found["SVGP of both"], X, y))
    record(benchmark, step(found[kind], X, y), floor_seconds=other, error=error, unit=unit(M, B))


@pytest.mark.parametrize("M, B", [(512, 1024)])
def bench_decoupled_beside_svgp(benchmark, M, B):
    X, y, found = models(M, B)
    error, other = error_of(found["Decoupled"], X, y, "float64"), seconds(step(found["SVGP"], X, y))
    record(benchmark, step(found["Decoupled"], X, y), floor_seconds=other, error=error)


@pytest.mark.parametrize("M2", [8096, 16192])
def bench_decoupled_weights_beside_svgp(benchmark, M2, M=1024, B=1024, S=1024):
    X, y, found = models(M, B, M2=M2)
    call = step(found["DecoupledWeights"], X, y, sampled=S, rng=0)
    record(benchmark, call, floor_seconds=seconds(step(found["SVGP"], X, y)))


@pytest.mark.parametrize("M, B", STEPS)
def bench_orthogonal_natural_step(benchmark, M, B):
    """Floor: a solve, a weighted product of the stack, four factors, a joint factor."""
    X, y, found = models(M, B)
    model = found["WhitenedOrthogonal"]
    sgpr = fs.bounds.OrthogonalSGPR(model.covariance, model.inducing, model.likelihood.variance)
    optimum = fs.collapsed_bound(sgpr, X, y, jitter=1e-6)

    def natural(size=0.5):
        return fs.natural_step(model, X, y, step_size=size, jitter=1e-6)[0]

    error = relative_error(fs.elbo(natural(1.0), X, y, jitter=1e-6), optimum)
    record(
        benchmark,
        natural,
        floor_flops=8 * M**2 * B + (16 / 3 + 8 / 3) * M**3,
        error=error,
        gemm=(M, B, "float64"),
        unit=unit(M, B),
    )


@pytest.mark.parametrize("M, N", [(256, 4096), (512, 4096)])
def bench_orthogonal_collapsed(benchmark, M, N):
    """Equation 30, value and gradient."""
    X, y, found = models(M, N)
    model = found["WhitenedOrthogonal"]
    sgpr = fs.bounds.OrthogonalSGPR(model.covariance, model.inducing, model.likelihood.variance)
    value, _ = fs.collapsed_bound_and_grad(sgpr, X, y)
    error = relative_error(fs.elbo(fs.optimal_svgp(sgpr, X, y), X, y), value)
    record(
        benchmark,
        lambda: fs.collapsed_bound_and_grad(sgpr, X, y),
        floor_flops=14 * M**2 * N + 29 * M**3,
        error=error,
        gemm=(M, N, "float64"),
        unit=unit(M, N),
    )


@pytest.mark.parametrize("M, N", [(256, 4096), (512, 4096)])
def bench_tighter(benchmark, M, N):
    """Equation 14, value and gradient; error against the whole matrix."""
    X, y, found = models(M, N)
    model = found["SVGP"]
    sgpr = fs.SGPR(model.covariance, model.inducing, model.likelihood.variance)
    value, _ = fs.bounds.tighter_bound_and_grad(sgpr, X, y)
    Kuf, Kuu = (
        sgpr.covariance.Kuf(sgpr.inducing, X),
        sgpr.covariance.Kuu(sgpr.inducing) + 1e-6 * np.eye(M),
    )
    Q, K = Kuf.T @ np.linalg.solve(Kuu, Kuf), sgpr.covariance.Kff(X)
    A = Q + float(sgpr.noise_variance) * np.eye(N)
    solved, log_det = np.linalg.solve(A, np.column_stack([y, K - Q])), np.linalg.slogdet(A)[1]
    truth = -0.5 * (y @ solved[:, 0] + log_det + N * np.log(2 * np.pi) + np.trace(solved[:, 1:]))
    record(
        benchmark,
        lambda: fs.bounds.tighter_bound_and_grad(sgpr, X, y),
        floor_flops=4 * M * N**2 + 9 * M**2 * N,
        error=relative_error(value, truth),
        gemm=(M, N, "float64"),
        unit=(M * M + M * N) * 8,
    )
