"""A tighter bound than the collapsed one, for those who can afford all of K_ff: Shi et al. 2020, equations 14 and 15.

What u leaves over of f has the covariance K_ff - Q_ff. The collapsed bound pays tr(K_ff - Q_ff) / (2 noise) for it, this one
tr((Q_ff + noise I)^-1 (K_ff - Q_ff)) / 2, which is never more. Names as in ``collapsed``, and E = Lam Lam', T = Lam K_ff,
H = T Lam', D = H - E^2 = Lam (K_ff - Q_ff) Lam'. With (Q_ff + noise I)^-1 = beta (I - beta Lam' B^-1 Lam),

    bound = the collapsed one + x,    x = beta^2 / 2 tr(B^-1 D)

Reverse, per output:

    Kff_bar = beta^2 / 2 U' U,    U = R^-1 Lam                              x = beta^2 / 2 tr(Lam' B^-1 Lam K_ff) - ...
    Lam_bar = beta^2 B^-1 T                                                 by H = Lam K_ff Lam'
            - beta^2 (B^-1 E + E B^-1) Lam                                  by tr(B^-1 E^2), d E = d Lam Lam' + Lam d Lam'
            - beta^3 B^-1 D B^-1 Lam                                        by B = I + beta E
    C       = Lam_bar Lam' = beta^2 (B^-1 H - (B^-1 E + E B^-1) E) - beta^3 B^-1 D B^-1 E      (whitening lemma)
    noise_bar = -beta^2 dx/dbeta,    dx/dbeta = beta tr(B^-1 D) - beta^2 / 2 tr(B^-1 D B^-1 E)

Weights w are rows repeated: y of them all is R y, with R' R = W = diag(w), and

    R' (R Q_ff R' + noise I)^-1 R = beta (W - beta Gam' B^-1 Gam),    Gam = Lam W,    B = I + beta Lam W Lam'.

So E = Lam W Lam', T = Gam K_ff, H = T Gam' and U = R^-1 Gam in the place of the above, and Lam_bar has a factor W on its right,
which d E = d Lam Gam' + Gam d Lam' and d Gam = d Lam W both give. x and its other derivatives keep their form.

Kff_bar is known before K_ff is, so K_ff goes by once, in blocks that are contracted at once: rows R, and columns from the
beginning of R on, of which those beyond R count twice.
"""

import numpy as np

from .. import check, kernels, models
from ..kernels import verdicts
from ..likelihoods.base import in_dtype, weighted
from ..records import plus
from ..typed import ArrayLike, Names, Record, RecordT
from .collapsed import SGPR, More, checked, checked_with, forward, gradient

RUN = 1024  # rows of K_ff at a time


@verdicts.retried
@models.public(SGPR)
def tighter_bound(
    sgpr: Record,
    X: ArrayLike,
    Y: ArrayLike,
    *,
    jitter: float | None = None,
    weights: ArrayLike | None = None,
    max_rows: int = 20_000,
) -> float:
    """The tighter bound, in nats. 2 (N + 2 M) M N flops, and K_ff once.

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
    >>> fs.tighter_bound(sgpr, X, Y) >= fs.collapsed_bound(sgpr, X, Y)
    True
    """
    sgpr, X, Y, jitter, weights = _checked("tighter_bound", sgpr, X, Y, jitter, weights, max_rows)
    s = forward(sgpr, X, Y, jitter, weights)
    value, _ = _tighter(s, sgpr, X, ())
    return check.result(value, sgpr)


