"""Bounds in the form of a likelihood by their definitions: L-SVGP, R-SVGP and the trace estimate.

Imports nothing of fastsvgp.

``Kuu`` includes the jitter. ``mean`` is (P, M). Formulas as printed in the inverse-free paper; K~ =
Kuu + diag(variance). The definitions are analytic and work in the dtype of their arguments, as
those of ``gp.py`` do.
"""

import numpy as np
from oracles.linear_algebra import cholesky, inverse, log_det


def preconditioner(Kuu, variance, T=None):
    """K~^-1, or 2 T - T K~ T."""
    Kt = Kuu + np.diag(variance)
    return inverse(Kt) if T is None else 2 * T - T @ Kt @ T


def q_of_u(Kuu, mean, variance, preconditioned=True, T=None):
    """Means (P, M) and the covariance (M, M) of u."""
    B = preconditioner(Kuu, variance, T)
    w = mean @ B if preconditioned else mean
    return w @ Kuu, Kuu - Kuu @ B @ Kuu


def marginals(Kuu, Kuf, Kff, mean, variance, preconditioned=True, T=None, P=None):
    """Means (P, N) and covariance (N, N) of f; ``P`` overrides the preconditioner of the mean."""
    B = preconditioner(Kuu, variance, T)
    w = mean @ (B if P is None else P) if preconditioned else mean
    return w @ Kuf, Kff - Kuf.T @ B @ Kuf


def kl(mean, covariance, Kuu):
    """sum_p KL[N(mean_p, covariance) || N(0, Kuu)]."""
    Kuu_inverse = inverse(Kuu)
    shared = np.trace(Kuu_inverse @ covariance) - len(Kuu) + log_det(Kuu) - log_det(covariance)
    return 0.5 * (len(mean) * shared + np.sum((mean @ Kuu_inverse) * mean))


def kl_bound(Kuu, mean, variance, T, preconditioned=True, probes=None, P=None):
    """Eq. (4) and (7), per output; with probes (M, K) the traces come from ``traces_by_probes``."""
    Kt = Kuu + np.diag(variance)
    B = preconditioner(Kuu, variance, T)
    w = mean @ (B if P is None else P) if preconditioned else mean
    traces = (
        np.trace(Kt @ T) - np.trace(B @ Kuu)
        if probes is None
        else traces_by_probes(Kuu, variance, T, probes)
    )
    logs = log_det(T) + np.log(variance).sum()
    return 0.5 * (len(mean) * (traces - len(Kuu) - logs) + np.sum((w @ Kuu) * w))


def traces_by_probes(Kuu, variance, T, probes):
    """tr(K~ T) - tr((2 T - T K~ T) Kuu) by Hutchinson: mean of z' L' (K~ - B' Kuu) L z.

    The traces are cyclically permuted to the coordinates of L.
    """
    L = cholesky(T)
    Kt = Kuu + np.diag(variance)
    N = 2 * np.eye(len(Kuu)) - L.T @ Kt @ L
    inner = L.T @ Kt @ L - N @ (L.T @ Kuu @ L)
    return np.mean([z @ inner @ z for z in probes.T])


# --- value and gradients for one output with Gaussian noise, by the recipes of the direct formula


def gaussian_bars(
    Kuu, Kuf, kff, y, noise, mean, variance, scale=1.0, inverse_tril=None, probes=None
):
    """The bound and its derivatives {"Kuu", "Kuf", "kff", "mean", "variance", "noise"}.

    The mean is preconditioned, and L is held fixed.

    L-SVGP without ``inverse_tril``; with probes the traces become <Q, .> in the coordinates of L, Q
    the mean of z z'.
    """
    M, n, L = len(Kuu), len(y), inverse_tril
    Kt = Kuu + np.diag(variance)
    T = np.linalg.inv(Kt) if L is None else L @ L.T
    B = T if L is None else 2 * T - T @ Kt @ T
    w, Psi, S = B @ mean, B @ Kuf, np.diag(variance)
    residual, var = y - Kuf.T @ w, kff - (Kuf * Psi).sum(axis=0)
    a, b = scale * residual / noise, np.full(n, -0.5 * scale / noise, y.dtype)
    data = (
        -0.5 * scale * (n * np.log(2 * np.pi * noise) + (residual @ residual + var.sum()) / noise)
    )
    noise_bar = scale * ((residual @ residual + var.sum()) / (2 * noise**2) - n / (2 * noise))
    w_bar = Kuf @ a - Kuu @ w
    if L is None:
        traces, log_T = np.trace(T @ S) - M, -np.linalg.slogdet(Kt)[1]
        prior, noises = (T @ S @ T - T) / 2, -np.diag(T) / 2
    else:
        E, R, eye = L.T @ Kt @ L, L.T @ S @ L, np.eye(M, dtype=y.dtype)
        Q = eye if probes is None else probes @ probes.T / probes.shape[1]
        traces = np.trace(Q @ (E @ E - E + 2 * R - E @ R)) - M
        log_T = 2 * np.log(np.diag(L)).sum()
        prior, noises = (
            -L @ (2 * E - eye - R) @ Q @ L.T / 2,
            -np.diag(L @ (2 * eye - E) @ Q @ L.T) / 2,
        )
    value = data - 0.5 * (traces - log_T - np.log(variance).sum() + w @ Kuu @ w)
    TK = Psi if L is None else T @ Kuf
    cross = np.outer(T @ w_bar, T @ mean)
    K_bar = (TK * b) @ TK.T + (prior + prior.T) / 2 - (cross + cross.T) / 2
    return value, {
        "Kuu": K_bar - np.outer(w, w) / 2,
        "Kuf": np.outer(w, a) - 2 * Psi * b,
        "kff": b,
        "mean": B @ w_bar,
        "variance": np.diag(K_bar) + noises + 1 / (2 * variance),
        "noise": noise_bar,
    }
