"""The Gram form of the whitened pass, and natural steps."""

import numpy as np

from ... import kernels
from ...records import plus
from ..natural import natural_precision
from .base import BatchWhitenedPass


class GramWhitenedPass(BatchWhitenedPass):
    """Pass in the Gram form: sums G of each output."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.needs_Lam_bar = self.need_Kuf

    @property
    def keeps_V(self):
        return self.need_Kuf

    def _sum_rows(self, rows, a, b2):
        Lam, last, first = rows.Lam, len(self.means) - 1, self.G is None
        Lam_bar = self._Lam_bar(rows.V, Lam, a, b2) if self.need_Kuf else None
        if self.sum_trils or self.need_Kuu:
            shape = *self.means.shape, len(Lam)
            self.G = kernels.empty(shape, Lam) if first else self.G
            for p, G in enumerate(self.G):
                own = rows.owns and p == last
                kernels.weighted_gram(Lam, b2[p], out=G, add=not first, overwrite_a=own)
        return Lam_bar

    def _split_common(self):
        """Add the common sums to those of each output."""
        for sums in self.common:
            self.Lam_a += sums.Lam_a
            sums.symmetrise()
            if sums.Gamma is not None:
                self.G = plus(sums.c[:, None, None] * sums.Gamma, self.G)
        self.common = []

    def _whitened_bars(self, kl_bar):
        if self.G is None:
            return super()._whitened_bars(kl_bar)
        self._split_common()
        for one in self.sets:
            if one.sums_tril:
                one.tril_bar = kernels.empty(one.trils.shape, self.L)
        for p in range(len(self.means)):
            self._from_gram(p, kernels.symmetrise(self.G[p]), kl_bar)
        self.G = None
        return self._mean_bar(kl_bar)

    def _from_gram(self, p, G, kl_bar):
        """Compute the gradients of the factors of an output, and add its terms to C."""
        # W' G, the transpose of G W
        GW = self._times(p, G, transpose=True, overwrite=not self.need_Kuu)
        for one in self.sets:
            if one.sums_tril:
                part, out = self._block(one.at, GW), one.tril_bar[p]
                kernels.tril_update(part, one.trils[p], kl_bar, out=out, transpose=True)
        if not self.need_Kuu:
            return
        if len(self.sets) == 1:
            C = kernels.tril_multiply(self.trils[p], GW, overwrite_b=True)
        else:
            C = self._times(p, GW, overwrite=True)
        m = self.means[p]
        kernels.add_outer_minus_scaled(C, m, self.Lam_a[p], G, np.ones_like(m))
        self.C = C if p == 0 else np.add(self.C, C, out=self.C)

    def natural_sums(self):
        self._split_common()
        return self.Lam_a, self.G

    def natural_precision(self, p, step_size):
        """R of one output, from the sums of ``pull``."""
        old = ((one.at, kernels.cholesky_inverse(one.trils[p])) for one in self.sets)
        return natural_precision(kernels.symmetrise(self.G[p]), step_size, old)

    def natural_step(self, step_size):
        """Take a natural-gradient step, from the sums of ``pull``; see ``posteriors.natural``.

        With b <= 0 (log-concave likelihoods) and g <= 1 the new precision is positive definite;
        otherwise ``NotPositiveDefinite`` can be raised.
        """
        self._split_common()
        R = kernels.empty((*self.means.shape, len(self.L)), self.L)
        for p in range(len(R)):
            R[p] = self.natural_precision(p, step_size)
        right = step_size * (self.Lam_a - self.means)[..., None]
        # all outputs at once: one synchronisation with a device
        trils = [kernels.cholesky_of_inverse(self._blocks(R, one.at)) for one in self.sets]
        if len(trils) == 1:
            half = kernels.multiply_triangular(trils[0], right, transpose=True)
            d = kernels.multiply_triangular(trils[0], half)
        else:
            factor = kernels.cholesky(R, overwrite_a=True)
            half = kernels.solve_triangular(factor, right)
            d = kernels.solve_triangular(factor, half, transpose=True)
        q, means = self.q, self.means + d[..., 0]
        for one, tril in zip(self.sets, trils, strict=True):
            mean = self._blocks(means, one.at).reshape(*self.batch, -1)
            tril = tril.reshape(*self.batch, *tril.shape[1:])
            q = q.unwhitened(self._block(one.at), mean, tril, one.name)
        return q

    def _blocks(self, A, at):
        """The part of vectors (P, M), or of matrices (P, M, M), that belongs to a set."""
        if len(self.sets) == 1:
            return A
        return np.ascontiguousarray(A[:, at] if A.ndim == 2 else A[:, at, at], like=A)
