"""Passes of tied sites: q(u) is the prior times Gaussian sites, projected to u.

Each datum has a site exp(lambda_1 f - lambda_2 f^2 / 2). Projected to u, the sites add up to one
site in natural parameters, (l, Lam_2). It is stored in one of two forms: absorbed, with the outer
factors Kuu^-1 included, and dual, without them. With L = chol(Kuu), u = L u', both are

    absorbed: A = L' Lam_2 L,       t = L' l           q(u) = N(S l, S),    S = (Kuu^-1 + Lam_2)^-1
    dual:     A = L^-1 Lam_2 L^-T,  t = L^-1 l         S = Kuu (Kuu + Lam_2)^-1 Kuu

    B = I + A = C C',    q(u') = N(m, B^-1),    m = B^-1 t

so a pass is that of ``whitening`` with this mean, and C^-1 in the place of W'. Sites are valid
if B is positive definite; Lam_2 need not be positive semi-definite. The passes collect Lam a and G
= Lam diag(b) Lam', with a, b the cotangents of mean and var.

Reverse, kappa the cotangent of the KL, H = I - B^-1, X = G + kappa / 2 I, d = Lam a + kappa m, the
cotangent of m; from d B^-1 = -B^-1 dA B^-1 and dm = B^-1 (dt - dA m):

    g     = B^-1 d                                                           (t_bar)
    A_bar = -B^-1 X B^-1 + kappa / 2 B^-1 - sym(g m')
    absorbed:  l_bar = L g,       Lam_2_bar = L A_bar L'
    dual:      l_bar = L^-T g,    Lam_2_bar = L^-T A_bar L^-1

Kuf_bar is that of ``whitening``. Kuu, dual: Lam, t and A all depend on L^-1, A from both sides,
so the whitening lemma holds with

    C = Lam_bar Lam' + g t' + 2 A_bar A,    Lam_bar Lam' = m (Lam a)' - 2 H G

Absorbed: in terms of K = Kuu itself, q has K^-1 + Lam_2 and l, and with psi = K^-1 Kuf, dpsi =
-K^-1 dK psi,

    mean = psi' S l,    var = kff - Kfu psi + psi' S psi
    dS = S K^-1 dK K^-1 S,    K^-1 S = L^-T B^-1 L'
    Kuu_bar = L^-T [H X H - sym(H d m') + kappa / 2 m m'] L^-1

*Fixed-site form* of that, absorbed, for gradients without those of the sites. With w = L^-T m, Q =
-L^-T H and E = Q Lam, those of the long form,

    mean = Kuf' w,    var = kff + colsum(Kuf * E),    Kuf_bar = w a' + 2 E diag(b)
    Kuu_bar = E diag(b) E' + kappa / 2 (Q Q' + w w') + sym(Q d w')

It costs (1 + 3 P) M^2 B and (1/3 + 4 P) M^3 flops. Forming D = Q L^-1 once would make E = D Kuf
without Lam. Measured, that is 5 % faster and loses up to five digits of the value in float64 (an
error of 1e-7 at M = 200, jitter 1e-6).

E-step of size r, the natural gradient step in q: with 2 G = G_2

    A <- (1 - r) A - r G_2,    t <- (1 - r) t + r (Lam a - G_2 m)

The step is linear, so the changes of Lam_2 and l are -r G_2 and r (Lam a - G_2 m) in their
coordinates. B stays positive definite if B was, r <= 1 and b <= 0; otherwise a Cholesky
factorisation checks it.

Source: Adam et al., "Dual Parameterization of Sparse Variational Gaussian Processes" (2021),
section 4, equations 21 to 24. docs/dual.md compares the bounds of both tyings while the sites are
fixed and the prior moves.
"""

import numpy as np

from .. import check, kernels
from ..errors import InvalidSites, NotPositiveDefinite
from ..records import replace
from .base import Bars, add_to_diagonals, gradient, needs
from .natural import natural_precision
from .whitening import GramWhitenedPass, LongWhitenedPass


