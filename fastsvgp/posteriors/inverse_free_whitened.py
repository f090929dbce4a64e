"""A whitened bound from matrix products only: R R', about Kuu^-1, replaces a Cholesky factor.

Write K for Kuu with its jitter, T for one implicit natural-gradient (Newton-Schulz) step from R,
Phi(X) for the lower triangle of X with half the diagonal,

    T = R F,    F = I - Phi(D0),    D0 = R' K R - I,    D = T' K T - I

and, as in ``whitening``, Lam = T' Kuf, S = W W'. The posterior is q(u) = N(K T m, K + K T (D -
I + S) T' K). Both D and the step are differentiated as functions of K; R is an independent
parameter. Then

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(Lam * (C Lam)),    C = S + D,

and KL[q(u) || p(u)] is at most (the paper's bound at A = I + D; tr((S - 3 I + A) A) = tr S + <S, D>
- 2 M - tr D + |D|^2)

    KL = (|m|^2 + m' D m + |W|_F^2 + <C, D> - M - tr D) / 2 - sum log W_ii + KL[N(0, T T') || N(0,
    K^-1)].

The last term is (tr D - log|I + D|) / 2, and its determinant would need a factorisation. It is
replaced by its bound rho = (-d - log(1 - d)) / 2, d = |D|_F < 1 (x - log(1 + x) <= x^2 (-d - log(1
- d)) / d^2 for |x| <= d), so the value stays a lower bound of the evidence. At R = chol(K^-1) D is
zero: value and gradients are those of the whitened bound whose whitening matrix is chol(K^-1). The
gradients agree because of the implicit step: dT = T dF there, which is the derivative of
chol(K^-1), while without the step T would be constant. And D is quadratic in D0, |D| <= |D0|^2
(1.92 + |D0| / 2).

Reverse. Let a, b be the cotangents of mean and var, kappa that of the KL, X diag(b) written X * b;
sums over outputs p are implied, with one KL per output. With Lam, D, m and W as if they were
independent, and G = (Lam * 2b) Lam',

    d mean = dLam' m + Lam' dm
    d var  = -2 colsum(Lam * dLam) + 2 colsum(C Lam * dLam) + colsum(Lam * ((dS + dD) Lam))
    d KL   = (m + D m)' dm + <m m' + S + 2 D - I + D / (1 - d), dD> / 2 + <I + D, dS> / 2
             - sum dW_ii / W_ii
             (<C, D> = <S, D> + |D|^2;  d rho = (1 / (1 - d) - 1) dd / 2 = <D, dD> / (2 (1 - d)))
    Lam_bar = m a' + 2 (C Lam - Lam) * b
    m_bar   = Lam a + kappa (m + D m)
    W_bar   = tril((G + kappa (I + D)) W) - kappa diag(1 / W_ii)
              (<X, dS> / 2 = <X W, dW> for symmetric X)
    D_bar   = (G + kappa (m m' + S + 2 D - I + D / (1 - d))) / 2

and then through Lam = T' Kuf and D = T' K T - I, dD = dT' K T + T' dK T + T' K dT, to T and on to R
and K:

    Kuf_bar = T Lam_bar,    kff_bar = b
    T_bar   = tril(Kuf Lam_bar' + 2 K T D_bar)
    K_bar   = T D_bar T' + A_bar

where (A_bar, R_bar) are the cotangents of the step at T_bar (see ``newton_schulz_step_vjp``).

Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", section 2 and
appendix S4, for the bound at T. The implicit step and the bound of the last term are our additions.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np

from .. import kernels
from ..records import Marginals, leaf, record
from ..records.typed import Array
from ..runtime import deferred_checks
from .base import (
    Bars,
    Joint,
    Pass,
    Posterior,
    Projection,
    check_vector_and_matrix,
    gaussian_draws,
    gradient,
    needs,
    raise_to_floor,
)
from .pseudo_targets import add_noise


@record
class InverseFreeWhitened(Posterior):
    """Whitened posterior without factorisations: u = Kuu R v, with R R' about Kuu^-1.

    Approximately q(v) = N(mean, scale_tril scale_tril'). Bounds need no decomposition and no
    triangular solve.

    Parameters
    ----------
    mean : (..., M)
    scale_tril : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    inverse_root : (M, M)
        R, lower triangular, positive diagonal; shared by all outputs. Compute it by
        ``inverse_factor(Kuu + jitter I)``, and refresh it from the last R whenever Kuu has moved.

    Notes
    -----
    The bound takes one Newton-Schulz step from R to T. For every R with ||T' Kuu T - I||_F < 1 it
    is a lower bound of the evidence. For other R it raises ``ValueError``, while predictive
    variances are still too large, never too small. At R = chol(Kuu^-1) value and gradients are
    those of the whitened bound, and the gradient of R is zero. Value and all gradients except R's
    cost (6 B + 8 M) M^2 flops for one output; R's costs another 5/3 M^3. All of them are products.

    In float32 the gradient of the inducing inputs needs a well-conditioned Kuu. D, the difference
    of R' Kuu R and I, is rounding error there, about 1e-8 cond(Kuu), and enters that gradient to
    first order. The table shows its measured error (RBF, D = 2, M = 60 and 100), relative to the
    norm:

    =============  ======  =====
    cond(Kuu)      median  worst
    =============  ======  =====
    1e4 to 2e4     0.2 %   0.5 %
    up to 4e4      0.7 %   2 %
    up to 6.5e4    2 %     4 %
    up to 1e5      3 %     9 %
    =============  ======  =====

    ``Whitened`` has 1e-4 there, and so have lengthscales in both posteriors. Exact sums in D would
    leave a third of the error, the part due to rounding Kuu. Use more jitter, float64, or
    ``Whitened``.

    Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", appendix S4.

    Examples
    --------
    >>> root, info = fs.optim.inverse_factor(covariance.matrix(Z) + 1e-2 * np.eye(6),
    ...     tolerance=1e-6)
    >>> q = fs.posteriors.InverseFreeWhitened(mean=np.zeros(6), scale_tril=np.eye(6),
    ...     inverse_root=root)
    >>> free = fs.replace(model, posterior=q)
    >>> round(fs.elbo(free, X, Y, jitter=1e-2) - fs.elbo(model, X, Y, jitter=1e-2), 4) + 0.0
    0.0
    """

    mean: Array = leaf()
    scale_tril: Array = leaf("tril")
    inverse_root: Array = leaf("tril")

    inverse_field = "inverse_root"
    no_natural_step = "it would factorise the precision of q, which this posterior avoids"

    def check_size(self, M):
        outputs = check_vector_and_matrix(self, M)
        if np.shape(self.inverse_root) != (M, M):
            raise ValueError(
                f"`posterior` has inverse_root {np.shape(self.inverse_root)}, but there are {M}"
                f" inducing inputs: use ({M}, {M}), a factor of the inverse of Kuu by"
                " inverse_factor"
            )
        return outputs

    def start_from(self, prior, columns=0, need=()):
        return InverseFreePass(self, prior, need)

    def path_weights(self, prior, values, normal):
        """T (m + W h - T' u0), h standard normal: products alone.

        The covariance of f is Kff - 2 Kfu T T' Kuf + Kfu T (T' K T + S) T' Kuf, that of q, as
        T' K T = I + D.
        """
        D0, _ = kernels.newton_schulz_gram(add_noise(prior.Kuu, prior.jitter), self.inverse_root)
        T = kernels.newton_schulz_update(self.inverse_root, D0, 1.0)
        draws = gaussian_draws(self.mean, self.scale_tril, values.shape[-1], normal)
        draws -= kernels.multiply_triangular(T, values, transpose=True, overwrite_b=True)
        return kernels.multiply_triangular(T, draws, overwrite_b=True)

    def inverse_of(self, Kuu, jitter):
        return add_noise(Kuu, jitter), jitter


@dataclass(slots=True)
class InverseFreeResiduals:
    """Residuals of one chunk of rows: Kuf and Lam (M, N), and C Lam (M, N) per output."""

    Kuf: Any
    Lam: Any
    C_Lam: list


class InverseFreePass(Pass):
    """K, R, D0, T, D and C of the module docstring, and the sums of ``pull``."""

    def __init__(self, q, prior, need):
        M = len(prior.Kuu)
        self.q, self.batch = q, q.mean.shape[:-1]
        self.need_Kuf, self.need_Kuu = (needs(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self.need_mean, self.need_tril, self.need_root = (
            needs(need, f) for f in ("mean", "scale_tril", "inverse_root")
        )
        self.means, self.trils = q.mean.reshape(-1, M), q.scale_tril.reshape(-1, M, M)
        self.R, self.K = q.inverse_root, add_noise(prior.Kuu, prior.jitter)
        self.D0, _ = kernels.newton_schulz_gram(self.K, self.R)
        self.T = kernels.newton_schulz_update(self.R, self.D0, 1.0)
        D, (self.d, _, _, self.trace) = kernels.newton_schulz_gram(self.K, self.T)
        self.D = kernels.symmetrise(D)
        self.C = kernels.cholesky_product(self.trils)
        self.C += self.D
        self.Lam_a = self.G = self.T_bar = None

    def project(self, Kuf, kff):
        """M^2 N flops, and 2 M^2 N per output."""
        Lam = kernels.multiply_triangular(self.T, Kuf, transpose=True)
        P, N = len(self.means), Lam.shape[1]
        mean, var, C_Lam = (
            np.empty((P, N), Lam.dtype, like=Lam),
            np.empty((P, N), Lam.dtype, like=Lam),
            [],
        )
        for p in range(P):
            C_Lam.append(kernels.matmul(self.C[p], Lam))
            mean[p], explained = kernels.column_moments(Lam, self.means[p])
            var[p] = kff - explained + kernels.column_moments(Lam, self.means[p], C_Lam[p])[1]
        self.clamped += raise_to_floor(var, kff)
        return Projection(
            Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N)),
            InverseFreeResiduals(Kuf, Lam, C_Lam),
        )

    def joint(self, Kuf, Kff):
        Lam = kernels.multiply_triangular(self.T, Kuf, transpose=True)
        N = Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((len(self.means), N, N), Lam.dtype, like=Lam)
        for p, C in enumerate(self.C):
            np.add(prior, kernels.matmul(Lam, kernels.matmul(C, Lam), transpose_a=True), out=cov[p])
            np.multiply(np.add(cov[p], cov[p].T), 0.5, out=cov[p])
        # a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(len(cov), N * N)[:, :: N + 1], np.diagonal(Kff))
        return Joint(
            kernels.matmul(self.means, Lam).reshape(*self.batch, N), cov.reshape(*self.batch, N, N)
        )

    def kl(self):
        """The bound of KL[q(u) || p(u)] of the module docstring, summed over outputs."""
        d = self._distance()
        P = len(self.means)
        squares = np.sum(np.square(self.means, dtype=float)) + kernels.tril_sum_of_squares(
            self.trils
        )
        moved = np.sum(self.means * kernels.matmul(self.means, self.D), dtype=float)
        inner = sum(
            np.sum(kernels.column_moments(C, self.means[0], self.D)[1], dtype=float) for C in self.C
        )
        log_diagonals = np.sum(np.log(np.diagonal(self.trils, axis1=-2, axis2=-1), dtype=float))
        rest = P * (-d - np.log1p(-d)) / 2
        return (
            0.5 * (squares + moved + inner - self.means.size - P * self.trace)
            - log_diagonals
            + rest
        )

    def pull(self, rows, f_bar):
        Kuf, Lam, C_Lam = rows.Kuf, rows.Lam, rows.C_Lam
        P, (M, N) = len(self.means), Lam.shape
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        first, through_T = self.Lam_a is None, self.need_root or self.need_Kuu
        if first:
            self.Lam_a = np.zeros((P, M), Lam.dtype, like=Lam)
            if through_T:
                self.T_bar = kernels.empty((M, M), Lam)
            if through_T or self.need_tril:  # D_bar only needs the sum over outputs
                self.G = kernels.empty((P if self.need_tril else 1, M, M), Lam)
        if through_T or self.need_Kuf:
            Lam_bar = None
            for p, T in enumerate(C_Lam):
                self.Lam_a[p] += kernels.add_outer_minus_scaled(
                    T, self.means[p], a[p], Lam, b2[p], scale=True
                )
                Lam_bar = T if p == 0 else np.add(Lam_bar, T, out=Lam_bar)
            if through_T:
                kernels.tril_product(Kuf, Lam_bar, out=self.T_bar, add=not first)
        else:
            self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        if self.G is not None:
            weights = b2 if self.need_tril else b2.sum(axis=0, keepdims=True)
            for p, (G, w) in enumerate(zip(self.G, weights, strict=True)):
                kernels.weighted_gram(
                    Lam, w, out=G, add=not first, overwrite_a=p == len(weights) - 1
                )
        rows.Kuf = rows.Lam = rows.C_Lam = None
        return (
            kernels.multiply_triangular(self.T, Lam_bar, overwrite_b=True)
            if self.need_Kuf
            else None
        )

    def finish(self, kl_bar):
        if self.G is not None:  # only lower triangles were summed
            kernels.symmetrise(self.G)
        mean_bar = tril_bar = root_bar = Kuu_bar = None
        if self.need_mean:
            mean_bar = self.Lam_a + kl_bar * (self.means + kernels.matmul(self.means, self.D))
            mean_bar = mean_bar.reshape(self.q.mean.shape)
        if self.need_Kuu or self.need_root:
            Kuu_bar, root_bar = self._root_and_Kuu_bar(kl_bar)
        if self.need_tril:
            tril_bar = self._tril_bar(kl_bar).reshape(self.q.scale_tril.shape)
        return Bars(
            gradient(self.q, mean=mean_bar, scale_tril=tril_bar, inverse_root=root_bar), Kuu_bar
        )

    def _tril_bar(self, kl_bar):
        """(P, M, M), lower. Consumes the sums G, so it is called last."""
        bar = kernels.empty(self.trils.shape, self.D)
        for G, W, out in zip(self.G, self.trils, bar, strict=True):
            G += kl_bar * self.D
            # W' (G + kappa D), its transpose
            GW = kernels.multiply_triangular(W, G, transpose=True, overwrite_b=True)
            kernels.tril_update(GW, W, kl_bar, out=out, transpose=True)
        self.G = None
        return bar

    def _root_and_Kuu_bar(self, kl_bar):
        """``(K_bar, R_bar)``, None for what is not needed."""
        M = len(self.K)
        twice = self.G.sum(axis=0)  # 2 D_bar
        if kl_bar:
            shrunk = 1 + 1 / (1 - self._distance())
            twice += kl_bar * (
                kernels.matmul(self.means, self.means, transpose_a=True) + self.C.sum(axis=0)
            )
            twice += self.D * (kl_bar * len(self.means) * shrunk).astype(self.D.dtype)
            twice.reshape(-1)[:: M + 1] -= kl_bar * len(self.means)
        T_D = kernels.multiply_triangular(self.T, twice, overwrite_b=True)  # 2 T D_bar
        kernels.tril_product(self.K, T_D.T, out=self.T_bar, add=True)
        names = [name for name, needed in (("A", self.need_Kuu), ("L", self.need_root)) if needed]
        K_bar, R_bar = kernels.newton_schulz_step_vjp(
            self.T_bar, self.K, self.R, self.D0, 1.0, names
        )
        if self.need_Kuu:
            K_bar += 0.5 * kernels.symmetrise(kernels.tril_product(T_D, self.T))
        return K_bar, R_bar

    def _distance(self):
        """|D|_F, checked to be less than one."""
        if not deferred_checks.none(self.d >= 1):
            raise ValueError(
                "`posterior.inverse_root` is too far from a factor of the inverse of Kuu: after a"
                f" Newton-Schulz step |R' Kuu R - I| is {float(self.d):.3g}, and the bound needs"
                " less than 1; use inverse_factor(Kuu + jitter I, inverse_root); if rounding limits"
                " it, more jitter or float64"
            )
        # on a device the check is read later, after the logarithms
        return np.minimum(self.d, 1 - 1e-15)
