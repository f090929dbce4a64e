"""Decoupled inducing inputs (ODVGP): SOLVE-GP with the prior covariance C_vv in q(v).

The inducing inputs O then affect the mean only. Names as in ``orthogonal``: K is the Kuu of the
stack, L its factor, M_v the mean of v, m_v = L_vv^-1 M_v. With S_v = C_vv the whitened factor of v
is the identity: v has no effect on the variance. The rest is ``Marginal`` on Z with a mean
function,

    f  = f of ``Marginal`` on Z  +  Kuf' e,    K e = (0, M_v)
    KL = KL of ``Marginal`` on Z  +  |m_v|^2 / 2

because C_fv C_vv^-1 M_v = Kuf' (-Kuu^-1 K_uv; I) C_vv^-1 M_v = Kuf' e, and M_v' C_vv^-1 M_v =
|m_v|^2 = e' K e. The batch enters terms of O only in products with vectors. ``ShiftedPass`` adds a
mean function Kuf' e with K e = x, and y' e / 2 to the KL; here x = y = (0, M_v). Reverse, with a
the cotangents of the mean, kappa that of the KL:

    x_bar   = K^-1 (Kuf a + kappa y / 2),    y_bar = kappa e / 2,    M_v_bar = (x_bar + y_bar)_v
    Kuf_bar = that of ``Marginal`` in the first rows  +  e a'
    Kuu_bar = that of ``Marginal`` in the first block  -  sym(x_bar e')

``DecoupledWeights`` is this with M_v = C_vv w: the mean contains C_vv^-1 M_v = w, which becomes a
parameter, so that C_vv is not factorised. ``bounds.decoupled_pass`` computes bounds without any
matrix of M2 x M2. At the level of blocks, where K_vv is given, the algebra is that of
``orthogonal`` with m_v = L_vv' w, W_v' = I; L_vv moves by L_vv Phi(E), E = L^-1 dK L^-T, hence

    dm_v = Phi(E)_vv' m_v,    so    C_vv -= m_v m_v_bar',    w_bar = L_vv m_v_bar.

Source: Salimbeni et al., "Orthogonally Decoupled Variational Gaussian Processes" (2018); Shi et al.
2020, section 3.1.
"""

import numpy as np

from .. import check, kernels
from ..records import Marginals, leaf, record
from ..records.typed import Array
from ..runtime import deferred_checks
from .base import (
    Bars,
    Joint,
    Pass,
    PriorFactor,
    Projection,
    gradient,
    identities,
    needs,
    solve_vectors,
)
from .gaussian_factor import Marginal
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

    def whiten(self, L, name):
        if name == "u":
            return super().whiten(L, name)
        mean = solve_vectors(L, self.mean_v)
        return mean, identities(mean)


