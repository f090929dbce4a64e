"""Collapsed bounds of SOLVE-GP with Gaussian noise: Shi et al. 2020, equations 9, 10 and 30.

All is whitened by the factor L of the stacked K (see ``posteriors.whitening``): Lam = L^-1
Kuf, q(v') q(u') with means m and block-diagonal covariance S = diag(S_u, S_v). With G = Lam Lam', b
= Lam y', e = y - m' Lam, beta = 1 / noise, the bound with Gaussian noise is, per output,

    -N/2 log(2 pi noise) - beta/2 (|e|^2 + sum kff - tr G + tr(S G))
    - (|m|^2 + tr S - M - log|S|) / 2.

The optimal covariance is S_s = B_ss^-1, with B = I + beta G, of each set separately; there -beta/2
tr(S_s G) and its KL term are -log|B_ss| / 2. The optimal means solve B m = beta b over the sets
with free means, after the others are subtracted from y. So

    (9)   q(v) given:      S_u, m_u optimal
    (10)  mean_v given:    the same with S_v = I, the prior's
    (30)  neither given:   S_u, S_v, m optimal

At an optimum the gradient is that at fixed m and S. With c = Lam e' and Delta = I - S
(block-diagonal):

    Lam_bar   = beta (m e + Delta Lam),     Kuf_bar = L^-T Lam_bar,    kff_bar = -beta / 2
    C         = Lam_bar Lam' = beta (m c' + Delta G)          (whitening lemma; lower triangle)
    noise_bar = beta^2/2 (|e|^2 + sum kff - tr G + tr(S G)) - beta N / 2
                with beta tr(S_s G) = M_s - tr B_ss^-1 at the optimum
    m_v_bar   = beta c_v - m_v
    W_v_bar   = -tril(beta G_vv W_v + W_v) + diag(1 / W_v,ii)          for S_v = W_v W_v' given

and mean_v = L_vv m_v, scale_tril_v = L_vv W_v, as ``Orthogonal`` has them: C_vv += m_v_bar m_v'
+ W_v_bar W_v'. P outputs share all but m, e and a given q(v).

Equation 30 is SGPR on Z and O plus (log|B| - log|B_uu| - log|B_vv|) / 2. By Fischer's inequality it
is never above SGPR on both sets. It costs 14 M^2 N flops for M2 = M; SGPR costs 16.

With data weights, W = diag(w), each sum over data is weighted: G = Lam W Lam', b = Lam W y', c =
Lam W e', sum w e^2, sum w kff, sum w for N. So Lam_bar = beta (m e + Delta Lam) W, kff_bar = -beta
w / 2, and again C = Lam_bar Lam' = beta (m c' + Delta G).

With R ranks, each has some of the rows. The first all-reduce gives every rank G and b of all rows,
and so R, S, m and W_v. The bound, C, m_v_bar and noise_bar are linear in the remaining sums over
rows: sum w e^2, sum w kff, sum w and c. A rank uses its own sums and 1 / R of all other terms (tr
G, tr(S G), the KL term, Delta G, m_v, W_v_bar, M_s - tr B_ss^-1). The second all-reduce completes
value and gradient. Sums of e^2 instead of y^2 - m' b avoid cancellation.
"""

from typing import Any, NamedTuple

import numpy as np

from .. import kernels, models
from ..covariances import Covariance
from ..likelihoods.base import in_dtype, log, number, total, weighted
from ..means import Mean
from ..posteriors import WhitenedOrthogonal
from ..posteriors.base import add_to_diagonals, covariance_factor, identities
from ..records import Blocks, leaf, record, restricted
from ..records.inducing_sets import naming_repeated
from ..records.typed import Array, Number, Record
from .sgpr import ADVICE, FORMS, SGPR, CollapsedForm, check_sgpr, predictor_at_optimum


