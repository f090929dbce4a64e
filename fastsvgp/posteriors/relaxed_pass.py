"""Pass of R-SVGP with exact traces, in the coordinates of L.

Every M x M operation is a triangular or symmetric product. T = L L', K~ = Kuu + S~, K = Kuu. With E
= L' K~ L, D = E - I, N = 2 I - E, R = L' S~ L and Lam = L' Kuf, P = 2 T - T K~ T = L N L'. The
bound of the paper, eq. (3), (4) and (7), becomes, with w = P m~ = L y, y = N L' m~ (plain: w = m~),

    mean = Kfu w,    var = kff - colsum(Lam * (N Lam)),
    KL   = (-tr(P K) + tr(K~ T) - M - log det T - sum log s + w' K w) / 2
         = (|D|_F^2 + tr D + s' diag(P) - M - 2 sum log L_ii - sum log s + w' K w) / 2,

per output: P K has the trace of N L' K L = N (E - R), and tr(N E) = tr((I - D)(I + D)) = M -
|D|_F^2.

Reverse. Let a, b be the cotangents of mean and var (b summed over the P outputs), kappa that of the
KL, c = kappa P / 2. As a function of E and R the traces are f = tr(E E) - tr E + 2 tr R - tr(E R),
so df = <2 E - I - R, dE> + <N, dR>.

    w_bar   = Kuf a + kappa K w,    omega = L' w_bar
    m~_bar  = P w_bar = L N omega                                           (plain: w_bar)
    C       = E_bar = Lam diag(b) Lam' + c (3 I - 2 N - R) - sym(omega (L' m~)')
    K~_bar  = L C L',    Kuu_bar = K~_bar + kappa/2 w w'
    s_bar   = diag(K~_bar) + c (diag(P) - 1/s)                              R_bar = c N, L N L' = P
    Kuf_bar = w a' - 2 L (N Lam) diag(b)
    L_bar   = tril(Kuf (-2 N Lam diag(b))' + 2 K~ L C + 2 c S~ L N + w_bar y' + m~ (N omega)')
              - 2 c diag(1 / L_ii)

The last term of C comes from dy = -dE L' m~ (plain: no such term). The last two products of L_bar
come from w = L N L' m~ through both factors L (plain: none). diag(P) does not need P: with S = B +
B', B the lower triangle of S with half its diagonal, diag(L S L') = 2 rowsum(L * (L B)).

Flops: E 1, R 1/3, diag(P) 1/3, L C L' 1 M^3; Lam 1, N Lam 2, its Gram matrix 1, L (N Lam) 1 M^2 B.
(The same in the coordinates of u takes 13/3 M^3.)
"""

import numpy as np

from .. import kernels
from .base import cached_attribute, needs
from .likelihood_form import InversePass
from .pseudo_targets import (
    PseudoPass,
    add_noise,
    add_symmetric_outer,
    times_Kuu,
)


class Relaxation:
    """Shared start of both passes below: matrices and vectors from the factor, Kuu and parameters.

    L : (M, M), zeros above the diagonal
    N : (M, M), symmetric
    K : (M, M), K~, or None if the gradient of L is not needed
    distance : d = ||L' K~ L - I||_F
    whitened, y, w : (P, M); the first two are None if the mean is plain
    """

    def __init__(self, q, prior, need):
        means, self.whitened, self.y = q.mean.reshape(-1, q.mean.shape[-1]), None, None
        self.L = tril_copy(q.inverse_tril)
        K = add_noise(prior.Kuu, q.variance, prior.jitter)
        self.N, (self.distance, _, _, self.trace) = kernels.newton_schulz_gram(K, self.L)
        self.K = K if needs(need, "inverse_tril") else None
        np.negative(self.N, out=self.N)
        self.N.reshape(-1)[:: len(self.N) + 1] += 1
        kernels.symmetrise(self.N)
        self.w = means
        if q.preconditioned:
            self.whitened = multiply_vectors(self.L, means, transpose=True)
            self.y = kernels.matmul(self.whitened, self.N)
            self.w = multiply_vectors(self.L, self.y)
        self.Kw = times_Kuu(self.w, prior)

    def kl(self, work, P_diagonal):
        """The bound of the KL divergence, for a pass of these parameters; P_diagonal : diag(P)."""
        traces = self.distance**2 + self.trace + np.sum(work.s * P_diagonal, dtype=float) - work.M
        return 0.5 * work.P * (traces - log_dets(self.L, work.s)) + work.weights_kl()


