"""Lower triangular factors: solves, products, inverses.

The strict upper triangle of a factor is never read.
"""

from ..runtime.dispatch import operation


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


@operation("L", "B")
def multiply_triangular(L, B, transpose=False, overwrite_b=False):
    """Compute ``L B``, or ``L' B`` with ``transpose``; arguments as in ``solve_triangular``.

    M^2 R flops.
    """


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


@operation("L")
def inverse_triangular(L, overwrite_l=False):
    """Compute ``L^-1`` (..., M, M), lower, zeros above the diagonal. M^3 / 3 flops.

    ``overwrite_l``: allow the result to overwrite L, which must then have zeros above its diagonal,
    as the factors of ``cholesky`` do.
    """


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
