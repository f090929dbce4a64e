r"""Factors of covariances in one column: expectations under x ~ N(mu, s), and covariances.

A term of a covariance is a product of factors f(z, x), each of one column. E f and
Cov(f(z, x), g(z', x)) are closed for three kinds. With e = mu - z, A = 1 + p s and B = 1 + r s:

    Bump, f = exp(-p (x - z)^2 / 2):       E f = A^-1/2 exp(-p e^2 / (2 A))
    Line, f = z x:                          E f = z mu
    Wave, f = sum_k a_k cos(w_k (x - z)):   E f = sum_k a_k exp(-w_k^2 s / 2) cos(w_k e)

Nothing below subtracts numbers of the size of f: all covariances are O(s), and so are their errors.

**Two bumps**, with e' = mu - z', D = 1 + (p + r) s, completing the square in x:

    E f g = D^-1/2 exp(-(p e^2 + r e'^2 - (s / D) (p e + r e')^2) / 2)
    E f g = E f E g exp(x),
    x = (p r s / D) e e' - (p^2 r s^2 / (2 D A)) e^2 - (r^2 p s^2 / (2 D B)) e'^2
        + log(1 + p r s^2 / D) / 2

because p^2 s / D - p^2 s / A = -p^2 r s^2 / (D A), and A B = D + p r s^2. So
Cov(f, g) = E f E g expm1(x). In several columns the exponents add up, and one exponential remains.

**A line and any g**: Cov(x, g) = s E g'(x) (Stein), so

    with a bump    z s E f (-p e / A)
    with a wave    -z s sum_k a_k w_k exp(-w_k^2 s / 2) sin(w_k e')
    with a line    z z' s

**A bump and a wave**: the density times the bump is that of N(mu + y, s - s^2 p / A), where
y = -s p e / A.
With t = w e' and q = w^2 s^2 p / (2 A),

    Cov = E f sum_k a_k exp(-w^2 s / 2) (exp(q) cos(t + w y) - cos t)
        = E f sum_k a_k exp(-w^2 s / 2) (expm1(q) cos(t + w y) - 2 sin(w y / 2) sin(t + w y / 2))

**Two waves**: with E0 = exp(-(w^2 + w'^2) s / 2) and cos a cos b = (cos(a - b) + cos(a + b)) / 2,

    Cov(cos w x, cos w' x) = (less cos((w - w') mu) + more cos((w + w') mu)) / 2,
    less = E0 expm1(w w' s),    more = E0 expm1(-w w' s)

and alike for sines; the phases w z enter by cos w (x - z) = cos w z cos w x + sin w z sin w x.

Sources: Girard, Rasmussen, Quinonero Candela & Murray-Smith, "Gaussian process priors with
uncertain inputs" (2003); Deisenroth & Rasmussen, "PILCO" (2011), for matrices S.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels

LARGEST = 300.0  # exponent up to which expm1 is multiplied: exp overflows at 709


class Bump(NamedTuple):
    """exp(-precision (x - z)^2 / 2)."""

    precision: Any


class Line(NamedTuple):
    """z x."""


class Wave(NamedTuple):
    """sum_k weights_k cos(frequencies_k (x - z))."""

    frequencies: Any
    weights: Any


def expected(f, mu, s, z):
    """Return E f(z, x), (n, M), for x ~ N(mu, s) (n,) and z (M,)."""
    if isinstance(f, Bump):
        e = mu[:, None, None] - z[:, None]
        return expected_bumps(np.array([f.precision]), s[:, None], e)
    if isinstance(f, Line):
        return np.multiply.outer(mu, z)
    return sum(a * _damp(w, s) * np.cos(w * (mu[:, None] - z)) for w, a in zip(*f, strict=True))


def covariance(f, g, mu, s, z, other):
    """Return Cov(f(z, x), g(other, x)), (n, M, M'), for x ~ N(mu, s)."""
    rule = RULES.get((type(f), type(g)))
    if rule is not None:
        return rule(f, g, mu, s, z, other)
    return np.swapaxes(RULES[type(g), type(f)](g, f, mu, s, other, z), 1, 2)


def bumps(p, r, mean, var, Z, other, left=1.0, right=1.0):
    """Return the expectations (n, M), (n, M') of two products of bumps, and their covariance.

    p, r : (D,) precisions. ``mean``, ``var`` (n, D); Z (M, D); ``other`` (M', D). ``left`` and
    ``right``, numbers or (n, M) and (n, M'), multiply the two. The covariance (n, M, M') is None if
    it is zero.
    """
    e, o = mean[:, None] - Z, mean[:, None] - other
    first, second = left * expected_bumps(p, var, e), right * expected_bumps(r, var, o)
    both = p * r * var
    if not both.any():
        return first, second, None
    A, B, D = 1 + p * var, 1 + r * var, 1 + (p + r) * var
    of_e = 0.5 * ((both * p * var / (D * A))[:, None] * e**2).sum(-1)
    of_o = 0.5 * ((both * r * var / (D * B))[:, None] * o**2).sum(-1)
    constant = 0.5 * np.log1p(both * var / D).sum(-1)
    of_e -= constant[:, None]
    return first, second, _rise(first, second, e * (both / D)[:, None], o, of_e, of_o)


def bumps_vjp(p, r, C_bar, mean, var, Z):
    """Pull cotangents (n, M, M) of ``bumps`` at one set Z back to ``mean`` and ``var``.

    With W = C_bar o C, rho and gamma its sums over columns and rows, V = C_bar o (C + E f E g) the
    cotangent of x, rho' and gamma' its sums, q = p / A, and x = kappa e e' - nu e^2 / 2
    - omega e'^2 / 2 + constant,

        mean_bar = sum_i (-q rho + (kappa - nu) rho')_i e_i + (the same of g with gamma, omega)
        var_bar = sum_i (q^2 e_i^2 - q) rho_i / 2 + (the same of g)
                  + kappa' e'V e - nu' sum rho' e^2 / 2 - omega' sum gamma' e^2 / 2
                  + constant' sum V

    where, primes for d / ds, kappa' = p r / D^2, constant' = p r (2 s - s^2 (p + r) / D) / (2 A B),
    nu' = p^2 r (2 s - s^2 ((p + r) / D + p / A)) / (D A), and alike for omega.
    """
    e = mean[:, None] - Z
    first, second, C = bumps(p, r, mean, var, Z, Z)
    if C is None:
        return np.zeros_like(mean), np.zeros_like(var)
    A, B, D = 1 + p * var, 1 + r * var, 1 + (p + r) * var
    W = C_bar * C
    V = W + C_bar * first[:, :, None] * second[:, None]
    rows, columns, total = V.sum(2), V.sum(1), V.sum((1, 2))[:, None]
    kappa, both = p * r * var / D, p * r * var**2 / D
    of_x = _moment(rows, e, 1) * (kappa - both * p / A)
    of_x += _moment(columns, e, 1) * (kappa - both * r / B)
    mean_bar, var_bar = expected_bumps_vjp(p, W.sum(2), var, e)
    more = expected_bumps_vjp(r, W.sum(1), var, e)
    var_bar += p * r / D**2 * (kernels.matmul(V, e) * e).sum(1)
    for u, a, sums in ((p, A, rows), (r, B, columns)):
        slope = p * r * u * (2 * var - var**2 * ((p + r) / D + u / a)) / (D * a)
        var_bar -= 0.5 * slope * _moment(sums, e, 2)
    var_bar += 0.5 * p * r * (2 * var - var**2 * (p + r) / D) / (A * B) * total
    return mean_bar + more[0] + of_x, var_bar + more[1]


def expected_bumps_vjp(p, log_bar, var, e):
    """Pull cotangents (n, M) of log E f back to mean and variance, (n, D) each."""
    q = p / (1 + p * var)
    var_bar = 0.5 * (q**2 * _moment(log_bar, e, 2) - q * log_bar.sum(1)[:, None])
    return -q * _moment(log_bar, e, 1), var_bar


def _moment(weights, e, power):
    """Return sum_i weights_i e_i^power, (n, D)."""
    return (weights[:, :, None] * e**power).sum(1)


def expected_bumps(p, var, e):
    """Return E f (n, M) of a product of bumps, for e = mean - Z (n, M, D)."""
    A = 1 + p * var
    return np.exp(-0.5 * ((p / A)[:, None] * e**2).sum(-1) - 0.5 * np.log(A).sum(-1)[:, None])


def full_bumps(p, r, mean, S, Z, other, left=1.0, right=1.0):
    """``bumps`` for matrices S (n, D, D).

    With P, R diagonal, T_P = (S^-1 + P)^-1 = (I + S P)^-1 S, T = (S^-1 + P + R)^-1, and e, e' of
    the two sets: E f = |I + S P|^-1/2 exp(-e' P (I + S P)^-1 e / 2), and
    x = e P T R e' - e P T R T_P P e / 2 - e' R T P T_R R e' / 2 + log |I + U V| / 2, because
    T - T_P = -T R T_P. U = R (I + T_P R)^-1 and V = S - T_P = T_P P S are positive semidefinite,
    so eigenvalues of U V are real, and log1p of them keeps their digits.
    """
    e, o, unit = mean[:, None] - Z, mean[:, None] - other, np.eye(S.shape[-1])
    inverse_p, inverse_r = _solve(unit + S * p, unit), _solve(unit + S * r, unit)
    first = left * _expected_full(p, inverse_p, e)
    second = right * _expected_full(r, inverse_r, o)
    if not (np.diagonal(S, axis1=1, axis2=2) * p * r).any():
        return first, second, None
    of_p, of_r = _product(inverse_p, S), _product(inverse_r, S)
    T = _solve(unit + S * (p + r), S)
    inner = p[:, None] * T * r  # P T R
    of_e = 0.5 * _quadratic(e, _product(inner, of_p * p))
    of_o = 0.5 * _quadratic(o, _product(np.swapaxes(inner, 1, 2), of_r * r))
    U = r[:, None] * _solve(unit + of_p * r, unit)
    V = _product(of_p * p, S)
    constant = 0.5 * np.log1p(np.linalg.eigvals(_product(U, V)).real).sum(-1)
    of_e -= constant[:, None]
    return first, second, _rise(first, second, _product(e, inner), o, of_e, of_o)


def tilted(p, S, e):
    """Return (I + S P)^-1 S P e, (n, D), for one vector e (n, D) a row."""
    unit = np.eye(S.shape[-1])
    return _product(_solve(unit + S * p, S), (p * e)[:, :, None])[:, :, 0]


def _expected_full(p, inverse, e):
    """``inverse`` = (I + S P)^-1 (n, D, D)."""
    logs = np.linalg.slogdet(inverse)[1]
    return np.exp(-0.5 * _quadratic(e, p[:, None] * inverse) + 0.5 * logs[:, None])


def _solve(A, B):
    return np.ascontiguousarray(np.linalg.solve(A, np.broadcast_to(B, A.shape)))


def _product(A, B):
    """Return A_n B_n for (n, m, k) and (n, k, l) with few k and l, by passes over all n."""
    total = A[:, :, :1] * B[:, :1]
    for k in range(1, A.shape[2]):
        total += A[:, :, k, None] * B[:, k, None]
    return total


def _quadratic(e, A):
    """Return e_i' A e_i, (n, M), for e (n, M, D) and A (n, D, D)."""
    return (_product(e, A) * e).sum(-1)


def _rise(first, second, e, o, minus_first, minus_second):
    """Return a_i b_j expm1(e_i . o_j - minus_i - minus_j), (n, M, M')."""
    e = np.concatenate([e, -minus_first[:, :, None], np.ones((*e.shape[:2], 1))], axis=2)
    o = np.concatenate([o, np.ones((*o.shape[:2], 1)), -minus_second[:, :, None]], axis=2)
    x = kernels.matmul(e, o, transpose_b=True)
    if x.max(initial=0.0) > LARGEST:
        return _far_rise(first, second, x)
    x = np.expm1(x, out=x)
    x *= first[:, :, None]
    x *= second[:, None]
    return x


def _far_rise(first, second, x):
    """``_rise`` of exponents x whose exp may overflow, where ``first`` and ``second`` are tiny."""
    outer, far = first[:, :, None] * second[:, None], x > LARGEST
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(first))[:, :, None] + np.log(np.abs(second))[:, None]
    moved = np.sign(outer) * np.exp(np.where(far, x + logs, 0.0))
    return np.where(far, moved - outer, outer * np.expm1(np.minimum(x, LARGEST)))


