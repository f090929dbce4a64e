"""The long form of the whitened pass."""

import numpy as np

from ... import kernels
from ..base import add_to_diagonals
from .gram import GramWhitenedPass


class LongWhitenedPass(GramWhitenedPass):
    """Pass in the long form: V of ``Residuals`` holds E."""

    can_omit = False  # the gradient needs E of each output

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.alphas = self._solve(np.ascontiguousarray(self.means.T, like=self.L), transpose=True).T
        H = add_to_diagonals(self._covariances(), -1)
        Q = self._solve(H, transpose=True, overwrite_b=True)
        # Q is block upper triangular in the sets
        self.Q = [
            (np.ascontiguousarray(Q[:, one.at, one.at.start :], like=Q), one.at.start)
            for one in self.sets
        ]

    def _moments(self, p, Kuf, Lam):
        E = [kernels.matmul(Q[p], Lam[start:]) for Q, start in self.Q]
        E = E[0] if len(E) == 1 else np.concatenate(E)
        return *kernels.column_moments(Kuf, self.alphas[p], E), E

    def _Lam_bar(self, V, Lam, a, b2, scaled=False):
        for p, E in enumerate(V):
            self._gain(p, kernels.scale_add_outer(E, b2[p], self.alphas[p], a[p], Lam))
            if p:
                kernels.add_scaled(V[0], E, 1.0)
        return V[0]

    def _common_Lam_bar(self, sums, rows, a, w2):
        for p, E in enumerate(rows.V):
            b2 = sums.c[p] * w2
            sums.Lam_a[p] += kernels.scale_add_outer(E, b2, self.alphas[p], a[p], rows.Lam)
            if p:
                kernels.add_scaled(rows.V[0], E, 1.0)
        return rows.V[0]

    def _Kuf_bar(self, Lam_bar):
        return Lam_bar  # E already includes L^-T
