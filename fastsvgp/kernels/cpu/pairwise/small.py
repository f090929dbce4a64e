"""Small covariance matrices by differences, each in one compiled call on one thread."""

import numpy as np

from ..common.compiled import kernel
from .low_dim import Inputs, direct, direct_vjp, scaled, transpose
from .tiles import LOOP, MATERN12, ROWS, jit

UP_TO = 60_000  # nanoseconds of work, roughly: less than two hand-overs to other threads cost


@jit
def _scale(lengthscales, D, smallest, like):
    scale = np.empty(D, like.dtype)
    for d in range(D):
        scale[d] = 1 / max(lengthscales[d % lengthscales.size], smallest)
    return scale


@jit
def _tiled(X1, X2, scale, exactly):
    """As in ``pairwise``."""
    A, Bt = np.empty(X1.shape, X1.dtype), np.empty((X2.shape[1], X2.shape[0]), X2.dtype)
    if not exactly and len(X1) > 0 and scaled(X1, X2, scale, A, Bt):
        return Inputs(A, Bt, scale, True)
    transpose(X2, Bt)
    return Inputs(X1, Bt, scale, False)


@kernel("i R2 R2 R1 r r b", **LOOP)
def matrix(family, X1, X2, lengthscales, smallest, variance, symmetric):
    """Compute k between the rows of X1 and X2; ``lengthscales`` is (D,) or (1,)."""
    scale = _scale(lengthscales, X1.shape[1], smallest, X1)
    inputs = _tiled(X1, X2, scale, False)
    K = np.empty((len(X1), len(X2)), X1.dtype)
    direct(0, (len(X1) + ROWS - 1) // ROWS, family, variance, inputs, symmetric, K)
    return K


@kernel("R2 i R2 R2 R1 r r b i R2", **LOOP)
def matrix_vjp(K_bar, family, X1, X2, lengthscales, smallest, variance, symmetric, sides, K):
    """Return ``(sum of K_bar K, squares, X1_bar, X2_bar, scale)``.

    lengthscales_bar is squares * scale; X2_bar is empty if not requested. The caller multiplies by
    the last factor: the product of all factors at once could overflow where it multiplies a zero.
    """
    (N1, D), N2 = X1.shape, len(X2)
    scale = _scale(lengthscales, D, smallest, X1)
    inputs = _tiled(X1, X2, scale, K.size > 0 or family == MATERN12)
    X1_bar = np.zeros((N1, D), X1.dtype)
    blocks = (N1 + ROWS - 1) // ROWS
    total, squares, other = direct_vjp(
        0, blocks, family, variance, inputs, symmetric, sides, K_bar, K, X1_bar
    )
    X2_bar = np.empty((N2 if sides == 2 and not symmetric else 0, D), X1.dtype)
    # the lower triangle stands for both
    twice = X1.dtype.type(2 if symmetric else 1)
    for d in range(D):
        factor = twice * (scale[d] if inputs.is_scaled else scale[d] * scale[d])
        squares[d] *= twice * (X1.dtype.type(1) if inputs.is_scaled else scale[d] * scale[d])
        for i in range(N1):
            at = X1_bar[i, d]
            if symmetric and sides == 2:
                at += other[d, i]
            X1_bar[i, d] = at * factor
        for j in range(len(X2_bar)):
            X2_bar[j, d] = other[d, j] * factor
    return twice * total, squares, X1_bar, X2_bar, scale
