"""The whitened pass, forward and backward by chunks of rows, and its batch form."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ... import kernels
from ...records import Marginals, plus
from ..base import (
    Bars,
    CholeskyPass,
    Joint,
    Projection,
    gradient,
    needs,
    raise_to_floor,
)
from .common_cotangents import FEWEST, CommonSums, common_row
from .summed_variances import SummedVariances


class ProjectedRows(NamedTuple):
    """Kuf, Lam (M, N), kff (N,) of a chunk of rows; passes with the same prior can share them."""

    Kuf: Any
    kff: Any
    Lam: Any


@dataclass(slots=True)
class InducingSet:
    """One set of inducing variables in a pass: its place in the stack, and its parameters.

    means : (P, M_s); trils : (P, M_s, M_s), both whitened
    needs_tril : whether the gradient of the factor is requested
    sums_tril : whether it is summed, in ``tril_bar``: then, or for the gradient of Kuu
    """

    name: str
    at: slice
    means: Any
    trils: Any
    fields: tuple[str, ...] = ()  # of its parameters
    needs_tril: bool = False
    sums_tril: bool = False
    tril_bar: Any = None


@dataclass(slots=True)
class Residuals:
    """Residuals of a chunk of rows: Lam (M, N), which ``pull`` can overwrite if ``owns``, and V.

    V is (M, N) per output, E in the long form, or None per output without ``keeps_V``. V itself is
    None if variances were omitted.
    """

    Lam: Any
    V: list | None
    owns: bool


class WhitenedPass(SummedVariances, CholeskyPass):
    """Base of the passes. Forms sum over chunks in ``pull``; ``_whitened_bars`` uses the sums.

    L : (M, M), of the stack of all sets
    sets : the ``InducingSet`` records; the factor of q is diagonal in them
    means : (P, M), of all sets
    batch : leading axes of the parameters, (P,) or ()
    """

    shares_rows = True
    keeps_V = True  # whether ``pull`` reads V

    def __init__(self, q, prior, columns, need):
        self.q, self.need, natural = q, need, "natural_step" in need
        super().__init__(prior, len(prior.L) if natural else columns)
        self.sets = self._sets()
        parts = [one.means for one in self.sets]
        self.means = parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)
        self.trils = self.sets[0].trils  # for passes with a single set
        self.need_Kuf, self.need_Kuu = (needs(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self._set_needs(natural)
        self.omits = self._omits(prior, columns)
        self.needs_Lam_bar, self.Lam_a = self.need_Kuf, None
        self.common, self.G, self.C = [], None, None

    def _sets(self):
        sets = []
        for name, at in self.q.spans(len(self.L)):
            size = at.stop - at.start
            mean, tril = self._whiten(name, at)
            self.batch = mean.shape[:-1]
            mean, tril = mean.reshape(-1, size), tril.reshape(-1, size, size)
            sets.append(InducingSet(name, at, mean, tril))
        return sets

    def _whiten(self, name, at):
        """The whitened mean and factor of a set."""
        return self.q.whiten(self._block(at), name)

    def _block(self, at, A=None):
        """The block of L, or of another matrix, that belongs to a set."""
        A = self.L if A is None else A
        return A if at.stop - at.start == len(A) else np.ascontiguousarray(A[at, at], like=A)

    def _set_needs(self, natural):
        """Choose the sums of ``pull``."""
        through_L, self.sum_trils = self.need_Kuu and self.q.unwhitens, natural
        for one in self.sets:
            one.fields = self.q.fields_of(one.name)
            factor = one.fields[1:]
            one.needs_tril = bool(factor) and needs(self.need, *factor)
            one.sums_tril = one.needs_tril or bool(factor) and through_L
            self.sum_trils = self.sum_trils or one.sums_tril

    def _times(self, p, A, transpose=False, overwrite=False):
        """W A, or W' A, of one output; W is block-diagonal in the sets."""
        if len(self.sets) == 1:
            return kernels.multiply_triangular(self.trils[p], A, transpose, overwrite_b=overwrite)
        B = A if overwrite else kernels.empty(A.shape, A)
        if not overwrite:
            B[...] = A
        for one in self.sets:
            part = B[one.at]
            product = kernels.multiply_triangular(one.trils[p], part, transpose, overwrite_b=True)
            if product is not part:  # on a device the product has new memory
                part[...] = product
        return B

    def _times_blocks(self, A, B):
        """A B for A (M, M) that is block-diagonal in the sets."""
        if len(self.sets) == 1:
            return kernels.matmul(A, B)
        blocks = ((self._block(one.at, A), B[one.at]) for one in self.sets)
        return np.concatenate([kernels.matmul(*pair) for pair in blocks])

    def project(self, Kuf, kff):
        """2 M^2 N flops for the first output, M^2 N for each other output."""
        return self.project_rows(self.rows(Kuf, kff), owns=True)

    def rows(self, Kuf, kff):
        """``ProjectedRows`` for ``project_rows`` of this pass, or of others with the same prior."""
        return ProjectedRows(Kuf, kff, self._solve(Kuf))

    def project_rows(self, rows, owns=False):
        """``project`` at ``rows``; ``pull`` overwrites them only if it ``owns`` them."""
        Kuf, kff, Lam = rows
        if self.omits:
            return Projection(self._omit_variances(kff, Lam), Residuals(Lam, None, owns))
        P, N = len(self.means), Lam.shape[1]
        mean, var, V = [], [], []
        for p in range(P):
            *moments, product = self._moments(p, Kuf, Lam)
            for parts, part in zip((mean, var), moments, strict=True):
                parts.append(part)
            V.append(product if self.keeps_V else None)
            del product  # frees its memory for the next output
        mean, var = (parts[0] if P == 1 else np.stack(parts) for parts in (mean, var))
        self.count_clamped(raise_to_floor(var, kff, add=True))
        f = Marginals(mean.reshape(*self.batch, N), var.reshape(*self.batch, N))
        return Projection(f, Residuals(Lam, V, owns))

    def _moments(self, p, Kuf, Lam):
        """``(mean, var - kff, V)`` of one output."""
        mean, explained = kernels.column_moments(Lam, self.means[p])  # while Lam is in the cache
        V = self._half(p, Lam)
        return mean, kernels.column_moments(V, self.means[p])[1] - explained, V

    def _half(self, p, Lam):
        """V, with V' V = Lam' S Lam."""
        return self._times(p, Lam, transpose=True)

    def _covariances(self):
        """S = W W' of each output (P, M, M)."""
        blocks = [kernels.cholesky_product(one.trils) for one in self.sets]
        return blocks[0] if len(blocks) == 1 else self._diagonal(blocks)

    def _diagonal(self, blocks):
        """Matrices (P, M, M) with these blocks of the sets, and 0 between these."""
        A = np.zeros((*self.means.shape, len(self.L)), self.L.dtype, like=self.L)
        for one, block in zip(self.sets, blocks, strict=True):
            A[:, one.at, one.at] = block
        return A

    def joint(self, Kuf, Kff):
        Lam = self._solve(Kuf)
        N = Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((len(self.means), N, N), Lam.dtype, like=Lam)
        for p in range(len(cov)):
            V = self._half(p, Lam)
            np.add(prior, kernels.matmul(V, V, transpose_a=True), out=cov[p])
        # the first argument is a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(len(cov), N * N)[:, :: N + 1], np.diagonal(Kff))
        mean = kernels.matmul(self.means, Lam).reshape(*self.batch, N)
        return Joint(mean, cov.reshape(*self.batch, N, N))

    def kl(self):
        return sum(kernels.kl_from_standard(one.means, one.trils) for one in self.sets)

    def pull(self, rows, f_bar):
        Lam, first = rows.Lam, self.Lam_a is None
        P, (M, N) = len(self.means), Lam.shape
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if first and not (P == 1 and self.needs_Lam_bar):
            self.Lam_a = np.zeros((P, M), Lam.dtype, like=Lam)
        common = common_row(b2, M, fewest=2 if self.omits else FEWEST)
        if rows.V is None and self.keeps_V and not common:
            self._add_products(rows, b2)
        if common:
            Lam_bar = self._sum_common_rows(rows, a, *common)
        else:
            if not self.needs_Lam_bar:
                self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
            Lam_bar = self._sum_rows(rows, a, b2)
        rows.Lam = rows.V = None
        return self._Kuf_bar(Lam_bar) if self.need_Kuf else None

    def _sum_rows(self, rows, a, b2):
        """Add a chunk of rows to the M x M sums; return Lam_bar (M, N) if it is needed."""
        raise NotImplementedError

    def _sum_common_rows(self, rows, a, c, w2):
        """Do the same for b2 = c w2', in the ``CommonSums`` of c."""
        sums = next((sums for sums in self.common if np.array_equal(sums.c, c)), None)
        if sums is None:
            through = self.need_Kuf or self.need_Kuu or self.omits
            sums = CommonSums.start(c, self._covariances() if through else None, rows.Lam)
            self.common.append(sums)
        Lam_bar = self._common_Lam_bar(sums, rows, a, w2)
        rows.V = None
        if self.sum_trils or self.need_Kuu:
            sums.add_gram(rows.Lam, w2, rows.owns)
        return Lam_bar

    def _common_Lam_bar(self, sums, rows, a, w2):
        """Return the cotangent of Lam if it is needed, and add Lam a to the sums."""
        sums.Lam_a += kernels.matmul(a, rows.Lam, transpose_b=True)
        if not self.need_Kuf:
            return None
        T = self._times_blocks(sums.H, rows.Lam)
        T = kernels.scale_columns(T, w2, out=T)
        return kernels.add_scaled(T, kernels.matmul(self.means, a, transpose_a=True), 1.0)

    def _add_common(self, kl_bar):
        """Add the common sums to C and the gradients of factors, and the KL term to these."""
        for sums in self.common:
            self.Lam_a += sums.Lam_a
            sums.symmetrise()
            for one in self.sets:
                if one.sums_tril:
                    Gamma = self._block(one.at, sums.Gamma)
                    bars = sums.tril_bars(one.trils, Gamma, kl_bar)
                    one.tril_bar = plus(bars, one.tril_bar)
            kl_bar = 0.0
            if self.need_Kuu:
                self.C = plus(sums.C(self.means), self.C)
        self.common = []

    def _Lam_bar(self, V, Lam, a, b2, scaled=False):
        """The cotangent of Lam, in the memory of V[0], summed over outputs; adds Lam a to the sums.

        scaled : V is V * 2b already
        """
        if len(V) == 1:
            T = self._times(0, V[0], overwrite=True)
            m = self.means[0]
            gained = kernels.add_outer_minus_scaled(T, m, a[0], Lam, b2[0], scale=not scaled)
            self._gain(0, gained)
            return T
        for p in range(len(V)):
            part = V[p] if scaled else kernels.scale_columns(V[p], b2[p], out=V[p])
            part = self._times(p, part, overwrite=True)
            T = part if p == 0 else kernels.add_scaled(T, part, 1.0)
        self.Lam_a += kernels.matmul(a, Lam, transpose_b=True)
        kernels.add_outer_minus_scaled(T, self.means[0], a[0], Lam, b2.sum(axis=0))
        return kernels.add_scaled(T, kernels.matmul(self.means[1:], a[1:], transpose_a=True), 1.0)

    def _gain(self, p, Lam_a):
        """Add to the sum of Lam a of an output; for a single output the first term becomes it."""
        if self.Lam_a is None:
            self.Lam_a = Lam_a[None]
        else:
            self.Lam_a[p] += Lam_a

    def _Kuf_bar(self, Lam_bar):
        return self._solve(Lam_bar, transpose=True, overwrite_b=True)

    def finish(self, kl_bar):
        q, bars, mean_bars = self.q, {}, self._whitened_bars(kl_bar)
        for one in self.sets:
            own = mean_bars if len(self.sets) == 1 else mean_bars[:, one.at].copy()
            C = None if self.C is None else self._block(one.at, self.C)
            found = q.whiten_vjp(one, own, self._block(one.at), C)
            if C is not self.C:
                self.C[one.at, one.at] = C
            for name, bar in zip(one.fields, found, strict=False):
                wants = needs(self.need, name)
                bars[name] = bar.reshape(getattr(q, name).shape) if wants else None
        return Bars(gradient(q, **bars), self._Kuu_bar() if self.need_Kuu else None)

    def _whitened_bars(self, kl_bar):
        """Return mean_bar (P, M); set C, lower, and ``tril_bar`` of the sets. Consumes the sums."""
        raise NotImplementedError

    def _mean_bar(self, kl_bar):
        return kernels.add_scaled(self.Lam_a, self.means, kl_bar)

    def _Kuu_bar(self):
        """Apply the whitening lemma to C, and consume C."""
        C, self.C = self.C, None
        return kernels.whitening_vjp(C, self.L, overwrite_c=True, inverse=self.inverse)