def vectors(product, L, vectors, transpose=False):
    return product(L, vectors[..., None], transpose=transpose)[..., 0]


def factors(q, L):
    """``(t, C^-1, m)`` of a ``DualTying``: (P, M), (P, M, M), (P, M)."""
    B, t = q.precision(L)
    try:
        inverses = kernels.inverse_triangular(
            kernels.cholesky(B, overwrite_a=True), overwrite_l=True
        )
    except NotPositiveDefinite as error:
        check.finite("posterior.lambda2", np.tril(q.lambda2))
        flanked = "Kuu^-1" if q.absorbed else "Kuu"
        raise InvalidSites(
            f"`posterior.lambda2` holds no valid sites: {flanked} + lambda2 is not positive"
            " definite"
            + (f" (output {error.batch[0]})" if error.batch and len(t) > 1 else "")
            + ". Start from zeros, the prior, and update by natural_step; if the prior has moved,"
            " try a smaller step, float64 (DualSites with many data), or AbsorbedDualSites"
        ) from error
    means = vectors(
        kernels.multiply_triangular,
        inverses,
        vectors(kernels.multiply_triangular, inverses, t),
        True,
    )
    return t, inverses, means


class SitesMixin:
    """Mixin of the whitened passes whose parameters are sites.

    t : (P, M)
    trils : (P, M, M), C^-1 in the place of W of ``WhitenedPass``: B^-1 = trils' trils
    """

    concave = True  # for all pulled rows b <= 0: a step of at most 1 keeps B positive definite

    def _whiten(self, name, at):
        self.t, inverses, means = factors(self.q, self.L)
        return means.reshape(self.q.lambda1.shape), inverses

    def _half(self, p, Lam):
        return kernels.multiply_triangular(self.trils[p], Lam)

    def _covariances(self):
        return kernels.symmetrise(kernels.tril_gram(self.trils))

    def pull(self, rows, f_bar):
        b = f_bar.var
        self.concave = (
            self.concave
            and type(b) is np.ndarray
            and (b.size == 0 or (b.max() <= 0 and b.min() > -np.inf))
        )
        return super().pull(rows, f_bar)

    def _set_needs(self, natural):
        need_first, need_second = (needs(self.need, name) for name in ("lambda1", "lambda2"))
        self.sum_trils = natural or need_second or self.need_Kuu
        self.need_sites = need_first or need_second

    def natural_step(self, step_size):
        """The E-step of the module docstring."""
        self._split_common()
        r, G, q = step_size, kernels.symmetrise(self.G), self.q  # of 2 b
        if not (self.concave and r <= 1):
            B, _ = q.precision(self.L)
            # raises if the new B is not positive definite
            kernels.cholesky(natural_precision(G, r, [(slice(None), B)]), overwrite_a=True)
        t = r * (self.Lam_a - kernels.matmul(G, self.means[..., None])[..., 0])
        change = q.from_whitened(self.L, -r * G, t)
        M = len(self.L)
        for new, old in zip(
            change.lambda2.reshape(-1, M, M), q.lambda2.reshape(-1, M, M), strict=True
        ):
            new += (1 - r) * old
        return replace(change, lambda1=(1 - r) * q.lambda1 + change.lambda1)

    def finish(self, kl_bar):
        self._split_common()
        lambda1_bar = lambda2_bar = Kuu_bar = None
        m, d = self.means, self.Lam_a + kl_bar * self.means
        if self.need_sites or self.need_Kuu:
            S = self._covariances()
            g = kernels.matmul(S, d[..., None])[..., 0]
        if self.G is not None:
            G, self.G = kernels.symmetrise(self.G), None
            X = add_to_diagonals(np.multiply(G, 0.5, out=G), 0.5 * kl_bar)
            SX = kernels.matmul(S, X)
            SXS = kernels.symmetrise(kernels.matmul(SX, S))
        if needs(self.need, "lambda2") or (self.need_Kuu and not self.q.absorbed):
            A_bar = 0.5 * kl_bar * S - SXS - _symmetric_outer(g, m)
        if self.need_sites:
            first, second = needs(self.need, "lambda1"), needs(self.need, "lambda2")
            lambda1_bar, lambda2_bar = self.q.whitened_sites_vjp(self.L, A_bar if second else S, g)
            lambda1_bar = lambda1_bar.reshape(self.q.lambda1.shape) if first else None
            lambda2_bar = lambda2_bar.reshape(self.q.lambda2.shape) if second else None
        if self.need_Kuu and not self.q.absorbed:
            C = kernels.matmul(m.T, self.Lam_a) + kernels.matmul(g.T, self.t)
            GH = add_to_diagonals(X, -0.5 * kl_bar)  # G again
            A, _ = self.q.whitened_sites(self.L)
            for p in range(len(m)):
                C += 2 * (kernels.matmul(S[p], GH[p]) - GH[p] + kernels.matmul(A_bar[p], A[p]))
            Kuu_bar = kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)
        elif self.need_Kuu:
            Hd = d - g
            N = (
                X
                - SX
                - SX.swapaxes(-1, -2)
                + SXS
                - _symmetric_outer(Hd, m)
                + _symmetric_outer(0.5 * kl_bar * m, m)
            ).sum(axis=0)
            Kuu_bar = kernels.whitening_vjp(
                np.multiply(N, -2, out=N), self.L, overwrite_c=True, inverse=self.inverse
            )
        return Bars(gradient(self.q, lambda1=lambda1_bar, lambda2=lambda2_bar), Kuu_bar)


