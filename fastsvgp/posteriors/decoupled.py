"""Decoupled inducing inputs (ODVGP): SOLVE-GP with the prior covariance C_vv in q(v).

The inducing inputs O then affect the mean only. Names as in ``orthogonal``: K is the Kuu of the
stack, L its factor, M_v the mean of v, m_v = L_vv^-1 M_v. With S_v = C_vv the whitened factor of v
is the identity: v has no effect on the variance. The rest is ``Marginal`` on Z with a mean
function,

    f  = f of ``Marginal`` on Z  +  Kuf' e,    K e = (0, M_v)
    KL = KL of ``Marginal`` on Z  +  |m_v|^2 / 2

because C_fv C_vv^-1 M_v = Kuf' (-Kuu^-1 K_uv; I) C_vv^-1 M_v = Kuf' e, and M_v' C_vv^-1 M_v =
|m_v|^2 = e' K e. The batch enters terms of O only in products with vectors. Reverse, with a the
cotangents of the mean, kappa that of the KL, and beta = L^-1 Kuf a, gamma = K^-1 Kuf a = L^-T beta:
from de = -K^-1 dK e and d(e' K e) = -e' dK e at fixed M_v

    Kuf_bar = that of ``Marginal`` in the first rows  +  e a'
    Kuu_bar = that of ``Marginal`` in the first block  -  sym((gamma + kappa e / 2) e')
    M_v_bar = L_vv^-T (beta_v + kappa m_v)

Source: Salimbeni et al., "Orthogonally Decoupled Variational Gaussian Processes" (2018); Shi et al.
2020, section 3.1.
"""

import numpy as np

from .. import kernels
from ..records import Marginals, leaf, record
from ..records.typed import Array
from .base import (
    Bars,
    Joint,
    Pass,
    PriorFactor,
    Projection,
    gradient,
    identities,
    solve_vectors,
    wanted,
)
from .marginal import Marginal
from .orthogonal import UnwhitenedSets
from .orthogonal_pass import NaturalStackedPass


@record
class Decoupled(UnwhitenedSets):
    """q(u) N(v | mean_v, C_vv) with v = f(O) - E[f(O) | u], for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    mean_v : (..., M2)

    Notes
    -----
    Value and all gradients cost (M + M2)^3 / 3 flops more than those of ``Marginal`` on Z. Source:
    Salimbeni et al. 2018.

    Examples
    --------
    >>> pair = fs.InducingPair(Z, np.linspace(-1.8, 1.8, 9)[:, None])
    >>> q = fs.Decoupled(mean_u=np.zeros(6), scale_tril_u=np.eye(6), mean_v=np.zeros(9))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -294.72
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()

    natural_fields = ("mean_u", "scale_tril_u", "mean_v")

    def start_from(self, prior, columns=0, need=()):
        return (NaturalStackedPass if "natural_step" in need else DecoupledPass)(
            self, prior, columns, need
        )

    def whitened(self, name, L):
        if name == "u":
            return super().whitened(name, L)
        mean = solve_vectors(L, self.mean_v)
        return mean, identities(mean)

    def unwhitened(self, name, L, mean, tril):
        if name == "u":
            return super().unwhitened(name, L, mean, tril)
        return {"mean_v": kernels.multiply_triangular(L, mean[..., None])[..., 0]}


class DecoupledPass(Pass):
    """The pass of ``Marginal`` on Z, plus the terms of O.

    L : (M, M), of the stack; m_v : (P, M2); e : (P, M); u, v : the sets as slices of the stack
    """

    def __init__(self, q, prior, columns, need):
        self.q, self.need, self.L, self.batch = q, need, prior.L, q.mean_u.shape[:-1]
        M, (size, _) = len(self.L), q.set_sizes(len(self.L))
        self.u, self.v = slice(0, size), slice(size, M)
        on_Z = PriorFactor(_block(prior.Kuu, self.u), prior.jitter)
        on_Z.L, self.L_v = _block(self.L, self.u), _block(self.L, self.v)
        own = {
            "posterior.mean_u": "posterior.mean",
            "posterior.scale_tril_u": "posterior.scale_tril",
        }
        names = tuple(own.get(name, name) for name in need if name != "posterior.mean_v")
        self.on_Z = Marginal(q.mean_u, q.scale_tril_u).start_from(on_Z, columns, names)
        self.m_v = solve_vectors(self.L_v, q.mean_v.reshape(-1, M - size))
        padded = np.zeros((len(self.m_v), M), self.L.dtype, like=self.L)
        padded[:, self.v] = self.m_v
        self.e, self.Kuf_a = solve_vectors(self.L, padded, transpose=True), np.zeros_like(padded)

    @property
    def clamped(self):
        return self.on_Z.clamped

    def project(self, Kuf, kff):
        f, rows = self.on_Z.project(np.ascontiguousarray(Kuf[self.u], like=Kuf), kff)
        return Projection(
            Marginals(f.mean + kernels.matmul(self.e, Kuf).reshape(f.mean.shape), f.var),
            (Kuf, rows),
        )

    def joint(self, Kuf, Kff):
        f = self.on_Z.joint(np.ascontiguousarray(Kuf[self.u], like=Kuf), Kff)
        return Joint(f.mean + kernels.matmul(self.e, Kuf).reshape(f.mean.shape), f.cov)

    def kl(self):
        return self.on_Z.kl() + 0.5 * np.sum(np.square(self.m_v, dtype=float))

    def pull(self, rows, f_bar):
        Kuf, rows = rows
        a = f_bar.mean.reshape(len(self.e), Kuf.shape[1])
        self.Kuf_a += kernels.matmul(a, Kuf, transpose_b=True)
        of_Z = self.on_Z.pull(rows, f_bar)
        if of_Z is None:
            return None
        Kuf_bar = kernels.matmul(self.e, a, transpose_a=True)
        Kuf_bar[self.u] += of_Z
        return Kuf_bar

    def finish(self, kl_bar):
        of_u, of_Z = self.on_Z.finish(kl_bar)
        mean_v_bar = Kuu_bar = None
        beta = solve_vectors(self.L, self.Kuf_a)
        if wanted(self.need, "mean_v"):
            bar = beta[:, self.v] + kl_bar * self.m_v
            mean_v_bar = solve_vectors(self.L_v, bar, transpose=True).reshape(self.q.mean_v.shape)
        if of_Z is not None:
            left = solve_vectors(self.L, beta, transpose=True) + 0.5 * kl_bar * self.e
            pair, other = np.concatenate([left, self.e]), np.concatenate([self.e, left])
            Kuu_bar = kernels.symmetrise(kernels.matmul(-0.5 * pair, other, transpose_a=True))
            Kuu_bar[self.u, self.u] += of_Z
        bars = {"mean_u": of_u.mean, "scale_tril_u": of_u.scale_tril, "mean_v": mean_v_bar}
        return Bars(gradient(self.q, **bars), Kuu_bar)


def _block(A, at):
    return np.ascontiguousarray(A[at, at], like=A)
