"""SOLVE-GP: a second set O of inducing inputs for what the first, Z, leaves over.

The process is split into what u = f(Z) tells of it and an independent rest, of which v = f(O) -
E[f(O) | u] is known; v has the prior covariance C_vv = K_vv - K_vu Kuu^-1 K_uv, and q(u, v) = q(u)
q(v) with N(m_u, S_u) and N(m_v, S_v), S = W W'. Let K be the Kuu of the stack (Z, O), jitter
included, and L = chol(K). Its diagonal blocks are L_uu = chol(Kuu) and L_vv = chol(C_vv), so

    u = L_uu u',    v = L_vv v',    f(Z, O) = L (u', v'),

and SOLVE-GP is the whitened bound of the stack (see ``whitening``) with the mean (m_u', m_v') and
the factor diag(W_u', W_v'), each whitened by its own block, m_s' = L_ss^-1 m_s, W_s' = L_ss^-1 W_s.
From here on m and W are the whitened ones, ' is a transpose, Lam = L^-1 Kuf, Lam_s its rows of set
s, V_s = W_s' Lam_s, and sums over sets s are understood:

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V_s^2),    KL = sum_s KL[N(m_s, W_s W_s') || N(0, I)].

Reverse, with a, b the cotangents of mean and var, kappa that of the KL, X diag(b) written X * b:

    Lam_bar_s = m_s a' + 2 (W_s V_s - Lam_s) * b,    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    m_s_bar   = Lam_s a + kappa m_s
    W_s_bar   = tril(2 (Lam_s * b) V_s') + kappa (W_s - diag(1 / W_s,ii))
    Kuu_bar   = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,    C = Lam_bar Lam'      (whitening lemma: K enters through Lam alone)

Unwhitened parameters see K through L_ss^-1 as well. A change dK moves L by L Phi(E), E = L^-1 dK
L^-T, and, Phi(E) being lower triangular, its block L_ss by L_ss Phi(E)_ss; so x = L_ss^-1 y moves
by -Phi(E)_ss x, and the lemma holds with

    C_ss += m_s_bar m_s' + W_s_bar W_s',    and L_ss^-T m_s_bar, tril(L_ss^-T W_s_bar) for the fields.

Natural step of size g, in whitened coordinates, with G = (Lam * 2b) Lam': q(u, v) is a Gaussian
with one mean and a block-diagonal covariance. Its covariances move block by block, S_s,new^-1 = (1
- g) S_s^-1 + g (I - G_ss), and its mean as that of a Gaussian on the stack,

    R m_new = (1 - g) S^-1 m + g (Lam a - G m),    R = (1 - g) diag(S_s^-1) + g (I - G),

so that a unit step on all data with Gaussian noise is the optimum, where a step of each block alone
is not.

*Batch form* as it stands: solve, products with W by blocks, solve, C: for M2 = M and P outputs (12 + 6 P) M^2 B + 32/3 M^3 flops.

*Long form*, for long batches and one output, as in ``whitening``: with H_s = W_s W_s' - I, Q = L^-T diag(H_s), which is block
upper triangular, alpha = L^-T m and E = Q Lam,

    mean = Kuf' alpha,    var = kff + colsum(Kuf * E),    Kuf_bar = alpha a' + E * 2b,

W_s_bar and the diagonal blocks of C from G_ss = (Lam_s * 2b) Lam_s' as there, C_ss = m_s (Lam_s a)'
+ H_s G_ss, and the blocks between sets from the batch: Lam_bar = L' Kuf_bar, and for the last set o
that is L_oo' times its rows, so that with two sets C_vu = L_vv' (Kuf_bar_v Lam_u'). 14 M^2 B + 79/3
M^3 flops for M2 = M; measured, the two are even at about B = 4 M.

Source: Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes"
(2020), section 3, appendix F.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..records import Marginals, leaf, record, replace
from ..records.typed import Array
from .base import (
    Bars,
    Joint,
    Posterior,
    Projection,
    WhiteningPass,
    gradient,
    raise_to_floor,
    solve_vectors,
    wanted,
)

LONG_FROM = 2  # data per inducing input of all sets


@record
class OrthogonalSets(Posterior):
    """Posteriors with a mean and a lower factor for each of several sets; ``names`` are the ends of their fields' names."""

    names: ClassVar[tuple[str, ...]] = ("u", "v")
    unwhitens: ClassVar[bool] = False  # whether the fields are those of u and v themselves
    num_sets = 2
    starts_at_prior = True
    natural_fields: ClassVar[tuple[str, ...]] = ("mean_u", "scale_tril_u", "mean_v", "scale_tril_v")

    def check_size(self, *sizes):
        batch = np.shape(getattr(self, f"mean_{self.names[0]}"))[:-1]
        for name, M in zip(self.names, sizes, strict=True):
            for field, due in zip(self.fields_of(name), ((M,), (M, M)), strict=False):
                shape = np.shape(getattr(self, field))
                if len(batch) > 1 or 0 in batch or shape != (*batch, *due):
                    raise ValueError(
                        f"`posterior` has {field} {shape}, but that set has {M} inducing inputs:"
                        f" use {due}, or {('P', *due)} with P outputs in every field".replace(
                            "'", ""
                        )
                    )
        return batch

    def fields_of(self, name):
        """The names of one set's fields: of the mean, and of the factor if it has one."""
        return tuple(
            f"{field}_{name}"
            for field in ("mean", "scale_tril")
            if hasattr(self, f"{field}_{name}")
        )

    def set_sizes(self, M):
        sizes = [np.shape(getattr(self, f"mean_{name}"))[-1] for name in self.names[:-1]]
        return (*sizes, M - sum(sizes))

    def start_from(self, prior, columns=0, need=()):
        takes_two = (
            wanted(need, "Kuf", "blocks") and np.ndim(self.mean_u) == 1 and len(self.names) == 2
        )
        long = takes_two and columns > LONG_FROM * len(prior.L)
        return (LongStackedPass if long else StackedPass)(self, prior, columns, need)

    def whitened(self, name, L):
        """``(m', W')`` (..., M), (..., M, M) of one set, whose block of the factor is L."""
        return getattr(self, f"mean_{name}"), getattr(self, f"scale_tril_{name}")

    def whitened_vjp(self, one, L, C):
        """Cotangents of one set's parameters from those of the whitened ones; C, where it is not None, takes in those of L."""
        return one.mean_bar, one.tril_bar

    def unwhitened(self, name, L, mean, tril):
        """One set's fields from the whitened ones. Overwrites ``tril``."""
        return {f"mean_{name}": mean, f"scale_tril_{name}": tril}


