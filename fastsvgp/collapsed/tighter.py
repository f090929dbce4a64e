"""A tighter bound than the collapsed one, at the cost of all of K_ff.

Shi et al. 2020, equations 14 and 15. The residual of f given u has the covariance Delta = K_ff -
Q_ff. The collapsed bound pays tr(Delta) / (2 noise) for it, this one tr((Q_ff + noise I)^-1 Delta)
/ 2, which is never more. Names as in ``collapsed``: Q_ff = Lam' Lam, B = I + beta Lam W Lam' = R R'
with W = diag(w) the data weights, or I. In addition

    Gam = Lam W,    U = R^-1 Gam,    V = U Delta,    S = V U' = U Delta U',    G = R^-T S R^-1

Weights repeat rows: the repeated y is F y with F' F = W, and F' (F Q_ff F' + noise I)^-1 F = beta
(W - beta U' U). So

    bound = the collapsed one + x
    x = beta^2 / 2 tr(U Delta U') = beta^2 / 2 tr(B^-1 D),    D = Gam Delta Gam' = R S R'.

Reverse, per output, with T = Gam Delta = R V:

    Kff_bar = Delta_bar = beta^2 / 2 Gam' B^-1 Gam = beta^2 / 2 U' U
    Lam_bar of x = beta^2 B^-1 T W             by both Gam = Lam W in D, which is symmetric
                 - beta (I - B^-1) Gam         by d Delta = -(d Lam' Lam + Lam' d Lam):
                                               -2 Lam Delta_bar, with Lam Gam' = (B - I) / beta
                 - beta^3 B^-1 D B^-1 Gam      by d B = beta (d Lam Gam' + Gam d Lam')
    Lam_bar of the collapsed bound
                 = beta (m (W e)' + (I - B^-1) Gam)        the second term cancels that of x
    Lam_bar of both
                 = beta m (W e)' + beta^2 R^-T (V W - beta S U)
                   with B^-1 T = R^-T V,  B^-1 D B^-1 Gam = R^-T S U
    C = Lam_bar Lam' of both
                 = m m' + beta^2 B^-1 D (I - beta B^-1 Lam W Lam')
                 = m m' + beta^2 B^-1 D B^-1 = m m' + beta^2 G
    dx/dbeta     = beta tr(B^-1 D) - beta^2 / 2 tr(B^-1 D B^-1 Lam W Lam')
                 = beta / 2 (tr S + tr G)      by beta B^-1 Lam W Lam' = I - B^-1
    noise_bar of x = -beta^2 dx/dbeta = -beta^3 / 2 (tr S + tr G)

If N times the variance is large relative to the noise, T and D are large and B^-1 is small.
Therefore all products use U: beta U' U <= W. Delta is subtracted entry by entry, so its error is
the rounding of one variance. S and G are positive semi-definite, and no matrix is the difference of
two large ones.

Kff_bar is known before K_ff is, so K_ff is computed once, in blocks that are contracted
immediately: rows I, and columns J from the beginning of I, of which those beyond I count twice.
"""

import numpy as np

from .. import check, kernels
from ..likelihoods.base import in_dtype, total, weighted
from ..records import plus
from ..records.typed import AnyRecord, ArrayLike, Names, Record, RecordT
from ..runtime import tuning
from ..runtime.edge import public_call
from .forward_pass import forward
from .sgpr import SGPR, InPlace, check_sgpr, check_weighted_sgpr, gradient


@public_call(SGPR)
def tighter_bound(
    sgpr: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    max_rows: int = 20_000,
) -> float:
    """Compute the tighter bound, in nats. 2 (N + 2 M) M N flops, and K_ff once.

    Parameters
    ----------
    sgpr, X, Y, jitter, weights, max_rows
        As in ``tighter_bound_and_grad``.

    Returns
    -------
    float

    Raises
    ------
    ValueError, TypeError, NotPositiveDefinite
        As in ``tighter_bound_and_grad``.

    Examples
    --------
    >>> fs.bounds.tighter_bound(sgpr, X, Y) >= fs.collapsed_bound(sgpr, X, Y)
    True
    """
    sgpr, X, Y, jitter, weights = _check("tighter_bound", sgpr, X, Y, jitter, weights, max_rows)
    s = forward(sgpr, X, Y, jitter, weights)
    return check.result(s.value + above_collapsed(s, sgpr.covariance, X), sgpr)


