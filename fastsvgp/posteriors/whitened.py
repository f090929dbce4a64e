"""Whitened SVGP: u = chol(Kuu) v and q(v) = N(m, W W'). The derivation stands in ``whitening``."""

from typing import Any

from ..records import leaf, record
from .base import ALL, GaussianFactor, prior_factor, wanted
from .whitening import whitening


@record
class Whitened(GaussianFactor):
    """q(v) = N(mean, scale_tril scale_tril') with u = chol(Kuu) v.

    Parameters
    ----------
    mean : (..., M)
    scale_tril : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.

    Notes
    -----
    Value and all gradients cost min(4 B + 14/3 M, 5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for one output; up to M = 256 another
    4/3 M^3, which products with L^-1 in place of solves win back. Source: Tiao, A Handbook for Sparse Variational Gaussian
    Processes; Hensman et al. 2015.
    """

    mean: Any = leaf()
    scale_tril: Any = leaf("tril")

    natural_fields = ("mean", "scale_tril")

    def start(self, Kuu, jitter, columns=0, need=()):
        return whitening(prior_factor(Kuu, jitter), self.mean, self.scale_tril, columns, need)

    def pull(self, work, part, f_bar, need=ALL):
        return work.pull(part, f_bar, wanted(need, "scale_tril"), "blocks" in need)

    def finish(self, work, kl_bar, need=ALL):
        need_tril, need_blocks = wanted(need, "scale_tril"), "blocks" in need
        mean_bar, tril_bar, _ = work.finish(kl_bar, need_tril, need_blocks)
        posterior_bar = Whitened(
            mean_bar.reshape(self.mean.shape) if wanted(need, "mean") else None,
            tril_bar.reshape(self.scale_tril.shape) if need_tril else None,
        )
        return posterior_bar, work.Kuu_bar() if need_blocks else None

    def natural_step(self, work, step_size):
        return Whitened(*work.natural_step(step_size))
