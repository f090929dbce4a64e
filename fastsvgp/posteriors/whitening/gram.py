"""The Gram form of the whitened pass, natural steps, and the forms that build on it."""

import numpy as np

from ... import kernels
from ...records import Marginals, plus
from ..base import Projection, add_to_diagonals
from ..natural import natural_precision
from .base import BatchWhitenedPass, Residuals

SMALL = 8e6  # M^2 (M + B): below it BLAS uses one thread, and calls from Python dominate


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
            self._pull_gram(p, kernels.symmetrise(self.G[p]), kl_bar)
        self.G = None
        return self._mean_bar(kl_bar)

    def _pull_gram(self, p, G, kl_bar):
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
        return self.move_to(self.means + d[..., 0], trils)

    def move_to(self, means, trils):
        """Return the posterior with other whitened means (P, M), and factors of each set."""
        q = self.q
        for one, tril in zip(self.sets, trils, strict=True):
            mean = self._blocks(means, one.at).reshape(*self.batch, -1)
            tril = tril.reshape(*self.batch, *tril.shape[1:])
            q = q.unwhiten(self._block(one.at), mean, tril, one.name)
        return q

    def _blocks(self, A, at):
        """The part of vectors (P, M), or of matrices (P, M, M), that belongs to a set."""
        if len(self.sets) == 1:
            return A
        return np.ascontiguousarray(A[:, at] if A.ndim == 2 else A[:, at, at], like=A)


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
