"""The Gram form of the whitened pass, and natural steps."""

import numpy as np

from ... import kernels
from ...records import plus
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
            self.G = kernels.empty(self.trils.shape, Lam) if first else self.G
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
        tril_bar = kernels.empty(self.trils.shape, self.L) if self.sum_trils else None
        for p in range(len(self.means)):
            self._from_gram(p, kernels.symmetrise(self.G[p]), kl_bar, tril_bar)
        self.G = None
        return self._mean_bar(kl_bar), tril_bar, self.C

    def _from_gram(self, p, G, kl_bar, tril_bar):
        """Compute the gradient of one factor, and add the terms of its output to C."""
        W, m, need_Kuu = self.trils[p], self.means[p], self.need_Kuu
        # W' G, the transpose of G W
        GW = kernels.multiply_triangular(W, G, transpose=True, overwrite_b=not need_Kuu)
        if self.sum_trils:
            kernels.tril_update(GW, W, kl_bar, out=tril_bar[p], transpose=True)
        if need_Kuu:
            C = kernels.tril_multiply(W, GW, overwrite_b=True)
            kernels.add_outer_minus_scaled(C, m, self.Lam_a[p], G, np.ones_like(m))
            self.C = C if p == 0 else np.add(self.C, C, out=self.C)

    def natural_sums(self):
        self._split_common()
        return super().natural_sums()

    def natural_step(self, step_size):
        """Take a natural-gradient step, from the sums of ``pull`` in the Gram form.

        q(v) = N(m, S) has natural parameters (S^-1 m, -S^-1 / 2), and the natural gradient in them
        is the gradient in the expectation parameters (m, S + m m'): d_S for the second, d_m - 2 d_S
        m for the first (Hensman et al. 2013; Salimbeni et al. 2018). Here d_S = G / 2 - (I - S^-1)
        / 2 and d_m = Lam a - m, so a step of size g gives

            S_new^-1       = (1 - g) S^-1 + g (I - G)
            S_new^-1 m_new = (1 - g) S^-1 m + g (Lam a - G m).

        The old posterior only enters with weight 1 - g, and no gradient of the factor is formed.
        With b <= 0 (log-concave likelihoods) and g <= 1 the new precision is positive definite;
        otherwise ``NotPositiveDefinite`` can be raised.
        """
        self._split_common()
        precisions, thetas = (kernels.empty(a.shape, a) for a in (self.trils, self.means))
        M = self.means.shape[1]
        for p, W in enumerate(self.trils):
            m = self.means[p][:, None]
            precision = np.multiply(kernels.symmetrise(self.G[p]), -step_size, out=precisions[p])
            theta = step_size * self.Lam_a[p][:, None] + kernels.matmul(precision, m)
            precision.reshape(-1)[:: M + 1] += step_size
            if step_size != 1:
                old = (1 - step_size) * kernels.cholesky_inverse(W)
                theta += kernels.matmul(old, m)
                precision += old
            thetas[p] = theta[:, 0]
        # all outputs at once: one synchronisation with a device
        trils = kernels.cholesky_of_inverse(precisions)
        halves = kernels.multiply_triangular(trils, thetas[..., None], transpose=True)
        means = kernels.multiply_triangular(trils, halves).reshape(*self.batch, M)
        return self.q.unwhitened(self.L, means, trils.reshape(*self.batch, M, M))
