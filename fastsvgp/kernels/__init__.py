"""Compute kernels: arrays in, arrays out, and no word about Gaussian processes.

This is the front door. Each operation is documented here once, with its reverse rule ``op_vjp(output_bar, ...)`` beside it;
the arrays decide whether the CPU twin (Numba, LAPACK) or the CUDA twin runs. Arguments are trusted: the checks for users sit
in ``fastsvgp.check``. Matrices may have any strides; results are C-contiguous and of the dtype of the arrays.
"""

from .dispatch import twin

# --- quadrature: Gauss-Hermite rules ------------------------------------------------------------------------------------


def gauss_hermite_nodes(mean, var, num=20):
    """Nodes of the ``num``-point Gauss-Hermite rule for N(mean, var), elementwise: ``f_k = mean + sqrt(var) z_k``.

    Parameters
    ----------
    mean, var : (..., N)

    Returns
    -------
    F : (num, ..., N), float64 whatever the dtype of ``mean``
        Symmetric about the mean. A variance below eps^(2/3) max(1, mean^2) (3.7e-11 at mean 0) is raised to that: closer
        nodes would be lost in rounding, and the derivative in the variance with them.
    """
    return twin("quadrature", mean, var).gauss_hermite_nodes(mean, var, num)


def gauss_hermite(G):
    """``sum_k w_k G[k]``: E[g(f)] for values ``G = g(gauss_hermite_nodes(mean, var, num))`` (num, ..., N); weights sum to 1.

    Exact for polynomials of degree 2 num - 1. Any g, also one with a leading axis of its own: ``G`` (num, whatever...).
    """
    return twin("quadrature", G).gauss_hermite(G)


def gauss_hermite_vjp(e_bar, G_prime, mean, var):
    """Reverse rule of ``gauss_hermite`` through the nodes, for ``G_prime = g'(nodes)`` (num, ..., N).

    The exact derivative of the *sum*: with f_k = mean + s z_k and s = sqrt(var),
    d/dmean = sum_k w_k g'(f_k) and d/dvar = sum_k w_k g'(f_k) z_k / (2 s), which tends to g''(mean) / 2 as var -> 0. (The rule
    applied to g'' / 2 is another number: they differ by 1e-4 for logistic g, 20 nodes, at variances around 10.)

    Returns
    -------
    mean_bar, var_bar : (..., N), of the dtype of ``mean``
    """
    return twin("quadrature", mean, var).gauss_hermite_vjp(e_bar, G_prime, mean, var)


def expectation(function, mean, var, num=20, need=True):
    """The Gauss-Hermite rule of one of the functions that likelihoods are made of, with its derivatives, in one fused pass.

    Parameters
    ----------
    function : str
        "log_ndtr": log Phi(f). "log_sigmoid": -log(1 + exp(-f)). "log1p_square": log(1 + f^2).
        All are accurate, and raise no floating-point flag, for any |f| up to 1e150.
    mean, var : (..., N)
    num : int
    need : bool
        False: the value alone.

    Returns
    -------
    value, d_mean, d_var : (..., N), of the dtype of ``mean``; computed in float64
        The sum over the nodes and its exact derivatives (see ``gauss_hermite_vjp``). Below the smallest variance that nodes
        resolve (see ``gauss_hermite_nodes``) the value goes on linearly in var, so value and derivatives agree down to 0.
        Without ``need`` the derivatives are None.
    """
    return twin("quadrature", mean, var).expectation(function, mean, var, num, need)


# --- optimisers: packed triangles and fused updates ---------------------------------------------------------------------


def pack_tril(A, out):
    """Write the lower triangles of ``A`` (..., M, M), row by row, to ``out`` (..., M (M + 1) / 2).

    The strict upper triangle is never read. ``out`` is C-contiguous and may have another dtype than ``A``. Its reverse rule is
    ``unpack_tril``. No flops; one pass.
    """
    return twin("packing", A).pack_tril(A, out)


def unpack_tril(packed, size, dtype):
    """New lower-triangular matrices (..., size, size) of ``dtype`` from ``packed`` (..., size (size + 1) / 2), row by row.

    ``packed`` is C-contiguous. The strict upper triangle is zero. The reverse rule is ``pack_tril``. No flops; one pass.
    """
    return twin("packing", packed).unpack_tril(packed, size, dtype)


def adam(vector, vector_bar, first, second, out, *, step_size, beta1, beta2, epsilon, count):
    """One ascent step of Adam (Kingma & Ba 2015, algorithm 1, with the sign turned) in one pass.

    ``first <- beta1 first + (1 - beta1) g``, ``second <- beta2 second + (1 - beta2) g^2`` and
    ``vector <- vector + step_size m / (sqrt(v) + epsilon)`` with ``m = first / (1 - beta1^count)``,
    ``v = second / (1 - beta2^count)``.

    Parameters
    ----------
    vector, vector_bar, first, second : (n,) float64
        Parameters, gradient g of what is maximised, and the two moments. Not modified unless ``out`` holds them.
    out : tuple of three (n,) float64
        Receives the new ``vector``, ``first`` and ``second``.
    count : int
        Number of this step, from 1.

    Cost: 13 flops, one square root and one division an entry.
    """
    return twin("updates", vector).adam(vector, vector_bar, first, second, out, step_size, beta1, beta2, epsilon, count)
