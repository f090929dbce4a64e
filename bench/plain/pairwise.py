"""Covariance matrices and their backward pass, against loops over pairs: one row, one feature."""

from functools import partial

import numpy as np

from fastsvgp.kernels.cpu import pairwise
from fastsvgp.kernels.cpu.pairwise import tiles
from fastsvgp.kernels.cpu.pairwise.tiles import MATERN32, RBF

from .common import Case, plain


@plain
def matrix(family, variance, X1, Bt, scale, K):
    r2 = np.empty(K.shape[1], K.dtype)
    for i in range(K.shape[0]):
        r2[:] = 0
        for d in range(Bt.shape[0]):
            x, b, s = X1[i, d], Bt[d], scale[d]
            for j in range(r2.size):
                e = (b[j] - x) * s
                r2[j] += e * e
        tiles.profile(family, variance, r2, K[i])


@plain
def pull(W, X1, Bt, scale, both):
    """W = K_bar q. Return X1_bar, X2_bar (D, N2), which stays zero unless ``both``, and squares."""
    X1_bar, X2_bar, squares = np.zeros_like(X1), np.zeros_like(Bt), np.zeros_like(scale)
    for i in range(X1.shape[0]):
        w = W[i]
        for d in range(X1.shape[1]):
            x, b, other, s2 = X1[i, d], Bt[d], X2_bar[d], scale[d] * scale[d]
            t = q = W.dtype.type(0)
            for j in range(w.size if both else 0):
                f = w[j] * (b[j] - x)
                t, q = t + f, q + f * (b[j] - x)
                other[j] -= f * s2
            for j in range(0 if both else w.size):
                f = w[j] * (b[j] - x)
                t, q = t + f, q + f * (b[j] - x)
            X1_bar[i, d], squares[d] = t * s2, squares[d] + q * s2
    return X1_bar, X2_bar, squares


@plain
def weights(family, variance, X1, Bt, scale, K_bar, K, W):
    """Set W = K_bar q and return sum(K_bar K); K is that of an RBF, or empty."""
    total, known, r2 = 0.0, K.size > 0, np.empty(W.shape[1], W.dtype)
    for i in range(W.shape[0]):
        if known:
            total += tiles.weights_by_value(K[i], K_bar[i], W[i])
            continue
        r2[:] = 0
        for d in range(Bt.shape[0]):
            x, b, s = X1[i, d], Bt[d], scale[d]
            for j in range(r2.size):
                e = (b[j] - x) * s
                r2[j] += e * e
        total += tiles.weights(family, variance, r2, K_bar[i], W[i])
    return total


def plain_matrix(family, X1, X2, variance, lengthscales):
    Bt, scale = np.ascontiguousarray(X2.T), 1 / lengthscales
    K = np.empty((len(X1), len(X2)), X1.dtype)
    matrix(family, variance, X1, Bt, scale, K)
    return K


def plain_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K):
    Bt, scale, W = np.ascontiguousarray(X2.T), 1 / lengthscales, np.empty_like(K_bar)
    K = np.empty((0, 0), X1.dtype) if K is None else K
    total = weights(family, variance, X1, Bt, scale, K_bar, K, W)
    X1_bar, X2_bar, squares = pull(W, X1, Bt, scale, "X2" in need)
    return X1_bar, X2_bar.T, total / variance, squares / lengthscales


def shown(function, *arguments):
    return tuple(bar for bar in function(*arguments) if bar is not None and np.any(bar))


NEEDS = ("X1", "variance", "lengthscales"), ("X1", "X2", "variance", "lengthscales")
SIZES = ((20, 100, 4), (100, 256, 8), (300, 1024, 8), (300, 1024, 21), (300, 1024, 60))


def cases(dtype):
    rng, number, near = np.random.default_rng(0), np.dtype(dtype).type, 2e3 * np.finfo(dtype).eps
    for N1, N2, D in SIZES:
        X1, X2 = (rng.standard_normal((N, D)).astype(dtype) for N in (N1, N2))
        inputs = X1, X2, number(1.3), np.full(D, 1.3 * D**0.5, dtype)
        K_bar = rng.standard_normal((N1, N2)).astype(dtype)
        for name, family in ("rbf", RBF), ("matern32", MATERN32):
            size = f"{name}, {N1} x {N2}, D = {D}"
            tuned = partial(pairwise.stationary, name, *inputs)
            yield Case(f"matrix of {size}", tuned, partial(plain_matrix, family, *inputs), near)
            K = tuned() if family == RBF else None
            for need in NEEDS:
                both = " both sides" * ("X2" in need)
                bars = partial(shown, pairwise.stationary_vjp, K_bar, name, *inputs, need, K)
                twin = partial(shown, plain_vjp, K_bar, family, *inputs, need, K)
                yield Case(f"pullback{both} of {size}", bars, twin, near)