@record
class OrthogonalSGPR:
    """SOLVE-GP with Gaussian noise; q(u) is optimal and implicit, and so is q(v) unless given.

    Parameters
    ----------
    covariance : Covariance
    inducing : InducingPair
    noise_variance : float
    mean_v : (M2,) or, for P outputs, (P, M2); optional
        Mean of v, unwhitened.
    scale_tril_v : (M2, M2) or (P, M2, M2), optional
        Lower factor of the covariance of v; requires ``mean_v``. Both given: equation 9 of Shi et
        al. 2020. Only ``mean_v``: equation 10, v has its prior covariance. Neither: equation 30,
        q(v) is optimal.
    mean : Mean, optional

    Examples
    --------
    >>> pair = fs.posteriors.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> two = fs.bounds.OrthogonalSGPR(covariance, pair, noise_variance=0.1)
    >>> fs.collapsed_bound(two, X, Y) > fs.collapsed_bound(sgpr, X, Y)
    True
    """

    covariance: Covariance
    inducing: Record
    noise_variance: Number = leaf("positive")
    mean_v: Array | None = leaf(default=None)
    scale_tril_v: Array | None = leaf("tril", default=None)
    mean: Mean | None = None


def _optimum(s):
    fields: list = []
    batch, P = s.shape[:-1], len(s.y)
    for at, trils, R in zip(s.sets, (None, s.trils), s.factors, strict=True):
        if R is not None:
            trils = np.repeat(kernels.cholesky_of_inverse(s.B(at))[None], P, axis=0)
        elif trils is None:
            trils = identities(s.m[at].T)
        fields += (
            np.ascontiguousarray(s.m[at].T, like=s.m).reshape(*batch, -1),
            trils.reshape(*batch, *trils.shape[1:]),
        )
    return WhitenedOrthogonal(*fields)


class _State:
    """Quantities that the value and the gradient share; the sets u and v are slices of the stack.

    With a rank's ``scale`` X and Y are some of all rows.

    e : (P, N) residuals, times the weights if given
    part : this rank's share of the terms of all rows in ``loss`` and ``value``
    factors : chol(B_ss) of both sets, None for a given covariance
    trils : W_v (P, M2, M2) if given and not I
    """

    def __init__(self, sgpr, X, Y, jitter, weights, scale, keep=True):
        self.part = scale.kl
        y = Y if sgpr.mean is None else Y - sgpr.mean(X)
        self.shape, self.y = Y.shape, y.reshape(-1, Y.shape[-1])
        (P, N), self.weights = self.y.shape, weights
        self.beta = 1.0 / number(sgpr.noise_variance)
        self.blocks = sgpr.covariance.blocks(sgpr.inducing, X)
        self.real_beta, self.real_part = in_dtype(self.beta, y.dtype), y.dtype.type(self.part)
        with naming_repeated(sgpr.inducing):
            self.L = covariance_factor(self.blocks.Kuu, jitter)
        M = sgpr.covariance.num_inducing(sgpr.inducing)[0]
        self.sets = u, v = slice(0, M), slice(M, len(self.L))
        self.L_v = np.ascontiguousarray(self.L[v, v], like=self.L)
        self.Lam = kernels.solve_triangular(self.L, self.blocks.Kuf)
        self.G = kernels.weighted_gram(
            self.Lam, kernels.full(N, 1, self.y) if weights is None else weights
        )
        b = kernels.matmul(self.Lam, weighted(self.y, weights), transpose_b=True)
        self.G, b = scale.all_reduce(self.G, b, lower=(0,))
        kernels.symmetrise(self.G)
        free = slice(0, len(self.L)) if sgpr.mean_v is None else u
        R = kernels.cholesky(self.B(free))
        self.m = np.zeros_like(b)
        self.factors = [np.ascontiguousarray(R[u, u], like=R), None]
        self.trils = None
        if sgpr.mean_v is None:
            self.factors[1] = kernels.cholesky(self.B(v))
        else:
            self.m[v] = kernels.solve_triangular(
                self.L_v, np.ascontiguousarray(sgpr.mean_v.reshape(P, -1).T, like=b)
            )
            b -= kernels.matmul(self.G, self.m)
        self.m[free] = kernels.solve_triangular(
            R, kernels.solve_triangular(R, self.real_beta * b[free]), transpose=True
        )
        self.e = self.y - kernels.matmul(self.m, self.Lam, transpose_a=True)
        of_all = -P * np.trace(self.G, dtype=float)
        kl = 0.5 * total(np.square(self.m))
        if sgpr.scale_tril_v is not None:
            self.trils = kernels.solve_tril(self.L_v, sgpr.scale_tril_v).reshape(P, *self.L_v.shape)
            self.GW = kernels.matmul(np.ascontiguousarray(self.G[v, v], like=self.G), self.trils)
            of_all += total(self.trils * self.GW)
            kl += 0.5 * (
                kernels.tril_sum_of_squares(self.trils) - self.trils[..., 0].size
            ) - _log_diagonal(self.trils)
        elif sgpr.mean_v is not None:
            of_all += P * np.trace(self.G[v, v], dtype=float)
        optimal = sum(_log_diagonal(R) for R in self.factors if R is not None)
        self.count = N if weights is None else total(weights)
        self.loss = (
            total(np.square(self.e), weights)
            + P * total(self.blocks.kff, weights)
            + self.part * of_all
        )
        self.e = weighted(self.e, weights)
        data = -0.5 * (P * self.count * log(2 * np.pi / self.beta) + self.beta * self.loss)
        self.value = data - self.part * (kl + P * optimal)

    def B(self, at):
        """Return I + beta G of one set or of both."""
        B = np.ascontiguousarray(self.real_beta * self.G[at, at], like=self.G)
        add_to_diagonals(B, 1)
        return B


