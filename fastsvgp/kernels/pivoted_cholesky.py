"""Pivoted Cholesky factorisation, column by column."""

from ..runtime.dispatch import operation


@operation("factor", "column", "variance")
def deflate(factor, j, pivot, column, variance):
    """Take step ``j`` of a pivoted Cholesky factorisation ``K ~ F F'`` of a covariance K (N, N).

    With ``F = factor[:, :j + 1]``: ``F[:, j] = (column - F[:, :j] F[pivot, :j]') /
    sqrt(variance[pivot])`` and ``variance -= F[:, j] ** 2``. CPU only.

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
