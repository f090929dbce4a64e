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
from .orthogonal import OrthogonalSets


@record
class Decoupled(OrthogonalSets):
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
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 9)[:, None])
    >>> q = fs.posteriors.Decoupled(mean_u=np.zeros(6), scale_tril_u=np.eye(6), mean_v=np.zeros(9))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -294.72
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()

    natural_fields = ("mean_u", "scale_tril_u", "mean_v")

    unwhitens = True
    sums_variances = False

    def start_from(self, prior, columns=0, need=()):
        if "natural_step" in need:
            return super().start_from(prior, columns, need)
        return DecoupledPass(self, prior, columns, need)

    def whitened(self, L, name):
        if name == "u":
            return super().whitened(L, name)
        mean = solve_vectors(L, self.mean_v)
        return mean, identities(mean)


class ShiftedPass(Pass):
    """A pass of the first inducing variables of a stack, with the mean function Kuf' e.

    e : (P, M), for the whole stack; Kuf_a : (P, M), the sum of Kuf a, which gives its cotangent
    """

    def __init__(self, work, e):
        self.work, self.e, self.Kuf_a = work, e, np.zeros_like(e)
        self.first = slice(0, len(work.L))

    @property
    def clamped(self):
        return self.work.clamped

    def project(self, Kuf, kff):
        f, rows = self.work.project(np.ascontiguousarray(Kuf[self.first], like=Kuf), kff)
        return Projection(Marginals(self._shifted(f.mean, Kuf), f.var), (Kuf, rows))

    def joint(self, Kuf, Kff):
        f = self.work.joint(np.ascontiguousarray(Kuf[self.first], like=Kuf), Kff)
        return Joint(self._shifted(f.mean, Kuf), f.cov)

    def _shifted(self, mean, Kuf):
        return mean + kernels.matmul(self.e, Kuf).reshape(mean.shape)

    def pull(self, rows, f_bar):
        Kuf, rows = rows
        a = f_bar.mean.reshape(len(self.e), Kuf.shape[1])
        self.Kuf_a += kernels.matmul(a, Kuf, transpose_b=True)
        first = self.work.pull(rows, f_bar)
        if first is None:
            return None
        if len(first) == len(Kuf):
            for e, of_mean in zip(self.e, a, strict=True):
                kernels.add_outer(first, e, of_mean)
            return first
        Kuf_bar = kernels.matmul(self.e, a, transpose_a=True)
        Kuf_bar[self.first] += first
        return Kuf_bar


class DecoupledPass(ShiftedPass):
    """The pass of ``Marginal`` on Z, plus the terms of O.

    L : (M, M), of the stack; m_v : (P, M2); u, v : the sets as slices of the stack
    """

    def __init__(self, q, prior, columns, need):
        self.q, self.need, self.L = q, need, prior.L
        (_, self.u), (_, self.v) = q.spans(len(self.L))
        on_Z = PriorFactor(_block(prior.Kuu, self.u), prior.jitter)
        on_Z.L, self.L_v = _block(self.L, self.u), _block(self.L, self.v)
        own = {
            "posterior.mean_u": "posterior.mean",
            "posterior.scale_tril_u": "posterior.scale_tril",
        }
        names = tuple(own.get(name, name) for name in need if name != "posterior.mean_v")
        self.m_v = solve_vectors(self.L_v, q.mean_v.reshape(-1, len(self.L_v)))
        padded = np.zeros((len(self.m_v), len(self.L)), self.L.dtype, like=self.L)
        padded[:, self.v] = self.m_v
        work = Marginal(q.mean_u, q.scale_tril_u).start_from(on_Z, columns, names)
        super().__init__(work, solve_vectors(self.L, padded, transpose=True))

    def kl(self):
        return self.work.kl() + 0.5 * np.sum(np.square(self.m_v, dtype=float))

    def finish(self, kl_bar):
        of_u, of_Z = self.work.finish(kl_bar)
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
