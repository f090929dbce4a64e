"""Shared parts of posteriors in likelihood form: pseudo-observations m~ of u, noise S~ = diag(s).

All outputs share s, and therefore the variances; each output has its own mean.
"""

import numpy as np

from .. import kernels
from ..records import Marginals, record
from .base import Bars, Joint, Pass, Posterior, Projection, gradient, needs, raise_to_floor


@record
class PseudoData(Posterior):
    """Base of posteriors with a ``mean`` (..., M), and a ``variance`` (M,) for all outputs."""

    no_natural_step = "it would not keep S~ diagonal"

    def check_size(self, M):
        mean, variance = np.shape(self.mean), np.shape(self.variance)
        if len(mean) not in (1, 2) or mean[-1] != M or mean[0] == 0 or variance != (M,):
            raise ValueError(
                f"`posterior` has mean {mean} and variance {variance}, but there are {M} inducing"
                f" inputs: use mean ({M},), or mean (P, {M}) for P outputs, and variance ({M},),"
                " which all outputs share"
            )
        if not isinstance(self.preconditioned, (bool, np.bool_)):
            raise TypeError(
                "`preconditioned` of the posterior must be True or False, got"
                f" {self.preconditioned!r}"
            )
        return mean[:-1]


class PseudoPass(Pass):
    """Base of the passes of these posteriors.

    means : (P, M); s : (M,); batch : leading axes of the mean, (P,) or ()
    w : (P, M), with E f = Kfu w; Kw : (P, M), Kuu w
    Kuf_a : (P, M), the sum of Kuf a over chunks of rows
    H : K~_bar of the rows so far, or only its diagonal if that is enough
    """

    H = None

    def __init__(self, q, need):
        M = q.mean.shape[-1]
        self.q, self.batch, self.means, self.s = (
            q,
            q.mean.shape[:-1],
            q.mean.reshape(-1, M),
            q.variance,
        )
        self.preconditioned = bool(q.preconditioned)
        self.need_Kuf, self.need_Kuu = (needs(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self.need_mean, self.need_variance, self.need_tril = (
            needs(need, f) for f in ("mean", "variance", "inverse_tril")
        )
        self.Kuf_a = np.zeros_like(self.means)

    @property
    def M(self):
        return self.means.shape[1]

    @property
    def P(self):
        return len(self.means)

    def projection(self, mean, var, kff, *rows):
        """``Projection`` from means (P, N) and variances (N,); clips the variances."""
        self.clamped += raise_to_floor(var, kff)
        shape = (*self.batch, len(var))
        return Projection(
            Marginals(mean.reshape(shape), np.broadcast_to(var, shape).copy()), list(rows)
        )

    def joint_moments(self, mean, cov, Kff):
        """``Joint`` from means (P, N) and a covariance (N, N)."""
        N = len(cov)
        # a view of the diagonal
        self.clamped += raise_to_floor(cov.reshape(-1)[:: N + 1], np.diagonal(Kff))
        return Joint(mean.reshape(*self.batch, N), np.broadcast_to(cov, (*self.batch, N, N)).copy())

    def pull(self, rows, f_bar):
        Kuf, *residuals = rows
        rows.clear()
        N = f_bar.var.shape[-1]
        a, b = f_bar.mean.reshape(self.P, N), f_bar.var.reshape(self.P, N).sum(axis=0)
        self.Kuf_a += kernels.matmul(a, Kuf, transpose_b=True)
        Psi = self.sum_rows(b, Kuf, *residuals)
        return mean_and_variance_bars(self.w, a, Psi, b) if self.need_Kuf else None

    def sum_rows(self, b, Kuf, *residuals):
        """Add a chunk of rows to the sums of b (N,); return Psi (M, N) if it is needed.

        Kuf_bar = w a' - 2 Psi diag(b), and ``residuals`` is what ``project`` saved.
        """
        raise NotImplementedError

    def add_gram(self, A, b):
        """Add A diag(b) A', or its diagonal if that is enough, to H."""
        if self.need_Kuu:
            self.H = kernels.weighted_gram(A, b, out=self.H, add=self.H is not None)
        elif self.need_variance:
            diagonal = kernels.matmul(np.square(A), b[:, None])[:, 0]
            self.H = diagonal if self.H is None else self.H + diagonal

    def weights_kl(self):
        """w' Kuu w / 2, summed over outputs."""
        return 0.5 * np.sum(self.w * self.Kw, dtype=float)

    def weights_bar(self, kl_bar):
        """The cotangent (P, M) of w: Kuf a + kl_bar Kuu w."""
        return self.Kuf_a + kl_bar * self.Kw

    def bars(self, mean_bar, variance_bar, Kuu_bar, **others):
        """``Bars`` from the cotangent of the mean (P, M) and the others, None if not needed."""
        mean_bar = mean_bar.reshape(self.q.mean.shape) if self.need_mean else None
        return Bars(gradient(self.q, mean=mean_bar, variance=variance_bar, **others), Kuu_bar)


def times_Kuu(w, prior):
    """(Kuu + jitter I) w for each of the vectors (P, M)."""
    return kernels.matmul(w, prior.Kuu) + prior.jitter * w


def add_noise(Kuu, s, jitter=0.0):
    """Kuu + diag(s) + jitter I, in new memory."""
    A = kernels.empty(Kuu.shape, Kuu)
    A[...] = Kuu
    A.reshape(-1)[:: len(A) + 1] += s + jitter
    return A


def noisy_values(q, values, normal):
    """``(u0 + S~^1/2 h (P, M, S), m~ (P, M, 1))`` of ``path_weights``. Overwrites ``values``."""
    values += np.sqrt(q.variance)[:, None] * normal(*values.shape)
    return values, q.mean.reshape(-1, q.mean.shape[-1], 1)


def mean_and_variance_bars(w, a, Psi, b):
    """``Kuf_bar = sum_p w_p a_p' - 2 Psi diag(b)``, in the memory of Psi (M, N)."""
    if len(w) == 1:
        return kernels.add_outer(Psi, w[0], a[0], -2 * b)
    return kernels.add_scaled(
        kernels.scale_columns(Psi, -2 * b, out=Psi), kernels.matmul(w, a, transpose_a=True), 1.0
    )


def add_symmetric_outer(H, U, W):
    """Lower triangle of ``H += sum_p (U_p W_p' + W_p U_p') / 2`` for U, W (P, M)."""
    return kernels.tril_product(
        np.concatenate([U, W]).T, np.concatenate([W, U]).T / 2, out=H, add=True
    )
