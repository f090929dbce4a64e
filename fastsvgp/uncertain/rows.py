r"""Products of bumps at x ~ N(mu, S), in the coordinates in which the kernels take them.

With precisions p, independent errors s and t = p s (see ``factors`` for the exponents),

    E f_i            = exp(-sum_d a_d e_id^2 / 2 + logs),         a = p / (1 + t)
    Cov(f_i, f_j)    = E f_i E f_j expm1(x_ij)
    x_ij             = sum_d kappa_d e_id e_jd - nu_d (e_id^2 + e_jd^2) / 2 + shift
    kappa = p t / (1 + 2 t),   nu = p t^2 / ((1 + t) (1 + 2 t))
    logs = -sum log1p(t) / 2,  shift = sum log1p(t^2 / (1 + 2 t)) / 2

**A matrix S**: with P^1/2 S P^1/2 = V diag(t) V', all of the above holds for V'P^1/2 e in place of
e, with p = 1.

**Reverse**, with bars of a, kappa, nu, logs and shift, and g = t^2 / ((1 + t) (1 + 2 t)), so that
g' = (2 t + 3 t^2) / ((1 + t)^2 (1 + 2 t)^2): each is p^k times a function of t, so

    t_bar = -p a_bar / (1 + t)^2 + p kappa_bar / (1 + 2 t)^2 + p nu_bar g'
            - logs_bar / (2 (1 + t)) + shift_bar t / ((1 + t) (1 + 2 t))
    p_bar = a_bar / (1 + t) + kappa_bar t / (1 + 2 t) + nu_bar g + s t_bar,    s_bar = p t_bar.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels


class RowBumps(NamedTuple):
    """What the kernels take of N rows and a product of bumps, apart from Z.

    Attributes
    ----------
    mean, precision, kappa, nu : (N, D)
    logs, shift : (N,)
    turn : (N, D, D), or None
    """

    mean: Any
    precision: Any
    logs: Any
    kappa: Any
    nu: Any
    shift: Any
    turn: Any

    def expected(self, Z):
        """Return E f, (N, M)."""
        return kernels.normal_bumps(self.mean, Z, self.precision, self.logs, self.turn)

    def forms(self, Z, values, G):
        """Return sum_ij G_pij Cov_ij, (N, P), where ``values`` are E f times any factors."""
        return kernels.normal_rises(self.mean, Z, values, *self[3:6], G, self.turn)

    def sums(self, Z, values, weights):
        """Return sum_n weights_np Cov_n, (P, M, M)."""
        return kernels.normal_rise_sums(self.mean, Z, values, *self[3:6], weights)


class RowBars(NamedTuple):
    """Cotangents of a function of rows: mean, var (N, D), Z (M, D), p (D,), amplitude: of its log.

    forms (N, P) and sums (P, M, M), or None, come from the same sweep.
    """

    mean: Any
    var: Any
    Z: Any
    p: Any
    amplitude: Any
    forms: Any
    sums: Any


def row_bumps(p, mean, var):
    """Return the ``RowBumps`` of precisions p (D,) at rows N(mean, var), (N, D) or (N, D, D)."""
    turn, t = None, None
    if var.ndim == 3:
        root = np.sqrt(p)
        t, turn = np.linalg.eigh(root[:, None] * var * root)
        t, turn, p = np.maximum(t, 0.0), root[:, None] * turn, np.ones(len(p))
    else:
        t = p * var
    twice = 1 + 2 * t
    return RowBumps(
        mean,
        p / (1 + t),
        -0.5 * np.log1p(t).sum(1),
        p * t / twice,
        p * t**2 / ((1 + t) * twice),
        0.5 * np.log1p(t**2 / twice).sum(1),
        turn,
    )


def row_bumps_vjp(p, mean, var, Z, values, values_bar, G, weights, sums=False):
    """Pull back sum values_bar o values + sum_np weights_np G_p : Cov_n, as ``RowBars``.

    ``values`` (N, M) are c E f, for a number c; var (N, D).
    """
    rows, t = row_bumps(p, mean, var), p * var
    arguments = mean, Z, values, rows.kappa, rows.nu, rows.shift, G, weights
    forms, total, log_bar, mean_bar, kappa_bar, nu_bar, shift_bar, Z_bar = kernels.normal_rises_vjp(
        *arguments, sums=sums
    )
    log_bar += values_bar * values
    of_mean, of_Z, a_bar = kernels.normal_bumps_vjp(log_bar, mean, Z, rows.precision)
    logs_bar = log_bar.sum(1)
    one, two = 1 + t, 1 + 2 * t
    slope = (2 * t + 3 * t**2) / (one * two) ** 2
    t_bar = p * (kappa_bar / two**2 + nu_bar * slope - a_bar / one**2)
    t_bar += shift_bar[:, None] * t / (one * two) - 0.5 * logs_bar[:, None] / one
    p_bar = a_bar / one + kappa_bar * t / two + nu_bar * t**2 / (one * two) + var * t_bar
    return RowBars(
        mean_bar + of_mean, p * t_bar, Z_bar + of_Z, p_bar.sum(0), logs_bar.sum(), forms, total
    )
