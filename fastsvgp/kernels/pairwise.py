"""Matrices of functions of pairs of rows: stationary functions, distances and inner products."""

from ..runtime.dispatch import operation


@operation("X1", "X2", "variance", "lengthscales")
def stationary(family, X1, X2, variance, lengthscales):
    """Evaluate a stationary function between the rows of two arrays.

    It is a function of r^2 = sum_d ((x_d - x'_d) / l_d)^2.

    Parameters
    ----------
    family : "rbf", "matern12", "matern32" or "matern52"
        s exp(-r^2/2); s exp(-r); s (1 + t) exp(-t), t = sqrt(3) r; s (1 + t + t^2/3) exp(-t), t =
        sqrt(5) r.
    X1, X2 : (..., N1, D), (..., N2, D), the same leading axes
        ``X2=None`` means ``X1``: the result is exactly symmetric and its diagonal exactly
        ``variance``.
    variance : s, ()
    lengthscales : l, () or (D,)

    Returns
    -------
    (..., N1, N2)

    Notes
    -----
    With few features, about 3 D + 20 flops per entry. With many, a matrix product of 2 D flops per
    entry, and a direct recomputation of the pairs whose distance would suffer cancellation. Either
    way r keeps its relative accuracy for near points far from the origin. NaN in a row of the
    inputs gives NaN in the matching row or column of the result.
    """


@operation("K_bar", "X1", "X2", "variance", "lengthscales", "K")
def stationary_vjp(
    K_bar,
    family,
    X1,
    X2,
    variance,
    lengthscales,
    need=("X1", "X2", "variance", "lengthscales"),
    K=None,
):
    """Contract a cotangent of ``stationary`` to its arguments in one pass.

    No temporary is as large as K.

    Parameters
    ----------
    K_bar : (..., N1, N2)
        For ``X2=None`` it must be symmetric.
    need : names among "X1", "X2", "variance", "lengthscales"
    K : (..., N1, N2), optional
        The matrix, if already computed: saves the exponentials, and for the RBF the distances too.
        It should have the memory order of K_bar, either one; in another order it is not used.

    Returns
    -------
    X1_bar, X2_bar : (..., N1, D), (..., N2, D)
        For ``X2=None``, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    variance_bar, lengthscales_bar : (), () or (D,)
        Summed over the batch. Cotangents not in ``need`` are None.

    Notes
    -----
    With q = -2 dk / d(r^2) and w = K_bar q: X1_bar_i = sum_j w_ij (x'_j - x_i) / l^2, X2_bar_j =
    sum_i w_ij (x_i - x'_j) / l^2, l_bar = sum_ij w_ij (x_i - x'_j)^2 / l^3, s_bar = sum K_bar K /
    s. About 6 D flops per entry. The derivative of the Matern-1/2 function at r = 0 is taken as 0.
    """


@operation("X1", "X2", "weights")
def inner(X1, X2, weights):
    """Compute weighted inner products X1 diag(weights) X2' of rows, (N1, N2). 2 D flops per entry.

    ``weights`` is () or (D,). ``X2=None`` means ``X1``: then the weights must not be negative, half
    the flops are spent and the result is exactly symmetric.
    """


@operation("K_bar", "X1", "X2", "weights")
def inner_vjp(K_bar, X1, X2, weights, need=("X1", "X2", "weights")):
    """Compute the cotangents (X1_bar, X2_bar, weights_bar) of ``inner``; None if not in ``need``.

    For ``X2=None`` K_bar must be symmetric, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    K_bar in either memory order is used without a copy. 2 D flops per entry for each side.
    """


@operation("X1", "X2", "lengthscales")
def squared_distances(X1, X2, lengthscales):
    """Compute r^2 = sum_d ((x_d - x'_d) / l_d)^2 between the rows of two arrays, (N1, N2).

    For functions of r^2 that ``stationary`` does not know. By differences, so that it keeps its
    relative accuracy for near points far from the origin.
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