@record
class WhitenedOrthogonal(OrthogonalSets):
    """q(u') q(v') with u = chol(Kuu) u', v = chol(C_vv) v', for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    mean_v : (..., M2)
    scale_tril_v : (..., M2, M2)
        As ``scale_tril_u``.

    Notes
    -----
    It is ``Whitened`` on the stack of Z and O with a block-diagonal factor, which has half the
    parameters. Value and all gradients cost (12 + 6 P) M^2 B + 32/3 M^3 flops for M2 = M and P
    outputs; for one output and B > 4 M, 14 M^2 B + 79/3 M^3. Source: Shi et al. 2020, appendix F.

    Examples
    --------
    >>> pair = fs.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.WhitenedOrthogonal(np.zeros(6), np.eye(6), np.zeros(4), np.eye(4))
    >>> round(fs.elbo(fs.SVGP(covariance, pair, q, gaussian), X, Y), 2)
    -279.18
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")

    kl_depends_on_Kuu: ClassVar[bool] = False


@record
class UnwhitenedSets(OrthogonalSets):
    """Those whose fields are moments of u and v themselves."""

    unwhitens = True

    def whitened(self, name, L):
        mean, tril = super().whitened(name, L)
        return solve_vectors(L, mean), kernels.solve_tril(L, tril)

    def whitened_vjp(self, one, L, C):
        mean_bar, tril_bar = one.mean_bar, one.tril_bar
        if C is not None:
            of_L = kernels.tril_product(mean_bar.T, one.means.T)
            for W_bar, W in zip(tril_bar, one.trils, strict=True):
                kernels.tril_product(W_bar, W, out=of_L, add=True)
            C[one.at, one.at] += of_L
        if one.need_tril:
            tril_bar = kernels.tril(
                kernels.solve_triangular(L, tril_bar, transpose=True, overwrite_b=True)
            )
        return solve_vectors(L, mean_bar, transpose=True), tril_bar

    def unwhitened(self, name, L, mean, tril):
        mean = kernels.multiply_triangular(L, mean[..., None])[..., 0]
        return super().unwhitened(
            name, L, mean, kernels.tril(kernels.tril_multiply(L, tril, overwrite_b=True))
        )


@record
class Orthogonal(UnwhitenedSets):
    """q(u) q(v) with v = f(O) - E[f(O) | u], for ``inducing=InducingPair(Z, O)``.

    Parameters
    ----------
    mean_u : (..., M)
    scale_tril_u : (..., M, M)
        Lower triangular, positive diagonal; the strict upper triangle is never read.
    mean_v : (..., M2)
    scale_tril_v : (..., M2, M2)
        As ``scale_tril_u``.

    Notes
    -----
    14/3 P M^3 flops more than ``WhitenedOrthogonal``, for M2 = M. Source: Shi et al. 2020, section
    3.

    Examples
    --------
    >>> pair = fs.InducingPair(Z, np.linspace(-1.8, 1.8, 4)[:, None])
    >>> q = fs.at_prior(fs.Orthogonal, covariance, pair)
    >>> [path for path, _, _ in fs.leaves(q)]
    ['mean_u', 'scale_tril_u', 'mean_v', 'scale_tril_v']
    """

    mean_u: Array = leaf()
    scale_tril_u: Array = leaf("tril")
    mean_v: Array = leaf()
    scale_tril_v: Array = leaf("tril")


@dataclass(slots=True)
class InducingSet:
    """One set in a pass: where it stands in the stack, its whitened parameters, and the sums of its factor's gradient."""

    name: str
    at: slice
    means: Any  # (P, M_s)
    trils: Any  # (P, M_s, M_s)
    need_tril: bool  # somebody asks for its gradient
    sum_trils: bool  # it is summed, for those or for the gradient of Kuu
    mean_bar: Any = None
    tril_bar: Any = None


