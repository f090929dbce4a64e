"""A covariance as a sum of terms, each a product of factors of single columns.

k(z, x) = sum_t c_t B_t(z, x) prod_d f_td(z_d, x_d) K_t(z, x): bumps in all columns together, lines
and waves of single uncertain columns, and any covariances K_t of columns that are known exactly.
Columns are independent under x ~ N(mu, diag s), so expectations of a term are products. For the
covariance of two terms, with O = E f E f' and C = Cov(f, f') of each group of columns,

    E prod f f' - prod O:    C <- C (O_g + C_g) + O C_g,    O <- O O_g,    group by group.

With a matrix S, a term has only bumps and K_t.
"""

from functools import reduce
from operator import mul
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..covariances import RBF, Constant, Covariance, Linear, On, Periodic, Product, Sum
from .factors import (
    Bump,
    Line,
    Wave,
    bumps,
    covariance,
    expected,
    full_bumps,
    tilted,
)
from .rows import row_bumps

SERIES = 1e-17  # weight of a wave at which the series of a periodic covariance ends
MOST_WAVES = 1 << 10


class Term(NamedTuple):
    """A product of factors.

    Attributes
    ----------
    amplitude : float
    precision : (D,) array
        Of the bumps; 0 in columns without one.
    factors : dict
        By column: a ``Line`` or ``Wave``.
    known : tuple
        Pairs of a covariance and its columns; no column is uncertain.
    """

    amplitude: float
    precision: Any
    factors: dict
    known: tuple

    @property
    def width(self):
        """The number of features of the largest wave."""
        waves = [f for f in self.factors.values() if isinstance(f, Wave)]
        return max((2 * len(f.weights) for f in waves), default=0)

    def rows(self, mean, var):
        """Return the ``RowBumps`` of the bumps."""
        return row_bumps(self.precision, mean, var)

    def expected(self, mean, var, Z):
        """Return E k(Z, x), (n, M), for x ~ N(mean, var)."""
        K = self.rows(mean, var).expected(Z)
        K *= self.amplitude
        if self.known:
            K *= self._known(mean, Z)
        for c, f in self.factors.items():
            K *= expected(f, mean[:, c], var[:, c], Z[:, c])
        return K

    def variance(self, mean, var):
        """Return E k(x, x), (n,)."""
        parts = [part.kff(_take(mean, columns)) for part, columns in self.known]
        for c, f in self.factors.items():
            if isinstance(f, Line):
                parts.append(mean[:, c] ** 2 + var[:, c])
            else:
                parts.append(np.full(len(mean), f.weights.sum()))
        return reduce(mul, parts, np.full(len(mean), self.amplitude))

    def covariance(self, other, mean, var, Z, others):
        """Return Cov(t(Z, x), t'(others, x)), (n, M, M'), with another term; None if it is 0."""
        left = self.amplitude * self._known(mean, Z)
        right = other.amplitude * other._known(mean, others)
        if var.ndim == 3:
            at = mean, var, Z, others, left, right
            return full_bumps(self.precision, other.precision, *at)[2]
        single = sorted({*self.factors, *other.factors})
        rest = [c for c in range(len(self.precision)) if c not in single]
        at = mean[:, rest], var[:, rest], Z[:, rest], others[:, rest], left, right
        a, b, C = bumps(self.precision[rest], other.precision[rest], *at)
        if not single:
            return C
        outer = a[:, :, None] * b[:, None]
        for c in single:
            at = mean[:, c], var[:, c]
            f, g = self.factor(c), other.factor(c)
            own = 1.0
            if f is not None:
                own = expected(f, *at, Z[:, c])[:, :, None]
            if g is not None:
                own = own * expected(g, *at, others[:, c])[:, None]
            shared = f is not None and g is not None and at[1].any()
            new = covariance(f, g, *at, Z[:, c], others[:, c]) if shared else None
            C = _combine(C, outer, new, own)
            outer = outer * own
        return C

    def with_inputs(self, a, mean, S, Z):
        """Return Cov(x, k(Z, x)'a), (n, D), for matrices S (n, D, D).

        That of one bump is -E f (I + S P)^-1 S P e.
        """
        weights = self.expected(mean, S, Z) * a
        e = weights.sum(1)[:, None] * mean - kernels.matmul(weights, Z)
        return -tilted(self.precision, S, e)

    def factor(self, c):
        """Return the factor of a column, or None."""
        if c in self.factors:
            return self.factors[c]
        return Bump(self.precision[c]) if self.precision[c] else None

    def _known(self, mean, Z):
        K = np.ones((len(mean), len(Z)))
        for part, columns in self.known:
            K *= part.Kuf(_take(Z, columns), _take(mean, columns)).T
        return K


def _combine(C, outer, new, own):
    """Return the covariance of products of two independent groups."""
    if new is None:
        return None if C is None else C * own
    return outer * new if C is None else C * (own + new) + outer * new


def _take(X, columns):
    return np.ascontiguousarray(X[:, list(columns)])