def _log_diagonal(R):
    return total(np.log(R.diagonal(0, -2, -1), dtype=float))


class _Cotangents(NamedTuple):
    """Terms of the module's text at fixed m and S; on ranks, this rank's share of them.

    c : (M, P)
    deltas : sum over outputs of I - S for both sets, None if S is the prior's
    m_v_bar : (M2, P), None if mean_v is optimal
    W_v_bar : (P, M2, M2), None unless scale_tril_v is given
    """

    c: Any
    deltas: Any
    m_v_bar: Any
    W_v_bar: Any


def _gradient(s, sgpr, X, wrt, scale):
    """Compute the gradient by the formulas of the module's text; on ranks, this rank's share."""
    c = kernels.matmul(s.Lam, s.e, transpose_b=True)
    deltas, degrees = _deltas(s)
    bars = _Cotangents(c, deltas, _m_v_bar(s, c, sgpr.mean_v is not None), _W_v_bar(s))
    covariance_bar = inducing_bar = mean_bar = None
    roots = {name.partition(".")[0] for name in wrt}
    need = tuple(name for name in wrt if name.partition(".")[0] == "covariance") + (
        ("inducing",) if "inducing" in roots else ()
    )
    if need:
        Kuu_bar = kernels.whitening_vjp(_C(s, bars), s.L, overwrite_c=True)
        kff_bar = kernels.full(s.y.shape[1], -0.5 * s.beta * len(s.y), s.y)
        blocks_bar = Blocks(Kuu_bar, _Kuf_bar(s, deltas), weighted(kff_bar, s.weights))
        covariance_bar, inducing_bar, _ = sgpr.covariance.blocks_vjp(
            blocks_bar, s.blocks, sgpr.inducing, X, need
        )
    if sgpr.mean is not None and "mean" in roots:
        mean_bar, _ = sgpr.mean.vjp((s.real_beta * s.e).reshape(s.shape), X, ("mean",))
    grad = OrthogonalSGPR(
        covariance_bar,
        inducing_bar,
        in_dtype(_noise_bar(s, degrees), s.y.dtype),
        _mean_v_bar(s, sgpr, bars.m_v_bar),
        _scale_tril_v_bar(s, sgpr, bars.W_v_bar),
        mean_bar,
    )
    return restricted(grad, wrt)


def _deltas(s):
    """Return ``(deltas, degrees)``.

    deltas : Delta = I - S of both sets, summed over outputs; None if S is the prior's
    degrees : sum of beta tr(S G) over outputs and the sets with the optimal S
    """
    P, deltas, degrees = len(s.y), [None, None], 0.0
    for i, R in enumerate(s.factors):
        if R is not None:
            S = kernels.cholesky_inverse(R)
            degrees += P * (len(S) - np.trace(S, dtype=float))
            add_to_diagonals(S, -1)
            deltas[i] = np.multiply(S, -P, out=S)
    if s.trils is not None:
        deltas[1] = P * identities(s.L_v[0])
        for W in s.trils:
            deltas[1] -= kernels.matmul(W, W, transpose_b=True)
    return deltas, degrees


def _noise_bar(s, degrees):
    # an overflow to infinity is correct
    with np.errstate(over="ignore"):
        return 0.5 * s.beta * (s.beta * s.loss + s.part * degrees - len(s.y) * s.count)


def _m_v_bar(s, c, given):
    v = s.sets[1]
    return s.real_beta * c[v] - s.real_part * s.m[v] if given else None


