"""Pass of SOLVE-GP: the whitened bound of a stack of sets, with a block-diagonal factor of q.

As in ``orthogonal``, K is the Kuu of the stack and L its factor. m and W are the whitened
parameters, ' is a transpose, Lam = L^-1 Kuf, Lam_s its rows of set s, V_s = W_s' Lam_s. Sums over
sets s are implied:

    mean = Lam' m,    var = kff - colsum(Lam^2) + colsum(V_s^2)
    KL   = sum_s KL[N(m_s, W_s W_s') || N(0, I)].

Reverse, with a, b the cotangents of mean and var, kappa that of the KL, X diag(b) written X * b:

    Lam_bar_s = m_s a' + 2 (W_s V_s - Lam_s) * b,    Kuf_bar = L^-T Lam_bar,    kff_bar = b
    m_s_bar   = Lam_s a + kappa m_s
    W_s_bar   = tril(2 (Lam_s * b) V_s') + kappa (W_s - diag(1 / W_s,ii))
    Kuu_bar   = -1/2 L^-T (Phi(C) + Phi(C)') L^-1,    C = Lam_bar Lam'

(the whitening lemma: K enters through Lam only).

Unwhitened parameters depend on K through L_ss^-1 as well. A change dK moves L by L Phi(E), E = L^-1
dK L^-T, and, because Phi(E) is lower triangular, its block L_ss by L_ss Phi(E)_ss. So x = L_ss^-1 y
moves by -Phi(E)_ss x, and the lemma holds with

    C_ss += m_s_bar m_s' + W_s_bar W_s'

The fields have the cotangents L_ss^-T m_s_bar and tril(L_ss^-T W_s_bar).

Natural step of size g, in whitened coordinates, with G = (Lam * 2b) Lam': q(u, v) is a Gaussian
with one mean and a block-diagonal covariance. Its covariances move block by block, S_s,new^-1 = (1
- g) S_s^-1 + g (I - G_ss), and its mean as that of a Gaussian on the stack,

    R m_new = (1 - g) S^-1 m + g (Lam a - G m),    R = (1 - g) diag(S_s^-1) + g (I - G),

so that a unit step on all data with Gaussian noise is the optimum. Separate steps of each block do
not give the optimum.

*Batch form*, the formulas above: solve, products with W by blocks, solve, C. For M2 = M and P
outputs it takes (12 + 6 P) M^2 B + 32/3 M^3 flops.

*Long form*, for long batches and one output, as in ``whitening``: with H_s = W_s W_s' - I, Q =
L^-T diag(H_s), which is block upper triangular, alpha = L^-T m and E = Q Lam,

    mean = Kuf' alpha,    var = kff + colsum(Kuf * E),    Kuf_bar = alpha a' + E * 2b,

W_s_bar and the diagonal blocks of C follow from G_ss = (Lam_s * 2b) Lam_s' as there, C_ss = m_s
(Lam_s a)' + H_s G_ss. The blocks between sets follow from the batch: Lam_bar = L' Kuf_bar, and for
the last set o that is L_oo' times its rows, so that with two sets C_vu = L_vv' (Kuf_bar_v Lam_u').
It takes 14 M^2 B + 79/3 M^3 flops for M2 = M; measured, both forms take equal times at about B = 4
M.

Source: Shi, Titsias and Mnih, "Sparse Orthogonal Variational Inference for Gaussian Processes"
(2020), section 3, appendix F.
"""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .. import kernels
from ..records import Marginals, replace
from .base import Bars, CholeskyPass, Joint, Projection, gradient, raise_to_floor, wanted


def stacked_pass(q, prior, columns, need):
    """Choose the pass by ``need``: natural steps sum Gram matrices, gradients do not."""
    form = NaturalStackedPass if "natural_step" in need else StackedPass
    return form(q, prior, columns, need)


@dataclass(slots=True)
class InducingSet:
    """One set in a pass: its position in the stack, whitened parameters, and gradient sums."""

    name: str
    at: slice
    means: Any  # (P, M_s)
    trils: Any  # (P, M_s, M_s)
    need_tril: bool  # the gradient of the factor is requested
    sum_trils: bool  # it is summed, because it is requested or for the gradient of Kuu
    mean_bar: Any = None
    tril_bar: Any = None


