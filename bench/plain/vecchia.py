"""Rows given their near rows: batches of NumPy's factorisations against tiles of registers."""

import numpy as np

from fastsvgp import kernels

from .common import Case


def near_rows(K, Lam, rows, noise):
    k = noise.shape[1]
    P = Lam[rows]
    R = np.tril(K) + np.swapaxes(np.tril(K, -1), 1, 2) - P @ np.swapaxes(P, 1, 2)
    A, r = R[:, :k, :k] + noise[:, :, None] * np.eye(k), R[:, :k, k]
    factor = np.linalg.cholesky(A)
    a = np.linalg.solve(A, r[..., None])[..., 0]
    phi = P[:, k] - np.einsum("nk,nkm->nm", a, P[:, :k])
    return a, R[:, k, k] - (a * r).sum(1), phi, factor


def near_rows_vjp(Lam, rows, a, factor, a_bar, s_bar, phi_bar):
    k, P = a.shape[1], Lam[rows]
    w = a_bar - np.einsum("nkm,nm->nk", P[:, :k], phi_bar)
    w = np.linalg.solve(factor @ np.swapaxes(factor, 1, 2), w[..., None])[..., 0]
    wa, aa = w[:, :, None] * a[:, None], a[:, :, None] * a[:, None]
    R_bar = np.zeros((len(a), k + 1, k + 1))
    R_bar[:, :k, :k] = s_bar[:, None, None] * aa - 0.5 * (wa + np.swapaxes(wa, 1, 2))
    R_bar[:, :k, k] = R_bar[:, k, :k] = 0.5 * w - s_bar[:, None] * a
    R_bar[:, k, k] = s_bar
    P_bar, Lam_bar = -2 * R_bar @ P, np.zeros_like(Lam)
    P_bar[:, k] += phi_bar
    P_bar[:, :k] -= a[:, :, None] * phi_bar[:, None]
    np.add.at(Lam_bar, rows, P_bar)
    return R_bar, Lam_bar, np.diagonal(R_bar[:, :k, :k], axis1=1, axis2=2)


def cases(dtype):
    """In float64 whatever the dtype, as the layer that calls them computes."""
    rng = np.random.default_rng(0)
    for n, k, M in ((200, 5, 40), (500, 20, 256)):
        X = rng.standard_normal((4 * n, 3))
        Lam = 0.1 * rng.standard_normal((4 * n, M)) / np.sqrt(M)
        rows = np.stack([rng.permutation(4 * n)[: k + 1] for _ in range(n)])
        apart = X[rows][:, :, None] - X[rows][:, None]
        K, noise = np.exp(-np.sqrt((apart**2).sum(-1))), np.full((n, k), 0.1)
        given = K, Lam, rows, noise
        yield Case(
            f"near_rows, {n} {k} {M}",
            lambda given=given: kernels.near_rows(*given)[:4],
            lambda given=given: near_rows(*given),
            1e-10,
        )
        a, s, phi, factor, _ = kernels.near_rows(*given)
        pulled = Lam, rows, a, factor, rng.standard_normal(a.shape), s, phi
        yield Case(
            f"near_rows_vjp, {n} {k} {M}",
            lambda pulled=pulled: kernels.near_rows_vjp(*pulled),
            lambda pulled=pulled: near_rows_vjp(*pulled),
            1e-10,
        )
