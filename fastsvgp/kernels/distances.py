"""Squared distances of rows: for functions of r^2 that the fused kernels do not know."""

from ..runtime.dispatch import operation


@operation("X1", "X2", "lengthscales")
def squared_distances(X1, X2, lengthscales):
    """Compute r^2 = sum_d ((x_d - x'_d) / l_d)^2 between the rows of two arrays, (N1, N2).

    By differences, so that it keeps its relative accuracy for near points far from the origin.
    ``lengthscales`` is () or (D,). ``X2=None`` means ``X1``: the result is then exactly symmetric,
    and its diagonal is 0. 3 D flops per entry.
    """


@operation("R_bar", "X1", "X2", "lengthscales")
def squared_distances_vjp(R_bar, X1, X2, lengthscales, need=("X1", "X2", "lengthscales")):
    """Compute the cotangents (X1_bar, X2_bar, lengthscales_bar); None if not in ``need``.

    X1_bar_i = sum_j 2 R_bar_ij (x_i - x'_j) / l^2, X2_bar_j = sum_i 2 R_bar_ij (x'_j - x_i) / l^2,
    l_bar = -2 sum_ij R_bar_ij (x_i - x'_j)^2 / l^3. For ``X2=None`` R_bar must be symmetric,
    ``X1_bar`` holds both sides and ``X2_bar`` is None. R_bar in either memory order is used without
    a copy. About 6 D flops per entry, by the pass of ``stationary_vjp``.
    """