@public_call(SGPR)
def tighter_bound_and_grad(
    sgpr: RecordT,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    max_rows: int = 20_000,
    wrt: Names | None = None,
) -> tuple[float, RecordT]:
    """Compute a bound between collapsed bound and log marginal likelihood, and its gradient.

    Parameters
    ----------
    sgpr : SGPR
    X : (N, D) array
        All data.
    Y : (N,) or (N, P) array
    jitter : float, optional
        As in ``collapsed_bound``.
    weights : (N,) array, optional
        Non-negative weight of each row, as in ``collapsed_bound``.
    max_rows : int
        Largest N accepted, because time grows with N^2; default 20,000. The error for more rows
        reports the cost.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all.

    Returns
    -------
    value : float
    grad : SGPR
        In natural space; ``None`` for fields that ``wrt`` leaves out.

    Raises
    ------
    ValueError
        N above ``max_rows``, and as ``collapsed_bound``.
    TypeError, NotPositiveDefinite
        As ``collapsed_bound``.

    Notes
    -----
    4 M N^2 + 9 M^2 N flops, and each entry of K_ff once, with its derivatives; memory for some
    (M, N) and (N, 256) arrays, never (N, N). K_ff - Q_ff is formed entry by entry, so with small
    noise the bound loses no more digits than the collapsed bound. It is the bound of SOLVE-GP with
    all data as inducing inputs O and the optimal q(v). Source: Shi et al. 2020, equation 14. There
    is no ``group``, because K_ff pairs the inputs of each rank with those of all others.

    Examples
    --------
    >>> value, grad = fs.bounds.tighter_bound_and_grad(sgpr, X, Y, wrt=("covariance",))
    >>> grad.covariance.lengthscales.shape
    (1,)
    """
    given, X, Y, jitter, weights = _check(
        "tighter_bound_and_grad", sgpr, X, Y, jitter, weights, max_rows
    )
    wrt = check.names(wrt, given)
    s = forward(given, X, Y, jitter, weights)
    value, others = _tighter(
        s,
        given.covariance,
        X,
        tuple(name for name in wrt if name.partition(".")[0] == "covariance"),
    )
    grad = gradient(s, given, X, wrt, others=others)
    return check.result(value, given), grad


def above_collapsed(s, covariance, X):
    """Return x, by which the bound is above the collapsed one of a forward pass."""
    U, _, scale = _start(s)
    return _sum_over_Kff(covariance, X, s.Lam, U, 0.5 * scale, None)[0]


def _start(s):
    """Return ``(U, beta, P beta^2)``, the numbers in the dtype of the data."""
    beta = in_dtype(s.beta, s.y.dtype)
    U = kernels.solve_triangular(s.R, weighted(s.Lam, s.weights))
    return U, beta, len(s.y) * beta * beta


def _tighter(s, covariance, X, need):
    """Return ``(value, InPlace)``.

    need : names of the covariance to differentiate
    """
    (U, real_beta, scale), P = _start(s), len(s.y)
    x, V, covariance_bar = _sum_over_Kff(covariance, X, s.Lam, U, 0.5 * scale, need)
    S = kernels.matmul(V, U, transpose_b=True)
    G = kernels.solve_triangular(s.R, S, transpose=True)
    G = kernels.solve_triangular(
        s.R, np.ascontiguousarray(G.T, like=G), transpose=True, overwrite_b=True
    )
    noise_bar = -0.5 * P * s.beta**3 * (np.trace(S, dtype=float) + np.trace(G, dtype=float))
    Lam_bar = weighted(V, s.weights)
    Lam_bar -= kernels.matmul(real_beta * S, U)
    Lam_bar *= scale
    Lam_bar = kernels.solve_triangular(s.R, Lam_bar, transpose=True, overwrite_b=True)
    return s.value + x, InPlace(Lam_bar, scale * G, noise_bar, covariance_bar)


def _sum_over_Kff(covariance, X, Lam, U, scale, need):
    """Return ``(x, V, cotangents of the covariance)`` for Kff_bar = scale U' U.

    V is None if ``need`` is None.
    """
    x, V, covariance_bar = 0.0, None if need is None else np.zeros_like(U), None
    size = tuning.current.tighter_block_rows
    for start in range(0, len(X), size):
        I, J, beyond = (  # noqa: E741
            slice(start, start + size),
            slice(start, None),
            slice(start + size, None),
        )
        K, Q = covariance.Kff(X[I], X[J]), kernels.matmul(Lam[:, I], Lam[:, J], transpose_a=True)
        Delta = np.subtract(K, Q, out=Q)
        K_bar = kernels.matmul(scale * U[:, I], U[:, J], transpose_a=True)
        K_bar[:, size:] *= 2
        if need is not None:
            V[:, I] += kernels.matmul(U[:, J], Delta, transpose_b=True)
            V[:, beyond] += kernels.matmul(
                U[:, I], np.ascontiguousarray(Delta[:, size:], like=Delta)
            )
        if need:
            covariance_bar = plus(covariance.Kff_vjp(K_bar, K, X[I], X[J], need)[0], covariance_bar)
        Delta *= K_bar
        x += total(Delta)
    return x, V, covariance_bar


def _check(
    name, sgpr, X, Y, jitter, weights, max_rows
) -> tuple[AnyRecord, np.ndarray, np.ndarray, float, np.ndarray | None]:
    most = check.whole("max_rows", max_rows)
    sgpr, X, Y, jitter, weights = check_weighted_sgpr(weights, check_sgpr, sgpr, X, Y, jitter)
    N = len(X)
    if N > most:
        M = sum(sgpr.covariance.num_inducing(sgpr.inducing))
        raise ValueError(
            f"{name}: `X` has {N} rows, more than `max_rows`, {most}; each call would compute {N}^2"
            f" covariances and spend {2 * M * N**2 / 1e12:.2g} Tflop on them. Give fewer rows, or"
            f" `max_rows={N}`"
        )
    return sgpr, X, Y, jitter, weights
