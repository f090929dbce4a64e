"""Each row given its near rows, in what inducing inputs leave: ``R = K - Lam_P Lam_P'``."""

from ..runtime.dispatch import operation


@operation("K", "Lam", "rows", "noise")
def near_rows(K, Lam, rows, noise):
    """Condition each row on its near rows: ``(a, s, phi, factor, failed)``.

    With P = ``rows[i]``, N its first k = q - 1 entries and j the last, R = K - Lam_P Lam_P', A =
    R_NN + diag(noise) and r = R_Nj: a = A^-1 r, s = R_jj - a'r, phi = lam_j - Lam_N' a, and the
    lower Cholesky factor of A. All arrays are float64.

    Parameters
    ----------
    K : (n, q, q)
        Covariance of the near rows and, last, of the row itself. Only the lower triangle is read.
    Lam : (u, M), C-contiguous
        Rows ``(L^-1 k(Z, x))'``.
    rows : (n, q) integers
        Their places in ``Lam``; -1 for an absent near row, whose entries of K and noise are not
        used, and whose a is 0. The last column has no -1. Not checked.
    noise : (n, k)

    Returns
    -------
    a : (n, k)
    s : (n,)
        Not clipped.
    phi : (n, M)
    factor : (n, k, k)
        Rows of the identity at absent rows.
    failed : (n,) int64
        -1, or the place of the first pivot that is not positive; results of that row are NaN.

    Notes
    -----
    n (q^2 M + 2 k M + k^3 / 3) flops.
    """


@operation("Lam", "rows", "a", "factor", "a_bar", "s_bar", "phi_bar")
def near_rows_vjp(Lam, rows, a, factor, a_bar, s_bar, phi_bar):
    """Return the cotangents ``(K_bar, Lam_bar, noise_bar)`` of ``near_rows``.

    K_bar is symmetric, and zero at absent rows. A row of ``Lam`` sums what all rows of the batch
    give it, in their order: the result has the same bits for any number of threads.

    Parameters
    ----------
    Lam, rows, a, factor
        Arguments and results of ``near_rows``.
    a_bar : (n, k)
    s_bar : (n,)
    phi_bar : (n, M) or None
        None stands for zeros.

    Notes
    -----
    n (2 q^2 M + 4 q M + 4 k^2) flops.
    """
