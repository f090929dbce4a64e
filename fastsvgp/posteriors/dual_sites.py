"""t-SVGP: q(u) is the prior times Gaussian sites, tied by their projections to u.

``dual_sites_pass`` has the derivation and its source.
"""

from typing import ClassVar

import numpy as np

from .. import kernels
from ..records import leaf, record, replace
from ..records.typed import Array
from .base import (
    Posterior,
    add_to_diagonals,
    check_vector_and_matrix,
    needs,
    path_weights_of_whitened,
)
from .dual_sites_pass import FixedSitesPass, LongSitesPass, SitesPass, factors, vectors


@record
class DualTying(Posterior):
    """Posteriors with sites ``lambda1`` (..., M), ``lambda2`` (..., M, M)."""

    natural_fields = ("lambda1", "lambda2")
    held_fields = ("lambda1", "lambda2")
    natural_by_default = True
    starts_at_prior = True
    sums_variances = True
    absorbed: ClassVar[bool] = False  # whether A and t contain factors L, or else L^-1

    def check_size(self, M):
        return check_vector_and_matrix(self, M, "lambda1", "lambda2")

    def start_from(self, prior, columns=0, need=()):
        return (LongSitesPass if needs(need, "Kuf", "blocks") else SitesPass)(
            self, prior, columns, need
        )

    def whitened_sites(self, L):
        """``(A, t)`` (P, M, M), symmetric, and (P, M)."""
        raise NotImplementedError

    def precision(self, L):
        """``(B, t)``; the caller can overwrite B, and reads its lower triangle only."""
        A, t = self.whitened_sites(L)
        return add_to_diagonals(A.copy(), 1), t

    def path_weights(self, prior, values, normal):
        """L^-T (m + C^-T h - L^-1 u0), h standard normal: the covariance of L^-1 u is B^-1."""
        _, inverses, means = factors(self, prior.L)
        draws = kernels.multiply_triangular(inverses, normal(*values.shape), transpose=True)
        draws += means[..., None]
        return path_weights_of_whitened(prior.L, draws, values)

    def from_whitened(self, L, A, t):
        """The posterior with these ``whitened_sites``. Overwrites both."""
        raise NotImplementedError

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        """``(lambda1_bar, lambda2_bar)`` from cotangents of A, symmetric, and of t."""
        raise NotImplementedError


@record
class AbsorbedDualSites(DualTying):
    """q(u) = N(S lambda1, S), S = (Kuu^-1 + lambda2)^-1: sites with the factors Kuu^-1 absorbed.

    Parameters
    ----------
    lambda1 : (..., M)
    lambda2 : (..., M, M)
        Symmetric; the strict upper triangle is never read. Kuu^-1 + lambda2 must be positive
        definite.

    Notes
    -----
    Zeros are the prior. A bound raises ``ValueError`` if the sites are invalid. An E-step,
    ``natural_step``, costs (1 + 2 P) M^2 B + 1/3 M^3 + 8/3 P M^3 flops, with Gaussian noise and
    long batches P M^2 B less and P/3 M^3 more. Source: Adam et al. 2021; this is the form of their
    program.

    Examples
    --------
    >>> sites = fs.posteriors.AbsorbedDualSites(lambda1=np.zeros(6), lambda2=np.zeros((6, 6)))
    >>> stepped, info = fs.natural_step(fs.replace(model, posterior=sites), X, Y, step_size=1.0)
    >>> round(fs.elbo(stepped, X, Y) - fs.collapsed_bound(sgpr, X, Y), 6) + 0.0
    0.0
    """

    lambda1: Array = leaf()
    lambda2: Array = leaf("symmetric")

    absorbed = True

    def start_from(self, prior, columns=0, need=()):
        of_sites = any(needs(need, name) for name in self.natural_fields)
        held = needs(need, "Kuf", "blocks") and not of_sites
        return (
            FixedSitesPass(self, prior, columns, need)
            if held
            else super().start_from(prior, columns, need)
        )

    def whitened_sites(self, L):
        return _both_sides(kernels.multiply_triangular, L, _symmetric(self), True), self._t(L)

    def precision(self, L):
        M = len(L)
        D, _ = kernels.newton_schulz_gram(self.lambda2.reshape(-1, M, M), L)  # A - I
        return add_to_diagonals(D, 2), self._t(L)

    def _t(self, L):
        return vectors(kernels.multiply_triangular, L, self.lambda1.reshape(-1, len(L)), True)

    def from_whitened(self, L, A, t):
        return _replace_sites(
            self,
            kernels.whitening_vjp(np.multiply(A, -2, out=A), L),
            vectors(kernels.solve_triangular, L, t, True),
        )

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return vectors(kernels.multiply_triangular, L, t_bar), kernels.symmetrise(
            kernels.tril_congruence(L, A_bar)
        )