class SitesPass(SitesMixin, GramWhitenedPass):
    """Pass without cotangents of Kuf, in the Gram form."""


class LongSitesPass(SitesMixin, LongWhitenedPass):
    """Pass with cotangents of Kuf, in the long form, which holds B^-1 - I."""


class FixedSitesPass(LongSitesPass):
    """M-step of absorbed sites, in the fixed-site form: the Gram matrices are those of E."""

    def _sum_rows(self, rows, a, b2):
        if self.need_Kuu:
            first = self.G is None
            self.G = kernels.empty((len(b2), *self.L.shape), rows.Lam) if first else self.G
            for G, E, slopes in zip(self.G, rows.V, b2, strict=True):
                kernels.weighted_gram(E, 0.5 * slopes, out=G, add=not first)
        return self._Lam_bar(rows.V, rows.Lam, a, b2)

    def _sum_common_rows(self, rows, a, c, w2):
        return self._sum_rows(rows, a, c[:, None] * w2)

    def finish(self, kl_bar):
        G, self.G, Kuu_bar = self.G, None, None
        if G is None:
            return Bars(gradient(self.q), None)
        ((Q, _),), d = self.Q, (self.Lam_a + kl_bar * self.means)[..., None]
        x = 0.25 * kl_bar * self.alphas + 0.5 * kernels.matmul(Q, d)[..., 0]
        for p, (F, w) in enumerate(zip(Q, self.alphas, strict=True)):
            kernels.weighted_gram(
                F, kernels.full(len(F), 0.5 * kl_bar, F), out=G[p], add=True, overwrite_a=True
            )
            kernels.add_outer(G[p], x[p], w)
            kernels.add_outer(G[p], w, x[p])
            Kuu_bar = G[p] if p == 0 else np.add(Kuu_bar, G[p], out=Kuu_bar)
        return Bars(gradient(self.q), kernels.symmetrise(Kuu_bar))


def _symmetric_outer(x, y):
    """(x y' + y x') / 2 for each output, symmetric to the bit."""
    outer = x[..., :, None] * y[..., None, :]
    outer += outer.swapaxes(-1, -2).copy()
    return np.multiply(outer, 0.5, out=outer)
