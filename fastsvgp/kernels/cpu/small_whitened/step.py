"""Whole steps of a small whitened SVGP with Gaussian noise, in a few compiled calls.

Gaussian noise makes the cotangents of a datum a function of that datum alone. So everything between
L^-1 and the M x M sums is one function of a range of rows: ranges run on several threads, and each
returns sums of its own. The formulas are those of ``posteriors.whitening``, in the Gram form, and
of ``gaussian_term``. Other likelihoods use the algebra alone: a chunk of rows is one compiled call,
because at M = 20 and B = 100 each of its dozen products takes 2 us, and a call from Python 5 us.
"""

from typing import Any, NamedTuple

import numpy as np

from ..common import blas, blocked
from ..common.blas import N, T
from ..common.compiled import FAST, kernel
from ..factorisations import turn_lower
from ..pairwise import direct
from ..pairwise.tiles import LOOP, RBF, jit

TILE = 1 << 19  # bytes; rows in multiples of 64, which leave no scalar rest of a vector loop


class Stationary(NamedTuple):
    """A stationary covariance: ``lengthscales`` (D,) or (1,), the least of them, and the roundoff.

    ``floor`` is the least ratio of a marginal variance to the variance.
    """

    form = "i r R1 r x"
    family: int
    variance: Any
    lengthscales: Any
    smallest: Any
    floor: Any


class Posterior(NamedTuple):
    """Whitened mean (M,) and lower factor (M, M)."""

    form = "R1 R2"
    mean: Any
    tril: Any


class Data(NamedTuple):
    """Inputs (N, D), targets (N,), the variance of their noise, and the factor of their terms."""

    form = "R2 R1 x x"
    X: Any
    Y: Any
    noise: Any
    factor: Any


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


@kernel(Stationary, "R2 r", **LOOP)
def prior(k, Z, jitter):
    """Return Kuu, L^-1, and 0, or one plus the row in which the factorisation failed."""
    Kuu = direct.matrix(k.family, Z, Z, k.lengthscales, k.smallest, k.variance, True)
    L = np.zeros(Kuu.shape, Kuu.dtype)
    for i in range(len(L)):
        for j in range(i + 1):
            L[i, j] = Kuu[i, j]
        L[i, i] += jitter
    info = blocked.cholesky(L)
    if info == 0:
        blocked.inverse(L)
    return Kuu, L, info


@jit
def _contracted(K_bar, k, Z, X, symmetric, K):
    """Contract a cotangent of K as ``pairwise`` does: only an RBF makes use of K itself."""
    known = K if k.family == RBF else np.empty((0, 0), K.dtype)
    return direct.matrix_vjp(
        K_bar, k.family, Z, X, k.lengthscales, k.smallest, k.variance, symmetric,
        2 if symmetric else 1, known,
    )  # fmt: skip


@jit
def _gaussian(y, f, var, noise, factor):
    """Replace the marginals by their cotangents; return the sum of (y - f)^2 + var."""
    total, of_mean, of_var = 0.0, f.dtype.type(factor / noise), f.dtype.type(-0.5 * factor / noise)
    for j in range(len(y)):
        residual = y[j] - f[j]
        total += np.float64(residual * residual + var[j])
        f[j], var[j] = residual * of_mean, of_var
    return total


