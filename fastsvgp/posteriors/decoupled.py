"""Decoupled inducing inputs (ODVGP): SOLVE-GP whose q(v) keeps the prior covariance C_vv, so that O serves the mean alone.

Names as in ``orthogonal``. With S_v = C_vv the whitened factor of v is the identity: it has no part in the variance, and no V.
Let alpha = L^-T m be the weights of the mean in Kuf, m = (m_u, m_v) whitened by their blocks:

    mean = Kuf' alpha,    var = kff - colsum(Lam_u^2) + colsum(V_u^2),    Lam_u = L_uu^-1 Kuf_u,    V_u = W_u' Lam_u
    KL   = KL[N(m_u, W_u W_u') || N(0, I)] + |m_v|^2 / 2

so that the batch meets O in products with vectors only. Reverse: with beta = L^-1 (Kuf a) the mean is m' beta summed over the
data, and Kuu enters through beta, Lam_u and the whitening of the parameters, all of the form of the whitening lemma; L_uu is the
leading block of L, and the lower triangular Phi of the lemma keeps to its leading block there:

    Lam_u_bar = 2 (W_u V_u - Lam_u) * b
    Kuf_bar   = alpha a',  its first rows + L_uu^-T Lam_u_bar
    m_bar     = beta + kappa m
    W_u_bar   = tril(2 (Lam_u * b) V_u') + kappa (W_u - diag(1 / W_u,ii))
    C         = m beta',  C_uu += Lam_u_bar Lam_u',  C_ss += m_s_bar m_s',  C_uu += W_u_bar W_u'      (lower triangle)

Source: Salimbeni et al., "Orthogonally Decoupled Variational Gaussian Processes" (2018); Shi et al. 2020, section 3.1.
"""

from typing import Any

import numpy as np

from .. import kernels
from ..records import Marginals, leaf, record
from .base import Bars, Joint, Pass, Projection, gradient, raise_to_floor, wanted
from .orthogonal import Projected, StackedPass, UnwhitenedSets

INVERSE_UP_TO = 256


@record
class Decoupled(UnwhitenedSets):
    """q(u) N(v | mean_v, C_vv) with v = f(O) - E[f(O) | u], for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M);  mean_v : (..., M2)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.

    Notes
    -----
    Value and all gradients cost 3 (1 + P) M^2 B flops for P outputs, as ``Marginal`` on Z, and 4/3 (M + M2)^3. Source: Salimbeni
    et al. 2018.
    """

    mean_u: Any = leaf()
    scale_tril_u: Any = leaf("tril")
    mean_v: Any = leaf()

    natural_fields = ("mean_u", "scale_tril_u", "mean_v")

    def start_from(self, prior, columns=0, need=()):
        return (StackedPass if "natural_step" in need else DecoupledPass)(self, prior, columns, need)

    def whitened(self, name, L):
        if name == "u":
            return super().whitened(name, L)
        mean = kernels.solve_triangular(L, self.mean_v[..., None])[..., 0]
        tril = np.zeros((*mean.shape, len(L)), L.dtype, like=L)
        tril.reshape(-1, len(L) ** 2)[:, :: len(L) + 1] = 1
        return mean, tril

    def unwhitened(self, name, L, mean, tril):
        if name == "u":
            return super().unwhitened(name, L, mean, tril)
        return {"mean_v": kernels.multiply_triangular(L, mean[..., None])[..., 0]}


