"""Lower triangular factors: solves, products, inverses.

The strict upper triangle of a factor is never read. Its cotangent is lower, with zeros above the
diagonal, and summed over the leading axes along which the factor was broadcast.
"""

import numpy as np

from ..runtime.dispatch import family, operation

twin = family("triangular")


@operation("L", "B")
def solve_triangular(L, B, transpose=False, overwrite_b=False):
    """Solve ``L X = B``, or ``L' X = B`` with ``transpose``.

    Parameters
    ----------
    L : (..., M, M)
        Lower factors. One factor (M, M) for many right-hand sides is one call, however many axes
        ``B`` has.
    B : (..., M, R)
    overwrite_b : bool
        Allow the result to overwrite ``B`` (it does if ``B`` is C-contiguous).

    Returns
    -------
    X : (..., M, R)

    Cost: M^2 R flops per batch entry. The 64-row diagonal blocks are inverted explicitly; the rest
    is products.
    """


def solve_triangular_vjp(X_bar, L, X, transpose=False):
    """Compute ``(L_bar, B_bar)`` from the solution ``X``. 2 M^2 R flops.

    dX = L^-1 (dB - dL X), so B_bar = L^-T X_bar and L_bar = -tril(B_bar X').
    With ``transpose``, L_bar = -tril(X B_bar').
    """
    module = twin(X_bar=X_bar, L=L, X=X)
    B_bar = module.solve_triangular(L, X_bar, not transpose)
    left, right = (X, B_bar) if transpose else (B_bar, X)
    return -_summed(module.tril_product(left, right), L), B_bar


@operation("L", "B")
def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    """Compute ``L B``, or ``L' B`` with ``transpose``; arguments as in ``solve_triangular``.

    M^2 R flops.
    """


def multiply_triangular_vjp(Y_bar, L, B, transpose=False):
    """Compute ``(L_bar, B_bar)`` of ``multiply_triangular``. 2 M^2 R flops.

    L_bar = tril(Y_bar B') and B_bar = L' Y_bar. With ``transpose``, L_bar = tril(B Y_bar') and
    B_bar = L Y_bar.
    """
    module = twin(Y_bar=Y_bar, L=L, B=B)
    B_bar = module.multiply_triangular(L, Y_bar, not transpose)
    left, right = (B, Y_bar) if transpose else (Y_bar, B)
    return _summed(module.tril_product(left, right), L), B_bar


@operation("L", "B")
def tril_multiply(L, B, overwrite_b=False, lower=False):
    """Compute the lower triangle of ``L B`` for lower factors L and square B (..., M, M).

    2/3 M^3 flops. The entries of the result above its diagonal are undefined. ``overwrite_b``:
    allow the result to overwrite B. ``lower``: B is lower with zeros above its diagonal, and so is
    the result; M^3 / 3 flops.
    """


@operation("L", "W")
def solve_tril(L, W, transpose=False, overwrite_w=False):
    """Compute ``L^-1 W`` for lower triangular L and W (..., M, M). M^3 / 3 flops.

    With ``transpose`` it is the lower triangle of ``L^-T W``, also M^3 / 3 flops. The result has
    zeros above the diagonal. The strict upper triangles of L and W are never read.
    ``overwrite_w``: allow the result to overwrite W.
    """


def solve_tril_vjp(X_bar, L, X):
    """Compute ``(L_bar, W_bar)`` from the result ``X`` of ``solve_tril``. 2/3 M^3 flops.

    W_bar = tril(L^-T tril(X_bar)), L_bar = -tril(W_bar X'). X' is upper, so an entry of L_bar on or
    below the diagonal takes no entry of L^-T tril(X_bar) above it.
    """
    module = twin(X_bar=X_bar, L=L, X=X)
    W_bar = module.solve_tril(L, X_bar, True)
    return -_summed(module.tril_product(W_bar, X, lower=True), L), W_bar


@operation("L")
def inverse_triangular(L, overwrite_l=False):
    """Compute ``L^-1`` (..., M, M), lower, zeros above the diagonal. M^3 / 3 flops.

    ``overwrite_l``: allow the result to overwrite L, which must then have zeros above its diagonal,
    as the factors of ``cholesky`` do.
    """


def inverse_triangular_vjp(X_bar, X):
    """Compute ``L_bar = -tril(X' X_bar X')`` from the inverse ``X``. 2 M^3 flops.

    It follows from dX = -X dL X. Only lower triangles are read.
    """
    module = twin(X_bar=X_bar, X=X)
    turned = module.multiply_triangular(X, np.tril(X_bar).swapaxes(-1, -2))  # (X_bar X')'
    return -module.tril(module.multiply_triangular(X, turned.swapaxes(-1, -2), True))


@operation("L")
def prefers_inverse(L, columns):
    """Return whether products with ``L^-1`` beat solves with a factor L (..., M, M).

    ``columns`` is the number of right-hand sides. On the CPU the inverse wins up to M = 256 if
    there are at least M columns: a product runs at the gemm rate, a solve at 60 to 90 % of it. On a
    GPU the limit on M is 8192 in float64 and 256 in float32. The errors grow with cond(L) either
    way, but in float32 at M = 300 and 800 the errors of values and gradients of a bound were
    measured to be up to 20 times as large by the inverse as by solves.
    """


@operation("L", "w")
def tril_gram(L, w=None):
    """Compute the lower triangle of ``L' diag(w) L`` for lower factors L (..., M, M).

    M^3 / 3 flops. Weights w (M,) >= 0 default to 1. The entries of the result above its diagonal
    are undefined: ``symmetrise`` fills them in.
    """


@operation("A", "B", "out")
def tril_product(A, B, out=None, add=False, lower=False):
    """Compute the lower triangle of ``A B'`` for A, B (..., M, K), zeros above the diagonal.

    ``out`` (..., M, M), C-contiguous, receives it; with ``add`` it is added to the lower triangle
    of ``out``. M^2 K flops, half of the full product. ``lower``: A and B are lower factors with
    zeros above their diagonals; M^3 / 3 flops.
    """


@operation("A")
def tril(A):
    """Set entries above the diagonals of A (..., M, M) to zero in place; return A.

    A is C-contiguous.
    """


def _summed(L_bar, L):
    """Sum over the leading axes along which L was broadcast."""
    shape = (1,) * (L_bar.ndim - L.ndim) + L.shape
    axes = tuple(i for i, n in enumerate(shape) if n != L_bar.shape[i])
    return L_bar.sum(axes, keepdims=True).reshape(L.shape) if axes else L_bar.reshape(L.shape)
