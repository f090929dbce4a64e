"""Whitened SVGP: u = L v with L = chol(Kuu) and q(v) = N(m, W W').

With Lam = L^-1 Kuf and V = W' Lam (handbook, "Whitened parameterization" and appendix I):

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V^2),    KL = (|m|^2 + |W|_F^2 - M) / 2 - sum log W_ii.

Reverse. Let a, b be the cotangents of mean and var, kappa that of the KL (-1 in an ELBO), X diag(b) written X * b.

    Lam_bar = m a' + 2 (W V - Lam) * b                      d var = -2 colsum(Lam dLam) + 2 colsum(V (W' dLam + dW' Lam))
    m_bar   = Lam a + kappa m
    W_bar   = tril(2 (Lam * b) V') + kappa (W - diag(1 / W_ii))
    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    Kuu_bar = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,  C = Lam_bar Lam'      (whitening lemma: Kuu enters through Lam alone)

*Batch form* as it stands: trsm, trmm, trmm, two half products, trsm = 6 M^2 B, and 4/3 M^3 (potrf, congruence). Only lower
triangles of the two products are formed.

*Gram form*, for many data per inducing input: with G = (Lam * b) Lam' (symmetric) the two products with the batch collapse,

    (Lam * b) V' = G W,    C = m (Lam a)' + 2 (W (G W)' - G):

trsm, trmm, syrk, trmm, trsm = 5 M^2 B, and 10/3 M^3. It is the cheaper one when B > 2 P M, P the number of outputs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..records import Blocks, Marginals, leaf, record
from .base import ALL, Posterior, check_mean_and_tril, wanted
from .natural import natural_whitened


@dataclass(slots=True)
class Saved:
    """What the reverse pass of whitened algebra needs: L, Lam (M, N), the P matrices V (M, N), the clamp count."""

    L: Any
    Lam: Any
    V: Any
    clamped: int


@record
class Whitened(Posterior):
    """q(v) = N(mean, scale_tril scale_tril') with u = chol(Kuu) v.

    Parameters
    ----------
    mean : (..., M)
    scale_tril : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.

    Notes
    -----
    Value and all gradients cost min(5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for one output. Source: Tiao, A Handbook for
    Sparse Variational Gaussian Processes; Hensman et al. 2015.
    """

    mean: Any = leaf()
    scale_tril: Any = leaf("tril")

    def check_size(self, M):
        return check_mean_and_tril(self, M)

    def forward(self, blocks, jitter):
        L = kernels.cholesky(blocks.Kuu, jitter)
        Lam = kernels.solve_triangular(L, blocks.Kuf)
        return forward_whitened(self.mean, self.scale_tril, L, Lam, blocks.kff)

    def vjp(self, f_bar, kl_bar, saved, need=ALL):
        mean_bar, tril_bar, Lam_bar, C = vjp_whitened(
            self.mean,
            self.scale_tril,
            f_bar,
            kl_bar,
            saved,
            need_mean=wanted(need, "mean"),
            need_tril=wanted(need, "scale_tril"),
            need_blocks="blocks" in need,
        )
        return Whitened(mean_bar, tril_bar), blocks_bar(saved.L, Lam_bar, C, f_bar.var) if "blocks" in need else None

    def natural_step(self, f_bar, saved, step_size):
        return Whitened(*natural_whitened(self.mean, self.scale_tril, f_bar, saved, step_size))

    def factor(self, Kuu, jitter):
        return kernels.cholesky(Kuu, jitter), self.mean, self.scale_tril

    def condition(self, factor, blocks):
        return condition_whitened(*factor, blocks)


def forward_whitened(mean, tril, L, Lam, kff):
    """``(Marginals, kl, Saved)`` from whitened parameters (..., M), (..., M, M)."""
    means, trils = _stacked(mean, tril)
    f_mean, f_var, V = _project(means, trils, Lam, kff)
    clamped = _clamp(f_var, kff)
    M, N = Lam.shape
    diagonals = np.diagonal(trils, axis1=-2, axis2=-1)
    kl = 0.5 * (float(np.sum(np.square(means, dtype=float))) + kernels.tril_sum_of_squares(trils) - means.size)
    kl -= float(np.sum(np.log(diagonals, dtype=float)))
    batch = mean.shape[:-1]
    return Marginals(f_mean.reshape(*batch, N), f_var.reshape(*batch, N)), kl, Saved(L, Lam, V, clamped)


def vjp_whitened(mean, tril, f_bar, kl_bar, saved, *, need_mean, need_tril, need_blocks):
    """``(mean_bar, tril_bar, Lam_bar, C)``; C is correct in its lower triangle. Consumes ``saved``."""
    Lam, V = saved.Lam, saved.V
    M, N = Lam.shape
    means, trils = _stacked(mean, tril)
    P = len(means)
    a, b = f_bar.mean.reshape(P, N), f_bar.var.reshape(P, N)
    Lam_a = kernels.matmul(a, Lam, transpose_b=True)
    mean_bar = (Lam_a + kl_bar * means).reshape(mean.shape) if need_mean else None
    gram_form = N > 2 * P * M
    tril_bar = kernels.empty(trils.shape, Lam) if need_tril else None
    Lam_bar = C = None
    for p in range(P):
        b2 = 2 * b[p]
        if need_tril and not gram_form:
            kernels.scale_columns(V[p], b2, out=V[p])
            kernels.tril_product(Lam, V[p], out=tril_bar[p])
            kernels.tril_update(tril_bar[p], trils[p], kl_bar, out=tril_bar[p])
        if need_blocks:
            T = kernels.multiply_triangular(trils[p], V[p], overwrite_b=True)
            kernels.add_outer_minus_scaled(T, means[p], a[p], Lam, b2, scale=gram_form or not need_tril)
            Lam_bar = T if p == 0 else np.add(Lam_bar, T, out=Lam_bar)
    if need_blocks:
        C = kernels.matmul(means, Lam_a, transpose_a=True) if gram_form else kernels.tril_product(Lam_bar, Lam)
    if gram_form and (need_tril or need_blocks):
        for p in range(P):
            G2 = kernels.weighted_gram(Lam, 2 * b[p], overwrite_a=p == P - 1)
            if need_blocks:
                C -= G2
            GW = kernels.multiply_triangular(trils[p], G2, transpose=True, overwrite_b=True)  # (2 G W)' = W' 2 G
            if need_tril:
                kernels.tril_update(GW, trils[p], kl_bar, out=tril_bar[p], transpose=True)
            if need_blocks:
                C += kernels.multiply_triangular(trils[p], GW, overwrite_b=True)
    saved.V = saved.Lam = None
    return mean_bar, tril_bar.reshape(tril.shape) if need_tril else None, Lam_bar, C


def blocks_bar(L, Lam_bar, C, var_bar):
    """Blocks cotangents from those of Lam and of the whitening; both are consumed."""
    kff_bar = var_bar if var_bar.ndim == 1 else var_bar.sum(axis=tuple(range(var_bar.ndim - 1)))
    Kuu_bar = kernels.whitening_vjp(C, L, overwrite_c=True)
    return Blocks(Kuu_bar, kernels.solve_triangular(L, Lam_bar, transpose=True, overwrite_b=True), kff_bar)


def condition_whitened(L, mean, tril, blocks):
    Lam = kernels.solve_triangular(L, blocks.Kuf)
    means, trils = _stacked(mean, tril)
    batch = mean.shape[:-1]
    N = Lam.shape[1]
    if blocks.Kff is None:
        f_mean, f_var, _ = _project(means, trils, Lam, blocks.kff)
        clamped = _clamp(f_var, blocks.kff)
        return f_mean.reshape(*batch, N), f_var.reshape(*batch, N), clamped
    f_mean = kernels.matmul(means, Lam)
    prior = blocks.Kff - kernels.matmul(Lam, Lam, transpose_a=True)
    cov = np.empty((len(means), N, N), Lam.dtype)
    for p in range(len(means)):
        V = kernels.multiply_triangular(trils[p], Lam, transpose=True)
        cov[p] = prior + kernels.matmul(V, V, transpose_a=True)
    clamped = _clamp(np.einsum("pnn->pn", cov), blocks.kff)  # a view of the diagonals
    return f_mean.reshape(*batch, N), cov.reshape(*batch, N, N), clamped


def _stacked(mean, tril):
    """Outputs as one leading axis: (P, M) and (P, M, M)."""
    M = mean.shape[-1]
    return mean.reshape(-1, M), tril.reshape(-1, M, M)


def _project(means, trils, Lam, kff):
    """Means (P, N), variances (P, N) and the P matrices V (M, N)."""
    P, N = len(means), Lam.shape[1]
    f_mean, f_var, V = np.empty((P, N), Lam.dtype), np.empty((P, N), Lam.dtype), []
    for p in range(P):
        f_mean[p], explained = kernels.column_moments(Lam, means[p])
        V.append(kernels.multiply_triangular(trils[p], Lam, transpose=True))
        _, kept = kernels.column_moments(V[p], means[p])
        f_var[p] = kff - explained + kept
    return f_mean, f_var, V


def _clamp(var, kff):
    """Raise variances below eps kff to that floor, in place; how many there were."""
    floor = np.finfo(var.dtype).eps * kff
    low = var < floor
    count = int(np.count_nonzero(low))
    if count:
        np.maximum(var, floor, out=var, where=low)
    return count
