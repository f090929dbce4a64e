"""L-SVGP: q(u) is the prior times a Gaussian likelihood of independent pseudo-observations.

The covariance of q is S = (Kuu^-1 + S~^-1)^-1. Sources: Panos et al. 2018; Cortinovis et al.,
"Inverse-Free Sparse Variational Gaussian Processes", section 2 and, for the preconditioned mean,
3.2. With s = diag(S~), K~ = Kuu + S~, J = K~^-1 and, for each output p, w = J m~ (plain: w = m~):

    mean = Kfu w,    var = kff - diag(Kfu J Kuf)
    KL   = (s' diag(J) - M + log det K~ - sum log s + w' Kuu w) / 2.

Only K~, whose eigenvalues are at least min(s), is factorised: K~ = L L', X = L^-1, J = X'X. With
Lam = X Kuf and beta = X m~ (plain: L' w) the mean is Lam' beta and the variance kff -
colsum(Lam^2). This difference is not formed through J, so float32 loses digits by cond(L), not by
cond(K~).

Reverse. Let a, b be the cotangents of mean and var (b summed over the P outputs), kappa that of the
KL, K = Kuu, Psi = J Kuf.

    d KL = P/2 [diag(J)' ds - tr(J S~ J dK~) + tr(J dK~) - sum ds / s] + w' K dw + w' dK w / 2
    d var = dkff - 2 colsum(Psi dKuf) + colsum(Psi (dK~ Psi))
    d w = J dm~ - J dK~ w                                         (plain: dm~)
    w_bar   = Kuf a + kappa K w,    m~_bar = J w_bar              (plain: w_bar)
    K~_bar  = Psi diag(b) Psi' + kappa P/2 (J - J S~ J) - sym((J w_bar) w')
              (plain: without the last term)
    Kuu_bar = K~_bar + kappa/2 w w'
    s_bar   = diag(K~_bar) + kappa P/2 (diag(J) - 1/s)
    Kuf_bar = w a' - 2 Psi diag(b)

Each product with the batch is triangular or symmetric: Lam, Psi = X' Lam and the Gram matrix take 3
M^2 B flops. Factor, inverse, X'X and J S~ J take 1/3 + 1/3 + 1/3 + 1 M^3.

In float64, if the gradient needs J anyway, Psi = J Kuf is one full product in place of two
triangular ones (the same flops, 10 % faster), and the variance is kff - colsum(Kuf * Psi). Measured
at cond(K~) up to 1e8, the gradients are as accurate, and the value is accurate to 1e-9 or better.
"""

import numpy as np

from .. import kernels
from ..records import leaf, record, static
from ..records.typed import Array
from .base import cached_attribute
from .pseudo_targets import (
    PseudoData,
    PseudoPass,
    add_noise,
    add_symmetric_outer,
    noisy_values,
    times_Kuu,
)


@record
class LikelihoodForm(PseudoData):
    """L-SVGP: q(u) = N(Kuu w, (Kuu^-1 + S~^-1)^-1).

    The covariance is that of p(u) N(m~ | u, S~), normalised.

    Parameters
    ----------
    mean : (..., M)
        m~. Preconditioned: w = (Kuu + S~)^-1 m~, so that m~ are pseudo-targets. Plain: w = m~.
    variance : (M,)
        Diagonal of S~: the noise of the pseudo-targets, shared by all outputs. Positive.
    preconditioned : bool
        Whether the mean is preconditioned. Static. The plain form trains far more slowly.

    Notes
    -----
    Value and all gradients cost 3 M^2 B + 2 M^3 flops for any number of outputs; the value only
    costs M^2 B + 2/3 M^3. The jitter is added to Kuu, as for every posterior; with S~ the
    factorisation is safe without it.

    Source: Panos, Dellaportas and Titsias 2018; Cortinovis et al., sections 2 and 3.2.

    Examples
    --------
    >>> q = fs.posteriors.LikelihoodForm(mean=np.zeros(6), variance=0.1 * np.ones(6))
    >>> round(fs.elbo(fs.replace(model, posterior=q), X, Y), 2)
    -95.88
    """

    mean: Array = leaf()
    variance: Array = leaf("positive")
    preconditioned: bool = static(default=True)

    def start_from(self, prior, columns=0, need=()):
        return LikelihoodPass(self, prior, need)

    def path_weights(self, prior, values, normal):
        """J (m~ - u0 - S~^1/2 h), h standard normal: pseudo-observations of u0 with noise S~.

        Plain: m~ - J (u0 + S~^1/2 h). Only K~ is factorised. The covariance of f is
        Kff - 2 Kfu J Kuf + Kfu J K~ J Kuf = Kff - Kfu J Kuf, as under q.
        """
        L = kernels.cholesky(add_noise(prior.Kuu, self.variance, prior.jitter))
        seen, means = noisy_values(self, values, normal)
        if self.preconditioned:
            seen -= means
        for transpose in (False, True):
            seen = kernels.solve_triangular(L, seen, transpose=transpose, overwrite_b=True)
        return -seen if self.preconditioned else means - seen