def _W_v_bar(s):
    """Compute W_v_bar; consumes ``s.GW``."""
    if s.trils is None:
        return None
    bars = kernels.empty(s.trils.shape, s.trils)
    for W, GW, bar in zip(s.trils, s.GW, bars, strict=True):
        GW *= -s.real_beta
        kernels.tril_update(GW, W, -1.0, out=bar)
    bars *= s.real_part
    return bars


def _C(s, bars):
    """Compute the lower triangle of C, with the terms of mean_v and scale_tril_v."""
    v = s.sets[1]
    C = kernels.matmul(s.real_beta * s.m, bars.c, transpose_b=True)
    for at, delta in zip(s.sets, bars.deltas, strict=True):
        if delta is not None:
            C[at, : at.stop] += (
                s.real_part
                * s.real_beta
                * kernels.matmul(delta, np.ascontiguousarray(s.G[at, : at.stop], like=C))
            )
    if bars.m_v_bar is not None:
        C[v, v] += kernels.matmul(bars.m_v_bar, s.m[v], transpose_b=True)
    if bars.W_v_bar is not None:
        for bar, W in zip(bars.W_v_bar, s.trils, strict=True):
            C[v, v] += kernels.tril_product(bar, W, lower=True)
    return C


def _Kuf_bar(s, deltas):
    """Compute L^-T Lam_bar = (Q Lam + alpha e) W with Q = beta L^-T Delta, alpha = beta L^-T m."""
    u, v = s.sets
    Q = np.zeros_like(s.L)
    for at, delta in zip(s.sets, deltas, strict=True):
        if delta is not None:
            Q[at, at] = s.real_beta * delta
    # block upper triangular
    Q = kernels.solve_triangular(s.L, Q, transpose=True, overwrite_b=True)
    Kuf_bar = kernels.empty(s.Lam.shape, s.Lam)
    Kuf_bar[u] = kernels.matmul(np.ascontiguousarray(Q[u], like=Q), s.Lam)
    Kuf_bar[v] = kernels.matmul(np.ascontiguousarray(Q[v, v], like=Q), s.Lam[v])
    if s.weights is not None:
        Kuf_bar *= s.weights
    for alpha, e in zip(kernels.solve_triangular(s.L, s.m, transpose=True).T, s.e, strict=True):
        kernels.add_outer(Kuf_bar, s.real_beta * alpha, e)
    return Kuf_bar


def _mean_v_bar(s, sgpr, m_v_bar):
    if m_v_bar is None:
        return None
    bar = kernels.solve_triangular(s.L_v, m_v_bar, transpose=True)
    return np.ascontiguousarray(bar.T, like=bar).reshape(sgpr.mean_v.shape)


def _scale_tril_v_bar(s, sgpr, W_v_bar):
    if W_v_bar is None:
        return None
    bar = kernels.solve_triangular(s.L_v, W_v_bar, transpose=True, overwrite_b=True)
    return kernels.tril(bar).reshape(sgpr.scale_tril_v.shape)


def _check(sgpr, X, Y, jitter):
    sgpr, X, Y, jitter = check_sgpr(sgpr, X, Y, jitter, num_sets=2)
    size, batch = sgpr.covariance.num_inducing(sgpr.inducing)[1], Y.shape[:-1]
    if sgpr.mean_v is None and sgpr.scale_tril_v is not None:
        raise TypeError(
            "`scale_tril_v` is given and `mean_v` is not: give both (a fixed q(v)), only `mean_v`"
            " (v has its prior covariance), or neither (q(v) optimal)"
        )
    for name, expected in (("mean_v", (*batch, size)), ("scale_tril_v", (*batch, size, size))):
        value = getattr(sgpr, name)
        if value is not None and np.shape(value) != expected:
            raise ValueError(
                f"`{name}` has shape {np.shape(value)}, but `inducing.O` has {size} rows and Y the"
                f" outputs {batch}: use {expected}"
            )
    return sgpr, X, Y, jitter


FORMS[OrthogonalSGPR] = CollapsedForm(_check, _State, _gradient, _optimum, shares=True)
models.register(OrthogonalSGPR, instead=ADVICE, predictor=predictor_at_optimum)
models.share(OrthogonalSGPR, SGPR, "collapsed_bound", "collapsed_bound_and_grad", "optimal_svgp")
