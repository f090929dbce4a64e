"""Sums of a covariance over the windows of images.

An image is a row of X (N, H W C): its pixels row by row, channels last. ``geometry`` is (H, W, C,
h, w, stride): windows of h x w pixels whose first pixels are ``stride`` apart, R = (H - h) //
stride + 1 rows of S = (W - w) // stride + 1 windows. Window p = r S + s holds a patch x[p] of d = h
w C numbers in the same order. ``windows`` is a range (start, stop) of windows, None means all: P =
stop - start. Each pair of window ranges can be a separate call, so no weights (P, P) need to exist.
"""

from ..runtime.dispatch import operation


@operation("X")
def gather_patches(X, geometry, windows=None):
    """Gather the patches (N, P, d) of images X (N, H W C)."""


@operation("patches_bar")
def gather_patches_vjp(patches_bar, geometry, windows=None):
    """Scatter ``patches_bar`` back to ``X_bar`` (N, H W C): each pixel sums over its windows.

    N P d additions.
    """


@operation("like")
def window_places(geometry, like, windows=None):
    """Return row and column of the first pixel of each window, (P, 2), in the dtype of ``like``.

    The result is on the device of ``like``.
    """


@operation("Z", "X", "A", "variance", "lengthscales")
def patch_sums(family, Z, X, A, variance, lengthscales, geometry, windows=None):
    """Compute ``out[m, n] = sum_p A[m, p] k(z_m, x_n[p])`` for a function k of ``stationary``.

    Parameters
    ----------
    family, variance, lengthscales
        As in ``stationary``; lengthscales () or (d,).
    Z : (M, d)
    X : (N, H W C)
    A : (M, P), or (P,) for weights shared by all rows

    Returns
    -------
    (M, N)

    Notes
    -----
    On the CPU equal constant patches of an image are merged and their weights summed. With E the
    number of remaining entries (m, n, p), the cost is (2 d + 25) E flops. No array of M N P numbers
    is formed. The error of k is that of ``stationary``.
    """


@operation("K_bar", "Z", "X", "A", "variance", "lengthscales")
def patch_sums_vjp(
    K_bar,
    family,
    Z,
    X,
    A,
    variance,
    lengthscales,
    geometry,
    windows=None,
    need=("Z", "X", "A", "variance", "lengthscales"),
):
    """Compute the cotangents of ``patch_sums``; None if not in ``need``.

    They are ``(Z_bar, X_bar, A_bar, variance_bar, lengthscales_bar)``. With q of ``stationary_vjp``
    and E_mnp = K_bar_mn A_mp q(z_m, x_n[p]): Z_bar_m = sum_np E (x_n[p] - z_m) / l^2, the patches'
    cotangents sum_m E (z_m - x_n[p]) / l^2, l_bar = sum E (x_n[p] - z_m)^2 / l^3, A_bar_mp = sum_n
    K_bar_mn k, summed over m for A (P,), s_bar = sum K_bar A k / s. (4 d + 30) E flops, and 2 d E
    more for X. Patches are not merged if the cotangent of X is needed.
    """


@operation("X", "B", "variance", "lengthscales")
def patch_pair_sums(family, X, B, variance, lengthscales, geometry, windows=None, others=None):
    """Compute ``out[n] = sum_pq B[p, q] k(x_n[p], x_n[q])`` for a function k of ``stationary``.

    Parameters
    ----------
    family, variance, lengthscales
        As in ``stationary``.
    X : (N, H W C)
    B : (P, P) symmetric, or (P,) for b b'; with ``others`` any (P, Q)
    windows : (start, stop), optional
        Range of p.
    others : (start, stop), optional
        Range of q; None: the same windows.

    Returns
    -------
    (N,)

    Notes
    -----
    Patches are merged as in ``patch_sums``. Without ``others`` only pairs p <= q are computed. Sums
    are accumulated in float64.
    """


@operation("k_bar", "X", "B", "variance", "lengthscales")
def patch_pair_sums_vjp(
    k_bar,
    family,
    X,
    B,
    variance,
    lengthscales,
    geometry,
    windows=None,
    others=None,
    need=("X", "B", "variance", "lengthscales"),
):
    """Compute the cotangents of ``patch_pair_sums``; None if not in ``need``.

    They are ``(X_bar, B_bar, variance_bar, lengthscales_bar)``. B_bar is sum_n k_bar_n k(x_n[p],
    x_n[q]), symmetric (P, P) or (P, Q); for B (P,) it is 2 sum_n k_bar_n sum_q b_q k, (P,).
    """