@record
class DualSites(DualTying):
    """q(u) = N(S Kuu^-1 lambda1, S), S = Kuu (Kuu + lambda2)^-1 Kuu: tied sites of Adam et al.

    Parameters
    ----------
    lambda1 : (..., M)
    lambda2 : (..., M, M)
        Symmetric; the strict upper triangle is never read. Kuu + lambda2 must be positive definite.

    Notes
    -----
    Zeros are the prior. ``AbsorbedDualSites`` has the tighter bound if the variance of the prior
    moves. Use it in float32 too: lambda2 here grows with the number of data, and from a few
    thousand data its rounding error exceeds the least eigenvalue of Kuu. Source: Adam et al. 2021,
    equations 21 to 24.

    Examples
    --------
    >>> sites = fs.posteriors.DualSites(lambda1=np.zeros(6), lambda2=np.zeros((6, 6)))
    >>> round(fs.elbo(fs.replace(model, posterior=sites), X, Y) - fs.elbo(model, X, Y), 6) + 0.0
    0.0
    """

    lambda1: Array = leaf()
    lambda2: Array = leaf("symmetric")

    def whitened_sites(self, L):
        return _both_sides(kernels.solve_triangular, L, _symmetric(self), False), vectors(
            kernels.solve_triangular, L, self.lambda1.reshape(-1, len(L))
        )

    def from_whitened(self, L, A, t):
        lambda2 = kernels.symmetrise(kernels.tril_congruence(L, A))
        return _replace_sites(self, lambda2, vectors(kernels.multiply_triangular, L, t))

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return vectors(kernels.solve_triangular, L, t_bar, True), kernels.whitening_vjp(
            np.multiply(A_bar, -2), L
        )


@record
class WhitenedState(DualTying):
    """Sites in whitened coordinates, t and A themselves, made of projections Lam held elsewhere.

    Its gradients are those of t and A. The gradient of Kuu includes that both depend on Lam: from A
    = Lam diag(lambda_2) Lam' and t = Lam lambda_1, Lam_bar gains g lambda_1' + 2 A_bar Lam
    diag(lambda_2), and C = Lam_bar Lam' is that of dual sites.
    """

    lambda1: Array = leaf()
    lambda2: Array = leaf("symmetric")

    def whitened_sites(self, L):
        M = len(L)
        return self.lambda2.reshape(-1, M, M), self.lambda1.reshape(-1, M)

    def from_whitened(self, L, A, t):
        return _replace_sites(self, A, t)

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return t_bar, A_bar


def _symmetric(q):
    M = q.lambda1.shape[-1]
    return kernels.symmetrise(
        np.ascontiguousarray(q.lambda2, like=q.lambda2).reshape(-1, M, M).copy()
    )


def _both_sides(product, L, S, transpose):
    """op(L) S op(L)' for symmetric S (P, M, M), symmetric to the bit."""
    half = product(L, S, transpose=transpose, overwrite_b=True)
    turned = np.ascontiguousarray(half.swapaxes(-1, -2), like=half)
    return kernels.symmetrise(product(L, turned, transpose=transpose, overwrite_b=True))


def _replace_sites(q, lambda2, lambda1):
    return replace(
        q, lambda1=lambda1.reshape(q.lambda1.shape), lambda2=lambda2.reshape(q.lambda2.shape)
    )