def terms_of(k, uncertain, full=False):
    """Return the terms of a covariance k whose columns in ``uncertain`` (D,) are not known.

    ``full``: their errors are correlated, so only bumps have expectations.
    """
    return _Expansion(np.asarray(uncertain), full).terms(k, tuple(range(len(uncertain))))


class _Expansion:
    def __init__(self, uncertain, full):
        self.uncertain, self.full = uncertain, full

    def terms(self, k, columns):
        """Return the terms of a covariance of these columns of the inputs."""
        open_columns = [c for c in columns if self.uncertain[c]]
        if type(k) is Constant:
            return [self._term(k.variance)]
        if not open_columns:
            return [self._term(1.0, known=((k, columns),))]
        rule = getattr(self, RULES.get(type(k), ""), None)
        if rule is None:
            refuse(k)
        return rule(k, columns)

    def _term(self, amplitude, precision=(), factors=None, known=()):
        p = np.zeros(len(self.uncertain))
        for c, value in precision:
            p[c] = value
        return Term(float(amplitude), p, factors or {}, known)

    def on(self, k, columns):
        return self.terms(k.part, tuple(columns[c] for c in k.columns))

    def sum(self, k, columns):
        return [term for part in k.parts for term in self.terms(part, columns)]

    def product(self, k, columns):
        found = [self._term(1.0)]
        for part in k.parts:
            more = self.terms(part, columns)
            found = [self._times(a, b) for a in found for b in more]
        return found

    def _times(self, a, b):
        """Return the product of two terms, which share uncertain columns only as bumps."""
        bumps_a, bumps_b = a.precision > 0, b.precision > 0
        for c in np.flatnonzero(self.uncertain):
            if c in a.factors and (c in b.factors or bumps_b[c]) or c in b.factors and bumps_a[c]:
                raise TypeError(
                    f"Product: two factors share column {c}, which is uncertain: give each factor"
                    " columns of its own by .on(...), or the inputs `nodes=5`"
                )
        return Term(
            a.amplitude * b.amplitude,
            a.precision + b.precision,
            a.factors | b.factors,
            a.known + b.known,
        )

    def rbf(self, k, columns):
        lengthscales = np.broadcast_to(k.lengthscales, len(columns))
        return [self._term(k.variance, zip(columns, lengthscales**-2.0, strict=True))]

    def linear(self, k, columns):
        self._refuse_full(k)
        weights = np.broadcast_to(k.variance, len(columns))
        found = []
        for c, w in zip(columns, weights, strict=True):
            if self.uncertain[c]:
                found.append(self._term(w, factors={c: Line()}))
            else:
                found.append(self._term(1.0, known=((Linear(float(w)), (c,)),)))
        return found

    def periodic(self, k, columns):
        self._refuse_full(k)
        if type(k.part) is not RBF:
            refuse(k)
        lengthscales = np.broadcast_to(k.part.lengthscales, len(columns))
        periods = np.broadcast_to(k.period, len(columns))
        factors, known = {}, []
        for c, lengthscale, period in zip(columns, lengthscales, periods, strict=True):
            if self.uncertain[c]:
                factors[c] = _series(float(lengthscale), float(period))
            else:
                known.append((Periodic(RBF(1.0, float(lengthscale)), float(period)), (c,)))
        return [self._term(k.part.variance, factors=factors, known=tuple(known))]

    def _refuse_full(self, k):
        if self.full:
            raise TypeError(
                f"{type(k).__name__} has expectations under independent errors only: give `var`"
                " as (N, D), or use RBF for these columns"
            )


RULES = {
    On: "on",
    Sum: "sum",
    Product: "product",
    RBF: "rbf",
    Linear: "linear",
    Periodic: "periodic",
}


def _series(lengthscale, period):
    """Return the cosine series of exp(-2 sin^2(pi d / period) / l^2).

    exp(b cos t) = sum_k (2 - [k = 0]) I_k(b) cos(k t) with b = 1 / l^2, and -2 sin^2(t / 2) =
    cos t - 1, so weights (2 - [k = 0]) exp(-b) I_k(b).
    """
    from scipy.special import ive

    k = np.arange(MOST_WAVES)
    weights = np.where(k > 0, 2.0, 1.0) * ive(k, lengthscale**-2.0)
    if weights[-1] > SERIES:
        raise ValueError(
            f"Periodic: a lengthscale of {lengthscale:.2g} needs more than {MOST_WAVES} waves at"
            " uncertain inputs: use a product of RBFs, or `nodes=20`"
        )
    keep = k <= np.flatnonzero(weights > SERIES)[-1]
    return Wave(2 * np.pi * k[keep] / period, weights[keep])


def refuse(k: Covariance):
    """Refuse a covariance without closed forms."""
    raise TypeError(
        f"{type(k).__name__} has no closed-form expectation under normal inputs: use RBF, Linear,"
        " Periodic, sums and products over columns, or `nodes=5`"
    )
