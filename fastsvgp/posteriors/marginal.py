"""Unwhitened SVGP, q(u) = N(m, W W'), through the whitened algebra at m' = L^-1 m, W' = L^-1 W (L = chol(Kuu)).

Reverse. The whitening lemma covers everything that Kuu reaches through L^-1: the batch, the mean and the factor,

    m_bar = L^-T m'_bar,    W_bar = tril(L^-T W'_bar),    C += m'_bar m'' + W'_bar W''   (the last primes are transposes).
"""

from dataclasses import dataclass
from typing import Any

from .. import kernels
from ..records import leaf, record
from .base import ALL, Posterior, check_mean_and_tril, wanted
from .natural import natural_whitened
from .whitened import Saved, blocks_bar, condition_whitened, forward_whitened, vjp_whitened


@dataclass(slots=True)
class MarginalSaved:
    """The whitened parameters, and what the whitened algebra saved."""

    white: tuple
    core: Saved

    @property
    def clamped(self):
        return self.core.clamped


@record
class Marginal(Posterior):
    """q(u) = N(mean, scale_tril scale_tril').

    Parameters
    ----------
    mean : (..., M)
    scale_tril : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.

    Notes
    -----
    Costs 8/3 M^3 flops an output more than ``Whitened``, for the value and all gradients. Source: Hensman et al. 2013, 2015.
    """

    mean: Any = leaf()
    scale_tril: Any = leaf("tril")

    def check_size(self, M):
        return check_mean_and_tril(self, M)

    def forward(self, blocks, jitter):
        L = kernels.cholesky(blocks.Kuu, jitter)
        white = _whitened(self, L)
        f, kl, saved = forward_whitened(*white, L, kernels.solve_triangular(L, blocks.Kuf), blocks.kff)
        # KL[N(m, W W') || N(0, L L')] is the whitened one: log det of both factors carries the same log det L
        return f, kl, MarginalSaved(white, saved)

    def vjp(self, f_bar, kl_bar, saved, need=ALL):
        (mean, tril), core = saved.white, saved.core
        need_blocks = "blocks" in need
        mean_bar, tril_bar, Lam_bar, C = vjp_whitened(
            mean,
            tril,
            f_bar,
            kl_bar,
            core,
            need_mean=need_blocks or wanted(need, "mean"),
            need_tril=need_blocks or wanted(need, "scale_tril"),
            need_blocks=need_blocks,
        )
        L, M = core.L, mean.shape[-1]
        blocks = None
        if need_blocks:
            kernels.tril_product(mean_bar.reshape(-1, M).T, mean.reshape(-1, M).T, out=C, add=True)
            for W_bar, W in zip(tril_bar.reshape(-1, M, M), tril.reshape(-1, M, M), strict=True):
                kernels.tril_product(W_bar, W, out=C, add=True)
            blocks = blocks_bar(L, Lam_bar, C, f_bar.var)
        posterior = Marginal(
            _solve_vectors(L, mean_bar, transpose=True) if wanted(need, "mean") else None,
            kernels.tril(kernels.solve_triangular(L, tril_bar, transpose=True, overwrite_b=True))
            if wanted(need, "scale_tril")
            else None,
        )
        return posterior, blocks

    def natural_step(self, f_bar, saved, step_size):
        core = saved.core
        mean, tril = natural_whitened(*saved.white, f_bar, core, step_size)
        times = kernels.multiply_triangular
        return Marginal(times(core.L, mean[..., None])[..., 0], kernels.tril(times(core.L, tril)))

    def factor(self, Kuu, jitter):
        L = kernels.cholesky(Kuu, jitter)
        return L, *_whitened(self, L)

    def condition(self, factor, blocks):
        return condition_whitened(*factor, blocks)


def _whitened(q, L):
    return _solve_vectors(L, q.mean), kernels.solve_tril(L, q.scale_tril)


def _solve_vectors(L, vectors, transpose=False):
    return kernels.solve_triangular(L, vectors[..., None], transpose=transpose)[..., 0]