@dataclass(slots=True)
class Projected:
    """What ``pull`` needs of a run of rows: Lam (M, N), and V_s (M_s, N) for each output and set."""

    Lam: Any
    V: list


class StackedPass(WhiteningPass):
    """The factor of the stacked Kuu, the sets, and the sums that ``pull`` collects.

    L : (M, M); means : (P, M), of all sets; batch : the leading axes of the parameters, (P,) or ()
    """

    def __init__(self, q, prior, columns, need):
        self.q, self.need, natural, M = q, need, "natural_step" in need, len(prior.L)
        super().__init__(prior, M if natural else columns)
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self.sets, end = [], 0
        for name, size in zip(q.names, q.set_sizes(M), strict=True):
            at = slice(end, end + size)
            mean, tril = q.whitened(name, self._block(at))
            need_tril = len(q.fields_of(name)) == 2 and wanted(need, f"scale_tril_{name}")
            summed = need_tril or self.need_Kuu and q.unwhitens
            shape, end = mean.shape[:-1], at.stop
            self.sets.append(
                InducingSet(
                    name,
                    at,
                    mean.reshape(-1, size),
                    tril.reshape(-1, size, size),
                    need_tril,
                    summed and not natural,
                )
            )
        self.batch, self.means = shape, np.concatenate([one.means for one in self.sets], axis=1)
        self.G = [] if natural else None
        self.Lam_a = self.C = None

    def _block(self, at):
        """A set's block of the factor."""
        return np.ascontiguousarray(self.L[at, at], like=self.L)

    def project(self, Kuf, kff):
        Lam = self._solve(Kuf)
        (P, _), N = self.means.shape, Lam.shape[1]
        mean, var, V = (
            np.empty((P, N), Lam.dtype, like=Lam),
            np.empty((P, N), Lam.dtype, like=Lam),
            [],
        )
        for p in range(P):
            mean[p], explained = kernels.column_moments(Lam, self.means[p])
            V.append(
                [
                    kernels.multiply_triangular(one.trils[p], Lam[one.at], transpose=True)
                    for one in self.sets
                ]
            )
            var[p] = kff - explained
            for one, v in zip(self.sets, V[p], strict=True):
                var[p] += kernels.column_moments(v, one.means[p])[1]
        self.clamped += raise_to_floor(var, kff)
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, Projected(Lam, V))

    def joint(self, Kuf, Kff):
        Lam = self._solve(Kuf)
        (P, _), N = self.means.shape, Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((P, N, N), Lam.dtype, like=Lam)
        for p in range(P):
            cov[p] = prior
            for one in self.sets:
                V = kernels.multiply_triangular(one.trils[p], Lam[one.at], transpose=True)
                cov[p] += kernels.matmul(V, V, transpose_a=True)
        # a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(P, N * N)[:, :: N + 1], np.diagonal(Kff))
        return Joint(
            kernels.matmul(self.means, Lam).reshape(*self.batch, N), cov.reshape(*self.batch, N, N)
        )

    def kl(self):
        total = 0.5 * (np.sum(np.square(self.means, dtype=float)) - self.means.size)
        for one in self.sets:
            total += 0.5 * kernels.tril_sum_of_squares(one.trils)
            total -= np.log(one.trils.diagonal(0, -2, -1), dtype=float).sum()
        return total

    def pull(self, rows, f_bar):
        Lam, V = rows.Lam, rows.V
        (P, M), N, first = self.means.shape, Lam.shape[1], self.Lam_a is None
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if first:
            self.Lam_a = np.zeros((P, M), Lam.dtype, like=Lam)
            self.G = None if self.G is None else kernels.empty((P, M, M), Lam)
            self.C = kernels.empty((M, M), Lam) if self.need_Kuu else None
            for one in self.sets:
                one.tril_bar = kernels.empty(one.trils.shape, Lam) if one.sum_trils else None
        if not self.need_Kuf:
            self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        Lam_bar = None
        for p in range(P):
            T = (
                kernels.empty(Lam.shape, Lam)
                if self.need_Kuf or any(one.sum_trils for one in self.sets)
                else None
            )
            for one, v in zip(self.sets, V[p], strict=True):
                if T is None:
                    continue
                part = kernels.scale_columns(v, b2[p], out=T[one.at])
                if one.sum_trils:
                    kernels.tril_product(Lam[one.at], part, out=one.tril_bar[p], add=not first)
                if self.need_Kuf:
                    product = kernels.multiply_triangular(one.trils[p], part, overwrite_b=True)
                    if product is not part:  # a device has it elsewhere
                        part[...] = product
            V[p] = None
            if self.G is not None:
                kernels.weighted_gram(Lam, b2[p], out=self.G[p], add=not first)
            if self.need_Kuf:
                self.Lam_a[p] += kernels.add_outer_minus_scaled(T, self.means[p], a[p], Lam, b2[p])
                Lam_bar = T if p == 0 else np.add(Lam_bar, T, out=Lam_bar)
        if self.C is not None:
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=not first)
        rows.Lam = rows.V = None
        return self._solve(Lam_bar, transpose=True, overwrite_b=True) if self.need_Kuf else None

    def finish(self, kl_bar):
        bars, mean_bars = {}, self.Lam_a + kl_bar * self.means
        for one in self.sets:
            one.mean_bar = np.ascontiguousarray(mean_bars[:, one.at], like=mean_bars)
            if one.sum_trils:
                for bar, W in zip(one.tril_bar, one.trils, strict=True):
                    kernels.tril_update(bar, W, kl_bar, out=bar)
            mean_bar, tril_bar = self.q.whitened_vjp(one, self._block(one.at), self.C)
            for name, bar in zip(self.q.fields_of(one.name), (mean_bar, tril_bar), strict=False):
                bars[name] = (
                    bar.reshape(getattr(self.q, name).shape) if wanted(self.need, name) else None
                )
        C, self.C = self.C, None
        Kuu_bar = (
            kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)
            if self.need_Kuu
            else None
        )
        return Bars(gradient(self.q, **bars), Kuu_bar)

    def natural_step(self, step_size):
        """By the last formulas of the module's text; each S_s^-1 enters with the weight 1 - g alone."""
        P, M = self.means.shape
        means = np.empty((P, M), self.means.dtype, like=self.means)
        precisions = [kernels.empty(one.trils.shape, one.trils) for one in self.sets]
        for p in range(P):
            R = np.multiply(kernels.symmetrise(self.G[p]), -step_size)
            theta = step_size * self.Lam_a[p][:, None] + kernels.matmul(R, self.means[p][:, None])
            R.reshape(-1)[:: M + 1] += step_size
            for one, precision in zip(self.sets, precisions, strict=True):
                if step_size != 1:
                    old = (1 - step_size) * kernels.cholesky_inverse(one.trils[p])
                    theta[one.at] += kernels.matmul(old, one.means[p][:, None])
                    R[one.at, one.at] += old
                precision[p] = R[one.at, one.at]
            factor = kernels.cholesky(R)
            means[p] = kernels.solve_triangular(
                factor, kernels.solve_triangular(factor, theta), transpose=True
            )[:, 0]
        fields = {}
        for one, precision in zip(self.sets, precisions, strict=True):
            mean = np.ascontiguousarray(means[:, one.at], like=means).reshape(*self.batch, -1)
            tril = kernels.cholesky_of_inverse(precision).reshape(*self.batch, *precision.shape[1:])
            fields |= self.q.unwhitened(one.name, self._block(one.at), mean, tril)
        return replace(self.q, **fields)


