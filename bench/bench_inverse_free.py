"""Training steps of L-SVGP and R-SVGP compared with whitened SVGP: value, all gradients.

R-SVGP: one update of the factor (a unit natural-gradient step), then the bound at the new factor,
with gradients at a fixed factor. The floors are the flop counts of the published algorithms: 3 M^2
B + 2 M^3 (L); 4/3 M^3 for the update and 5 M^2 B + 13/3 M^3 (R, exact traces), or 7 M^2 B + 14 M^2
K (K probes). The package needs only 5 M^2 B + 8/3 M^3 and 7 M^2 B + 9 M^2 K. "R-direction":
``lsvgp_direction``, 3 M^2 B + 3 M^3. "W-free": the whitened bound from only products, 6 M^2 B
+ 8 M^3 plus the update; its error is that of the value and of the gradient of the mean.
"""

import numpy as np
import pytest
from bench_step import JITTER, ours, worst_error
from harness import record, relative_error
from oracles import gp_gradients, inverse_free
from problems import step_flops, step_problem

import fastsvgp as fs
from fastsvgp import kernels

PROBES = 64
FIELDS = ("covariance", "inducing", "posterior.mean", "posterior.variance", "likelihood")
FLOORS = {  # (M^2 B, M^3, M^2)
    "L": (3, 2, 0),
    "R": (5, 17 / 3, 0),
    "R-direction": (3, 13 / 3, 0),
    "R-probes": (7, 4 / 3, 14 * PROBES),
    "W-free": (6, 28 / 3, 0),
}


def problem(M, B):
    p = step_problem(M, B)
    rng = np.random.default_rng(1)
    return p, rng.uniform(0.05, 0.3, M), rng.choice([-1.0, 1.0], (M, PROBES))


def truth(p, variance, jitter, **relaxed):
    """Return value and gradients by path, in float64 by the direct formulas.

    ``relaxed`` is the factor, and probes.
    """
    K, Kuu, Kuf, kff = gp_gradients.blocks(p["Z"], p["X"], p["variance"], p["lengthscales"], jitter)
    value, bars = inverse_free.gaussian_bars(
        Kuu, Kuf, kff, p["y"], p["noise"], p["mean"], variance, 10.0, **relaxed
    )
    Z, X, scale, lengthscales = p["Z"], p["X"], p["variance"], p["lengthscales"]
    grad = gp_gradients.to_parameters(
        bars["Kuu"], bars["Kuf"], bars["kff"], K, Kuf, Z, X, scale, lengthscales
    )
    own = {
        "posterior.mean": bars["mean"],
        "posterior.variance": bars["variance"],
        "likelihood.variance": bars["noise"],
    }
    return value, grad | own


def Kuu_of(p, jitter):
    return gp_gradients.blocks(p["Z"], p["X"][:1], p["variance"], p["lengthscales"], jitter)[1]


def factor_of_inverse(p, variance, jitter):
    """Return a slightly inaccurate factor, as during training."""
    L = np.linalg.cholesky(np.linalg.inv(Kuu_of(p, jitter) + np.diag(variance)))
    return L + 1e-3 * np.diag(np.diag(L))


def free_error(value, grad, p, jitter):
    """Return the error against the marginal bound at u = K R v, R R' = K^-1.

    The factor has converged to rounding, so the bound has too.
    """
    K = Kuu_of(p, jitter)
    KR = K @ np.linalg.cholesky(np.linalg.inv(K))
    KRW = KR @ p["scale_tril"]
    u = p | dict(mean=KR @ p["mean"], scale_tril=np.linalg.cholesky(KRW @ KRW.T))
    exact, bars = gp_gradients.marginal(**u, jitter=jitter, scale=10.0)
    return max(
        relative_error(value, exact),
        relative_error(grad.posterior.mean, KR.T @ bars["posterior.mean"]),
    )


@pytest.mark.parametrize("dtype", ["float64", "float32"])
@pytest.mark.parametrize("B", [100, 1000])
@pytest.mark.parametrize("M", [500, 1000, 2000])
@pytest.mark.parametrize("method", ["W", *FLOORS])
def bench_inverse_free(benchmark, method, M, B, dtype):
    jitter = JITTER[dtype]
    p, variance, probes = problem(M, B)
    single = {name: a.astype(dtype) for name, a in p.items()}
    X, y, s, Z = single["X"], single["y"], variance.astype(dtype), probes.astype(dtype)
    estimate = {"probes": Z} if method == "R-probes" else {}
    model = ours(single, fs.Whitened)
    fields = None
    if method == "W-free":
        fields = tuple(
            field.replace("posterior.variance", "posterior.scale_tril") for field in FIELDS
        )
        start = factor_of_inverse(p, 0 * variance, jitter).astype(dtype)
        model = fs.replace(
            model,
            posterior=fs.posteriors.InverseFreeWhitened(
                single["mean"], single["scale_tril"], start
            ),
        )
    elif method != "W":
        fields = FIELDS
        posterior = fs.posteriors.LikelihoodForm(single["mean"], s)
        if method != "L":
            start = factor_of_inverse(p, variance, jitter).astype(dtype)
            posterior = fs.posteriors.Relaxed(single["mean"], s, start)
        model = fs.replace(model, posterior=posterior)

    def updated():
        if method in ("W", "L"):
            return model
        A, _ = model.posterior.inverse_of(model.covariance.matrix(model.inducing), jitter)
        L = kernels.newton_schulz_step(A, start, 1.0)
        return fs.replace(
            model, posterior=fs.replace(model.posterior, **{model.posterior.inverse_field: L})
        )

    bound = fs.bounds.lsvgp_direction if method == "R-direction" else fs.elbo_and_grad

    def step():
        return bound(updated(), X, y, num_data=10.0 * B, jitter=jitter, wrt=fields, **estimate)

    value, grad = step()
    if method == "W":
        error = worst_error(value, grad, *gp_gradients.whitened(**p, jitter=jitter, scale=10.0))
    elif method == "W-free":
        error = free_error(value, grad, p, jitter)
    else:
        at = {}  # the direction has no value: its error is the difference from the L-SVGP gradient
        if method in ("R", "R-probes"):
            at = {"inverse_tril": updated().posterior.inverse_tril.astype(float)}
        exact = truth(p, variance, jitter, **at, **({"probes": probes} if estimate else {}))
        grad = fs.replace(
            grad,
            posterior=fs.posteriors.LikelihoodForm(grad.posterior.mean, grad.posterior.variance),
        )
        error = worst_error(value, grad, *exact)
    M2B, M3, M2 = FLOORS.get(method, (0, 0, 0))
    record(
        benchmark,
        step,
        floor_flops=M2B * M**2 * B + M3 * M**3 + M2 * M**2 if fields else step_flops(M, B),
        error=error,
        gemm=(M, B, dtype),
        unit=(M * M + M * B) * np.dtype(dtype).itemsize,
    )