class RelaxedPass(PseudoPass):
    """Forward and backward pass of the module docstring."""

    def __init__(self, q, need, relaxation):
        super().__init__(q, need)
        self.relaxation, self.w, self.Kw = relaxation, relaxation.w, relaxation.Kw
        self.C = self.L_bar = None

    @cached_attribute
    def P_diagonal(self):
        return congruence_diagonal(self.relaxation.L, self.relaxation.N)

    def kl(self):
        return self.relaxation.kl(self, self.P_diagonal)

    def project(self, Kuf, kff):
        """Residuals: Kuf, Lam, N Lam. 3 M^2 N flops."""
        Lam = kernels.multiply_triangular(self.relaxation.L, Kuf, transpose=True)
        G = kernels.matmul(self.relaxation.N, Lam)
        mean, explained = kernels.column_moments(
            Lam, self.means[0] if self.relaxation.y is None else self.relaxation.y[0], G
        )
        if self.P > 1 or self.relaxation.y is None:
            mean = kernels.matmul(self.w, Kuf)
        return self.projection(mean, kff - explained, kff, Kuf, Lam, G)

    def joint(self, Kuf, Kff):
        Lam = kernels.multiply_triangular(self.relaxation.L, Kuf, transpose=True)
        cov = Kff - kernels.matmul(Lam, kernels.matmul(self.relaxation.N, Lam), transpose_a=True)
        return self.joint_moments(kernels.matmul(self.w, Kuf), (cov + cov.T) / 2, Kff)

    def sum_rows(self, b, Kuf, Lam, G):
        if self.need_Kuu or self.need_tril or self.need_variance:
            self.C = kernels.weighted_gram(
                Lam, b, out=self.C, add=self.C is not None, overwrite_a=True
            )
        if self.need_tril:
            Lam_bar = kernels.scale_columns(G, -2 * b)
            self.L_bar = kernels.tril_product(
                Kuf, Lam_bar, out=self.L_bar, add=self.L_bar is not None
            )
        if self.need_Kuf:
            return kernels.multiply_triangular(self.relaxation.L, G, overwrite_b=True)
        return None

    def finish(self, kl_bar):
        mean_bar = w_bar = self.weights_bar(kl_bar)
        omega = N_omega = None
        if self.preconditioned:
            omega = multiply_vectors(self.relaxation.L, w_bar, transpose=True)
            N_omega = kernels.matmul(omega, self.relaxation.N)
            mean_bar = multiply_vectors(self.relaxation.L, N_omega)
        if not (self.need_Kuu or self.need_variance or self.need_tril):
            return self.bars(mean_bar, None, None, inverse_tril=None)
        c = 0.5 * kl_bar * self.P
        C, self.C = self.C, None
        if c:
            kernels.add_scaled(C, self.relaxation.N, -2 * c)
            kernels.add_scaled(C, kernels.tril_gram(self.relaxation.L, self.s), -c)
            C.reshape(-1)[:: self.M + 1] += 3 * c
        if self.preconditioned:
            add_symmetric_outer(C, -omega, self.relaxation.whitened)
        tril_bar = self._tril_bar(C, c, w_bar, N_omega) if self.need_tril else None
        variance_bar = Kuu_bar = None
        if self.need_Kuu:
            K_bar = kernels.tril_congruence(self.relaxation.L, C)
            diagonal = K_bar.diagonal().copy()
            Kuu_bar = kernels.symmetrise(add_symmetric_outer(K_bar, 0.5 * kl_bar * self.w, self.w))
        elif self.need_variance:
            diagonal = congruence_diagonal(self.relaxation.L, C)
        if self.need_variance:
            variance_bar = diagonal + c * (self.P_diagonal - 1 / self.s)
        return self.bars(mean_bar, variance_bar, Kuu_bar, inverse_tril=tril_bar)

    def _tril_bar(self, C, c, w_bar, N_omega):
        L, L_bar = self.relaxation.L, self.L_bar
        LC = kernels.multiply_triangular(L, kernels.symmetrise(C))
        LC *= 2
        kernels.tril_product(self.relaxation.K, LC.T, out=L_bar, add=True)
        if c:
            LN = kernels.tril(kernels.tril_multiply(L, self.relaxation.N))
            LN *= (2 * c * self.s)[:, None]
            L_bar += LN
            L_bar.reshape(-1)[:: self.M + 1] -= 2 * c / L.diagonal()
        if self.preconditioned:
            left, right = (
                np.concatenate([w_bar, self.means]),
                np.concatenate([self.relaxation.y, N_omega]),
            )
            kernels.tril_product(left.T, right.T, out=L_bar, add=True)
        return L_bar


class DirectionPass(InversePass):
    """Bound of a ``RelaxedPass``, with the backward pass of L-SVGP at J := P = L N L'.

    3 M^2 B + 3 M^3 flops.
    """

    def __init__(self, q, need, relaxation):
        super().__init__(q, need)
        self.relaxation = relaxation
        self.J = kernels.symmetrise(kernels.tril_congruence(relaxation.L, relaxation.N))
        self.J_diagonal = self.J.diagonal().copy()
        self.w, self.Kw = relaxation.w, relaxation.Kw

    def times_J(self, vectors):
        return kernels.matmul(vectors, self.J)

    def kl(self):
        return self.relaxation.kl(self, self.J_diagonal)

    def bars(self, mean_bar, variance_bar, Kuu_bar):
        return super().bars(mean_bar, variance_bar, Kuu_bar, inverse_tril=None)


def tril_copy(L):
    """Copy L with zeros above the diagonal."""
    copy = kernels.empty(L.shape, L)
    copy[...] = L
    return kernels.tril(copy)


def multiply_vectors(L, vectors, transpose=False):
    """``L v``, or ``L' v``, for each of the vectors (P, M); L has zeros above its diagonal."""
    return kernels.matmul(vectors, L, transpose_b=not transpose)


def congruence_diagonal(L, S):
    """diag(L S L') for a symmetric S, of which the lower triangle is read. M^3 / 3 flops."""
    rest = kernels.newton_schulz_update(L, S, 1.0)  # L - L B
    np.subtract(L, rest, out=rest)
    rest *= L
    return 2 * rest.sum(axis=1)


def log_dets(L, s):
    """log det L L' + sum log s."""
    return 2 * np.sum(np.log(L.diagonal(), dtype=float)) + np.sum(np.log(s, dtype=float))
