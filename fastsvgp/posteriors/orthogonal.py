"""SOLVE-GP: a second set O of inducing inputs for the part of f that is independent of f(Z).

The process is the sum of its projection on u = f(Z) and an independent residual, whose inducing
variables are v = f(O) - E[f(O) | u]. v has the prior covariance C_vv = K_vv - K_vu Kuu^-1 K_uv, and
q(u, v) = q(u) q(v) with N(m_u, S_u) and N(m_v, S_v), S = W W'. Let K be the Kuu of the stack (Z,
O), jitter included, and L = chol(K). Its diagonal blocks are L_uu = chol(Kuu) and L_vv =
chol(C_vv), so

    u = L_uu u',    v = L_vv v',    f(Z, O) = L (u', v'),

and SOLVE-GP is the whitened bound of the stack (see ``whitening``) with the mean (m_u', m_v')
and the factor diag(W_u', W_v'). Each set is whitened by its own block, m_s' = L_ss^-1 m_s, W_s' =
L_ss^-1 W_s. ``orthogonal_pass`` has the bound, its gradient and the natural step.

Source: Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes"
(2020), section 3, appendix F.
"""

from typing import ClassVar

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Array
from .base import Posterior, gaussian_draws, path_weights_of_whitened, solve_vectors, wanted
from .orthogonal_pass import LongStackedPass, stacked_pass

LONG_FROM = 2  # data per inducing input of all sets


@record
class OrthogonalSets(Posterior):
    """Base of posteriors with a mean and a lower factor per set; ``names`` are field suffixes."""

    names: ClassVar[tuple[str, ...]] = ("u", "v")
    unwhitens: ClassVar[bool] = False  # whether the fields are moments of u and v themselves
    num_sets = 2
    starts_at_prior = True
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

    def fields_of(self, name):
        """Names of the fields of one set: the mean, and the factor if there is one."""
        return tuple(
            f"{field}_{name}"
            for field in ("mean", "scale_tril")
            if hasattr(self, f"{field}_{name}")
        )

    def set_sizes(self, M):
        sizes = [np.shape(getattr(self, f"mean_{name}"))[-1] for name in self.names[:-1]]
        return (*sizes, M - sum(sizes))

    def start_from(self, prior, columns=0, need=()):
        two_sets_one_output = len(self.names) == 2 and np.ndim(self.mean_u) == 1
        suits = two_sets_one_output and wanted(need, "Kuf", "blocks")
        long = suits and "natural_step" not in need and columns > LONG_FROM * len(prior.L)
        return (LongStackedPass if long else stacked_pass)(self, prior, columns, need)

    def path_weights(self, prior, values, normal):
        """L^-T (m' + W' h - L^-1 u0), h standard normal: ``Whitened`` on the stack of the sets."""
        L, end, draws = prior.L, 0, []
        for name, size in zip(self.names, self.set_sizes(len(L)), strict=True):
            at, end = slice(end, end + size), end + size
            mean, tril = self.whitened(name, np.ascontiguousarray(L[at, at], like=L))
            draws.append(gaussian_draws(mean, tril, values.shape[-1], normal))
        return path_weights_of_whitened(L, np.concatenate(draws, axis=1), values)

    def whitened(self, name, L):
        """``(m', W')`` (..., M), (..., M, M) of one set; L is its diagonal block of the factor."""
        return getattr(self, f"mean_{name}"), getattr(self, f"scale_tril_{name}")

    def whitened_vjp(self, one, L, C):
        """Cotangents of the parameters of one set from those of its whitened parameters.

        If C is not None, the contributions of L are added to it.
        """
        return one.mean_bar, one.tril_bar

    def unwhitened(self, name, L, mean, tril):
        """Fields of one set from its whitened parameters. Overwrites ``tril``."""
        return {f"mean_{name}": mean, f"scale_tril_{name}": tril}


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
    the parameters. Value and all gradients cost (12 + 6 P) M^2 B + 32/3 M^3 flops for M2 = M and P
    outputs; for one output and B > 4 M, 14 M^2 B + 79/3 M^3. Source: Shi et al. 2020, appendix F.

    Examples
    --------
    >>> pair = fs.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.WhitenedOrthogonal(np.zeros(6), np.eye(6), np.zeros(4), np.eye(4))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -279.18
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")

    kl_depends_on_Kuu: ClassVar[bool] = False


@record
class UnwhitenedSets(OrthogonalSets):
    """Base of posteriors whose fields are moments of u and v themselves."""

    unwhitens = True

    def whitened(self, name, L):
        mean, tril = super().whitened(name, L)
        return solve_vectors(L, mean), kernels.solve_tril(L, tril)

    def whitened_vjp(self, one, L, C):
        mean_bar, tril_bar = one.mean_bar, one.tril_bar
        if C is not None:
            of_L = kernels.tril_product(mean_bar.T, one.means.T)
            for W_bar, W in zip(tril_bar, one.trils, strict=True):
                kernels.tril_product(W_bar, W, out=of_L, add=True, lower=True)
            C[one.at, one.at] += of_L
        if one.need_tril:
            tril_bar = kernels.solve_tril(L, tril_bar, transpose=True, overwrite_w=True)
        return solve_vectors(L, mean_bar, transpose=True), tril_bar

    def unwhitened(self, name, L, mean, tril):
        mean = kernels.multiply_triangular(L, mean[..., None])[..., 0]
        return super().unwhitened(
            name, L, mean, kernels.tril_multiply(L, tril, overwrite_b=True, lower=True)
        )


@record
class Orthogonal(UnwhitenedSets):
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
    >>> pair = fs.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.at_prior(fs.Orthogonal, covariance, pair)
    >>> [path for path, _, _ in fs.leaves(q)]
    ['mean_u', 'scale_tril_u', 'mean_v', 'scale_tril_v']
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")
