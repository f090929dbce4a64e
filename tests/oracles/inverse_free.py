"""Bounds in the form of a likelihood by their definitions: L-SVGP, R-SVGP and the trace estimate. Imports nothing of fastsvgp.

``Kuu`` includes the jitter. ``mean`` is (P, M). Formulas as printed in the inverse-free paper; K~ = Kuu + diag(variance).
"""

import numpy as np


def preconditioner(Kuu, variance, T=None):
    """K~^-1, or 2 T - T K~ T."""
    Kt = Kuu + np.diag(variance)
    return np.linalg.inv(Kt) if T is None else 2 * T - T @ Kt @ T


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
    inverse = np.linalg.inv(Kuu)
    shared = np.trace(inverse @ covariance) - len(Kuu) + np.linalg.slogdet(Kuu)[1] - np.linalg.slogdet(covariance)[1]
    return 0.5 * (len(mean) * shared + np.sum((mean @ inverse) * mean))


def kl_bound(Kuu, mean, variance, T, preconditioned=True, probes=None, P=None):
    """Eq. (4) and (7), for each output; with probes (M, K) the traces are those of ``traces_by_probes``."""
    Kt = Kuu + np.diag(variance)
    B = preconditioner(Kuu, variance, T)
    w = mean @ (B if P is None else P) if preconditioned else mean
    traces = np.trace(Kt @ T) - np.trace(B @ Kuu) if probes is None else traces_by_probes(Kuu, variance, T, probes)
    logs = np.linalg.slogdet(T)[1] + np.log(variance).sum()
    return 0.5 * (len(mean) * (traces - len(Kuu) - logs) + np.sum((w @ Kuu) * w))


def traces_by_probes(Kuu, variance, T, probes):
    """tr(K~ T) - tr((2 T - T K~ T) Kuu), cyclically moved to L coordinates, by Hutchinson: mean of z' L' (K~ - B' Kuu) L z."""
    L = np.linalg.cholesky(T)
    Kt = Kuu + np.diag(variance)
    N = 2 * np.eye(len(Kuu)) - L.T @ Kt @ L
    inner = L.T @ Kt @ L - N @ (L.T @ Kuu @ L)
    return np.mean([z @ inner @ z for z in probes.T])
