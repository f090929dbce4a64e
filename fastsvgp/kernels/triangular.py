"""Lower triangular factors: solves, products, inverses. The strict upper triangle of a factor is never read."""

from ..runtime.dispatch import family

twin = family("triangular")


def solve_triangular(L, B, transpose=False, overwrite_b=False):
    """Solve ``L X = B``, or ``L' X = B`` with ``transpose``.

    Parameters
    ----------
    L : (..., M, M)
        Lower factors. One factor (M, M) for many right-hand sides is one call however many axes
        ``B`` has.
    B : (..., M, R)
    overwrite_b : bool
        The result may take the place of ``B`` (it does where ``B`` is C-contiguous).

    Returns
    -------
    X : (..., M, R)

    Cost: M^2 R flops an entry of the batch. The 64-row diagonal blocks are inverted explicitly, the
    rest is products.
    """
    return twin(L=L, B=B).solve_triangular(L, B, transpose, overwrite_b)


def solve_triangular_vjp(X_bar, L, X, transpose=False):
    """``(L_bar, B_bar)`` from the solution ``X``: B_bar = L^-T X_bar, L_bar = -tril(B_bar X'). 2 M^2 R flops."""
    return twin(X_bar=X_bar, L=L, X=X).solve_triangular_vjp(X_bar, L, X, transpose)


def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    """``L B``, or ``L' B`` with ``transpose``; arguments as in ``solve_triangular``. M^2 R flops."""
    return twin(L=L, B=B).multiply_triangular(L, B, transpose, overwrite_b)


def tril_multiply(L, B, overwrite_b=False):
    """Lower triangle of ``L B`` for lower factors L and square B (..., M, M). 2/3 M^3 flops.

    What the result has above its diagonal is not defined. ``overwrite_b``: it may take the place of
    B.
    """
    return twin(L=L, B=B).tril_multiply(L, B, overwrite_b)


def multiply_triangular_vjp(Y_bar, L, B, transpose=False):
    """``(L_bar, B_bar)`` of ``multiply_triangular``: L_bar = tril(Y_bar B'), B_bar = L' Y_bar. 2 M^2 R flops."""
    return twin(Y_bar=Y_bar, L=L, B=B).multiply_triangular_vjp(Y_bar, L, B, transpose)


def solve_tril(L, W):
    """``L^-1 W`` for lower triangular L and W (..., M, M): lower, zeros above the diagonal.

    M^3 / 3 flops.

    The strict upper triangles of both are never read.
    """
    return twin(L=L, W=W).solve_tril(L, W)


def solve_tril_vjp(X_bar, L, X):
    """``(L_bar, W_bar)`` from the result ``X``: with S = L^-T tril(X_bar), W_bar = tril(S), L_bar = -tril(S X')."""
    return twin(X_bar=X_bar, L=L, X=X).solve_tril_vjp(X_bar, L, X)


def inverse_triangular(L, overwrite_l=False):
    """``L^-1`` (..., M, M), lower, zeros above the diagonal. M^3 / 3 flops.

    ``overwrite_l``: it may take the place of L, which must have zeros there then, as the factors of
    ``cholesky`` do.
    """
    return twin(L=L).inverse_triangular(L, overwrite_l)


def prefers_inverse(L, columns):
    """Whether products with ``L^-1`` are the better choice for so many columns of solves with a factor L (..., M, M).

    On the CPU up to M = 256, where a product runs at the gemm rate and a solve at 60 to 90 % of it,
    if there are M columns at least. On a device up to 8192 in float64, and 256 in float32: the
    errors grow with cond(L) either way, but in float32 those of values and gradients of a bound at
    M = 300 and 800 were measured to be up to 20 times as large by the inverse as by solves.
    """
    return twin(L=L).prefers_inverse(L, columns)


def inverse_triangular_vjp(X_bar, X):
    """``L_bar`` from the inverse ``X``: -tril(X' X_bar X'). 2 M^3 flops."""
    return twin(X_bar=X_bar, X=X).inverse_triangular_vjp(X_bar, X)


def tril_gram(L, w=None):
    """Lower triangle of ``L' diag(w) L`` for lower factors L (..., M, M) and weights w (M,) >= 0, by default 1. M^3 / 3 flops.

    What the result has above its diagonal is not defined: ``symmetrise`` fills it in.
    """
    return twin(L=L, w=w).tril_gram(L, w)


def tril_product(A, B, out=None, add=False):
    """Lower triangle of ``A B'`` for A, B (..., M, K), zeros above the diagonal.

    M^2 K flops, half of the full product.

    ``out`` (..., M, M), C-contiguous, receives it; with ``add`` it is added to the lower triangle
    that ``out`` holds.
    """
    return twin(A=A, B=B, out=out).tril_product(A, B, out, add)


def tril(A):
    """Set what is above the diagonals of A (..., M, M), C-contiguous, to zero, in place; returns A."""
    return twin(A=A).tril(A)