@dataclass(slots=True)
class Residuals:
    """Residuals of a chunk of rows: Lam (M, N), and V_s (M_s, N) for each output and set."""

    Lam: Any
    V: list


class StackedPass(CholeskyPass):
    """Pass in the batch form.

    L : (M, M), factor of the stacked Kuu
    sets : the ``InducingSet`` records
    means : (P, M), of all sets
    batch : leading axes of the parameters, (P,) or ()
    """

    sums_trils: ClassVar[bool] = True  # whether gradients of factors are summed if needed

    def __init__(self, q, prior, columns, need):
        super().__init__(prior, columns)
        self.q, self.need = q, need
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        ends = np.cumsum([0, *q.set_sizes(len(prior.L))]).tolist()
        spans = (slice(*pair) for pair in itertools.pairwise(ends))
        self.sets = [self._set(name, at) for name, at in zip(q.names, spans, strict=True)]
        self.batch = np.shape(getattr(q, q.fields_of(q.names[-1])[0]))[:-1]
        self.means = np.concatenate([one.means for one in self.sets], axis=1)
        self.Lam_a = self.C = None

    def _set(self, name, at):
        q, size = self.q, at.stop - at.start
        mean, tril = q.whitened(name, self._block(at))
        need_tril = len(q.fields_of(name)) == 2 and wanted(self.need, f"scale_tril_{name}")
        return InducingSet(
            name,
            at,
            mean.reshape(-1, size),
            tril.reshape(-1, size, size),
            need_tril,
            sum_trils=self.sums_trils and (need_tril or (self.need_Kuu and q.unwhitens)),
        )

    def _block(self, at):
        """A set's block of the factor."""
        return np.ascontiguousarray(self.L[at, at], like=self.L)

    def project(self, Kuf, kff):
        Lam = self._solve(Kuf)
        (P, _), N = self.means.shape, Lam.shape[1]
        mean, var = (np.empty((P, N), Lam.dtype, like=Lam) for _ in range(2))
        V = []
        for p in range(P):
            mean[p], explained = kernels.column_moments(Lam, self.means[p])
            V.append([self._half(one, p, Lam) for one in self.sets])
            var[p] = kff - explained
            for one, v in zip(self.sets, V[p], strict=True):
                var[p] += kernels.column_moments(v, one.means[p])[1]
        self.clamped += raise_to_floor(var, kff)
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, Residuals(Lam, V))

    @staticmethod
    def _half(one, p, Lam):
        """V_s = W_s' Lam_s of one output."""
        return kernels.multiply_triangular(one.trils[p], Lam[one.at], transpose=True)

    def joint(self, Kuf, Kff):
        Lam = self._solve(Kuf)
        (P, _), N = self.means.shape, Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((P, N, N), Lam.dtype, like=Lam)
        for p in range(P):
            cov[p] = prior
            for one in self.sets:
                V = self._half(one, p, Lam)
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
        Lam, V, add = rows.Lam, rows.V, self.Lam_a is not None
        P, N = len(self.means), Lam.shape[1]
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if not add:
            self._begin_sums(Lam)
        if not self.need_Kuf:
            self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        Lam_bar = None
        for p in range(P):
            part = self._through_factors(p, Lam, V[p], b2[p], add)
            V[p] = None
            if self.need_Kuf:
                self.Lam_a[p] += kernels.add_outer_minus_scaled(
                    part, self.means[p], a[p], Lam, b2[p]
                )
                Lam_bar = part if p == 0 else np.add(Lam_bar, part, out=Lam_bar)
        if self.C is not None:
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=add)
        rows.Lam = rows.V = None
        return self._solve(Lam_bar, transpose=True, overwrite_b=True) if self.need_Kuf else None

    def _begin_sums(self, Lam):
        self.Lam_a = np.zeros(self.means.shape, Lam.dtype, like=Lam)
        self.C = kernels.empty(self.L.shape, Lam) if self.need_Kuu else None
        for one in self.sets:
            one.tril_bar = kernels.empty(one.trils.shape, Lam) if one.sum_trils else None

    def _through_factors(self, p, Lam, V, b2, add):
        """W_s V_s * 2b of all sets (M, N) if cotangents of Kuf are needed; sums W_s_bar."""
        if not (self.need_Kuf or any(one.sum_trils for one in self.sets)):
            return None
        T = kernels.empty(Lam.shape, Lam)
        for one, v in zip(self.sets, V, strict=True):
            part = kernels.scale_columns(v, b2, out=T[one.at])
            if one.sum_trils:
                kernels.tril_product(Lam[one.at], part, out=one.tril_bar[p], add=add)
            if self.need_Kuf:
                product = kernels.multiply_triangular(one.trils[p], part, overwrite_b=True)
                if product is not part:  # on a device the product has new memory
                    part[...] = product
        return T

    def finish(self, kl_bar):
        mean_bars, bars = self.Lam_a + kl_bar * self.means, {}
        for one in self.sets:
            one.mean_bar = np.ascontiguousarray(mean_bars[:, one.at], like=mean_bars)
            bars |= self._field_bars(one, kl_bar)
        C, self.C, Kuu_bar = self.C, None, None
        if self.need_Kuu:
            Kuu_bar = kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)
        return Bars(gradient(self.q, **bars), Kuu_bar)

    def _field_bars(self, one, kl_bar):
        """Cotangents of the fields of one set, None if not needed; its part is added to C."""
        if one.sum_trils:
            for bar, W in zip(one.tril_bar, one.trils, strict=True):
                kernels.tril_update(bar, W, kl_bar, out=bar)
        found = self.q.whitened_vjp(one, self._block(one.at), self.C)
        return {
            name: bar.reshape(getattr(self.q, name).shape) if wanted(self.need, name) else None
            for name, bar in zip(self.q.fields_of(one.name), found, strict=False)
        }


