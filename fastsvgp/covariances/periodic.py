"""Periodic functions: a stationary covariance of points on circles (MacKay 1998).

With angles t_d = 2 pi x_d / period_d, the squared distances of the points (cos t_d, sin t_d) are

    (2 sin(pi (x_d - x'_d) / period_d))^2,

so the fused kernel of the stationary covariances computes them, with 2 D columns. Back from a
point's cotangent u_bar: t_bar = cos t u_bar_sin - sin t u_bar_cos, then x_bar = 2 pi t_bar / period
and period_bar = -sum x_bar x / period.
"""

from typing import Any

import numpy as np

from ..records import leaf, record, replace
from ..records.typed import Number
from .base import Covariance, need_of, needs
from .checks import check_part, set_depth
from .mapped import OfMap
from .stationary import OfDistance


@record
class Periodic(OfMap):
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
    map_field = "period"

    def __post_init__(self):
        set_depth(self, (self.part,))

    def inside(self):
        """Return ``part`` for the points, with each lengthscale twice."""
        lengthscales = self.part.lengthscales
        if not np.ndim(lengthscales):
            return self.part
        return replace(self.part, lengthscales=np.concatenate([lengthscales, lengthscales]))

    def outer(self, part_bar, period_bar, need, like):
        bar = None if part_bar is None else part_bar.lengthscales
        if np.ndim(bar):
            D = len(bar) // 2
            part_bar = replace(part_bar, lengthscales=bar[:D] + bar[D:])
        return super().outer(part_bar, period_bar, need, like)

    def map(self, X, origin):
        """Return the points (N, 2 D) on the circles."""
        turns = X / self.period
        turns = (turns - np.rint(turns)) * (2 * np.pi)
        U = np.concatenate([np.cos(turns), np.sin(turns)], axis=1)

        def back(U_bar, need):
            D, period_bar = X.shape[1], None
            turns_bar = U[:, :D] * U_bar[:, D:] - U[:, D:] * U_bar[:, :D]
            X_bar = turns_bar * (2 * np.pi / self.period)
            if needs(need, "period"):
                # the sum of all X_bar is 0 in each column, so the origin is free: near the inputs,
                # sums cancel less
                axis = 0 if np.ndim(self.period) else None
                period_bar = -(X_bar * (X - origin) / self.period).sum(axis, dtype=np.float64)
            return period_bar, X_bar if "X" in need else None

        return U, back

    def sizes(self, columns):
        return 2 * columns, 4 * columns

    def diag(self, X):
        return self.part.diag(X)

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        own = need_of(need, "part")
        part_bar, X_bar = self.part.diag_vjp(k_bar, X, own) if own else (None, None)
        return self.gradient(need, X, part=part_bar), X_bar

    def check_dim(self, D):
        if isinstance(self.part, Covariance) and not isinstance(self.part, OfDistance):
            raise TypeError(
                "Periodic: `part` must be a stationary covariance such as fastsvgp.RBF, got"
                f" {type(self.part).__name__}; add or multiply covariances outside of Periodic"
            )
        check_part("Periodic.part", self.part, D)
        super().check_dim(D)
