"""Moments of products of Gaussian bumps over normal inputs, row by row of the inputs.

Rows n of ``mean`` (N, D), inducing inputs Z (M, D), e_i = mean_n - Z_i, turned to ``turn_n' e_i``
where a turn is given. A row has

    bumps       v_i = exp(logs - sum_d precision_d e_id^2 / 2)
    rises       R_ij = v_i v_j expm1(x_ij),
                x_ij = sum_d kappa_d e_id e_jd - nu_d (e_id^2 + e_jd^2) / 2 + shift

with ``0 <= nu <= kappa``: what the covariance of v_i and v_j over the inputs is. Where an exponent
could exceed 300, exp(x_ij + log v_i v_j) - v_i v_j takes its place. All arrays are float64.
"""

from ..runtime.dispatch import operation


@operation("mean", "Z", "precision", "logs", "turn")
def normal_bumps(mean, Z, precision, logs, turn=None):
    """Return the bumps (N, M).

    Parameters
    ----------
    mean, precision : (N, D)
    Z : (M, D)
    logs : (N,)
    turn : (N, D, D), optional

    Notes
    -----
    3 D flops and an exponential for each; D^2 flops more with a turn.
    """


@operation("log_bar", "mean", "Z", "precision")
def normal_bumps_vjp(log_bar, mean, Z, precision):
    """Return the cotangents (mean_bar, Z_bar, precision_bar) of the logarithms of bumps.

    ``log_bar`` (N, M); that of ``logs`` is its sum over a row. 5 D flops for each.
    """


@operation("mean", "Z", "values", "kappa", "nu", "shift", "G", "turn")
def normal_rises(mean, Z, values, kappa, nu, shift, G, turn=None):
    """Return the forms sum_ij G_pij R_nij, (N, P).

    Parameters
    ----------
    mean, kappa, nu : (N, D)
    Z : (M, D)
    values : v, (N, M)
        Of either sign.
    shift : (N,)
    G : (P, M, M)
        Symmetric; only the lower triangles are read.
    turn : (N, D, D), optional

    Notes
    -----
    M (M + 1) / 2 times one exponential and 2 (D + P) flops a row.
    """


@operation("mean", "Z", "values", "kappa", "nu", "shift", "weights")
def normal_rise_sums(mean, Z, values, kappa, nu, shift, weights):
    """Return sum_n weights_np R_n, (P, M, M), symmetric, for weights (N, P)."""


@operation("mean", "Z", "values", "kappa", "nu", "shift", "G", "weights")
def normal_rises_vjp(mean, Z, values, kappa, nu, shift, G, weights, sums=False):
    """Contract cotangents of the forms ``normal_rises``, (N, P), in one sweep of exponentials.

    Arguments as there; ``weights`` (N, P) are the cotangents, which can be known before the forms:
    then this sweep is the only one.

    Parameters
    ----------
    sums : bool
        Whether to return the sums of ``normal_rise_sums`` for these weights.

    Returns
    -------
    forms : (N, P)
    sums : (P, M, M), or None
    log_bar : (N, M)
        Of the logarithm of the size of v: v_bar times v.
    mean_bar, kappa_bar, nu_bar : (N, D)
    shift_bar : (N,)
    Z_bar : (M, D)

    Notes
    -----
    With C = sum_p weights_p G_p, V = C o R and W = C o (R + v v'), rho = W 1 and F = W E:

        log_bar = 2 V 1,   shift_bar = sum rho,   nu_bar = -sum_i rho_i e_i^2
        kappa_bar = sum_i e_i F_i,    e_bar = 2 (kappa F - nu rho e)

    M (M + 1) / 2 times one exponential and 6 D + 4 P + 10 flops a row.
    """
