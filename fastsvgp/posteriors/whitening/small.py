"""The pass of small whitened posteriors of one output on the CPU."""

import numpy as np

from ... import kernels
from ...records import Marginals
from ..base import Projection
from .base import Residuals
from .gram import GramWhitenedPass

SMALL = 8e6  # M^2 (M + B): below it BLAS uses one thread, and calls from Python dominate


class SmallWhitenedPass(GramWhitenedPass):
    """Pass in the Gram form for small problems of one output on the CPU.

    Four compiled calls replace about two dozen. A whole step takes 0.67 of the time of the general
    pass at (M, B) = (20, 100), 0.81 at (50, 500), and 0.90 at (100, 256).
    """

    @staticmethod
    def suits(q, prior, size, columns):
        """Whether to use this pass, if cotangents of Kuf are needed.

        size : number of inducing variables of all outputs
        """
        M = len(prior.Kuu)
        plain = type(prior.Kuu) is np.ndarray and len(q.names) == 1 and size == M
        return plain and M * M * (M + columns) < SMALL

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.by_inverse = True

    def project(self, Kuf, kff):
        Lam, V, mean, var, raised = kernels.whitened_marginals(
            self.inverse, Kuf, kff, self.means[0], self.trils[0]
        )
        self.clamped += raised
        f = Marginals(mean.reshape(*self.batch, -1), var.reshape(*self.batch, -1))
        return Projection(f, Residuals(Lam, [V], True))

    def pull(self, rows, f_bar):
        first, Lam, (V,) = self.Lam_a is None, rows.Lam, rows.V
        if first:
            self.Lam_a, self.G = (np.zeros(a.shape, a.dtype) for a in (self.means, self.trils))
        a, b = (bar.reshape(Lam.shape[1]) for bar in (f_bar.mean, f_bar.var))
        W = self.trils[0]
        kernels.whitened_cotangents(
            self.inverse, Lam, V, self.means[0], W, a, b, self.Lam_a[0], self.G[0], not first
        )
        rows.Lam = rows.V = None
        return V

    def _whitened_bars(self, kl_bar):
        G, self.G = self.G, None
        W, m, Lam_a = self.trils[0], self.means[0], self.Lam_a[0]
        mean_bar, tril_bar, C = kernels.whitened_bars(W, G[0], m, Lam_a, kl_bar, self.need_Kuu)
        self.C, self.sets[0].tril_bar = C if self.need_Kuu else None, tril_bar[None]
        return mean_bar[None]

    def kl(self):
        return kernels.whitened_kl(self.means[0], self.trils[0])
