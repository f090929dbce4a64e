"""The algebra of u = L v, L = chol(Kuu), q(v) = N(m, W W'): forward and reverse, part by part of the batch.

With Lam = L^-1 Kuf and V = W' Lam (handbook, "Whitened parameterization" and appendix I):

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V^2),    KL = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii.

Reverse. Let a, b be the cotangents of mean and var, kappa that of the KL (-1 in an ELBO), X diag(b)
written X * b.

    Lam_bar = m a' + 2 (W V - Lam) * b                      d var = -2 colsum(Lam dLam) + 2 colsum(V (W' dLam + dW' Lam))
    m_bar   = Lam a + kappa m
    W_bar   = tril(2 (Lam * b) V') + kappa (W - diag(1 / W_ii))
    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    Kuu_bar = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,  C = Lam_bar Lam'      (whitening lemma: Kuu enters through Lam alone)

Everything that is M x M is a sum over the columns of the batch, so a batch that is long against M
goes through in parts that stay in cache, and memory does not grow with it.

*Batch form* as it stands: trsm, trmm, trmm, two half products, trsm = 6 M^2 B, and 4/3 M^3 (potrf, congruence). Only lower
triangles of the two products are formed.

*Gram form*, for many data per inducing input: with G = (Lam * 2b) Lam' (symmetric) the two products with the batch collapse,

    2 (Lam * b) V' = G W,    C = m (Lam a)' + W (G W)' - G:

trsm, trmm, syrk, trmm, trsm = 5 M^2 B, and 10/3 M^3. By flops it is the cheaper one when B > 2 P M
(P outputs); a syrk runs nearer to the gemm rate than a half product, so it is taken from 3/2 P M
on.

*Long form*, the Gram form for batches longer still: with H = W W' - I, Q = L^-T H, alpha = L^-T m and E = Q Lam,

    V' V - Lam' Lam = Lam' H Lam = (L^-1 Kuf)' H Lam = Kuf' E       so   mean = Kuf' alpha,   var = kff + colsum(Kuf * E),
    Lam_bar = m a' + H Lam * 2b                                     so   Kuf_bar = L^-T Lam_bar = alpha a' + E * 2b:

trsm, gemm, syrk = 4 M^2 B, and 14/3 M^3; taken where the gradient of Kuf is wanted, from 4 P M on.
Its errors were measured to be those of the others, in both dtypes and for cond(Kuu) up to 5e9: the
error of L decides.

Where ``kernels.prefers_inverse`` says so the solves with L are products with an explicit L^-1 (M^3
/ 3).
"""

from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from .. import kernels
from ..records import Marginals, record, replace
from .base import (
    Bars,
    Joint,
    Posterior,
    Projection,
    WhiteningPass,
    add_to_diagonals,
    check_vector_and_matrix,
    gradient,
    raise_to_floor,
    wanted,
)

SMALL = 8e6  # M^2 (M + B): up to there BLAS works on one thread, and the calls from Python count
LONG_FROM = 4  # data per inducing input and output


@record
class GaussianFactor(Posterior):
    """Posteriors with a mean and a lower factor: the whitened algebra at parameters that may depend on L = chol(Kuu)."""

    natural_fields = ("mean", "scale_tril")
    starts_at_prior = True
    whitening_is_fixed: ClassVar[bool] = True  # the whitened parameters do not depend on L

    def check_size(self, M):
        return check_vector_and_matrix(self, M)

    def start_from(self, prior, columns=0, need=()):
        """The pass in the form that suits what will be pulled."""
        if not wanted(need, "Kuf", "blocks"):
            return Whitening(self, prior, columns, need)
        if SmallWhitening.suits(self, prior, columns):
            return SmallWhitening(self, prior, columns, need)
        return (LongWhitening if columns > LONG_FROM * self.mean.size else Whitening)(
            self, prior, columns, need
        )

    def whitened(self, L):
        """``(m', W')`` (..., M), (..., M, M) of v = L^-1 u."""
        return self.mean, self.scale_tril

    def whitened_vjp(self, work, mean_bar, tril_bar, C):
        """Cotangents of the fields from those of m' (P, M) and W' (P, M, M); C, where it is not None, takes in those of L."""
        return mean_bar, tril_bar

    def unwhitened(self, L, mean, tril):
        """The posterior whose ``whitened`` are these. Overwrites ``tril``."""
        return replace(self, mean=mean, scale_tril=tril)


