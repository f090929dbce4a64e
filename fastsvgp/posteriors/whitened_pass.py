"""The algebra of u = L v, L = chol(Kuu), q(v) = N(m, W W'): forward and backward, by chunks.

With Lam = L^-1 Kuf and V = W' Lam (handbook, "Whitened parameterization" and appendix I):

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V^2)
    KL   = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii.

Reverse. Let a, b be the cotangents of mean and var, kappa that of the KL (-1 in an ELBO), X diag(b)
written X * b. From d var = -2 colsum(Lam dLam) + 2 colsum(V (W' dLam + dW' Lam)):

    Lam_bar = m a' + 2 (W V - Lam) * b
    m_bar   = Lam a + kappa m
    W_bar   = tril(2 (Lam * b) V') + kappa (W - diag(1 / W_ii))
    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    Kuu_bar = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,  C = Lam_bar Lam'

The last line is the whitening lemma: Kuu enters through Lam only. Every M x M quantity is a sum
over the columns of the batch. A batch that is long compared with M is therefore processed in chunks
that stay in cache, and memory does not grow with the batch.

*Batch form*, the formulas above: trsm, trmm, trmm, two half products, trsm = 6 M^2 B, and 4/3 M^3
(potrf, congruence). Only lower triangles of the two products are formed.

*Gram form*, for many data per inducing input: with G = (Lam * 2b) Lam' (symmetric) the two products
with the batch become M x M products,

    2 (Lam * b) V' = G W,    C = m (Lam a)' + W (G W)' - G.

It takes trsm, trmm, syrk, trmm, trsm = 5 M^2 B, and 10/3 M^3. By flops it is cheaper if B > 2 P M
(P outputs). A syrk runs nearer to the gemm rate than a half product, so the Gram form is used from
3/2 P M on.

*Long form*, the Gram form for still longer batches: with H = W W' - I, Q = L^-T H, alpha = L^-T m
and E = Q Lam,

    V' V - Lam' Lam = Lam' H Lam = (L^-1 Kuf)' H Lam = Kuf' E
        so   mean = Kuf' alpha,   var = kff + colsum(Kuf * E),
    Lam_bar = m a' + H Lam * 2b
        so   Kuf_bar = L^-T Lam_bar = alpha a' + E * 2b.

It takes trsm, gemm, syrk = 4 M^2 B, and 14/3 M^3, and is used from 4 P M on if the gradient of Kuf
is needed. Its measured errors equal those of the other forms, in both dtypes and for cond(Kuu) up
to 5e9: the error of L dominates.

Outputs whose cotangents are multiples of one row share products: ``common_cotangents``.

If ``kernels.prefers_inverse``, products with an explicit L^-1 (M^3 / 3) replace the solves with L.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import kernels
from ..records import Marginals, plus
from .base import (
    Bars,
    CholeskyPass,
    Joint,
    Projection,
    add_to_diagonals,
    gradient,
    raise_to_floor,
    wanted,
)
from .common_cotangents import CommonSums, common_row


class Rows(NamedTuple):
    """Kuf, Lam (M, N), kff (N,) of a chunk of rows; passes with the same prior can share them."""

    Kuf: Any
    kff: Any
    Lam: Any


@dataclass(slots=True)
class Residuals:
    """Residuals of a chunk of rows: Lam (M, N), which ``pull`` can overwrite if ``owns``, and V.

    V is (M, N) per output, E in the long form. Without ``keeps_V`` it is not read.
    """

    Lam: Any
    V: list
    owns: bool


class WhitenedPass(CholeskyPass):
    """Base of the passes. Forms sum over chunks in ``pull``; ``_whitened_bars`` uses the sums.

    L : (M, M); means : (P, M); trils : (P, M, M)
    batch : leading axes of the parameters, (P,) or ()
    """

    shares_rows = True
    keeps_V = True  # whether ``pull`` reads V

    def __init__(self, q, prior, columns, need):
        self.q, self.need, natural = q, need, "natural_step" in need
        super().__init__(prior, len(prior.L) if natural else columns)
        mean, tril = self._whitened()
        M = mean.shape[-1]
        self.batch = mean.shape[:-1]
        self.means, self.trils = mean.reshape(-1, M), tril.reshape(-1, M, M)
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self._set_needs(natural)
        self.needs_Lam_bar, self.Lam_a = self.need_Kuf, None
        self.common, self.tril_bar, self.G, self.C = [], None, None, None

    def _whitened(self):
        """The whitened mean and factor."""
        return self.q.whitened(self.L)

    def _set_needs(self, natural):
        """Choose the sums of ``pull``."""
        through_L = self.need_Kuu and not self.q.whitening_is_fixed
        self.sum_trils = natural or wanted(self.need, "scale_tril") or through_L

    def project(self, Kuf, kff):
        """2 M^2 N flops for the first output, M^2 N for each other output."""
        return self.project_rows(self.rows(Kuf, kff), owns=True)

    def rows(self, Kuf, kff):
        """``Rows`` for ``project_rows`` of this pass, or of other passes with the same prior."""
        return Rows(Kuf, kff, self._solve(Kuf))

    def project_rows(self, rows, owns=False):
        """``project`` at ``rows``; ``pull`` overwrites them only if it ``owns`` them."""
        Kuf, kff, Lam = rows
        P, N = len(self.means), Lam.shape[1]
        mean, var, V = [], [], []
        for p in range(P):
            *moments, product = self._moments(p, Kuf, Lam)
            for parts, part in zip((mean, var), moments, strict=True):
                parts.append(part)
            V.append(product if self.keeps_V else None)
            del product  # frees its memory for the next output
        mean, var = (parts[0] if P == 1 else np.stack(parts) for parts in (mean, var))
        self.count_clamped(raise_to_floor(var, kff, add=True))
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, Residuals(Lam, V, owns))

    def _moments(self, p, Kuf, Lam):
        """``(mean, var - kff, V)`` of one output."""
        mean, explained = kernels.column_moments(Lam, self.means[p])  # while Lam is in the cache
        V = self._half(p, Lam)
        return mean, kernels.column_moments(V, self.means[p])[1] - explained, V

    def _half(self, p, Lam):
        """V, with V' V = Lam' S Lam."""
        return kernels.multiply_triangular(self.trils[p], Lam, transpose=True)

    def _covariances(self):
        """S = W W' of each output (P, M, M)."""
        return kernels.cholesky_product(self.trils)

    def joint(self, Kuf, Kff):
        Lam = self._solve(Kuf)
        N = Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((len(self.means), N, N), Lam.dtype, like=Lam)
        for p in range(len(self.trils)):
            V = self._half(p, Lam)
            np.add(prior, kernels.matmul(V, V, transpose_a=True), out=cov[p])
        # the first argument is a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(len(cov), N * N)[:, :: N + 1], np.diagonal(Kff))
        mean = kernels.matmul(self.means, Lam).reshape(*self.batch, N)
        return Joint(mean, cov.reshape(*self.batch, N, N))

    def kl(self):
        return kernels.kl_from_standard(self.means, self.trils)

    def pull(self, rows, f_bar):
        Lam, first = rows.Lam, self.Lam_a is None
        P, (M, N) = len(self.means), Lam.shape
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if first and not (P == 1 and self.needs_Lam_bar):
            self.Lam_a = np.zeros((P, M), Lam.dtype, like=Lam)
        if common := common_row(b2, M):
            Lam_bar = self._sum_common_rows(rows, a, *common)
        else:
            if not self.needs_Lam_bar:
                self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
            Lam_bar = self._sum_rows(rows, a, b2)
        rows.Lam = rows.V = None
        return self._Kuf_bar(Lam_bar) if self.need_Kuf else None

    def _sum_rows(self, rows, a, b2):
        """Add a chunk of rows to the M x M sums; return Lam_bar (M, N) if it is needed."""
        raise NotImplementedError

    def _sum_common_rows(self, rows, a, c, w2):
        """Do the same for b2 = c w2', in the ``CommonSums`` of c."""
        sums = next((sums for sums in self.common if np.array_equal(sums.c, c)), None)
        if sums is None:
            through = self.need_Kuf or self.need_Kuu
            sums = CommonSums.of(c, self._covariances() if through else None, rows.Lam)
            self.common.append(sums)
        Lam_bar = self._common_Lam_bar(sums, rows, a, w2)
        rows.V = None
        if self.sum_trils or self.need_Kuu:
            sums.add_gram(rows.Lam, w2, rows.owns)
        return Lam_bar

    def _common_Lam_bar(self, sums, rows, a, w2):
        """Return the cotangent of Lam if it is needed, and add Lam a to the sums."""
        sums.Lam_a += kernels.matmul(a, rows.Lam, transpose_b=True)
        return sums.Lam_bar(self.means, rows.Lam, a, w2) if self.need_Kuf else None

    def _add_common(self):
        """Add the common sums to the gradients of the factors, without the KL term, and to C."""
        for sums in self.common:
            self.Lam_a += sums.Lam_a
            sums.symmetrise()
            if self.sum_trils:
                bars = sums.tril_bars(self.trils)
                self.tril_bar = plus(np.stack(list(bars)), self.tril_bar)
            if self.need_Kuu:
                self.C = plus(sums.C(self.means), self.C)
        self.common = []

    def _Lam_bar(self, V, Lam, a, b2, scaled=False):
        """The cotangent of Lam, in the memory of V[0], summed over outputs; adds Lam a to the sums.

        scaled : V is V * 2b already
        """
        if len(V) == 1:
            T = kernels.multiply_triangular(self.trils[0], V[0], overwrite_b=True)
            m = self.means[0]
            gained = kernels.add_outer_minus_scaled(T, m, a[0], Lam, b2[0], scale=not scaled)
            self._gain(0, gained)
            return T
        for p, W in enumerate(self.trils):
            part = V[p] if scaled else kernels.scale_columns(V[p], b2[p], out=V[p])
            part = kernels.multiply_triangular(W, part, overwrite_b=True)
            T = part if p == 0 else kernels.add_scaled(T, part, 1.0)
        self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        kernels.add_outer_minus_scaled(T, self.means[0], a[0], Lam, b2.sum(axis=0))
        return kernels.add_scaled(T, kernels.matmul(self.means[1:], a[1:], transpose_a=True), 1.0)

    def _gain(self, p, Lam_a):
        """Add to the sum of Lam a of an output; for a single output the first term becomes it."""
        if self.Lam_a is None:
            self.Lam_a = Lam_a[None]
        else:
            self.Lam_a[p] += Lam_a

    def _Kuf_bar(self, Lam_bar):
        return self._solve(Lam_bar, transpose=True, overwrite_b=True)

    def finish(self, kl_bar):
        mean_bar, tril_bar = self.q.whitened_vjp(self, *self._whitened_bars(kl_bar))
        bars = {"mean": mean_bar, "scale_tril": tril_bar}
        for name, bar in bars.items():
            wants = wanted(self.need, name)
            bars[name] = bar.reshape(getattr(self.q, name).shape) if wants else None
        return Bars(gradient(self.q, **bars), self._Kuu_bar() if self.need_Kuu else None)

    def _whitened_bars(self, kl_bar):
        """``(mean_bar (P, M), tril_bar (P, M, M), C)``, C lower. Consumes the sums."""
        raise NotImplementedError

    def _mean_bar(self, kl_bar):
        return kernels.add_scaled(self.Lam_a, self.means, kl_bar)

    def _Kuu_bar(self):
        """Apply the whitening lemma to C, and consume C."""
        C, self.C = self.C, None
        return kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)