class BatchWhitenedPass(WhitenedPass):
    """Pass in the batch form: sums the gradient of each factor, and C."""

    def __init__(self, q, prior, columns, need):
        super().__init__(q, prior, columns, need)
        self.needs_Lam_bar = self.need_Kuf or self.need_Kuu

    def _sum_rows(self, rows, a, b2):
        Lam, V = rows.Lam, rows.V
        if self.sum_trils:
            for part, b2_p in zip(V, b2, strict=True):
                kernels.scale_columns(part, b2_p, out=part)
            for one in self.sets:
                if one.sums_tril:
                    first = one.tril_bar is None
                    one.tril_bar = kernels.empty(one.trils.shape, Lam) if first else one.tril_bar
                    for part, out in zip(V, one.tril_bar, strict=True):
                        kernels.tril_product(Lam[one.at], part[one.at], out=out, add=not first)
        if not self.needs_Lam_bar:
            return None
        Lam_bar = self._Lam_bar(V, Lam, a, b2, scaled=self.sum_trils)
        if self.need_Kuu:
            first = self.C is None
            self.C = kernels.empty(self.L.shape, Lam) if first else self.C
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=not first)
        return Lam_bar

    def _whitened_bars(self, kl_bar):
        summed = [one for one in self.sets if one.tril_bar is not None]
        for one in summed:
            for bar, W in zip(one.tril_bar, one.trils, strict=True):
                kernels.tril_update(bar, W, kl_bar, out=bar)
        self._add_common(0.0 if summed else kl_bar)
        return self._mean_bar(kl_bar)
