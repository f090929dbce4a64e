"""What every posterior offers to the bounds."""

from typing import ClassVar

import numpy as np

from .. import kernels
from ..errors import NotPositiveDefinite
from ..kernels import verdicts
from ..records import Blocks, Marginals, record

ALL = ("posterior", "blocks")


@record
class Posterior:
    """A Gaussian q(u) over the values at M inducing inputs.

    One pass through a bound: ``start`` does the work on Kuu, ``project`` and ``pull`` go forward and back over the batch, in one
    part or in many, and ``finish`` gives the gradients of what all parts share. ``forward`` and ``vjp`` are that pass for a batch
    in one part.
    """

    # a field that should be a factor of an inverse, and that training keeps so; see ``inverse_of``
    inverse_field: ClassVar[str | None] = None
    natural_fields: ClassVar[tuple[str, ...]] = ()  # those that a natural step moves
    held_fields: ClassVar[tuple[str, ...]] = ()  # those that first-order steps leave alone
    takes_probes = False  # whether ``start`` accepts ``probes=``, an (M, K) array of +-1 to estimate traces with

    def check_size(self, M):
        """Raise ``ValueError`` unless the fields fit M inducing inputs; returns their leading axes, one entry an output axis."""
        raise NotImplementedError

    def start(self, Kuu, jitter, columns=0, need=()):
        """Begin a pass: an object that holds what depends on Kuu (M, M) alone, and the sums to come.

        ``jitter`` is the absolute amount added to the diagonal; ``columns`` the number of data that will be pulled, for what
        ``need`` says (see ``pull``). The object has ``clamped``, the number of variances that rounding had driven below eps kff.
        """
        raise NotImplementedError

    def project(self, work, Kuf, kff):
        """``(Marginals, part)`` for Kuf (M, N), kff (N,); mean and var are (..., N)."""
        raise NotImplementedError

    def joint(self, work, Kuf, Kff):
        """``(mean (..., N), covariance (..., N, N))`` for Kuf (M, N), Kff (N, N)."""
        raise NotImplementedError

    def kl(self, work):
        """KL[q(u) || p(u)], a float."""
        raise NotImplementedError

    def pull(self, work, part, f_bar, need=ALL):
        """Take in the cotangents of a part's marginals; returns ``Kuf_bar`` if "blocks" are needed. Consumes ``part``.

        ``need`` holds "blocks", "posterior", or names of single fields ("posterior.mean"); the same for all parts.
        """
        raise NotImplementedError

    def finish(self, work, kl_bar, need=ALL):
        """``(posterior_bar, Kuu_bar)`` of all parts and of the KL; ``None`` for what is not needed. Consumes ``work``."""
        raise NotImplementedError

    def natural_step(self, work, step_size):
        """The posterior after one natural-gradient step of the bound, KL included.

        ``work`` was started with ``columns=inf``, and its parts pulled for "posterior" alone; it is not consumed. Raises
        ``NotPositiveDefinite`` where the step leaves the cone.
        """
        raise NotImplementedError

    def inverse_of(self, Kuu, jitter):
        """``(A, smallest)``: L L' = A^-1 is wanted of L, the field ``inverse_field``; a lower bound of the eigenvalues of A."""
        raise NotImplementedError

    def forward(self, blocks, jitter, **probes):
        """``(Marginals, kl, saved)`` for a batch in one part; N = 0 leaves the KL divergence alone. ``probes``: of ``start``."""
        work = self.start(blocks.Kuu, jitter, blocks.Kuf.shape[1], ALL, **probes)
        f, part = self.project(work, blocks.Kuf, blocks.kff)
        return f, self.kl(work), (work, part)

    def vjp(self, f_bar, kl_bar, saved, need=ALL):
        """``(posterior_bar, blocks_bar)`` for cotangents of the marginals and of the KL; ``None`` for what is not needed."""
        Kuf_bar = self.pull(*saved, f_bar, need)
        posterior_bar, Kuu_bar = self.finish(saved[0], kl_bar, need)
        return posterior_bar, Blocks(Kuu_bar, Kuf_bar, over_outputs(f_bar.var)) if "blocks" in need else None


def over_outputs(var_bar):
    """Cotangents of kff (N,), which all outputs share, from those of the variances (..., N)."""
    return var_bar if var_bar.ndim == 1 else var_bar.sum(axis=0)


def check_mean_and_tril(q, M):
    """``check_size`` for a mean (..., M) and a factor (..., M, M)."""
    mean, tril = np.shape(q.mean), np.shape(q.scale_tril)
    if len(mean) not in (1, 2) or mean[-1] != M or mean[0] == 0 or tril != mean + (M,):
        raise ValueError(
            f"`posterior` has mean {mean} and scale_tril {tril}, but there are {M} inducing inputs: "
            f"use mean ({M},) with scale_tril ({M}, {M}), or mean (P, {M}) with scale_tril (P, {M}, {M}) for P outputs"
        )
    return mean[:-1]


def prior_factor(Kuu, jitter):
    """L = chol(Kuu + jitter I). Without jitter, pivots are refused too that may be nothing but rounding: of duplicated inputs."""
    L = kernels.cholesky(Kuu, jitter)
    if jitter == 0:
        pivots = np.square(L.diagonal())
        lost = pivots <= 2 * len(L) * np.finfo(L.dtype).eps * Kuu.diagonal()
        if not verdicts.none(lost):
            raise NotPositiveDefinite((), int(np.argwhere(lost)[0, 0]), jitter, len(L), L.dtype)
    return L


def wanted(need, field):
    return "posterior" in need or f"posterior.{field}" in need


@record
class GaussianFactor(Posterior):
    """Posteriors with a mean and a lower factor whose pass runs on whitened parameters; ``start`` says which."""

    def check_size(self, M):
        return check_mean_and_tril(self, M)

    def project(self, work, Kuf, kff):
        mean, var, part = work.project(Kuf, kff)
        return Marginals(mean, var), part

    def joint(self, work, Kuf, Kff):
        return work.joint(Kuf, Kff)

    def kl(self, work):
        return work.kl()