class LongStackedPass(StackedPass):
    """The pass in the long form: two sets, one output. Rows: Kuf, Lam and E."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        u, v = self.sets
        self.alpha = self._solve(np.ascontiguousarray(self.means.T, like=self.L), transpose=True)[
            :, 0
        ]
        self.H, Q = [], np.zeros_like(self.L)
        for one in self.sets:
            H = kernels.cholesky_product(one.trils)[0]
            H.reshape(-1)[:: len(H) + 1] -= 1
            self.H.append(H)
            Q[one.at, one.at] = H
        Q = self._solve(Q, transpose=True, overwrite_b=True)
        self.Q_u, self.Q_v = (
            np.ascontiguousarray(part, like=Q) for part in (Q[u.at], Q[v.at, v.at])
        )
        self.gram, self.cross = [None, None], None

    def project(self, Kuf, kff):
        Lam = self._solve(Kuf)
        E = np.concatenate(
            [kernels.matmul(self.Q_u, Lam), kernels.matmul(self.Q_v, Lam[self.sets[1].at])]
        )
        mean, change = kernels.column_moments(Kuf, self.alpha, E)
        var = (kff + change).astype(Lam.dtype, copy=False)
        self.clamped += raise_to_floor(var, kff)
        return Projection(Marginals(mean.astype(Lam.dtype, copy=False), var), [Lam, E])

    def pull(self, rows, f_bar):
        (Lam, E), (u, v), b2, first = rows, self.sets, 2 * f_bar.var, self.Lam_a is None
        rows.clear()
        if first:
            self.Lam_a = np.zeros_like(self.means)
        self.Lam_a[0] += kernels.scale_add_outer(E, b2, self.alpha, f_bar.mean, Lam)
        if self.need_Kuu:
            cross = kernels.matmul(E[v.at], Lam[u.at], transpose_b=True)
            self.cross = cross if first else np.add(self.cross, cross, out=self.cross)
        for i, one in enumerate(self.sets):
            if one.sum_trils or self.need_Kuu:
                self.gram[i] = kernels.weighted_gram(
                    Lam[one.at], b2, out=self.gram[i], add=not first
                )
        return E

    def finish(self, kl_bar):
        u, v = self.sets
        self.C = np.zeros_like(self.L) if self.need_Kuu else None
        for one, H, G in zip(self.sets, self.H, self.gram, strict=True):
            if G is None:
                continue
            kernels.symmetrise(G)
            if one.sum_trils:
                # transposed: W' G
                GW = kernels.multiply_triangular(one.trils[0], G, transpose=True)
                one.tril_bar = kernels.empty(one.trils.shape, G)
                kernels.tril_update(GW, one.trils[0], 0.0, out=one.tril_bar[0], transpose=True)
            if self.need_Kuu:
                outer = one.means.T * self.Lam_a[:, one.at]
                self.C[one.at, one.at] = kernels.add_scaled(
                    kernels.matmul(H, G), np.ascontiguousarray(outer, like=G), 1.0
                )
        if self.need_Kuu:
            self.C[v.at, u.at] = kernels.multiply_triangular(
                self._block(v.at), self.cross, transpose=True
            )
        return super().finish(kl_bar)
