"""Compiled steps of a small whitened model, against the passes, and their parts against NumPy."""

import numpy as np
from problems import step_problem

import fastsvgp as fs
from fastsvgp.bounds import small_step
from fastsvgp.kernels.cpu import small_whitened

from .common import Case, Lower


def whitened_marginals(inverse, Kuf, kff, mean, tril):
    Lam = inverse @ Kuf
    V = tril.T @ Lam
    return Lam, V, mean @ Lam, kff + (V * V - Lam * Lam).sum(0)


def whitened_cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    pulled = np.outer(mean, a) + 2 * (tril @ V - Lam) * b
    Lam_a += Lam @ a
    G[...] = (2 * Lam * b) @ Lam.T + (G if add else 0)
    V[...] = inverse.T @ pulled


def whitened_bars(tril, G, mean, Lam_a, kl_bar):
    G = np.tril(G) + np.tril(G, -1).T
    tril_bar = np.tril(G @ tril) + kl_bar * (tril - np.diag(1 / np.diag(tril)))
    C = np.outer(mean, Lam_a) + tril @ tril.T @ G - G
    return Lam_a + kl_bar * mean, tril_bar, np.tril(C)


def whitened_kl(mean, tril):
    return 0.5 * (mean @ mean + (tril * tril).sum() - mean.size) - np.log(np.diag(tril)).sum()


def by_passes(call):
    """Return the function without the compiled steps."""

    def plain():
        before, small_step.MOST = small_step.MOST, 0
        try:
            return call()
        finally:
            small_step.MOST = before

    return plain


def cases(dtype):
    near = 1e6 * np.finfo(dtype).eps if dtype == np.float64 else 0.1
    for M, B in (20, 100), (50, 256), (100, 256), (200, 512):
        p, size = step_problem(M, B, dtype), f"{M} x {B}"
        q = fs.Whitened(p["mean"], p["scale_tril"])
        k = fs.RBF(p["variance"], p["lengthscales"])
        model = fs.SVGP(k, p["Z"], q, fs.Gaussian(p["noise"]))

        def step():
            return float(fs.elbo_and_grad(model, p["X"], p["y"])[0])

        def natural():
            q = fs.natural_step(model, p["X"], p["y"], step_size=0.5)[0].posterior
            return q.mean, q.scale_tril

        yield Case(f"whitened_step, {size}", step, by_passes(step), near)
        yield Case(f"whitened_natural_step, {size}", natural, by_passes(natural), near)
        mean, tril, Kuf = p["mean"], np.tril(p["scale_tril"]), k.Kuf(p["Z"], p["X"])
        inverse = np.linalg.inv(np.linalg.cholesky(k.Kuu(p["Z"]) + 1e-3 * np.eye(M, dtype=dtype)))
        inverse, kff = np.tril(inverse).astype(dtype), k.kff(p["X"])
        Lam, V, a, b = whitened_marginals(inverse, Kuf, kff, mean, tril)
        b, G, Lam_a = -abs(b), np.zeros((M, M), dtype), np.zeros(M, dtype)

        def pulled(function):
            Lam_a[:], W = 0, V.copy()
            function(inverse, Lam, W, mean, tril, a, b, Lam_a, G, False)
            return W, Lam_a, Lower(G)

        def bars(function, *more):
            *q_bars, C = function(tril, G, mean, Lam_a, -1.0, *more)
            return *q_bars, Lower(C)

        pulled(whitened_cotangents)
        for name, call in (
            ("whitened_marginals", lambda f: f(inverse, Kuf, kff, mean, tril)[:4]),
            ("whitened_cotangents", pulled),
            ("whitened_kl", lambda f: f(mean, tril)),
        ):
            tuned, plain = getattr(small_whitened, name), globals()[name]
            yield Case(f"{name}, {size}", lambda: call(tuned), lambda: call(plain), near)
        tuned = small_whitened.whitened_bars
        yield Case(
            f"whitened_bars, {size}", lambda: bars(tuned, True), lambda: bars(whitened_bars), near
        )