class BatchWhitenedPass(WhitenedPass):
    """Pass in the batch form: sums the gradient of each factor, and C."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.needs_Lam_bar = self.need_Kuf or self.need_Kuu

    def _sum_rows(self, rows, a, b2):
        Lam, V = rows.Lam, rows.V
        if self.sum_trils:
            first = self.tril_bar is None
            self.tril_bar = kernels.empty(self.trils.shape, Lam) if first else self.tril_bar
            for p, out in enumerate(self.tril_bar):
                kernels.scale_columns(V[p], b2[p], out=V[p])
                kernels.tril_product(Lam, V[p], out=out, add=not first)
        if not self.needs_Lam_bar:
            return None
        Lam_bar = self._Lam_bar(V, Lam, a, b2, scaled=self.sum_trils)
        if self.need_Kuu:
            first = self.C is None
            self.C = kernels.empty(self.L.shape, Lam) if first else self.C
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=not first)
        return Lam_bar

    def _whitened_bars(self, kl_bar):
        self._add_common()
        if self.sum_trils:
            for bar, W in zip(self.tril_bar, self.trils, strict=True):
                kernels.tril_update(bar, W, kl_bar, out=bar)
        return self._mean_bar(kl_bar), self.tril_bar, self.C


class GramWhitenedPass(BatchWhitenedPass):
    """Pass in the Gram form: sums G of each output."""

    splits_common = False  # whether G of each output is kept for common cotangents too

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.keeps_V, self.needs_Lam_bar = self.need_Kuf, self.need_Kuf
        self.splits_common |= "natural_step" in need

    def _sum_rows(self, rows, a, b2):
        Lam, last, first = rows.Lam, len(self.means) - 1, self.G is None
        Lam_bar = self._Lam_bar(rows.V, Lam, a, b2) if self.need_Kuf else None
        if self.sum_trils or self.need_Kuu:
            self.G = kernels.empty(self.trils.shape, Lam) if first else self.G
            for p, G in enumerate(self.G):
                own = rows.owns and p == last
                kernels.weighted_gram(Lam, b2[p], out=G, add=not first, overwrite_a=own)
        return Lam_bar

    def _sum_common_rows(self, rows, a, c, w2):
        Lam_bar = super()._sum_common_rows(rows, a, c, w2)
        if self.splits_common:
            self._split_common()
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


class LongWhitenedPass(GramWhitenedPass):
    """Pass in the long form: V of ``Residuals`` holds E."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.alphas = self._solve(np.ascontiguousarray(self.means.T, like=self.L), transpose=True).T
        H = add_to_diagonals(self._covariances(), -1)
        self.Q = self._solve(H, transpose=True, overwrite_b=True)

    def _moments(self, p, Kuf, Lam):
        E = kernels.matmul(self.Q[p], Lam)
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