@record
class DecoupledWeights(OrthogonalSets):
    """q(u') N(v | C_vv weights_v, C_vv), for ``inducing=InducingPair(Z, O)``.

    Here u = chol(Kuu) u' and v = f(O) - E[f(O) | u].

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    weights_v : (..., M2)

    Notes
    -----
    Value and all gradients cost those of ``Whitened`` on Z, and about 6 D + 20 flops per covariance
    of O: M2 (M + B) of O with Z and with the batch, and M2^2 of O with itself. With ``sampled=S``
    the last number is S M2: the quadratic form w' C_vv w of the KL term is then estimated, without
    bias, from S columns of C_vv (``bounds.decoupled_pass`` says how well). At most two (M2, B),
    (M2, M) and (M2, S) arrays exist at a time.

    The optimal weights are large. Where the gradient is zero, C_vv w = C_vf a with a = (y - f) /
    (noise variance), so the weight of a row of O stands for the sum of a over the data near it,
    about N / M2 of them. Weights go up to about

        residual / noise variance * N / M2

    for a residual that these data share. On kin40k (N = 25,600, M + M2 = 128 + 1012, residual 0.29,
    noise variance 0.17) that is 43; the rms of the optimal weights is 12, and the largest is 50.
    They start at 0, and Adam moves each of them by about its step size. So give them a larger,
    falling step size, and let natural steps move q(u), as the recipes do: ``natural_step_size=0.1``
    and ``adam(0.01, step_sizes={"posterior.weights_v": schedules.cosine(0.3, 0.03, "all")})``.

    Source: Salimbeni et al. 2018; Shi et al. 2020, sections 3.1 and 5.2.

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 9)[:, None])
    >>> q = fs.posteriors.DecoupledWeights(mean_u=np.zeros(6), scale_tril_u=np.eye(6),
    ...     weights_v=np.zeros(9))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -279.18
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    weights_v: Array = leaf()

    natural_fields = ("mean_u", "scale_tril_u")
    random_quantities = ("sampled",)
    sums_variances = False

    def fields_of(self, name):
        return super().fields_of(name) if name == "u" else ("weights_v",)

    def start_from(self, prior, columns=0, need=(), sampled=None):
        if sampled is not None:
            raise TypeError(
                "`sampled` avoids computing all columns of K_vv, but blocks already hold them;"
                " leave it out"
            )
        return super().start_from(prior, columns, need)

    def whiten(self, L, name):
        if name == "u":
            return super().whiten(L, name)
        mean = kernels.multiply_triangular(L, self.weights_v[..., None], transpose=True)[..., 0]
        return mean, identities(mean)

    def whiten_vjp(self, one, mean_bar, L, C):
        if one.name == "u":
            return super().whiten_vjp(one, mean_bar, L, C)
        if C is not None:
            C -= kernels.tril_product(one.means.T, mean_bar.T)
        return kernels.multiply_triangular(L, mean_bar[..., None])[..., 0], None

    def draw(self, name, value, M, dtype, rng):
        """``sampled``: indices (S,) of columns of K_vv, on the host.

        A number S is replaced by S indices drawn without replacement.
        """
        M2, given = self.weights_v.shape[-1], check.as_array(name, value)
        if given.ndim == 0:
            S = check.whole(name, value)
            if S > M2:
                raise ValueError(
                    f"`sampled` is {S}, but `inducing.O` has {M2} rows; give at most that, or None"
                    " for all of them"
                )
            return check.generator(rng).choice(M2, S, replace=False)
        given = given.get() if deferred_checks.on_device(given) else given
        if (
            given.ndim != 1
            or given.size == 0
            or given.dtype.kind not in "iu"
            or given.min() < 0
            or given.max() >= M2
        ):
            raise ValueError(
                "`sampled` must be a number S, or an array (S,) of row numbers of `inducing.O`, 0"
                f" to {M2 - 1}, got an array of shape {given.shape} and dtype {given.dtype}"
                + (f" from {given.min()} to {given.max()}" if given.size else "")
            )
        return given


class ShiftedPass(Pass):
    """A pass of the first inducing variables of a stack, with a mean function and a KL term.

    The function is Kuf' e with K e = x, and the term y' e / 2. L : (M, M), the factor of K; half_x,
    half_y : (P, M), L^-1 x and L^-1 y; Kuf_a : (P, M), the sum of Kuf a. After ``finish``, x_bar
    and y_bar : (P, M) are cotangents.
    """

    def __init__(self, work, L, half_x, half_y):
        self.work, self.L, self._half_x, self._half_y = work, L, half_x, half_y
        self.e = solve_vectors(L, half_x, transpose=True)
        self.Kuf_a, self.first = np.zeros_like(half_x), slice(0, len(work.L))

    @property
    def clamped(self):
        return self.work.clamped

    def project(self, Kuf, kff):
        f, rows = self.work.project(np.ascontiguousarray(Kuf[self.first], like=Kuf), kff)
        return Projection(Marginals(self._shift(f.mean, Kuf), f.var), (Kuf, rows))

    def joint(self, Kuf, Kff):
        f = self.work.joint(np.ascontiguousarray(Kuf[self.first], like=Kuf), Kff)
        return Joint(self._shift(f.mean, Kuf), f.cov)

    def _shift(self, mean, Kuf):
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

    def kl(self):
        return self.work.kl() + 0.5 * np.sum(self._half_x * self._half_y, dtype=float)

    def natural_sums(self):
        return self.work.natural_sums()

    def natural_step(self, step_size):
        return self.work.natural_step(step_size)

    def finish(self, kl_bar):
        posterior_bar, of_first = self.work.finish(kl_bar)
        half, of_y = solve_vectors(self.L, self.Kuf_a), 0.5 * kl_bar * self._half_y
        self.x_bar = solve_vectors(self.L, half, True) + solve_vectors(self.L, of_y, True)
        self.y_bar = 0.5 * kl_bar * self.e
        if of_first is None:
            return Bars(posterior_bar, None)
        pair, other = np.concatenate([self.x_bar, self.e]), np.concatenate([self.e, self.x_bar])
        Kuu_bar = kernels.symmetrise(kernels.matmul(-0.5 * pair, other, transpose_a=True))
        Kuu_bar[self.first, self.first] += of_first
        return Bars(posterior_bar, Kuu_bar)


class DecoupledPass(ShiftedPass):
    """The pass of ``Marginal`` on Z, plus the terms of O: x = y = (0, M_v)."""

    def __init__(self, q, prior, columns, need):
        self.q, self.need, L = q, need, prior.L
        (_, u), (_, self.v) = q.spans(len(L))
        on_Z = PriorFactor(_block(prior.Kuu, u), prior.jitter)
        on_Z.L, L_v = _block(L, u), _block(L, self.v)
        own = {
            "posterior.mean_u": "posterior.mean",
            "posterior.scale_tril_u": "posterior.scale_tril",
        }
        names = tuple(own.get(name, name) for name in need if name != "posterior.mean_v")
        m_v = solve_vectors(L_v, q.mean_v.reshape(-1, len(L_v)))
        half = np.zeros((len(m_v), len(L)), L.dtype, like=L)
        half[:, self.v] = m_v
        work = Marginal(q.mean_u, q.scale_tril_u).start_from(on_Z, columns, names)
        super().__init__(work, L, half, half)

    def finish(self, kl_bar):
        of_u, Kuu_bar = super().finish(kl_bar)
        bars = {"mean_u": of_u.mean, "scale_tril_u": of_u.scale_tril, "mean_v": None}
        if needs(self.need, "mean_v"):
            bar = self.x_bar[:, self.v] + self.y_bar[:, self.v]
            bars["mean_v"] = bar.reshape(self.q.mean_v.shape)
        return Bars(gradient(self.q, **bars), Kuu_bar)


def _block(A, at):
    return np.ascontiguousarray(A[at, at], like=A)
