"""Sums of variances in the place of the variances: the package's docstring has the formula."""

import math

import numpy as np

from ... import kernels
from ...records import Marginals
from ..base import SUMS
from . import common_cotangents
from .common_cotangents import trace_product

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

    omits : whether all chunks get the variances given u = L m; ``pull`` sums what q(u) adds to them
    of_products : that of the chunks whose variances have no common slopes
    """

    can_omit, of_products = True, 0.0

    def _omits(self, prior, columns):
        """Return whether W W' is to take the place of W' Lam, for all ``columns`` in total."""
        if not self.can_omit or SUMS not in self.need or type(self.L) is not np.ndarray:
            return False
        if not (self.sum_trils or self.need_Kuu):  # there are no sums
            return False
        # a variance that could round to less than its floor must be computed, and raised to it
        M = len(self.L)
        rounding = 10 * math.sqrt(M) * np.finfo(self.L.dtype).eps
        if not prior.jitter > rounding * prior.Kuu.diagonal().max():
            return False
        pays = sums_pay(self.L, columns)
        if not self.keeps_V:
            return pays
        # only sums of common cotangents do without V; from three outputs on they need W W' anyway
        P = len(self.means)
        common = P > 2 and self.need_Kuf and M * M * columns >= common_cotangents.LEAST
        return P > 1 and pays or common

    def omitted_variances(self):
        total = self.of_products
        if self.G is not None and not self.keeps_V:
            for S, G in zip(self._covariances(), kernels.symmetrise(self.G), strict=True):
                total += 0.5 * trace_product(S, G)
        return total + sum(sums.omitted_variances() for sums in self.common)

    def _omit_variances(self, kff, Lam):
        """Marginals without the variances of q(u)."""
        mean, explained = kernels.column_moments(Lam, self.means[0])
        var, P = kff - explained, len(self.means)
        if P > 1:
            mean, var = kernels.matmul(self.means, Lam), np.repeat(var[None], P, axis=0)
        return Marginals(*(a.reshape(*self.batch, len(kff)) for a in (mean, var)))

    def _add_products(self, rows, b2):
        """Compute V after all, and what it adds to the data term."""
        rows.V = [self._half(p, rows.Lam) for p in range(len(self.means))]
        for V, b2_p in zip(rows.V, b2, strict=True):
            squares = kernels.column_moments(V, self.means[0])[1]
            self.of_products += 0.5 * float(np.sum(b2_p * squares, dtype=float))
