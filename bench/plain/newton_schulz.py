"""Steps towards the factor of an inverse, against products of whole matrices."""

import numpy as np

from fastsvgp.kernels.cpu import newton_schulz as tuned

from .common import Case, plain


@plain
def scaled_tril(C, scale, diagonal, shift, out):
    for i in range(len(C)):
        for j in range(i):
            out[i, j] = scale * C[i, j]
        for j in range(i + 1, len(C)):
            out[i, j] = 0
        out[i, i] = shift + diagonal * C[i, i]


def newton_schulz_gram(A, L):
    L = np.tril(L)
    D = L.T @ A @ L - np.eye(len(A), dtype=A.dtype)
    diagonal = D.diagonal()
    stats = np.linalg.norm(D), diagonal.min() + 1, diagonal.max() + 1, diagonal.sum()
    return np.tril(D), np.array(stats)


def newton_schulz_update(L, D, step_size):
    F = -step_size * np.tril(D)
    F[np.diag_indices(len(F))] = 1 - 0.5 * step_size * D.diagonal()
    return L @ F


def newton_schulz_curvature(A, L, D):
    P = np.tril(D)
    P[np.diag_indices(len(P))] /= 2
    P = L @ P
    return P, np.sum(P * (A @ P))


def tril_congruence(L, S):
    full = np.tril(S) + np.tril(S, -1).T
    return L @ full @ L.T


def power_iteration(S, v):
    full = np.tril(S) + np.tril(S, -1).T
    for _ in range(3):
        v = full @ (v / np.linalg.norm(v))
    return np.linalg.norm(v), v


def cases(dtype):
    rng, near = np.random.default_rng(0), 1000 * np.finfo(dtype).eps
    number = dtype.type
    for M in 100, 512, 1000:
        A = rng.standard_normal((M, 2 * M)) / np.sqrt(2 * M)
        A = (A @ A.T + 0.1 * np.eye(M)).astype(dtype)
        L = np.linalg.cholesky(np.linalg.inv(A)) * dtype.type(0.9)
        D, _ = newton_schulz_gram(A, L)
        v, out = rng.standard_normal(M).astype(dtype), np.empty((M, M), dtype)
        scales = number(-0.5), number(-0.25), number(1)

        def scaled(function, *more):
            function(D, *scales, out)
            return out

        yield Case(
            f"scaled_tril, {M}",
            lambda: scaled(tuned.scaled_tril),
            lambda: scaled(scaled_tril),
            near,
        )
        yield Case(
            f"newton_schulz_gram, {M}",
            lambda: tuned.newton_schulz_gram(A, L),
            lambda: newton_schulz_gram(A, L),
            near,
        )
        yield Case(
            f"newton_schulz_update, {M}",
            lambda: tuned.newton_schulz_update(L, D, 0.5),
            lambda: newton_schulz_update(L, D, number(0.5)),
            near,
        )
        yield Case(
            f"newton_schulz_curvature, {M}",
            lambda: tuned.newton_schulz_curvature(A, L, D),
            lambda: newton_schulz_curvature(A, L, D),
            near,
        )
        yield Case(
            f"tril_congruence, {M}",
            lambda: np.tril(tuned.tril_congruence(L, D)),
            lambda: np.tril(tril_congruence(L, D)),
            near,
        )
        yield Case(
            f"power_iteration, {M}",
            lambda: tuned.power_iteration(D, v),
            lambda: power_iteration(D, v),
            near,
        )