class DecoupledPass(Pass):
    """The factor of the stacked Kuu, the whitened parameters, the weights of the mean, and the sums that ``pull`` collects.

    L : (M_u + M_v, same), its blocks (L_u, L_v); means, alphas : (P, M_u + M_v); trils : (P, M_u, M_u)
    """

    def __init__(self, q, prior, columns, need):
        self.q, self.need, self.L = q, need, prior.L
        M, (size, _) = len(self.L), q.set_sizes(len(self.L))
        self.u, self.v = slice(0, size), slice(size, M)
        self.L_u, self.L_v = (np.ascontiguousarray(self.L[at, at], like=self.L) for at in (self.u, self.v))
        self.inverse = kernels.inverse_triangular(self.L_u) if size <= min(INVERSE_UP_TO, columns) else None
        mean_u, tril = q.whitened("u", self.L_u)
        self.batch, mean_v = mean_u.shape[:-1], kernels.solve_triangular(self.L_v, q.mean_v[..., None])[..., 0]
        self.means = np.concatenate([mean_u.reshape(-1, size), mean_v.reshape(-1, M - size)], axis=1)
        self.trils = tril.reshape(-1, size, size)
        self.alphas = kernels.solve_triangular(self.L, self.means[..., None], transpose=True)[..., 0]
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self.sum_trils = self.need_Kuu or wanted(need, "scale_tril_u")
        self.Kuf_a = self.tril_bar = self.C_u = None

    def _solve(self, B, transpose=False, overwrite_b=False):
        if self.inverse is None:
            return kernels.solve_triangular(self.L_u, B, transpose, overwrite_b)
        return kernels.multiply_triangular(self.inverse, B, transpose, overwrite_b)

    def project(self, Kuf, kff):
        Lam = self._solve(np.ascontiguousarray(Kuf[self.u], like=Kuf))
        (P, M), N = self.trils.shape[:2], Lam.shape[1]
        zeros, V, var = np.zeros(M, Lam.dtype, like=Lam), [], np.empty((P, N), Lam.dtype, like=Lam)
        explained = kernels.column_moments(Lam, zeros)[1]
        for p, W in enumerate(self.trils):
            V.append(kernels.multiply_triangular(W, Lam, transpose=True))
            var[p] = kff + (kernels.column_moments(V[p], zeros)[1] - explained)
        self.clamped += raise_to_floor(var, kff)
        mean = kernels.matmul(self.alphas, Kuf)
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, (Kuf, Projected(Lam, V)))

    def joint(self, Kuf, Kff):
        Lam = self._solve(np.ascontiguousarray(Kuf[self.u], like=Kuf))
        P, N = len(self.trils), Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((P, N, N), Lam.dtype, like=Lam)
        for p, W in enumerate(self.trils):
            V = kernels.multiply_triangular(W, Lam, transpose=True)
            np.add(prior, kernels.matmul(V, V, transpose_a=True), out=cov[p])
        self.clamped += raise_to_floor(cov.reshape(P, N * N)[:, :: N + 1], np.diagonal(Kff))  # a view of the diagonals
        return Joint(kernels.matmul(self.alphas, Kuf).reshape(*self.batch, N), cov.reshape(*self.batch, N, N))

    def kl(self):
        P, M = self.trils.shape[:2]
        squares = np.sum(np.square(self.means, dtype=float)) + kernels.tril_sum_of_squares(self.trils)
        return 0.5 * (squares - P * M) - np.log(self.trils.diagonal(0, -2, -1), dtype=float).sum()

    def pull(self, rows, f_bar):
        Kuf, (Lam, V) = rows[0], (rows[1].Lam, rows[1].V)
        (P, M), N, first = self.trils.shape[:2], Lam.shape[1], self.Kuf_a is None
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if first:
            self.Kuf_a = np.zeros_like(self.means)
            self.tril_bar = kernels.empty(self.trils.shape, Lam) if self.sum_trils else None
            self.C_u = kernels.empty((M, M), Lam) if self.need_Kuu else None
        self.Kuf_a += kernels.matmul(a, Kuf, transpose_b=True)
        Lam_bar, zeros = None, np.zeros(M, Lam.dtype, like=Lam)
        for p, W in enumerate(self.trils):
            if self.sum_trils or self.need_Kuf:
                kernels.scale_columns(V[p], b2[p], out=V[p])
            if self.sum_trils:
                kernels.tril_product(Lam, V[p], out=self.tril_bar[p], add=not first)
            if self.need_Kuf:
                T = kernels.multiply_triangular(W, V[p], overwrite_b=True)
                kernels.add_outer_minus_scaled(T, zeros, a[p], Lam, b2[p])
                Lam_bar = T if p == 0 else np.add(Lam_bar, T, out=Lam_bar)
        if self.C_u is not None:
            kernels.tril_product(Lam_bar, Lam, out=self.C_u, add=not first)
        rows[1].Lam = rows[1].V = None
        if not self.need_Kuf:
            return None
        Kuf_bar = kernels.matmul(self.alphas, a, transpose_a=True)
        Kuf_bar[self.u] += self._solve(Lam_bar, transpose=True, overwrite_b=True)
        return Kuf_bar

    def finish(self, kl_bar):
        betas = kernels.solve_triangular(self.L, self.Kuf_a[..., None])[..., 0]
        mean_bars = betas + kl_bar * self.means
        if self.sum_trils:
            for bar, W in zip(self.tril_bar, self.trils, strict=True):
                kernels.tril_update(bar, W, kl_bar, out=bar)
        Kuu_bar = self._Kuu_bar(betas, mean_bars) if self.need_Kuu else None
        bars = {}
        for name, at, L in (("mean_u", self.u, self.L_u), ("mean_v", self.v, self.L_v)):
            if wanted(self.need, name):
                bar = np.ascontiguousarray(mean_bars[:, at, None], like=mean_bars)
                bars[name] = kernels.solve_triangular(L, bar, transpose=True).reshape(getattr(self.q, name).shape)
        if wanted(self.need, "scale_tril_u"):
            tril_bar = kernels.tril(kernels.solve_triangular(self.L_u, self.tril_bar, transpose=True, overwrite_b=True))
            bars["scale_tril_u"] = tril_bar.reshape(self.q.scale_tril_u.shape)
        return Bars(gradient(self.q, **bars), Kuu_bar)

    def _Kuu_bar(self, betas, mean_bars):
        """The whitening lemma applied to C of the module's text."""
        for W_bar, W in zip(self.tril_bar, self.trils, strict=True):
            kernels.tril_product(W_bar, W, out=self.C_u, add=True)
        C = kernels.tril_product(self.means.T, betas.T)
        for at in (self.u, self.v):
            left, right = (np.ascontiguousarray(x[:, at].T, like=x) for x in (mean_bars, self.means))
            C[at, at] += kernels.tril_product(left, right)
        C[self.u, self.u] += kernels.tril(self.C_u)
        return kernels.whitening_vjp(C, self.L, overwrite_c=True)
