"""t-SVGP: q(u) as the prior times Gaussian sites, tied in what the inducing variables see of them.

Each datum has a site exp(lambda_1 f - lambda_2 f^2 / 2); projected to u they add up to one in natural parameters, (l, Lam_2). Two
ways to hold them: absorbed, with the flanks Kuu^-1 taken in, and dual, without. With L = chol(Kuu), u = L u', both are

    absorbed: A = L' Lam_2 L,       t = L' l           q(u) = N(S l, S),    S = (Kuu^-1 + Lam_2)^-1
    dual:     A = L^-1 Lam_2 L^-T,  t = L^-1 l         S = Kuu (Kuu + Lam_2)^-1 Kuu

    B = I + A,    q(u') = N(m, B^-1),    m = B^-1 t

so a pass is that of ``whitening`` with this mean and W W' = B^-1; valid sites are those for which B is positive definite, not
only positive semi-definite Lam_2. The passes collect Lam a and G = Lam diag(b) Lam', a, b the cotangents of mean and var.

Reverse, kappa the cotangent of the KL, H = I - B^-1, X = G + kappa / 2 I, d = Lam a + kappa m, the cotangent of m:

    g     = B^-1 d                                                           t_bar
    A_bar = -B^-1 X B^-1 + kappa / 2 B^-1 - sym(g m')                        d B^-1 = -B^-1 dA B^-1,  dm = B^-1 (dt - dA m)
    absorbed:  l_bar = L g,       Lam_2_bar = L A_bar L'
    dual:      l_bar = L^-T g,    Lam_2_bar = L^-T A_bar L^-1

Kuf_bar is that of ``whitening``. Kuu, dual: Lam, t and A all come of L^-1, A from both sides, so the whitening lemma holds with

    C = Lam_bar Lam' + g t' + 2 A_bar A,    Lam_bar Lam' = m (Lam a)' - 2 H G

Absorbed: in K = Kuu itself, q is K^-1 + Lam_2 and l, and with psi = K^-1 Kuf, dpsi = -K^-1 dK psi,

    mean = psi' S l,    var = kff - Kfu psi + psi' S psi,    dS = S K^-1 dK K^-1 S,    K^-1 S = L^-T B^-1 L'
    Kuu_bar = L^-T [H X H - sym(H d m') + kappa / 2 m m'] L^-1

E-step of size r, the natural gradient step in q: with 2 G = G_2

    A <- (1 - r) A - r G_2,    t <- (1 - r) t + r (Lam a - G_2 m)

Source: Adam et al., "Dual Parameterization of Sparse Variational Gaussian Processes" (2021), section 4, equations 21 to 24; which
tying has the tighter bound while the sites are held and the prior moves: docs.
"""

from typing import Any, ClassVar

import numpy as np

from .. import check, kernels
from ..errors import InvalidSites, NotPositiveDefinite
from ..records import leaf, record, replace
from .base import Bars, Posterior, add_to_diagonals, gradient, wanted
from .whitening import LongWhitening, Whitening


@record
class DualTying(Posterior):
    """Posteriors with sites ``lambda1`` (..., M), ``lambda2`` (..., M, M)."""

    natural_fields = ("lambda1", "lambda2")
    held_fields = ("lambda1", "lambda2")
    natural_by_default = True
    absorbed: ClassVar[bool] = False  # whether A and t have factors L in them, or come of L^-1

    def check_size(self, M):
        first, second = np.shape(self.lambda1), np.shape(self.lambda2)
        if len(first) not in (1, 2) or first[-1] != M or first[0] == 0 or second != first + (M,):
            raise ValueError(
                f"`posterior` has lambda1 {first} and lambda2 {second}, but there are {M} inducing inputs: use lambda1 ({M},) "
                f"with lambda2 ({M}, {M}), or lambda1 (P, {M}) with lambda2 (P, {M}, {M}) for P outputs"
            )
        return first[:-1]

    def start_from(self, prior, columns=0, need=()):
        return (LongSitesPass if wanted(need, "Kuf", "blocks") else SitesPass)(self, prior, columns, need)

    def whitened_sites(self, L):
        """``(A, t)`` (P, M, M), symmetric, and (P, M)."""
        raise NotImplementedError

    def from_whitened(self, L, A, t):
        """The posterior whose ``whitened_sites`` these are. Overwrites both."""
        raise NotImplementedError

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        """``(lambda1_bar, lambda2_bar)`` from cotangents of A, symmetric, and of t."""
        raise NotImplementedError


