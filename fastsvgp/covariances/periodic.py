"""Periodic functions: a stationary covariance of points on circles (MacKay 1998).

With angles t_d = 2 pi x_d / period_d, the squared distances of the points (cos t_d, sin t_d) are

    (2 sin(pi (x_d - x'_d) / period_d))^2,

so the fused kernel of the stationary covariances computes them, with 2 D columns. Back from a
point's cotangent u_bar: t_bar = cos t u_bar_sin - sin t u_bar_cos, then x_bar = 2 pi t_bar / period
and period_bar = -sum x_bar x / period.
"""

from typing import Any

import numpy as np

from ..records import leaf, record, replace, tree_map
from ..records.typed import Number
from .base import ALL, Covariance, check_part, need_of, needs_fields, nested, wanted, zeros_like
from .features import Mapped
from .stationary import OfDistance


@record
class Periodic(Covariance):
    """A stationary covariance of r^2 = sum_d (2 sin(pi (x_d - x'_d) / period_d) / lengthscale_d)^2.

    Functions that repeat after ``period_d`` in each column d.

    Parameters
    ----------
    part : Covariance
        ``RBF``, ``Matern12``, ``Matern32``, ``Matern52`` or ``RationalQuadratic``, which has the
        variance and the lengthscales. Lengthscales are chords of the unit circle.
    period : () or (D,)
        Positive: one number for all columns, or one per column.

    Notes
    -----
    For one column and an RBF it equals scikit-learn's ``ExpSineSquared``. Subtract a large offset
    of the inputs first: a number of 1e9 (a time in seconds) resolves 1e-7 of a unit, and 1e-7 of a
    period of 1.

    Examples
    --------
    >>> yearly = fs.Periodic(fs.RBF(variance=1.0, lengthscales=2.0), period=1.0)
    >>> yearly.matrix(np.array([[0.0], [0.5], [3.0]])).round(4)
    array([[1.    , 0.6065, 1.    ],
           [0.6065, 1.    , 0.6065],
           [1.    , 0.6065, 1.    ]])
    """

    part: Any
    period: Number = leaf("positive", default=1.0)
    per_feature = ("period",)

    def __post_init__(self):
        nested(self, (self.part,))

    def _circle(self, X):
        """Return the points (N, 2 D) on the circles; None for None."""
        if X is None:
            return None
        turns = X / self.period
        turns = (turns - np.rint(turns)) * (2 * np.pi)
        return np.concatenate([np.cos(turns), np.sin(turns)], axis=1)

    def _wide(self):
        """Return ``part`` for the points, with each lengthscale twice."""
        lengthscales = self.part.lengthscales
        if not np.ndim(lengthscales):
            return self.part
        return replace(self.part, lengthscales=np.concatenate([lengthscales, lengthscales]))

    def _narrow(self, part_bar):
        """Return the cotangent of ``part`` from that of ``_wide``."""
        bar = part_bar.lengthscales
        if bar is None or not np.ndim(bar):
            return part_bar
        D = len(bar) // 2
        return replace(part_bar, lengthscales=bar[:D] + bar[D:])

    def _back(self, U, U_bar, X):
        """Return the cotangent of X from that of its points."""
        D = X.shape[1]
        turns_bar = U[:, :D] * U_bar[:, D:] - U[:, D:] * U_bar[:, :D]
        return turns_bar * (2 * np.pi / self.period)

    def _period_bar(self, sides, X1):
        """Return the cotangent of the period from pairs (X, X_bar).

        The sum of all X_bar is 0 in each column, so the origin is free: near the inputs, sums
        cancel less.
        """
        origin, axis = X1[:1].sum(0), 0 if np.ndim(self.period) else None
        total = sum(
            (X_bar * (X - origin) / self.period).sum(axis, dtype=np.float64) for X, X_bar in sides
        )
        return -total.astype(X1.dtype)

    def features(self, num, seeds, columns):
        def forward(X):
            U = self._circle(X)
            return U, (U, X)

        part = self._wide().features(num, seeds, 2 * columns)
        return Mapped(
            part, forward, lambda U_bar, saved: self._back(saved[0], U_bar, saved[1]), 4 * columns
        )

    def matrix(self, X1, X2=None):
        return self._wide().matrix(self._circle(X1), self._circle(X2))

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        period = wanted(need, "period")
        fields = [name for name in need_of(need, "part") if name not in ("X1", "X2")]
        inputs = {"X1": X1} if X2 is None else {"X1": X1, "X2": X2}
        inputs = {name: X for name, X in inputs.items() if period or name in need}
        if not fields and not inputs:
            return None, None, None
        points = self._circle(X1), self._circle(X2)
        part_bar, *bars = self._wide().matrix_vjp(K_bar, K, *points, (*fields, *inputs))
        bars = dict(zip(("X1", "X2"), zip(points, bars, strict=True), strict=True))
        bars = {name: self._back(*bars[name], X) for name, X in inputs.items()}
        period_bar = None
        if period:
            period_bar = self._period_bar([(inputs[name], bars[name]) for name in inputs], X1)
        gradient = self._gradient(part_bar, period_bar) if needs_fields(need) else None
        return gradient, *(bars.get(name) if name in need else None for name in ("X1", "X2"))

    def _gradient(self, part_bar, period_bar):
        if part_bar is None:
            return Periodic(tree_map(lambda leaf: None, self.part), period_bar)
        return Periodic(self._narrow(part_bar), period_bar)

    def diag(self, X):
        return self.part.diag(X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        own = need_of(need, "part")
        part_bar, X_bar = self.part.diag_vjp(k_bar, X, own) if own else (None, None)
        if not needs_fields(need):
            return None, X_bar
        if part_bar is None:
            part_bar = tree_map(lambda leaf: None, self.part)
        period_bar = zeros_like(self.period, X) if wanted(need, "period") else None
        return Periodic(part_bar, period_bar), X_bar

    def check_dim(self, D):
        if isinstance(self.part, Covariance) and not isinstance(self.part, OfDistance):
            raise TypeError(
                "Periodic: `part` must be a stationary covariance such as fastsvgp.RBF, got"
                f" {type(self.part).__name__}; add or multiply covariances outside of Periodic"
            )
        check_part("Periodic.part", self.part, D)
        super().check_dim(D)
