"""Cholesky factors of positive definite matrices and of their inverses.

Only lower triangles are read.
"""

import numpy as np

from ..runtime.dispatch import family, operation
from .triangular import multiply_triangular, solve_triangular, tril_product

twin = family("factorisations")


@operation("A", "noise")
def cholesky(A, jitter=0.0, overwrite_a=False, noise=None):
    """Compute lower Cholesky factors ``L L' = A + diag(noise) + jitter I``.

    L has a positive diagonal and zeros above it.

    Parameters
    ----------
    A : (..., M, M)
    jitter : float
        Absolute amount added to the diagonal. It is never increased automatically.
    overwrite_a : bool
        Allow the factor to overwrite ``A`` (it does if ``A`` is C-contiguous).
    noise : (M,), optional
        Also added to the diagonal, which saves the pass that forms A + diag(noise).

    Raises
    ------
    NotPositiveDefinite
        Names the batch entry, the pivot and the jitter. NaN and infinity in ``A`` raise it too.

    Cost: M^3 / 3 flops per matrix.
    """


def cholesky_vjp(L_bar, L):
    """Compute the symmetric ``A_bar = L^-T (Phi(P) + Phi(P)') L^-1 / 2`` with P = L' L_bar.

    L is the factor of A. Phi keeps the lower triangle and halves the diagonal (Murray 2016,
    "Differentiation of the Cholesky decomposition"): dL = L Phi(L^-1 dA L^-T). It is the rule of
    ``whitening_vjp`` with C = -P. Only lower triangles are read. 2 M^3 flops.
    """
    module = twin(L_bar=L_bar, L=L)
    P = multiply_triangular(L, np.tril(L_bar), transpose=True, overwrite_b=True)
    return -module.whitening_vjp(P, L, True)


@operation("C", "L", "inverse")
def whitening_vjp(C, L, overwrite_c=False, inverse=None):
    """Compute ``A_bar = -L^-T (Phi(C) + Phi(C)') L^-1 / 2``, the pullback through X_k = L^-1 Y_k.

    It is the full gradient if the objective depends on A only through the X_k. With L = chol(A) and
    C = sum_k X_k_bar X_k' (only its lower triangle is read), no derivative of the factor is needed:
    a change dA changes X_k by -Phi(L^-1 dA L^-T) X_k. The cotangents of the Y_k are L^-T X_k_bar.

    Parameters
    ----------
    C, L : (..., M, M)
    overwrite_c : bool
        Allow the result to overwrite ``C``.
    inverse : (M, M), optional
        L^-1 for a single L, if already computed: two products with it replace the solves.

    Returns
    -------
    A_bar : (..., M, M), symmetric

    Cost: M^3 flops (a blocked symmetric congruence); with ``inverse`` 2 M^3, all of them in
    products.
    """


@operation("L")
def cholesky_inverse(L):
    """Compute ``(L L')^-1`` (..., M, M), symmetric, from lower factors. 2/3 M^3 flops."""


def cholesky_inverse_vjp(Y_bar, L, Y):
    """Compute ``L_bar = -tril(Y (Y_bar + Y_bar') L^-T)`` of ``Y = cholesky_inverse(L)``.

    It follows from dY = -Y (dL L' + L dL') Y and Y L = L^-T. 2 M^3 flops.
    """
    twin(Y_bar=Y_bar, L=L, Y=Y)  # raises if they are on several devices, with these names
    turned = solve_triangular(L, Y_bar + Y_bar.swapaxes(-1, -2), overwrite_b=True)
    return -tril_product(Y, turned)


@operation("L")
def cholesky_product(L):
    """Compute ``L L'`` for lower factors (..., M, M), both triangles. M^3 / 3 flops per matrix.

    The strict upper triangles of L are never read.
    """


@operation("A")
def cholesky_of_inverse(A, jitter=0.0):
    """Compute lower ``W`` with ``W W' = (A + jitter I)^-1`` and a positive diagonal.

    The inverse is never formed: the elimination runs from the last row upwards. Raises
    ``NotPositiveDefinite``. 2/3 M^3 flops.
    """


@operation("factor", "column", "variance")
def deflate(factor, j, pivot, column, variance):
    """Take step ``j`` of a pivoted Cholesky factorisation ``K ~ F F'`` of a covariance K (N, N).

    With ``F = factor[:, :j + 1]``: ``F[:, j] = (column - F[:, :j] F[pivot, :j]') /
    sqrt(variance[pivot])`` and ``variance -= F[:, j] ** 2``.

    Parameters
    ----------
    factor : (N, M) float64, C-contiguous
        Columns before ``j`` are read, column ``j`` is overwritten.
    pivot : int
        The chosen point, ``variance[pivot] > 0``.
    column : (N,) float64
        ``K[:, pivot]``.
    variance : (N,) float64
        Conditional variances given the points chosen before; updated in place.

    Cost: (2 j + 3) N flops, bound by the one pass over ``factor[:, :j]``.
    """
