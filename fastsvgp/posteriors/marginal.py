"""Unwhitened SVGP, q(u) = N(m, W W'), through the whitened algebra at m' = L^-1 m, W' = L^-1 W (L = chol(Kuu)).

KL[N(m, W W') || N(0, L L')] is the whitened one: both log-determinants carry the same log det L.

Reverse. The whitening lemma covers everything that Kuu reaches through L^-1: the batch, the mean and the factor,

    m_bar = L^-T m'_bar,    W_bar = tril(L^-T W'_bar),    C += m'_bar m'^T + W'_bar W'^T    (here ' marks the whitened ones)
"""

from typing import Any

from .. import kernels
from ..records import leaf, record
from .base import ALL, GaussianFactor, prior_factor, wanted
from .whitening import whitening


@record
class Marginal(GaussianFactor):
    """q(u) = N(mean, scale_tril scale_tril').

    Parameters
    ----------
    mean : (..., M)
    scale_tril : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.

    Notes
    -----
    Costs 7/3 M^3 flops an output more than ``Whitened``, for the value and all gradients. Source: Hensman et al. 2013, 2015.
    """

    mean: Any = leaf()
    scale_tril: Any = leaf("tril")

    natural_fields = ("mean", "scale_tril")

    def start(self, Kuu, jitter, columns=0, need=()):
        L = prior_factor(Kuu, jitter)
        return whitening(L, _solve_vectors(L, self.mean), kernels.solve_tril(L, self.scale_tril), columns, need)

    def pull(self, work, part, f_bar, need=ALL):
        need_blocks = "blocks" in need
        return work.pull(part, f_bar, need_blocks or wanted(need, "scale_tril"), need_blocks)

    def finish(self, work, kl_bar, need=ALL):
        need_blocks, need_tril, L = "blocks" in need, wanted(need, "scale_tril"), work.L
        mean_bar, tril_bar, C = work.finish(kl_bar, need_blocks or need_tril, need_blocks)
        Kuu_bar = None
        if need_blocks:
            kernels.tril_product(mean_bar.T, work.means.T, out=C, add=True)
            for W_bar, W in zip(tril_bar, work.trils, strict=True):
                kernels.tril_product(W_bar, W, out=C, add=True)
            Kuu_bar = work.Kuu_bar()
        if need_tril:
            tril_bar = kernels.tril(kernels.solve_triangular(L, tril_bar, transpose=True, overwrite_b=True))
        posterior_bar = Marginal(
            _solve_vectors(L, mean_bar, transpose=True).reshape(self.mean.shape) if wanted(need, "mean") else None,
            tril_bar.reshape(self.scale_tril.shape) if need_tril else None,
        )
        return posterior_bar, Kuu_bar

    def natural_step(self, work, step_size):
        # the step is the same in every linear coordinate of u
        mean, tril = work.natural_step(step_size)
        back = kernels.multiply_triangular(work.L, mean[..., None])[..., 0]
        return Marginal(back, kernels.tril(kernels.tril_multiply(work.L, tril, overwrite_b=True)))


def _solve_vectors(L, vectors, transpose=False):
    return kernels.solve_triangular(L, vectors[..., None], transpose=transpose)[..., 0]