@verdicts.retried
@models.public(SGPR)
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
    """A bound between the collapsed one and the log marginal likelihood, and its gradient.

    Parameters
    ----------
    sgpr : SGPR
    X : (N, D) array
        All data.
    Y : (N,) or (N, P) array
    jitter : float, optional
        As in ``collapsed_bound``.
    weights : (N,) array, optional
        How often each row counts, as in ``collapsed_bound``.
    max_rows : int
        More rows are refused, with what they would cost: time grows with N^2.
    wrt : sequence of str, optional
        Dotted names of the fields to differentiate; default all.

    Returns
    -------
    value : float
    grad : SGPR
        In natural space; ``None`` for fields not asked for.

    Raises
    ------
    ValueError
        N above ``max_rows``, and as ``collapsed_bound``.
    TypeError, NotPositiveDefinite
        As ``collapsed_bound``.

    Notes
    -----
    3 M N^2 + 9 M^2 N flops, and each covariance of two data once, with its derivatives; some (M, N) and (N, 1024) arrays, never
    (N, N). The bound of SOLVE-GP whose q(v) is optimal for all data as inducing inputs O. Source: Shi et al. 2020, equation 14.
    No ``group``: each rank would need the inputs of all others, for K_ff is of every two data.

    Examples
    --------
    >>> value, grad = fs.tighter_bound_and_grad(sgpr, X, Y, wrt=("covariance",))
    >>> grad.covariance.lengthscales.shape
    (1,)
    """
    sgpr, X, Y, jitter, weights = _checked("tighter_bound_and_grad", sgpr, X, Y, jitter, weights, max_rows)
    wrt = check.names(wrt, sgpr)
    s = forward(sgpr, X, Y, jitter, weights)
    value, more = _tighter(s, sgpr, X, tuple(name for name in wrt if name.partition(".")[0] == "covariance"))
    grad = gradient(s, sgpr, X, wrt, more)
    return check.result(value, sgpr), grad


def _tighter(s, sgpr, X, need):
    """The value, and what ``gradient`` of the collapsed bound takes beside; ``need`` holds names of the covariance."""
    beta, real_beta, P, M = s.beta, in_dtype(s.beta, s.y.dtype), len(s.y), len(s.L)
    E = s.B / real_beta
    E.reshape(-1)[:: M + 1] -= 1 / real_beta
    Gam = weighted(s.Lam, s.weights)
    U = kernels.solve_triangular(s.R, Gam) if need else None
    T, covariance_bar = _through_Kff(sgpr.covariance, X, Gam, U, 0.5 * P * real_beta * real_beta, need)
    H = kernels.matmul(T, Gam, transpose_b=True)
    D = H - kernels.matmul(E, E)
    B_inverse = kernels.cholesky_inverse(s.R)
    BD, BE = kernels.matmul(B_inverse, D), kernels.matmul(B_inverse, E)
    trace, other = np.trace(BD, dtype=float), np.sum(BD * BE.T, dtype=float)
    c = P * real_beta * real_beta
    inner = BE + BE.T + real_beta * kernels.matmul(BD, B_inverse)
    return s.value + 0.5 * P * beta * beta * trace, More(
        of_Lam=-c * inner,
        of_T=c * B_inverse,
        T=T,
        C=c * (kernels.matmul(B_inverse, H) - kernels.matmul(inner, E)),
        noise=-P * beta**3 * (trace - 0.5 * beta * other),
        covariance=covariance_bar,
    )


def _through_Kff(covariance, X, Gam, U, scale, need):
    """``(Gam K_ff, cotangents of the covariance for Kff_bar = scale U' U)``."""
    T, covariance_bar = np.zeros_like(Gam), None
    for start in range(0, len(X), RUN):
        R, C = slice(start, start + RUN), slice(start, None)
        K, beyond = covariance.Kff(X[R], X[C]), slice(start + RUN, None)
        T[:, R] += kernels.matmul(Gam[:, C], K, transpose_b=True)
        T[:, beyond] += kernels.matmul(Gam[:, R], np.ascontiguousarray(K[:, RUN:], like=K))
        if need:
            K_bar = kernels.matmul(scale * U[:, R], U[:, C], transpose_a=True)
            K_bar[:, RUN:] *= 2
            covariance_bar = plus(covariance.Kff_vjp(K_bar, K, X[R], X[C], need)[0], covariance_bar)
    return T, covariance_bar


def _checked(name, sgpr, X, Y, jitter, weights, max_rows):
    most = check.whole("max_rows", max_rows)
    sgpr, X, Y, jitter, weights = checked_with(weights, checked, sgpr, X, Y, jitter)
    N = len(X)
    if N > most:
        M = sum(sgpr.covariance.num_inducing(sgpr.inducing))
        raise ValueError(
            f"{name}: `X` has {N} rows, more than `max_rows`, {most}: all {N}^2 covariances of two data would be computed, and "
            f"some {2 * M * N**2 / 1e12:.2g} Tflop spent on them at each call. Give fewer rows, or `max_rows={N}` to do it"
        )
    return sgpr, X, Y, jitter, weights