class Rows(NamedTuple):
    """What one run of rows keeps, whatever the parameters are: Kuf, Lam (M, N), kff (N,). Passes with one prior may share it."""

    Kuf: Any
    kff: Any
    Lam: Any


@dataclass(slots=True)
class Projected:
    """What ``pull`` needs of a run of rows: Lam (M, N), which it may overwrite if it ``owns`` it, and V of each output (M, N).

    In the long form V is E. In the Gram form, without cotangents of Kuf, nobody needs V.
    """

    Lam: Any
    V: list
    owns: bool


class Whitening(WhiteningPass):
    """The factor of Kuu, the whitened parameters, and the sums that ``pull`` collects.

    L : (M, M); means : (P, M); trils : (P, M, M); batch : the leading axes of the parameters, (P,) or ()
    """

    shares_rows = True

    def __init__(self, q, prior, columns, need):
        self.q, self.need, natural = q, need, "natural_step" in need
        super().__init__(prior, len(prior.L) if natural else columns)
        mean, tril = self._whitened()
        M = mean.shape[-1]
        self.batch = mean.shape[:-1]
        self.means, self.trils = mean.reshape(-1, M), tril.reshape(-1, M, M)
        self.gram_form = natural or 2 * columns > 3 * self.means.size
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self._set_needs(natural)
        self.Lam_a = self.tril_bar = self.G = self.C = None

    def _whitened(self):
        """The whitened mean and factor."""
        return self.q.whitened(self.L)

    def _set_needs(self, natural):
        """Decide on what ``pull`` sums."""
        self.sum_trils = (
            natural
            or wanted(self.need, "scale_tril")
            or (self.need_Kuu and not self.q.whitening_is_fixed)
        )

    def project(self, Kuf, kff):
        """2 M^2 N flops for the first output, M^2 N for others."""
        return self.project_rows(self.rows(Kuf, kff), owns=True)

    def rows(self, Kuf, kff):
        """What does not depend on the parameters: for ``project_rows`` of this pass, and of others with the same prior."""
        return Rows(Kuf, kff, self._solve(Kuf))

    def project_rows(self, rows, owns=False):
        """``project`` at ``rows``, which ``pull`` then leaves as they are unless it ``owns`` them."""
        Kuf, kff, Lam = rows
        P, N, keeps = len(self.means), Lam.shape[1], self.need_Kuf or not self.gram_form
        mean, var, V = [], [], []
        for p in range(P):
            *moments, product = self._moments(p, Kuf, Lam)
            for parts, part in zip((mean, var), moments, strict=True):
                parts.append(part)
            V.append(product if keeps else None)
            del product  # its memory is the next one's
        mean, var = (parts[0] if P == 1 else np.stack(parts) for parts in (mean, var))
        self.count_clamped(raise_to_floor(var, kff, add=True))
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, Projected(Lam, V, owns))

    def _moments(self, p, Kuf, Lam):
        """``(mean, var - kff, V)`` of one output."""
        mean, explained = kernels.column_moments(Lam, self.means[p])  # while Lam is in the cache
        V = self._half(p, Lam)
        return mean, kernels.column_moments(V, self.means[p])[1] - explained, V

    def _half(self, p, Lam):
        """V, with V' V what the covariance S of an output adds: Lam' S Lam."""
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
        # a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(len(cov), N * N)[:, :: N + 1], np.diagonal(Kff))
        return Joint(
            kernels.matmul(self.means, Lam).reshape(*self.batch, N), cov.reshape(*self.batch, N, N)
        )

    def kl(self):
        return kernels.kl_from_standard(self.means, self.trils)

    def pull(self, rows, f_bar):
        Lam, V, need_tril, need_Kuf, need_Kuu = (
            rows.Lam,
            rows.V,
            self.sum_trils,
            self.need_Kuf,
            self.need_Kuu,
        )
        P, (M, N) = len(self.means), Lam.shape
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        first = self.Lam_a is None
        if first:
            self.Lam_a = None if P == 1 and need_Kuf else np.zeros((P, M), Lam.dtype, like=Lam)
            if need_tril and not self.gram_form:
                self.tril_bar = kernels.empty(self.trils.shape, Lam)
            if self.gram_form and (need_tril or need_Kuu):
                self.G = kernels.empty(self.trils.shape, Lam)
            elif need_Kuu:
                self.C = kernels.empty((M, M), Lam)
        if not need_Kuf:
            self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        for p in range(P if need_tril and not self.gram_form else 0):
            kernels.scale_columns(V[p], b2[p], out=V[p])
            kernels.tril_product(Lam, V[p], out=self.tril_bar[p], add=not first)
        Lam_bar = self._Lam_bar(V, Lam, a, b2) if need_Kuf else None
        if self.C is not None:
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=not first)
        if self.G is not None:
            for p in range(P):
                kernels.weighted_gram(
                    Lam, b2[p], out=self.G[p], add=not first, overwrite_a=rows.owns and p == P - 1
                )
        rows.Lam = rows.V = None
        return self._Kuf_bar(Lam_bar) if need_Kuf else None

    def _Lam_bar(self, V, Lam, a, b2):
        """The cotangent, in the place of V[0]; Lam a goes to the sums.

        Sums over outputs come before passes over the batch.
        """
        scaled = self.tril_bar is not None
        if len(V) == 1:
            T = kernels.multiply_triangular(self.trils[0], V[0], overwrite_b=True)
            self._gain(
                0,
                kernels.add_outer_minus_scaled(
                    T, self.means[0], a[0], Lam, b2[0], scale=not scaled
                ),
            )
            return T
        for p, W in enumerate(self.trils):
            part = V[p] if scaled else kernels.scale_columns(V[p], b2[p], out=V[p])
            part = kernels.multiply_triangular(W, part, overwrite_b=True)
            T = part if p == 0 else kernels.add_scaled(T, part, 1.0)
        self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        kernels.add_outer_minus_scaled(T, self.means[0], a[0], Lam, b2.sum(axis=0))
        return kernels.add_scaled(T, kernels.matmul(self.means[1:], a[1:], transpose_a=True), 1.0)

    def _gain(self, p, Lam_a):
        """Add to the sum of Lam a of an output; the first of a single output is the sum."""
        if self.Lam_a is None:
            self.Lam_a = Lam_a[None]
        else:
            self.Lam_a[p] += Lam_a

    def _Kuf_bar(self, Lam_bar):
        return self._solve(Lam_bar, transpose=True, overwrite_b=True)

    def finish(self, kl_bar):
        mean_bar, tril_bar = self.q.whitened_vjp(self, *self._whitened_bars(kl_bar))
        posterior_bar = gradient(
            self.q,
            mean=mean_bar.reshape(self.q.mean.shape) if wanted(self.need, "mean") else None,
            scale_tril=(
                tril_bar.reshape(self.q.scale_tril.shape)
                if wanted(self.need, "scale_tril")
                else None
            ),
        )
        return Bars(posterior_bar, self._Kuu_bar() if self.need_Kuu else None)

    def _whitened_bars(self, kl_bar):
        """``(mean_bar (P, M), tril_bar (P, M, M), C)``; C is right in its lower triangle.

        Consumes the sums.
        """
        need_tril, need_Kuu = self.sum_trils, self.need_Kuu
        if self.G is not None and need_tril:
            self.tril_bar = kernels.empty(self.trils.shape, self.L)
        for p, W in enumerate(self.trils):
            if self.G is not None:
                G = kernels.symmetrise(self.G[p])
                # transposed: W' G
                GW = kernels.multiply_triangular(W, G, transpose=True, overwrite_b=not need_Kuu)
                if need_tril:
                    kernels.tril_update(GW, W, kl_bar, out=self.tril_bar[p], transpose=True)
                if need_Kuu:
                    C = kernels.tril_multiply(W, GW, overwrite_b=True)
                    kernels.add_outer_minus_scaled(
                        C, self.means[p], self.Lam_a[p], G, np.ones_like(self.means[p])
                    )
                    self.C = C if p == 0 else np.add(self.C, C, out=self.C)
            elif need_tril:
                kernels.tril_update(self.tril_bar[p], W, kl_bar, out=self.tril_bar[p])
        self.G = None
        return kernels.add_scaled(self.Lam_a, self.means, kl_bar), self.tril_bar, self.C

    def _Kuu_bar(self):
        """The whitening lemma applied to C, which it consumes."""
        C, self.C = self.C, None
        return kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)

    def natural_step(self, step_size):
        """Whitened ``(mean, tril)`` after a natural-gradient step; the sums come from ``pull`` in the Gram form.

        q(v) = N(m, S) has natural parameters (S^-1 m, -S^-1 / 2), and the natural gradient in them
        is the gradient in the expectation parameters (m, S + m m'): d_S for the second, d_m - 2 d_S
        m for the first (Hensman et al. 2013; Salimbeni et al. 2018). Here d_S = G / 2 - (I - S^-1)
        / 2 and d_m = Lam a - m, so a step of size g turns them into

            S_new^-1       = (1 - g) S^-1 + g (I - G)
            S_new^-1 m_new = (1 - g) S^-1 m + g (Lam a - G m):

        the old posterior enters with the weight 1 - g alone, and no gradient of the factor is
        formed. With b <= 0 (log-concave likelihoods) and g <= 1 the new precision is positive
        definite; else ``NotPositiveDefinite`` says that it is not.
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
        # all outputs at once: a device is waited for once
        trils = kernels.cholesky_of_inverse(precisions)
        means = kernels.multiply_triangular(
            trils, kernels.multiply_triangular(trils, thetas[..., None], transpose=True)
        )
        return self.q.unwhitened(
            self.L, means.reshape(*self.batch, M), trils.reshape(*self.batch, M, M)
        )


class LongWhitening(Whitening):
    """The pass in the long form: ``Rows.V`` holds E."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.alphas = self._solve(np.ascontiguousarray(self.means.T, like=self.L), transpose=True).T
        H = add_to_diagonals(self._covariances(), -1)
        self.Q = self._solve(H, transpose=True, overwrite_b=True)

    def _moments(self, p, Kuf, Lam):
        E = kernels.matmul(self.Q[p], Lam)
        return *kernels.column_moments(Kuf, self.alphas[p], E), E

    def _Lam_bar(self, V, Lam, a, b2):
        for p, E in enumerate(V):
            self._gain(p, kernels.scale_add_outer(E, b2[p], self.alphas[p], a[p], Lam))
            if p:
                kernels.add_scaled(V[0], E, 1.0)
        return V[0]

    def _Kuf_bar(self, Lam_bar):
        return Lam_bar  # E has been through L^-T already


class SmallWhitening(Whitening):
    """Small problems of one output on the CPU, all in the Gram form: four compiled calls in place of two dozen.

    Whole steps take 0.67 of the time that they take without it at (M, B) = (20, 100), 0.81 at (50,
    500), 0.90 at (100, 256).
    """

    @staticmethod
    def suits(q, prior, columns):
        """Whether this is the pass for a posterior at a prior, where the cotangents of Kuf are wanted."""
        M = len(prior.Kuu)
        return type(prior.Kuu) is np.ndarray and q.mean.size == M and M * M * (M + columns) < SMALL

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.gram_form = self.by_inverse = True

    def project(self, Kuf, kff):
        Lam, V, mean, var, raised = kernels.whitened_marginals(
            self.inverse, Kuf, kff, self.means[0], self.trils[0]
        )
        self.clamped += raised
        f = Marginals(mean.reshape(*self.batch, -1), var.reshape(*self.batch, -1))
        return Projection(f, Projected(Lam, [V], True))

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
        self.C = C if self.need_Kuu else None
        return mean_bar[None], tril_bar[None], self.C

    def kl(self):
        return kernels.whitened_kl(self.means[0], self.trils[0])
