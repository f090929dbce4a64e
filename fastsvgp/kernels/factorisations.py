"""Factors of positive definite matrices and of their inverses. Only lower triangles are read."""

from ..runtime.dispatch import family

twin = family("factorisations")


def cholesky(A, jitter=0.0, overwrite_a=False, noise=None):
    """Lower Cholesky factors: ``L L' = A + diag(noise) + jitter I``, positive diagonal, zeros above it.

    Parameters
    ----------
    A : (..., M, M)
    jitter : float
        Absolute amount added to the diagonal. It is never changed behind your back.
    overwrite_a : bool
        The factor may take the place of ``A`` (it does where ``A`` is C-contiguous).
    noise : (M,), optional
        Added to the diagonal too: saves the pass that would make A + diag(noise).

    Raises
    ------
    NotPositiveDefinite
        Names the batch entry, the pivot and the jitter; NaN and infinity come out here too.

    Cost: M^3 / 3 flops an entry.
    """
    return twin(A=A, noise=noise).cholesky(A, jitter, overwrite_a, noise)


def cholesky_vjp(L_bar, L):
    """``A_bar`` (symmetric) for the factor L of A: L^-T (Phi(P) + Phi(P)') L^-1 / 2, P = L' L_bar. 2 M^3 flops.

    Phi keeps the lower triangle and halves the diagonal (Murray 2016, "Differentiation of the
    Cholesky decomposition").
    """
    return twin(L_bar=L_bar, L=L).cholesky_vjp(L_bar, L)


def whitening_vjp(C, L, overwrite_c=False, inverse=None):
    """``A_bar = -L^-T (Phi(C) + Phi(C)') L^-1 / 2``: the gradient of anything that sees A only through X_k = L^-1 Y_k.

    With L = chol(A) and C = sum_k X_k_bar X_k' (only its lower triangle is read) no derivative of
    the factor is needed: a change dA moves X_k by -Phi(L^-1 dA L^-T) X_k. The cotangents of the Y_k
    are L^-T X_k_bar.

    Parameters
    ----------
    C, L : (..., M, M)
    overwrite_c : bool
        The result may take the place of ``C``.
    inverse : (M, M), optional
        L^-1 for a single L, where it is at hand: two products with it then replace the solves.

    Returns
    -------
    A_bar : (..., M, M), symmetric

    Cost: M^3 flops (a symmetric congruence by blocks); 2 M^3 with ``inverse``, all of them
    products.
    """
    return twin(C=C, L=L, inverse=inverse).whitening_vjp(C, L, overwrite_c, inverse)


def cholesky_inverse(L):
    """``(L L')^-1`` (..., M, M), symmetric, from a lower factor. 2/3 M^3 flops."""
    return twin(L=L).cholesky_inverse(L)


def cholesky_inverse_vjp(Y_bar, L, Y):
    """``L_bar`` of ``Y = cholesky_inverse(L)``: -tril(Y (Y_bar + Y_bar') L^-T). 3 M^3 flops."""
    return twin(Y_bar=Y_bar, L=L, Y=Y).cholesky_inverse_vjp(Y_bar, L, Y)


def cholesky_product(L):
    """``L L'`` of lower factors (..., M, M), both triangles; the upper triangles of L are never read. M^3 / 3 flops each."""
    return twin(L=L).cholesky_product(L)


def cholesky_of_inverse(A, jitter=0.0):
    """Lower ``W`` with ``W W' = (A + jitter I)^-1`` and a positive diagonal, without forming the inverse. 2/3 M^3 flops.

    Raises ``NotPositiveDefinite``; the elimination runs from the last row upwards.
    """
    return twin(A=A).cholesky_of_inverse(A, jitter)