class InversePass(PseudoPass):
    """Base with the reverse rule above; subclasses provide J, J_diagonal and times_J.

    J : K~^-1 (M, M), symmetric
    J_diagonal : (M,)
    times_J(vectors) : J v for each of the vectors (P, M)
    """

    def project(self, Kuf, kff):
        """Residuals: Kuf, Psi. 2 M^2 N flops."""
        Psi = kernels.matmul(self.J, Kuf)
        mean, explained = kernels.column_moments(Kuf, self.w[0], Psi)
        if self.P > 1:
            mean = kernels.matmul(self.w, Kuf)
        return self.projection(mean, kff - explained, kff, Kuf, Psi)

    def Psi(self, residuals):
        """J Kuf from the second residual of ``project``, which is consumed."""
        return residuals

    def sum_rows(self, b, Kuf, residuals):
        if not (self.need_Kuf or self.need_Kuu or self.need_variance):
            return None
        Psi = self.Psi(residuals)
        self.add_gram(Psi, b)
        return Psi

    def finish(self, kl_bar):
        mean_bar, outer = self.weights_bar(kl_bar), 0.5 * kl_bar * self.w
        if self.preconditioned:
            mean_bar = self.times_J(mean_bar)
            outer = outer - mean_bar
        if not self.need_Kuu and not self.need_variance:
            return self.bars(mean_bar, None, None)
        # read J_diagonal (``kl`` needs it too) before J is overwritten
        c, J_diagonal = 0.5 * kl_bar * self.P, self.J_diagonal
        variance_bar = Kuu_bar = None
        H, self.H = self.H, None
        if self.need_Kuu:
            if c:
                kernels.add_scaled(H, self.J, c)
                kernels.weighted_gram(self.J, -c * self.s, out=H, add=True, overwrite_a=True)
            diagonal = H.diagonal().copy()
            Kuu_bar = kernels.symmetrise(add_symmetric_outer(H, outer, self.w))
        else:
            diagonal = H + (
                c * (J_diagonal - kernels.matmul(np.square(self.J), self.s[:, None])[:, 0])
                if c
                else 0
            )
        if self.need_variance:
            variance_bar = diagonal + (c * (J_diagonal - 1 / self.s) if c else 0)
            if self.preconditioned:
                variance_bar -= np.sum(mean_bar * self.w, axis=0)
        return self.bars(mean_bar, variance_bar, Kuu_bar)


class LikelihoodPass(InversePass):
    """Pass with X = chol(K~)^-1 (M, M)."""

    def __init__(self, q, prior, need):
        super().__init__(q, need)
        self.needs_J = self.need_Kuf or self.need_Kuu or self.need_variance
        self.by_J = self.needs_J and prior.Kuu.dtype == np.float64
        L = kernels.cholesky(prior.Kuu, prior.jitter, noise=self.s)
        self.log_det = 2 * np.sum(np.log(L.diagonal(), dtype=float))
        self.beta = None if self.preconditioned else kernels.matmul(self.means, L)
        self.X = kernels.inverse_triangular(L, overwrite_l=True)
        w = self.means
        if self.preconditioned:
            self.beta = kernels.matmul(self.means, self.X, transpose_b=True)
            w = kernels.matmul(self.beta, self.X)
        self.w, self.Kw = w, times_Kuu(w, prior)

    @cached_attribute
    def J_diagonal(self):
        return (
            self.J.diagonal().copy() if self.needs_J else kernels.column_moments(self.X, self.s)[1]
        )

    @cached_attribute
    def J(self):
        return kernels.symmetrise(kernels.tril_gram(self.X))

    def times_J(self, vectors):
        return kernels.matmul(kernels.matmul(vectors, self.X, transpose_b=True), self.X)

    def Psi(self, residuals):
        return (
            residuals
            if self.by_J
            else kernels.multiply_triangular(self.X, residuals, transpose=True, overwrite_b=True)
        )

    def project(self, Kuf, kff):
        """By J if ``by_J``; else the residuals are Kuf, Lam. M^2 N flops."""
        if self.by_J:
            return super().project(Kuf, kff)
        Lam = kernels.multiply_triangular(self.X, Kuf)
        mean, explained = kernels.column_moments(Lam, self.beta[0])
        if self.P > 1:
            mean = kernels.matmul(self.beta, Lam)
        return self.projection(mean, kff - explained, kff, Kuf, Lam)

    def joint(self, Kuf, Kff):
        Lam = kernels.multiply_triangular(self.X, Kuf)
        cov = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        return self.joint_moments(kernels.matmul(self.beta, Lam), cov, Kff)

    def kl(self):
        explained = np.sum(self.s * self.J_diagonal, dtype=float) - self.M
        logs = self.log_det - np.sum(np.log(self.s, dtype=float))
        return 0.5 * self.P * (explained + logs) + self.weights_kl()
