"""Matrices of a function of pairs of rows: stationary functions and inner products."""

from ..runtime.dispatch import family

twin = family("pairwise")


def stationary(family, X1, X2, variance, lengthscales):
    """Matrix of a stationary function of r^2 = sum_d ((x_d - x'_d) / l_d)^2 between the rows of two arrays.

    Parameters
    ----------
    family : "rbf", "matern12", "matern32" or "matern52"
        s exp(-r^2/2); s exp(-r); s (1 + t) exp(-t), t = sqrt(3) r; s (1 + t + t^2/3) exp(-t), t =
        sqrt(5) r.
    X1, X2 : (..., N1, D), (..., N2, D), the same leading axes
        ``X2=None`` stands for ``X1``: the result is exactly symmetric and its diagonal exactly
        ``variance``.
    variance : s, ()
    lengthscales : l, () or (D,)

    Returns
    -------
    (..., N1, N2)

    Notes
    -----
    About 3 D + 20 flops an entry for few features; for many, a product of 2 D flops an entry and a
    second look at those pairs whose distance would cancel in it. Either way r keeps its relative
    accuracy for near points far from the origin. NaN in a row of the inputs is NaN in its row or
    column of the result.
    """
    module = twin(X1=X1, X2=X2, variance=variance, lengthscales=lengthscales)
    return module.stationary(family, X1, X2, variance, lengthscales)


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
    """Contraction of a cotangent of ``stationary`` to its arguments in one pass; no temporary as large as K.

    Parameters
    ----------
    K_bar : (..., N1, N2)
        For ``X2=None`` it must be symmetric.
    need : names among "X1", "X2", "variance", "lengthscales"
    K : (..., N1, N2), optional
        The matrix, where it is at hand: saves the exponentials, and for the RBF the distances too.
        It should have the memory order of K_bar, either one; in another order it is not used.

    Returns
    -------
    X1_bar, X2_bar : (..., N1, D), (..., N2, D)
        For ``X2=None``, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    variance_bar, lengthscales_bar : (), () or (D,)
        Summed over the batch. Anything not in ``need`` is None.

    Notes
    -----
    With q = -2 dk / d(r^2) and w = K_bar q: X1_bar_i = sum_j w_ij (x'_j - x_i) / l^2, X2_bar_j =
    sum_i w_ij (x_i - x'_j) / l^2, l_bar = sum_ij w_ij (x_i - x'_j)^2 / l^3, s_bar = sum K_bar K /
    s. About 6 D flops an entry. The derivative of the Matern-1/2 function at r = 0 is taken as 0.
    """
    module = twin(K_bar=K_bar, X1=X1, X2=X2, variance=variance, lengthscales=lengthscales, K=K)
    return module.stationary_vjp(K_bar, family, X1, X2, variance, lengthscales, need, K)


def inner(X1, X2, weights):
    """Weighted inner products X1 diag(weights) X2' of rows: (N1, N2), 2 D flops an entry.

    ``weights`` is () or (D,). ``X2=None`` stands for ``X1``: then the weights must not be negative,
    half the flops are spent and the result is exactly symmetric.
    """
    return twin(X1=X1, X2=X2, weights=weights).inner(X1, X2, weights)


def inner_vjp(K_bar, X1, X2, weights, need=("X1", "X2", "weights")):
    """Cotangents (X1_bar, X2_bar, weights_bar) of ``inner``; None for what is not in ``need``; 2 D flops an entry for each side.

    For ``X2=None`` K_bar must be symmetric, ``X1_bar`` holds both sides and ``X2_bar`` is None.
    K_bar in either order is used without a copy.
    """
    return twin(K_bar=K_bar, X1=X1, X2=X2, weights=weights).inner_vjp(K_bar, X1, X2, weights, need)
