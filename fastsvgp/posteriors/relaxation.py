"""The pass of R-SVGP with exact traces, in the coordinates of L: everything M x M is a triangular or symmetric product.

T = L L', K~ = Kuu + S~, K = Kuu. With E = L' K~ L, D = E - I, N = 2 I - E, R = L' S~ L and Lam = L' Kuf it is
P = 2 T - T K~ T = L N L', and the bound of the paper, eq. (3), (4) and (7), becomes, with w = P m~ = L y, y = N L' m~
(plain: w = m~),

    mean = Kfu w,    var = kff - colsum(Lam * (N Lam)),
    KL   = (-tr(P K) + tr(K~ T) - M - log det T - sum log s + w' K w) / 2
         = (|D|_F^2 + tr D + s' diag(P) - M - 2 sum log L_ii - sum log s + w' K w) / 2,

for each output: P K has the trace of N L' K L = N (E - R), and tr(N E) = tr((I - D)(I + D)) = M - |D|_F^2.

Reverse. Let a, b be the cotangents of mean and var (b summed over the P outputs), kappa that of the KL, c = kappa P / 2.
As a function of E and R the traces are f = tr(E E) - tr E + 2 tr R - tr(E R), so df = <2 E - I - R, dE> + <N, dR>.

    w_bar   = Kuf a + kappa K w,    omega = L' w_bar,    m~_bar = P w_bar = L N omega     (plain: w_bar)
    C       = E_bar = Lam diag(b) Lam' + c (3 I - 2 N - R) - sym(omega (L' m~)')            dy = -dE L' m~ (plain: no such term)
    K~_bar  = L C L',    Kuu_bar = K~_bar + kappa/2 w w'
    s_bar   = diag(K~_bar) + c (diag(P) - 1/s)                                                 R_bar = c N, L N L' = P
    Kuf_bar = w a' - 2 L (N Lam) diag(b)
    L_bar   = tril(Kuf (-2 N Lam diag(b))' + 2 K~ L C + 2 c S~ L N + w_bar y' + m~ (N omega)') - 2 c diag(1 / L_ii)

The last two products of L_bar come from w = L N L' m~ through both L's (plain: none). diag(P) needs no P: with S = B + B', B the
lower triangle of S with half its diagonal, diag(L S L') = 2 rowsum(L * (L B)).

Flops: E 1, R 1/3, diag(P) 1/3, L C L' 1 M^3; Lam 1, N Lam 2, its Gram matrix 1, L (N Lam) 1 M^2 B. (The recipe in the coordinates
of u takes 13/3 M^3.)
"""

import numpy as np

from .. import kernels
from .base import wanted
from .likelihood_form import InversePass
from .pseudo_data import Pass, add_symmetric_outer, mean_and_variance_bars, once, with_noise


