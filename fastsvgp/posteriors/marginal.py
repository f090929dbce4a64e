"""Unwhitened SVGP, q(u) = N(m, W W'), by the whitened algebra at m' = L^-1 m, W' = L^-1 W.

L = chol(Kuu). KL[N(m, W W') || N(0, L L')] equals the whitened KL: both log-determinants contain
the same log det L.

Reverse. The whitening lemma covers everything that depends on Kuu through L^-1: the batch, the mean
and the factor. With ' for whitened parameters,

    m_bar = L^-T m'_bar,    W_bar = tril(L^-T W'_bar),    C += m'_bar m'^T + W'_bar W'^T
"""

from .. import kernels
from ..records import leaf, record, replace
from ..records.typed import Array
from .base import gaussian_draws, solve_vectors, wanted
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

    whitening_is_fixed = False

    def whitened(self, L):
        return solve_vectors(L, self.mean), kernels.solve_tril(L, self.scale_tril)

    def whitened_vjp(self, work, mean_bar, tril_bar, C):
        if C is not None:
            kernels.tril_product(mean_bar.T, work.means.T, out=C, add=True)
            for W_bar, W in zip(tril_bar, work.trils, strict=True):
                kernels.tril_product(W_bar, W, out=C, add=True, lower=True)
        if wanted(work.need, "scale_tril"):
            tril_bar = kernels.solve_tril(work.L, tril_bar, transpose=True, overwrite_w=True)
        return solve_vectors(work.L, mean_bar, transpose=True), tril_bar

    def path_weights(self, prior, values, normal):
        """(L L')^-1 (m + W h - u0), h standard normal."""
        draws = gaussian_draws(self.mean, self.scale_tril, values.shape[-1], normal)
        draws -= values
        half = kernels.solve_triangular(prior.L, draws, overwrite_b=True)
        return kernels.solve_triangular(prior.L, half, transpose=True, overwrite_b=True)

    def unwhitened(self, L, mean, tril):
        back = kernels.multiply_triangular(L, mean[..., None])[..., 0]
        return replace(
            self,
            mean=back,
            scale_tril=kernels.tril_multiply(L, tril, overwrite_b=True, lower=True),
        )
