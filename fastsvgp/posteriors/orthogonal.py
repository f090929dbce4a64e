"""SOLVE-GP: a second set O of inducing inputs for the part of f that is independent of f(Z).

The process is the sum of its projection on u = f(Z) and an independent residual, whose inducing
variables are v = f(O) - E[f(O) | u]. v has the prior covariance C_vv = K_vv - K_vu Kuu^-1 K_uv, and
q(u, v) = q(u) q(v) with N(m_u, S_u) and N(m_v, S_v), S = W W'. Let K be the Kuu of the stack (Z,
O), jitter included, and L = chol(K). Its diagonal blocks are L_uu = chol(Kuu) and L_vv =
chol(C_vv), so

    u = L_uu u',    v = L_vv v',    f(Z, O) = L (u', v'),

and SOLVE-GP is the whitened bound of the stack (see ``whitening``) with the mean (m_u', m_v')
and the factor diag(W_u', W_v'). Each set is whitened by its own block, m_s' = L_ss^-1 m_s, W_s' =
L_ss^-1 W_s. ``whitening`` has the bound and its gradient, ``natural`` the natural step.

Source: Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes"
(2020), section 3, appendix F.
"""

from typing import ClassVar

import numpy as np

from ..records import leaf, record
from ..records.typed import Array
from .gaussian_factor import GaussianSets


@record
class OrthogonalSets(GaussianSets):
    """Base of the posteriors of several sets; ``names`` are field suffixes."""

    names = ("u", "v")
    num_sets = 2
    natural_fields: ClassVar[tuple[str, ...]] = ("mean_u", "scale_tril_u", "mean_v", "scale_tril_v")

    def check_size(self, *sizes):
        batch = np.shape(getattr(self, f"mean_{self.names[0]}"))[:-1]
        for name, M in zip(self.names, sizes, strict=True):
            for field, due in zip(self.fields_of(name), ((M,), (M, M)), strict=False):
                shape = np.shape(getattr(self, field))
                if len(batch) > 1 or 0 in batch or shape != (*batch, *due):
                    raise ValueError(
                        f"`posterior` has {field} {shape}, but that set has {M} inducing inputs:"
                        f" use {due}, or {('P', *due)} with P outputs in every field".replace(
                            "'", ""
                        )
                    )
        return batch

    def set_sizes(self, M):
        sizes = [np.shape(getattr(self, f"mean_{name}"))[-1] for name in self.names[:-1]]
        return (*sizes, M - sum(sizes))


@record
class WhitenedOrthogonal(OrthogonalSets):
    """q(u') q(v') with u = chol(Kuu) u', v = chol(C_vv) v', for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    mean_v : (..., M2)
    scale_tril_v : (..., M2, M2)
        As ``scale_tril_u``.

    Notes
    -----
    Equivalent to ``Whitened`` on the stack of Z and O with a block-diagonal factor, which has half
    the parameters. Value and all gradients cost min(14 B + 82/3 M, 16 B + 56/3 M, 18 B + 32/3 M)
    M^2 flops for M2 = M and one output. Source: Shi et al. 2020, appendix F.

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.posteriors.WhitenedOrthogonal(np.zeros(6), np.eye(6), np.zeros(4), np.eye(4))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -279.18
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")

    kl_depends_on_Kuu: ClassVar[bool] = False


@record
class Orthogonal(OrthogonalSets):
    """q(u) q(v) with v = f(O) - E[f(O) | u], for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    mean_v : (..., M2)
    scale_tril_v : (..., M2, M2)
        As ``scale_tril_u``.

    Notes
    -----
    Value and all gradients cost 14/3 P M^3 flops more than those of ``WhitenedOrthogonal``, for M2
    = M. Source: Shi et al. 2020, section 3.

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.posteriors.at_prior(fs.posteriors.Orthogonal, covariance, pair)
    >>> [path for path, _, _ in fs.records.leaves(q)]
    ['mean_u', 'scale_tril_u', 'mean_v', 'scale_tril_v']
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")

    unwhitens = True