@record
class AbsorbedDualSites(DualTying):
    """q(u) = N(S lambda1, S), S = (Kuu^-1 + lambda2)^-1: sites that hold where the covariance moves.

    Parameters
    ----------
    lambda1 : (..., M)
    lambda2 : (..., M, M)
        Symmetric; the strict upper triangle is never read. Kuu^-1 + lambda2 must be positive definite.

    Notes
    -----
    Zeros are the prior. A bound raises ``ValueError`` where the sites are not valid. An E-step, ``natural_step``, costs
    (1 + 2 P) M^2 B + 1/3 M^3 + 8/3 P M^3 flops. Source: Adam et al. 2021; the form of their program.
    """

    lambda1: Any = leaf()
    lambda2: Any = leaf("symmetric")

    absorbed = True

    def whitened_sites(self, L):
        return _both_sides(kernels.multiply_triangular, L, _symmetric(self), True), _vectors(
            kernels.multiply_triangular, L, self.lambda1.reshape(-1, len(L)), True
        )

    def from_whitened(self, L, A, t):
        return _reshaped(
            self, kernels.whitening_vjp(np.multiply(A, -2, out=A), L), _vectors(kernels.solve_triangular, L, t, True)
        )

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return _vectors(kernels.multiply_triangular, L, t_bar), kernels.symmetrise(kernels.tril_congruence(L, A_bar))


@record
class DualSites(DualTying):
    """q(u) = N(S Kuu^-1 lambda1, S), S = Kuu (Kuu + lambda2)^-1 Kuu: the tied sites of the paper's equations 21 to 24.

    Parameters
    ----------
    lambda1 : (..., M)
    lambda2 : (..., M, M)
        Symmetric; the strict upper triangle is never read. Kuu + lambda2 must be positive definite.

    Notes
    -----
    Zeros are the prior. ``AbsorbedDualSites`` has the tighter bound where the variance of the prior moves, and is the one to take
    in float32: lambda2 here grows with the number of data, and its rounding passes the least eigenvalue of Kuu at some thousand.
    """

    lambda1: Any = leaf()
    lambda2: Any = leaf("symmetric")

    def whitened_sites(self, L):
        return _both_sides(kernels.solve_triangular, L, _symmetric(self), False), _vectors(
            kernels.solve_triangular, L, self.lambda1.reshape(-1, len(L))
        )

    def from_whitened(self, L, A, t):
        lambda2 = kernels.symmetrise(kernels.tril_congruence(L, A))
        return _reshaped(self, lambda2, _vectors(kernels.multiply_triangular, L, t))

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return _vectors(kernels.solve_triangular, L, t_bar, True), kernels.whitening_vjp(np.multiply(A_bar, -2), L)


@record
class WhitenedState(DualTying):
    """Sites in whitened coordinates, t and A themselves, of which the projections Lam are known elsewhere.

    Its gradients are those of t and A, and that of Kuu counts that both are made of Lam: of A = Lam diag(lambda_2) Lam' and
    t = Lam lambda_1, Lam_bar gains g lambda_1' + 2 A_bar Lam diag(lambda_2), and C = Lam_bar Lam' is that of dual sites.
    """

    lambda1: Any = leaf()
    lambda2: Any = leaf("symmetric")

    def whitened_sites(self, L):
        M = len(L)
        return self.lambda2.reshape(-1, M, M), self.lambda1.reshape(-1, M)

    def from_whitened(self, L, A, t):
        return _reshaped(self, A, t)

    def whitened_sites_vjp(self, L, A_bar, t_bar):
        return t_bar, A_bar


def _symmetric(q):
    M = q.lambda1.shape[-1]
    return kernels.symmetrise(np.ascontiguousarray(q.lambda2, like=q.lambda2).reshape(-1, M, M).copy())


def _both_sides(product, L, S, transpose):
    """op(L) S op(L)' for symmetric S (P, M, M), symmetric to the bit."""
    half = product(L, S, transpose=transpose, overwrite_b=True)
    turned = np.ascontiguousarray(half.swapaxes(-1, -2), like=half)
    return kernels.symmetrise(product(L, turned, transpose=transpose, overwrite_b=True))


def _vectors(product, L, vectors, transpose=False):
    return product(L, vectors[..., None], transpose=transpose)[..., 0]


def _reshaped(q, lambda2, lambda1):
    return replace(q, lambda1=lambda1.reshape(q.lambda1.shape), lambda2=lambda2.reshape(q.lambda2.shape))