class NaturalStackedPass(StackedPass):
    """Pass of a natural step: ``pull`` sums G per output, and no gradients of factors."""

    sums_trils = False

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, len(prior.L), need)
        self.G = None

    def pull(self, rows, f_bar):
        Lam, add, (P, M) = rows.Lam, self.G is not None, self.means.shape
        self.G = self.G if add else kernels.empty((P, M, M), Lam)
        for G, b in zip(self.G, f_bar.var.reshape(P, Lam.shape[1]), strict=True):
            kernels.weighted_gram(Lam, 2 * b, out=G, add=add)
        return super().pull(rows, f_bar)

    def natural_step(self, step_size):
        """The natural step of the module docstring; each S_s^-1 only enters with weight 1 - g."""
        means = np.empty(self.means.shape, self.means.dtype, like=self.means)
        precisions = [kernels.empty(one.trils.shape, one.trils) for one in self.sets]
        for p in range(len(means)):
            R, theta = self._stepped(p, step_size)
            for one, precision in zip(self.sets, precisions, strict=True):
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

    def _stepped(self, p, step_size):
        """R (M, M) and R m_new (M, 1) of one output."""
        R = np.multiply(kernels.symmetrise(self.G[p]), -step_size)
        theta = step_size * self.Lam_a[p][:, None] + kernels.matmul(R, self.means[p][:, None])
        R.reshape(-1)[:: len(R) + 1] += step_size
        if step_size != 1:
            for one in self.sets:
                old = (1 - step_size) * kernels.cholesky_inverse(one.trils[p])
                theta[one.at] += kernels.matmul(old, one.means[p][:, None])
                R[one.at, one.at] += old
        return R, theta


class LongStackedPass(StackedPass):
    """Pass in the long form: two sets, one output. Residuals: Lam and E."""

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
            if G is not None:
                self._from_gram(one, H, kernels.symmetrise(G))
        if self.need_Kuu:
            self.C[v.at, u.at] = kernels.multiply_triangular(
                self._block(v.at), self.cross, transpose=True
            )
        return super().finish(kl_bar)

    def _from_gram(self, one, H, G):
        """Compute the gradient of one set's factor, and its block of C."""
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
