"""Unwhitened SVGP, q(u) = N(m, W W'), by the whitened algebra at m' = L^-1 m, W' = L^-1 W.

L = chol(Kuu). KL[N(m, W W') || N(0, L L')] equals the whitened KL: both log-determinants contain
the same log det L. ``GaussianSets`` has the reverse rule.
"""

from .. import kernels
from ..records import leaf, record
from ..records.typed import Array
from .base import gaussian_draws
from .gaussian_factor import GaussianFactor


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
    Value and all gradients cost M^3 flops per output more than those of ``Whitened``. Source:
    Hensman et al. 2013, 2015.

    Examples
    --------
    >>> q = fs.Marginal(mean=np.zeros(6), scale_tril=np.eye(6))
    >>> round(fs.elbo(fs.replace(model, posterior=q), X, Y), 2)
    -294.72
    """

    mean: Array = leaf()
    scale_tril: Array = leaf("tril")

    unwhitens = True

    def path_weights(self, prior, values, normal):
        """(L L')^-1 (m + W h - u0), h standard normal."""
        draws = gaussian_draws(self.mean, self.scale_tril, values.shape[-1], normal)
        draws -= values
        half = kernels.solve_triangular(prior.L, draws, overwrite_b=True)
        return kernels.solve_triangular(prior.L, half, transpose=True, overwrite_b=True)