class Sites:
    """What both passes have: parameters that are sites, steps and cotangents in them.

    A : (P, M, M); t : (P, M)
    """

    def _whitened(self):
        self.A, self.t = self.q.whitened_sites(self.L)
        B = add_to_diagonals(self.A.copy(), 1)
        try:
            trils = kernels.cholesky_of_inverse(B)
        except NotPositiveDefinite as error:
            check.finite("posterior.lambda2", np.tril(self.q.lambda2))
            flanked = "Kuu^-1" if self.q.absorbed else "Kuu"
            raise InvalidSites(
                f"`posterior.lambda2` holds no valid sites: {flanked} + lambda2 is not positive definite"
                + (f" (output {error.batch[0]})" if error.batch and len(B) > 1 else "")
                + ". Zeros are the prior, and natural_step keeps valid sites valid; after the prior has moved a smaller step may "
                "be needed, or float64 (DualSites with many data), or AbsorbedDualSites"
            ) from error
        means = kernels.multiply_triangular(trils, self.t[..., None], transpose=True)
        return kernels.multiply_triangular(trils, means)[..., 0].reshape(self.q.lambda1.shape), trils

    def _set_needs(self, natural):
        need_first, need_second = (wanted(self.need, name) for name in ("lambda1", "lambda2"))
        self.sum_trils, self.gram_form = natural or need_second or self.need_Kuu, True
        self.need_sites = need_first or need_second

    def natural_step(self, step_size):
        """The E-step of the module's text."""
        r, G = step_size, kernels.symmetrise(self.G)  # of 2 b
        A = (1 - r) * self.A - r * G
        kernels.cholesky(add_to_diagonals(A.copy(), 1))  # refuses a step out of the cone
        t = (1 - r) * self.t + r * (self.Lam_a - kernels.matmul(G, self.means[..., None])[..., 0])
        return self.q.from_whitened(self.L, A, t)

    def finish(self, kl_bar):
        lambda1_bar = lambda2_bar = Kuu_bar = None
        m, d = self.means, self.Lam_a + kl_bar * self.means
        S = kernels.cholesky_product(self.trils) if self.need_sites or self.need_Kuu else None
        if S is not None:
            g = kernels.matmul(S, d[..., None])[..., 0]
        if self.G is not None:
            G, self.G = kernels.symmetrise(self.G), None
            X = add_to_diagonals(np.multiply(G, 0.5, out=G), 0.5 * kl_bar)
            SX = kernels.matmul(S, X)
            SXS = kernels.symmetrise(kernels.matmul(SX, S))
        if wanted(self.need, "lambda2") or (self.need_Kuu and not self.q.absorbed):
            A_bar = 0.5 * kl_bar * S - SXS - _symmetric_outer(g, m)
        if self.need_sites:
            first, second = wanted(self.need, "lambda1"), wanted(self.need, "lambda2")
            lambda1_bar, lambda2_bar = self.q.whitened_sites_vjp(self.L, A_bar if second else S, g)
            lambda1_bar = lambda1_bar.reshape(self.q.lambda1.shape) if first else None
            lambda2_bar = lambda2_bar.reshape(self.q.lambda2.shape) if second else None
        if self.need_Kuu and not self.q.absorbed:
            C = kernels.matmul(m.T, self.Lam_a) + kernels.matmul(g.T, self.t)
            GH = add_to_diagonals(X, -0.5 * kl_bar)  # G again
            for p in range(len(m)):
                C += 2 * (kernels.matmul(S[p], GH[p]) - GH[p] + kernels.matmul(A_bar[p], self.A[p]))
            Kuu_bar = kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)
        elif self.need_Kuu:
            Hd = d - g
            N = (X - SX - SX.swapaxes(-1, -2) + SXS - _symmetric_outer(Hd, m) + _symmetric_outer(0.5 * kl_bar * m, m)).sum(axis=0)
            Kuu_bar = kernels.whitening_vjp(np.multiply(N, -2, out=N), self.L, overwrite_c=True, inverse=self.inverse)
        return Bars(gradient(self.q, lambda1=lambda1_bar, lambda2=lambda2_bar), Kuu_bar)


class SitesPass(Sites, Whitening):
    """Without cotangents of Kuf."""


class LongSitesPass(Sites, LongWhitening):
    """With them; in the long form, which holds B^-1 - I."""


def _symmetric_outer(x, y):
    """(x y' + y x') / 2 for each output, symmetric to the bit."""
    pair, other = np.stack([x, y], axis=-1), np.stack([y, x], axis=-2)
    return kernels.symmetrise(kernels.matmul(0.5 * pair, other))
