"""The algebra of ``posteriors.whitening`` for one output and few inducing variables.

A whole chunk of rows is one compiled call: at M = 20 and B = 100 each of its dozen products takes 2
us, and a call from Python 5 us.
"""

import numpy as np

from ..common import blas, blocked
from ..common.blas import N, T
from ..common.compiled import kernel
from ..products import FAST


@kernel("R2 R2 R1 R1 R2 x", fastmath=FAST)
def marginals(inverse, Kuf, kff, mean, tril, floor):
    M, size = Kuf.shape
    Lam = Kuf.copy()
    blas.trmm(inverse, Lam, True, N, 1.0)
    V = Lam.copy()
    blas.trmm(tril, V, True, T, 1.0)
    dots, squares = np.zeros(size), np.zeros(size)
    for i in range(M):
        x = mean[i]
        for j in range(size):
            dots[j] += x * Lam[i, j]
            squares[j] += V[i, j] * V[i, j] - Lam[i, j] * Lam[i, j]
    f, var, raised = np.empty(size, Kuf.dtype), np.empty(size, Kuf.dtype), 0
    for j in range(size):
        f[j], var[j] = dots[j], kff[j] + squares[j]
        if var[j] < floor * kff[j]:
            var[j] = floor * kff[j]
            raised += 1
    return Lam, V, f, var, raised


@kernel("R2 R2 R2 R1 R2 R1 R1 R1 R2 b", fastmath=FAST)
def cotangents(inverse, Lam, V, mean, tril, a, b, Lam_a, G, add):
    M, size = Lam.shape
    blas.trmm(tril, V, True, N, 1.0)
    least, largest = 0.0, 0.0
    for j in range(size):
        least, largest = min(least, b[j]), max(largest, b[j])
    one_sign = not (least < 0 < largest)
    weights = np.empty(size, Lam.dtype)
    for j in range(size):
        weights[j] = np.sqrt(2 * abs(b[j])) if one_sign else 2 * b[j]
    scaled = np.empty(Lam.shape, Lam.dtype)
    for i in range(M):
        x, dot = mean[i], Lam.dtype.type(0)
        for j in range(size):
            V[i, j] = (V[i, j] - Lam[i, j]) * (2 * b[j]) + x * a[j]
            scaled[i, j] = Lam[i, j] * weights[j]
            dot += Lam[i, j] * a[j]
        Lam_a[i] += dot
    beta = 1.0 if add else 0.0
    if one_sign:
        blocked.gram_of_panels(scaled, G, -1.0 if least < 0 else 1.0, beta)
    else:
        blas.gemm(scaled, Lam, G, N, T, 1.0, beta)
    blas.trmm(inverse, V, True, T, 1.0)


@kernel("R2 R2 R1 R1 x b", fastmath=FAST)
def bars(tril, G, mean, Lam_a, kl_bar, need_C):
    M = len(tril)
    blocked.mirror(G)
    X = G.copy()
    blas.trmm(tril, X, True, T, 1.0)
    mean_bar, tril_bar = np.empty(M, G.dtype), np.zeros(G.shape, G.dtype)
    for i in range(M):
        mean_bar[i] = Lam_a[i] + kl_bar * mean[i]
        for j in range(i + 1):
            tril_bar[i, j] = X[j, i] + kl_bar * tril[i, j]
        tril_bar[i, i] -= kl_bar / tril[i, i]
    if need_C:
        blas.trmm(tril, X, True, N, 1.0)
        for i in range(M):
            for j in range(i + 1):
                X[i, j] += mean[i] * Lam_a[j] - G[i, j]
    return mean_bar, tril_bar, X


@kernel("R1 R2", fastmath=FAST)
def kl(mean, tril):
    total = -float(len(mean))
    for i in range(len(mean)):
        x = np.float64(mean[i])
        total += x * x - 2 * np.log(np.float64(tril[i, i]))
        row = tril.dtype.type(0)
        for j in range(i + 1):
            row += tril[i, j] * tril[i, j]
        total += row
    return 0.5 * total