@kernel(Posterior, "R1 R2 x", **LOOP)
def natural_step(q, Lam_a, G, step_size):
    """Return mean and factor after a natural step, and 0 or the failing row, counted from the last.

    The formulas are those of ``GramWhitenedPass.natural_step``; W^-1 of the old factor W gives
    S^-1 = W^-T W^-1. The lower triangle of G is read.
    """
    M, keep = len(G), 1 - step_size
    precision, theta = np.empty_like(G), np.empty_like(q.mean)
    old = np.zeros_like(G)
    if keep != 0:
        for i in range(M):
            old[i, : i + 1] = q.tril[i, : i + 1]
        blocked.inverse(old)
        blocked.gram(old)
    for i in range(M):
        theta[i] = step_size * Lam_a[i]
    for i in range(M):
        x, dot = q.mean[i], G.dtype.type(0)
        for j in range(i + 1):
            precision[i, j] = keep * old[i, j] - step_size * G[i, j]
            dot += precision[i, j] * q.mean[j]
            if j < i:
                theta[j] += precision[i, j] * x
        theta[i] += dot
        precision[i, i] += step_size
    # its inverse as in ``factorisations.cholesky_of_inverse``
    R = np.empty_like(G)
    turn_lower(0, M, precision, R)
    info = blocked.cholesky(R)
    if info == 0:
        blocked.inverse(R)
        turn_lower(0, M, R, precision)
    half, mean = np.zeros_like(theta), np.zeros_like(theta)
    for i in range(M):
        for j in range(i + 1):
            half[j] += precision[i, j] * theta[i]
    for i in range(M):
        for j in range(i + 1):
            mean[i] += precision[i, j] * half[j]
    return mean, precision, info


@kernel("i i", Stationary, "R2", Data, "R2", Posterior, "b b", **LOOP)
def rows(start, stop, k, Z, data, inverse, q, with_gram, with_gradient):
    """Return sums over a range of rows: (y - f)^2 + var, clamped; Lam a, G; those through Kuf.

    ``with_gram``: Lam a and G, of which the lower triangle is valid; ``with_gradient``: these and
    the cotangents through Kuf. Without, they are empty or zero. A tile of rows at a time, so that
    its (M, rows) arrays stay in the cache.
    """
    M, dtype, size = len(Z), Z.dtype, len(Z) if with_gram or with_gradient else 0
    squares, raised, total, by_feature = 0.0, 0, 0.0, np.zeros(Z.shape[1])
    Lam_a, G, Z_bar = np.zeros(size, dtype), np.zeros((size, size), dtype), np.zeros(Z.shape, dtype)
    alpha, width = -data.factor / data.noise, max(64, TILE // (M * Z.itemsize) // 64 * 64)
    for first in range(start, stop, width):
        last = min(first + width, stop)
        X = data.X[first:last]
        Kuf = direct.matrix(k.family, Z, X, k.lengthscales, k.smallest, k.variance, False)
        kff = np.full(last - first, k.variance)
        Lam, V, f, var, clamped = marginals(inverse, Kuf, kff, q.mean, q.tril, k.floor)
        squares += _gaussian(data.Y[first:last], f, var, data.noise, data.factor)
        raised += clamped
        if with_gradient:
            cotangents(inverse, Lam, V, q.mean, q.tril, f, var, Lam_a, G, first > start)
            of_Kuf = _contracted(V, k, Z, X, False, Kuf)
            total += of_Kuf[0]
            by_feature += of_Kuf[1]
            Z_bar += of_Kuf[2]
        elif with_gram:
            for i in range(M):
                dot = dtype.type(0)
                for j in range(last - first):
                    dot += Lam[i, j] * f[j]
                Lam_a[i] += dot
            blocked.gram_of_panels(Lam, G, alpha, 1.0 if first > start else 0.0)
    return squares, raised, total, Lam_a, G, by_feature, Z_bar


@kernel(Stationary, "R2 R2 R2", Posterior, "R1 R2 x", **LOOP)
def parameters(k, Z, Kuu, inverse, q, Lam_a, G, kl_bar):
    """Return the KL divergence, the cotangents of the posterior, and those through Kuu."""
    mean_bar, tril_bar, C = bars(q.tril, G, q.mean, Lam_a, kl_bar, True)
    blocked.mirror(C)
    blas.trmm(inverse, C, True, T, -0.5)
    blas.trmm(inverse, C, False, N, 1.0)
    blocked.mirror(C)
    return kl(q.mean, q.tril), mean_bar, tril_bar, _contracted(C, k, Z, Z, True, Kuu)
