"""Posteriors with a mean and a lower factor per set, and the choice of their pass.

``whitening`` has the derivation. Unwhitened, q(u) = N(m, W W') is the whitened algebra at m' = L^-1
m, W' = L^-1 W: KL[N(m, W W') || N(0, L L')] equals the whitened KL, because both log-determinants
contain the same log det L.
"""

import functools
from typing import ClassVar

import numpy as np

from .. import kernels
from ..records import leaf, record, replace
from ..records.typed import Array
from .base import (
    SUMS,
    Posterior,
    check_vector_and_matrix,
    gaussian_draws,
    needs,
    path_weights_of_whitened,
    solve_vectors,
)
from .whitening import (
    BatchWhitenedPass,
    GramWhitenedPass,
    LongWhitenedPass,
    SmallWhitenedPass,
    sums_pay,
)

LONG_FROM = 4  # data per inducing input and output
# the same for one set if M^2 B is at least this: with two, SOLVE-GP takes up to 1.1 times as long
LARGE, LARGE_FROM = 1e8, 2
# outputs from which the Gram form takes less time than the long one if their cotangents are common,
# and 1 / (3 P + 2) more if not; two, if only sums of their variances are needed
MANY = 4


@record
class GaussianSets(Posterior):
    """Base of posteriors with a mean and a lower factor for each set of inducing variables.

    The sets are independent. Set s is whitened by its block of L = chol(Kuu), Kuu that of the
    stack: m_s' = L_ss^-1 m_s, W_s' = L_ss^-1 W_s.
    """

    unwhitens: ClassVar[bool] = False  # whether the fields are moments of u itself, not whitened
    starts_at_prior = True
    sums_variances = True

    def fields_of(self, name):
        """Names of the fields of one set: the mean, and the factor if there is one."""
        return _fields_of(type(self), name)

    def start_from(self, prior, columns=0, need=()):
        """Begin a pass in the form that is fastest for what will be pulled."""
        M, needs_Kuf = len(prior.Kuu), needs(need, "Kuf", "blocks")
        shape = np.shape(getattr(self, self.fields_of(self.names[0])[0]))
        size = M * (shape[0] if len(shape) == 2 else 1)
        large = len(self.names) == 1 and M * M * columns >= LARGE
        long_from = LARGE_FROM if large else LONG_FROM
        many = 2 if SUMS in need and sums_pay(prior.Kuu, columns) else MANY
        if needs_Kuf and SmallWhitenedPass.suits(self, prior, size, columns):
            form = SmallWhitenedPass
        elif needs_Kuf and columns >= long_from * size and size < many * M:
            form = LongWhitenedPass
        elif "natural_step" in need or 2 * columns > 3 * size:
            form = GramWhitenedPass
        else:
            form = BatchWhitenedPass
        return form(self, prior, columns, need)

    def path_weights(self, prior, values, normal):
        """L^-T (m' + W' h - L^-1 u0), h standard normal, on the stack of the sets."""
        L, draws = prior.L, []
        for name, at in self.spans(len(L)):
            mean, tril = self.whiten(np.ascontiguousarray(L[at, at], like=L), name)
            draws.append(gaussian_draws(mean, tril, values.shape[-1], normal))
        return path_weights_of_whitened(L, np.concatenate(draws, axis=1), values)

    def whiten(self, L, name=""):
        """``(m', W')`` (..., M), (..., M, M) of one set; L is its diagonal block of the factor."""
        of_mean, of_tril = self.fields_of(name)
        mean, tril = getattr(self, of_mean), getattr(self, of_tril)
        if not self.unwhitens:
            return mean, tril
        return solve_vectors(L, mean), kernels.solve_tril(L, tril)

    def whiten_vjp(self, one, mean_bar, L, C):
        """Cotangents of the fields of one set, from those of its whitened parameters.

        Adds the contribution of L to its block C unless C is None. With ' for whitened parameters,

            m_bar = L^-T m'_bar,    W_bar = tril(L^-T W'_bar),    C += m'_bar m'^T + W'_bar W'^T
        """
        tril_bar = one.tril_bar
        if not self.unwhitens:
            return mean_bar, tril_bar
        if C is not None:
            kernels.tril_product(mean_bar.T, one.means.T, out=C, add=True)
            for W_bar, W in zip(tril_bar, one.trils, strict=True):
                kernels.tril_product(W_bar, W, out=C, add=True, lower=True)
        if one.needs_tril:
            tril_bar = kernels.solve_tril(L, tril_bar, transpose=True, overwrite_w=True)
        return solve_vectors(L, mean_bar, transpose=True), tril_bar

    def unwhiten(self, L, mean, tril, name=""):
        """The posterior with these whitened parameters of a set. Overwrites ``tril``."""
        of_mean, *of_tril = self.fields_of(name)
        if self.unwhitens:
            mean = kernels.multiply_triangular(L, mean[..., None])[..., 0]
            if of_tril:
                tril = kernels.tril_multiply(L, tril, overwrite_b=True, lower=True)
        return replace(self, **{of_mean: mean}, **dict.fromkeys(of_tril, tril))


@functools.cache
def _fields_of(kind, name):
    end = f"_{name}" if name else ""
    return tuple(f for f in (f"mean{end}", f"scale_tril{end}") if f in kind._field_names)


@record
class GaussianFactor(GaussianSets):
    """Base of posteriors with a mean and a lower factor of one set."""

    natural_fields = ("mean", "scale_tril")

    def check_size(self, M):
        return check_vector_and_matrix(self, M)


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
