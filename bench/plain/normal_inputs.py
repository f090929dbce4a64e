"""Moments of bumps over normal inputs: arrays (N, M, M) of NumPy against one row at a time."""

import numpy as np

from fastsvgp import kernels

from .common import Case


def normal_bumps(mean, Z, precision, logs):
    e = mean[:, None] - Z
    return np.exp(logs[:, None] - 0.5 * (precision[:, None] * e**2).sum(-1))


def normal_bumps_vjp(log_bar, mean, Z, precision):
    e = mean[:, None] - Z
    weighted = log_bar[:, :, None] * e
    Z_bar = np.einsum("nd,nmd->md", precision, weighted)
    return -precision * weighted.sum(1), Z_bar, -0.5 * (weighted * e).sum(1)


def exponents(mean, Z, kappa, nu, shift):
    e = mean[:, None] - Z
    h = 0.5 * (nu[:, None] * e**2).sum(-1)
    x = (e * kappa[:, None]) @ np.swapaxes(e, 1, 2) - h[:, :, None] - h[:, None]
    return e, x + shift[:, None, None]


def rises(mean, Z, values, kappa, nu, shift):
    x = exponents(mean, Z, kappa, nu, shift)[1]
    return np.expm1(x) * values[:, :, None] * values[:, None]


def normal_rises(*given):
    return np.einsum("pij,nij->np", given[-1], rises(*given[:-1]), optimize=True)


def normal_rise_sums(*given):
    return np.einsum("np,nij->pij", given[-1], rises(*given[:-1]), optimize=True)


def normal_rises_vjp(mean, Z, values, kappa, nu, shift, G, weights):
    e, _ = exponents(mean, Z, kappa, nu, shift)
    R = rises(mean, Z, values, kappa, nu, shift)
    C = np.einsum("np,pij->nij", weights, G, optimize=True)
    V, W = C * R, C * (R + values[:, :, None] * values[:, None])
    F, rho = W @ e, W.sum(2)
    e_bar = 2 * (kappa[:, None] * F - nu[:, None] * rho[:, :, None] * e)
    nu_bar = -(rho[:, :, None] * e**2).sum(1)
    bars = 2 * V.sum(2), e_bar.sum(1), (e * F).sum(1), nu_bar, rho.sum(1), -e_bar.sum(0)
    return np.einsum("pij,nij->np", G, R), np.einsum("np,nij->pij", weights, R), *bars


def cases(dtype):
    """In float64 whatever the dtype, as the passes that call them compute."""
    rng = np.random.default_rng(0)
    for N, M, D, P in ((60, 40, 2, 1), (100, 100, 5, 1)):
        mean, Z, t = rng.normal(size=(N, D)), rng.normal(size=(M, D)), rng.uniform(0, 1, (N, D))
        a, logs = 1 / (1 + t), -0.5 * np.log1p(t).sum(1)
        values, bar = kernels.normal_bumps(mean, Z, a, logs), rng.standard_normal((N, M))
        kappa, nu = t / (1 + 2 * t), t**2 / ((1 + t) * (1 + 2 * t))
        G, weights = rng.standard_normal((P, M, M)), rng.standard_normal((N, P))
        rows = mean, Z, values, kappa, nu, 0.5 * np.log1p(t**2 / (1 + 2 * t)).sum(1)
        G = G + np.swapaxes(G, 1, 2)
        given = {
            "normal_bumps": (mean, Z, a, logs),
            "normal_bumps_vjp": (bar, mean, Z, a),
            "normal_rises": (*rows, G),
            "normal_rise_sums": (*rows, weights),
            "normal_rises_vjp": (*rows, G, weights),
        }
        for name, arrays in given.items():
            more = {"sums": True} if name == "normal_rises_vjp" else {}
            yield Case(
                f"{name}, {N} {M} {D}",
                lambda name=name, arrays=arrays, m=more: getattr(kernels, name)(*arrays, **m),
                lambda name=name, arrays=arrays: globals()[name](*arrays),
                1e-11,
            )
