"""Sums of variances in the place of the variances: the package's docstring has the formula."""

import numpy as np

from ... import kernels
from ...records import Marginals
from ..base import SUMS
from . import common_cotangents
from .common_cotangents import inner

SUMMED_FROM = 1e7  # M^2 N


def sums_pay(Kuu, columns):
    """Return whether W W' takes less time than W' Lam with this many columns.

    At the least sizes natural steps take 0.91 to 0.97 of the time (bench/results/pairs.md); at
    (M, B) = (20, 100) they would take 1.05.
    """
    M = len(Kuu)
    return type(Kuu) is np.ndarray and 4 * columns > 5 * M and M * M * columns > SUMMED_FROM


class SummedVariances:
    """Mixin of the whitened passes.

    omits : whether chunks get the variances given u = L m, if all of these exceed rounding
    settled : correction to the total: plus the chunks that the sums leave out, minus those counted
        twice
    """

    can_omit, settled = True, 0.0

    def _omits(self, columns):
        """Return whether W W' is to take the place of W' Lam, for all ``columns`` in total."""
        if not self.can_omit or SUMS not in self.need or type(self.L) is not np.ndarray:
            return False
        if not (self.sum_trils or self.need_Kuu):  # there are no sums
            return False
        pays = sums_pay(self.L, columns)
        if not self.keeps_V:
            return pays
        # only sums of common cotangents do without V; from three outputs on they need W W' anyway
        P, M = self.means.shape
        common = P > 2 and self.need_Kuf and M * M * columns >= common_cotangents.LEAST
        return P > 1 and pays or common

    def of_omitted_variances(self):
        total = self.settled
        if self.G is not None and not self.keeps_V:
            for S, G in zip(self._covariances(), kernels.symmetrise(self.G), strict=True):
                total += 0.5 * inner(S, G)
        return total + sum(sums.of_variances() for sums in self.common)

    def _given_means(self, kff, Lam):
        """Marginals without the variances of q(u); None if one of the others is at its floor."""
        mean, explained = kernels.column_moments(Lam, self.means[0])
        var, P = kff - explained, len(self.means)
        if (var < np.finfo(var.dtype).eps * kff).any():
            return None
        if P > 1:
            mean, var = kernels.matmul(self.means, Lam), np.repeat(var[None], P, axis=0)
        return Marginals(*(a.reshape(*self.batch, len(kff)) for a in (mean, var)))

    def _settle(self, rows, b2, summed):
        """Correct the total for a chunk that is in the sums and has all variances, or has neither.

        summed : whether ``of_omitted_variances`` takes these rows from a sum
        """
        omitted = rows.V is None
        if summed == omitted:
            return
        V = [self._half(p, rows.Lam) for p in range(len(self.means))]
        for one, b2_p in zip(V, b2, strict=True):
            squares = kernels.column_moments(one, self.means[0])[1]
            part = 0.5 * float(np.sum(b2_p * squares, dtype=float))
            self.settled += part if omitted else -part
        if omitted:
            rows.V = V