def _damp(w, s):
    return np.exp(-0.5 * w**2 * s)[:, None]


def _two_bumps(f, g, mu, s, z, other):
    p, r = np.array([f.precision]), np.array([g.precision])
    return bumps(p, r, mu[:, None], s[:, None], z[:, None], other[:, None])[2]


def _bump_and_line(f, g, mu, s, z, other):
    shift = -(s * f.precision / (1 + f.precision * s))[:, None] * (mu[:, None] - z)
    return (expected(f, mu, s, z) * shift)[:, :, None] * other


def _bump_and_wave(f, g, mu, s, z, other):
    p = f.precision
    shift = -(s * p / (1 + p * s))[:, None] * (mu[:, None] - z)
    more, turns = s**2 * p / (2 * (1 + p * s)), mu[:, None] - other
    total = 0.0
    for w, a in zip(*g, strict=True):
        half, t = 0.5 * w * shift[:, :, None], w * turns[:, None]
        base, q = -0.5 * w**2 * s, w**2 * more
        up = np.where(
            q > 1, np.exp(base + q) - np.exp(base), np.exp(base) * np.expm1(np.minimum(q, 1))
        )
        moved = up[:, None, None] * np.cos(t + 2 * half)
        total += a * (moved - 2 * _damp(w, s)[:, :, None] * np.sin(half) * np.sin(t + half))
    return expected(f, mu, s, z)[:, :, None] * total


