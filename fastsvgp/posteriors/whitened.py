"""Whitened SVGP: u = chol(Kuu) v and q(v) = N(m, W W'). ``whitening`` has the derivation."""

from typing import ClassVar

from ..records import leaf, record
from ..records.typed import Array
from .gaussian_factor import GaussianFactor


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
    Value and all gradients cost min(4 B + 14/3 M, 5 B + 10/3 M, 6 B + 4/3 M) M^2 flops for one
    output. Up to M = 256 an explicit L^-1 costs another 4/3 M^3, and products with it are enough
    faster than solves to save time in total. Source: Tiao, A Handbook for Sparse Variational
    Gaussian Processes; Hensman et al. 2015.

    Examples
    --------
    >>> q = fs.Whitened(mean=np.zeros(6), scale_tril=np.eye(6))
    >>> fs.bounds.kl_term_and_grad(fs.replace(model, posterior=q))[0] + 0.0
    0.0
    """

    mean: Array = leaf()
    scale_tril: Array = leaf("tril")

    kl_depends_on_Kuu: ClassVar[bool] = False