class RelaxedPass(Pass):
    """One pass through a bound.

    L : (M, M), zeros above the diagonal; N : (M, M), symmetric; K : (M, M), K~ where the gradient of L is needed
    distance : d = ||L' K~ L - I||_F
    """

    def __init__(self, q, Kuu, jitter, need):
        super().__init__(q, Kuu, jitter)
        self.L = clean(q.inverse_tril)
        K = with_noise(Kuu, self.s, jitter)
        self.N, (self.distance, _, _, self.trace) = kernels.newton_schulz_gram(K, self.L)
        self.K = K if wanted(need, "inverse_tril") else None
        np.negative(self.N, out=self.N)
        self.N.reshape(-1)[:: self.M + 1] += 1
        kernels.symmetrise(self.N)
        self.y = None
        if self.preconditioned:
            self.whitened = times(self.L, self.means, transpose=True)
            self.y = kernels.matmul(self.whitened, self.N)
        self.set_weights(times(self.L, self.y) if self.preconditioned else self.means, Kuu, jitter)
        self.C = self.L_bar = None

    @once
    def P_diagonal(self):
        return congruence_diagonal(self.L, self.N)

    def project(self, Kuf, kff):
        """``(Marginals, (Kuf, Lam, N Lam))`` at the data behind these columns. 3 M^2 N flops."""
        Lam = kernels.multiply_triangular(self.L, Kuf, transpose=True)
        G = kernels.matmul(self.N, Lam)
        mean, explained = kernels.column_moments(Lam, self.means[0] if self.y is None else self.y[0], G)
        if self.P > 1 or self.y is None:
            mean = kernels.matmul(self.w, Kuf)
        return self.marginals(mean, kff - explained, kff), [Kuf, Lam, G]

    def joint(self, Kuf, Kff):
        Lam = kernels.multiply_triangular(self.L, Kuf, transpose=True)
        cov = Kff - kernels.matmul(Lam, kernels.matmul(self.N, Lam), transpose_a=True)
        return self.joint_moments(kernels.matmul(self.w, Kuf), (cov + cov.T) / 2, Kff)

    def kl(self):
        traces = self.distance**2 + self.trace + np.sum(self.s * self.P_diagonal, dtype=float) - self.M
        return 0.5 * self.P * (traces - log_dets(self.L, self.s)) + self.weights_kl()

    def pull(self, part, f_bar, need):
        """Add one part to the sums; returns its ``Kuf_bar``, or None. Consumes ``part``."""
        Kuf, Lam, G = part
        part.clear()
        a, b = self.cotangents(f_bar)
        self.Kuf_a += kernels.matmul(a, Kuf, transpose_b=True)
        need_blocks, need_tril = "blocks" in need, wanted(need, "inverse_tril")
        if need_blocks or need_tril or wanted(need, "variance"):
            self.C = kernels.weighted_gram(Lam, b, out=self.C, add=self.C is not None, overwrite_a=True)
        if need_tril:
            Lam_bar = kernels.scale_columns(G, -2 * b)
            self.L_bar = kernels.tril_product(Kuf, Lam_bar, out=self.L_bar, add=self.L_bar is not None)
        if not need_blocks:
            return None
        return mean_and_variance_bars(self.w, a, kernels.multiply_triangular(self.L, G, overwrite_b=True), b)

    def finish(self, kl_bar, need):
        """``(mean_bar (P, M), variance_bar, tril_bar, Kuu_bar)``; None for what is not needed. Consumes the sums."""
        need_blocks, need_variance, need_tril = "blocks" in need, wanted(need, "variance"), wanted(need, "inverse_tril")
        mean_bar = w_bar = self.weights_bar(kl_bar)
        omega = N_omega = None
        if self.preconditioned:
            omega = times(self.L, w_bar, transpose=True)
            N_omega = kernels.matmul(omega, self.N)
            mean_bar = times(self.L, N_omega)
        if not (need_blocks or need_variance or need_tril):
            return mean_bar, None, None, None
        c = 0.5 * kl_bar * self.P
        C, self.C = self.C, None
        if c:
            kernels.add_scaled(C, self.N, -2 * c)
            kernels.add_scaled(C, kernels.tril_gram(self.L, self.s), -c)
            C.reshape(-1)[:: self.M + 1] += 3 * c
        if self.preconditioned:
            add_symmetric_outer(C, -omega, self.whitened)
        tril_bar = self._tril_bar(C, c, w_bar, N_omega) if need_tril else None
        variance_bar = Kuu_bar = None
        if need_blocks:
            K_bar = kernels.tril_congruence(self.L, C)
            diagonal = K_bar.diagonal().copy()
            Kuu_bar = kernels.symmetrise(add_symmetric_outer(K_bar, 0.5 * kl_bar * self.w, self.w))
        elif need_variance:
            diagonal = congruence_diagonal(self.L, C)
        if need_variance:
            variance_bar = diagonal + c * (self.P_diagonal - 1 / self.s)
        return mean_bar, variance_bar, tril_bar, Kuu_bar

    def _tril_bar(self, C, c, w_bar, N_omega):
        L, L_bar = self.L, self.L_bar
        LC = kernels.multiply_triangular(L, kernels.symmetrise(C))
        LC *= 2
        kernels.tril_product(self.K, LC.T, out=L_bar, add=True)
        if c:
            LN = kernels.tril(kernels.tril_multiply(L, self.N))
            LN *= (2 * c * self.s)[:, None]
            L_bar += LN
            L_bar.reshape(-1)[:: self.M + 1] -= 2 * c / L.diagonal()
        if self.preconditioned:
            left, right = np.concatenate([w_bar, self.means]), np.concatenate([self.y, N_omega])
            kernels.tril_product(left.T, right.T, out=L_bar, add=True)
        return L_bar


class DirectionPass(InversePass):
    """Forward the bound of a ``RelaxedPass``, in reverse the rule of L-SVGP with J := P = L N L'. 3 M^2 B + 3 M^3 flops."""

    def __init__(self, exact):
        for name in ("batch", "means", "s", "preconditioned", "w", "Kw", "Kuf_a", "clamped"):
            setattr(self, name, getattr(exact, name))
        self.exact, self.H = exact, None
        self.J = kernels.symmetrise(kernels.tril_congruence(exact.L, exact.N))
        self.J_diagonal = exact.P_diagonal = self.J.diagonal().copy()

    def times_J(self, vectors):
        return kernels.matmul(vectors, self.J)

    def kl(self):
        return self.exact.kl()

    def finish(self, kl_bar, need):
        mean_bar, variance_bar, Kuu_bar = super().finish(kl_bar, need)
        return mean_bar, variance_bar, None, Kuu_bar


def clean(L):
    """A copy with zeros above the diagonal."""
    copy = kernels.empty(L.shape, L)
    copy[...] = L
    return kernels.tril(copy)


def times(L, vectors, transpose=False):
    """``L v``, or ``L' v``, for each of the vectors (P, M); zeros above the diagonal of L are read."""
    return kernels.matmul(vectors, L, transpose_b=not transpose)


def congruence_diagonal(L, S):
    """diag(L S L') for a symmetric S, lower triangle read. M^3 / 3 flops."""
    rest = kernels.newton_schulz_update(L, S, 1.0)  # L - L B
    np.subtract(L, rest, out=rest)
    rest *= L
    return 2 * rest.sum(axis=1)


def log_dets(L, s):
    """log det L L' + sum log s."""
    return 2 * np.sum(np.log(L.diagonal(), dtype=float)) + np.sum(np.log(s, dtype=float))