def _two_lines(f, g, mu, s, z, other):
    return s[:, None, None] * np.multiply.outer(z, other)


def _line_and_wave(f, g, mu, s, z, other):
    turns = mu[:, None] - other
    slope = sum(-a * w * _damp(w, s) * np.sin(w * turns) for w, a in zip(*g, strict=True))
    return (s[:, None] * slope)[:, None] * z[:, None]


def _two_waves(f, g, mu, s, z, other):
    w, v = f.frequencies[:, None], g.frequencies
    base = -0.5 * s[:, None, None] * (w**2 + v**2)
    x = s[:, None, None] * (w * v)

    def rise(x):  # exp(base) expm1(x)
        up = np.exp(base) * np.expm1(np.minimum(x, 1.0))
        return np.where(x > 1, np.exp(base + np.maximum(x, 1.0)) - np.exp(base), up)

    less, more = 0.5 * rise(x), 0.5 * rise(-x)
    apart, together = mu[:, None, None] * (w - v), mu[:, None, None] * (w + v)
    cos_apart, cos_together = less * np.cos(apart), more * np.cos(together)
    sin_apart, sin_together = less * np.sin(apart), more * np.sin(together)
    # features cos(w x), then sin(w x)
    top = np.concatenate([cos_apart + cos_together, sin_together - sin_apart], axis=2)
    low = np.concatenate([sin_apart + sin_together, cos_apart - cos_together], axis=2)
    inner = np.concatenate([top, low], axis=1)
    left, right = _phases(f, z), _phases(g, other)
    return kernels.matmul(kernels.matmul(left, inner), right, transpose_b=True)


def _phases(f, z):
    """Return the weights (M, 2 K) of cos(w_k x) and of sin(w_k x) in f(z, x)."""
    turns = np.multiply.outer(z, f.frequencies)
    return np.concatenate([f.weights * np.cos(turns), f.weights * np.sin(turns)], axis=1)


RULES = {
    (Bump, Bump): _two_bumps,
    (Bump, Line): _bump_and_line,
    (Bump, Wave): _bump_and_wave,
    (Line, Line): _two_lines,
    (Line, Wave): _line_and_wave,
    (Wave, Wave): _two_waves,
}
