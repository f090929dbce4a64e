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
    raise_to_floor,
    wanted,
)
from .common_cotangents import FEWEST, CommonSums, common_row
from .summed_variances import SummedVariances


class Rows(NamedTuple):
    """Kuf, Lam (M, N), kff (N,) of a chunk of rows; passes with the same prior can share them."""

    Kuf: Any
    kff: Any
    Lam: Any


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

    L : (M, M); means : (P, M); trils : (P, M, M)
    batch : leading axes of the parameters, (P,) or ()
    """

    shares_rows = True
    keeps_V = True  # whether ``pull`` reads V

    def __init__(self, q, prior, columns, need):
        self.q, self.need, natural = q, need, "natural_step" in need
        super().__init__(prior, len(prior.L) if natural else columns)
        mean, tril = self._whitened()
        M = mean.shape[-1]
        self.batch = mean.shape[:-1]
        self.means, self.trils = mean.reshape(-1, M), tril.reshape(-1, M, M)
        self.need_Kuf, self.need_Kuu = (wanted(need, block, "blocks") for block in ("Kuf", "Kuu"))
        self._set_needs(natural)
        self.omits = self._omits(columns)
        self.needs_Lam_bar, self.Lam_a = self.need_Kuf, None
        self.common, self.tril_bar, self.G, self.C = [], None, None, None

    def _whitened(self):
        """The whitened mean and factor."""
        return self.q.whitened(self.L)

    def _set_needs(self, natural):
        """Choose the sums of ``pull``."""
        through_L = self.need_Kuu and not self.q.whitening_is_fixed
        self.sum_trils = natural or wanted(self.need, "scale_tril") or through_L

    def project(self, Kuf, kff):
        """2 M^2 N flops for the first output, M^2 N for each other output."""
        return self.project_rows(self.rows(Kuf, kff), owns=True)

    def rows(self, Kuf, kff):
        """``Rows`` for ``project_rows`` of this pass, or of other passes with the same prior."""
        return Rows(Kuf, kff, self._solve(Kuf))

    def project_rows(self, rows, owns=False):
        """``project`` at ``rows``; ``pull`` overwrites them only if it ``owns`` them."""
        Kuf, kff, Lam = rows
        if self.omits and (f := self._given_means(kff, Lam)):
            return Projection(f, Residuals(Lam, None, owns))
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
        return kernels.multiply_triangular(self.trils[p], Lam, transpose=True)

    def _covariances(self):
        """S = W W' of each output (P, M, M)."""
        return kernels.cholesky_product(self.trils)

    def joint(self, Kuf, Kff):
        Lam = self._solve(Kuf)
        N = Lam.shape[1]
        prior = Kff - kernels.matmul(Lam, Lam, transpose_a=True)
        cov = np.empty((len(self.means), N, N), Lam.dtype, like=Lam)
        for p in range(len(self.trils)):
            V = self._half(p, Lam)
            np.add(prior, kernels.matmul(V, V, transpose_a=True), out=cov[p])
        # the first argument is a view of the diagonals
        self.clamped += raise_to_floor(cov.reshape(len(cov), N * N)[:, :: N + 1], np.diagonal(Kff))
        mean = kernels.matmul(self.means, Lam).reshape(*self.batch, N)
        return Joint(mean, cov.reshape(*self.batch, N, N))

    def kl(self):
        return kernels.kl_from_standard(self.means, self.trils)

    def pull(self, rows, f_bar):
        Lam, first = rows.Lam, self.Lam_a is None
        P, (M, N) = len(self.means), Lam.shape
        a, b2 = f_bar.mean.reshape(P, N), 2 * f_bar.var.reshape(P, N)
        if first and not (P == 1 and self.needs_Lam_bar):
            self.Lam_a = np.zeros((P, M), Lam.dtype, like=Lam)
        common = common_row(b2, M, fewest=2 if self.omits else FEWEST)
        if self.omits:
            self._settle(rows, b2, summed=bool(common) or not self.keeps_V)
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
            sums = CommonSums.of(c, self._covariances() if through else None, rows.Lam)
            self.common.append(sums)
        Lam_bar = self._common_Lam_bar(sums, rows, a, w2)
        rows.V = None
        if self.sum_trils or self.need_Kuu:
            sums.add_gram(rows.Lam, w2, rows.owns)
        return Lam_bar

    def _common_Lam_bar(self, sums, rows, a, w2):
        """Return the cotangent of Lam if it is needed, and add Lam a to the sums."""
        sums.Lam_a += kernels.matmul(a, rows.Lam, transpose_b=True)
        return sums.Lam_bar(self.means, rows.Lam, a, w2) if self.need_Kuf else None

    def _add_common(self, kl_bar):
        """Add the common sums to C and ``tril_bar``, and the KL term to the latter."""
        for sums in self.common:
            self.Lam_a += sums.Lam_a
            sums.symmetrise()
            if self.sum_trils:
                self.tril_bar = plus(sums.tril_bars(self.trils, kl_bar), self.tril_bar)
                kl_bar = 0.0
            if self.need_Kuu:
                self.C = plus(sums.C(self.means), self.C)
        self.common = []

    def _Lam_bar(self, V, Lam, a, b2, scaled=False):
        """The cotangent of Lam, in the memory of V[0], summed over outputs; adds Lam a to the sums.

        scaled : V is V * 2b already
        """
        if len(V) == 1:
            T = kernels.multiply_triangular(self.trils[0], V[0], overwrite_b=True)
            m = self.means[0]
            gained = kernels.add_outer_minus_scaled(T, m, a[0], Lam, b2[0], scale=not scaled)
            self._gain(0, gained)
            return T
        for p, W in enumerate(self.trils):
            part = V[p] if scaled else kernels.scale_columns(V[p], b2[p], out=V[p])
            part = kernels.multiply_triangular(W, part, overwrite_b=True)
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
        mean_bar, tril_bar = self.q.whitened_vjp(self, *self._whitened_bars(kl_bar))
        bars = {"mean": mean_bar, "scale_tril": tril_bar}
        for name, bar in bars.items():
            wants = wanted(self.need, name)
            bars[name] = bar.reshape(getattr(self.q, name).shape) if wants else None
        return Bars(gradient(self.q, **bars), self._Kuu_bar() if self.need_Kuu else None)

    def _whitened_bars(self, kl_bar):
        """``(mean_bar (P, M), tril_bar (P, M, M), C)``, C lower. Consumes the sums."""
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
            first = self.tril_bar is None
            self.tril_bar = kernels.empty(self.trils.shape, Lam) if first else self.tril_bar
            for p, out in enumerate(self.tril_bar):
                kernels.scale_columns(V[p], b2[p], out=V[p])
                kernels.tril_product(Lam, V[p], out=out, add=not first)
        if not self.needs_Lam_bar:
            return None
        Lam_bar = self._Lam_bar(V, Lam, a, b2, scaled=self.sum_trils)
        if self.need_Kuu:
            first = self.C is None
            self.C = kernels.empty(self.L.shape, Lam) if first else self.C
            kernels.tril_product(Lam_bar, Lam, out=self.C, add=not first)
        return Lam_bar

    def _whitened_bars(self, kl_bar):
        if self.sum_trils and self.tril_bar is not None:
            for bar, W in zip(self.tril_bar, self.trils, strict=True):
                kernels.tril_update(bar, W, kl_bar, out=bar)
        self._add_common(kl_bar if self.tril_bar is None else 0.0)
        return self._mean_bar(kl_bar), self.tril_bar, self.C
