"""What every posterior offers to the bounds."""

import numpy as np

from ..records import record

ALL = ("posterior", "blocks")


@record
class Posterior:
    """A Gaussian q(u) over the values at M inducing inputs.

    ``forward`` and ``vjp`` are the two halves of a bound; ``factor`` and ``condition`` are the prediction, split so that the
    work on Kuu is done once for many chunks of test inputs.
    """

    def check_size(self, M):
        """Raise ``ValueError`` unless the fields fit M inducing inputs; returns their leading axes, one entry an output axis."""
        raise NotImplementedError

    def forward(self, blocks, jitter):
        """Marginals of f at the batch, KL[q(u) || p(u)], and what ``vjp`` needs.

        Parameters
        ----------
        blocks : Blocks
            Kuu (M, M), Kuf (M, N), kff (N,). N = 0 leaves the KL divergence alone.
        jitter : float
            Absolute amount added to the diagonal of Kuu.

        Returns
        -------
        f : Marginals, mean and var (..., N)
        kl : float
        saved : object
            Also holds ``clamped``, the number of variances that rounding had driven below eps kff.
        """
        raise NotImplementedError

    def vjp(self, f_bar, kl_bar, saved, need=ALL):
        """``(posterior_bar, blocks_bar)`` for cotangents of the marginals and of the KL; ``None`` for what is not needed.

        ``need`` holds "blocks", "posterior", or names of single fields ("posterior.mean").
        """
        raise NotImplementedError

    def natural_step(self, f_bar, saved, step_size):
        """The posterior after one natural-gradient step of the bound (KL included), from what ``forward`` saved.

        Raises ``NotPositiveDefinite`` where the step leaves the cone.
        """
        raise NotImplementedError

    def factor(self, Kuu, jitter):
        """What depends on Kuu alone."""
        raise NotImplementedError

    def condition(self, factor, blocks):
        """``(mean (..., N), var (..., N) or covariance (..., N, N), clamped)`` at the inputs of ``blocks``.

        The covariance comes where ``blocks.Kff`` is given. ``blocks.Kuu`` is not read.
        """
        raise NotImplementedError


def check_mean_and_tril(q, M):
    """``check_size`` for a mean (..., M) and a factor (..., M, M)."""
    mean, tril = np.shape(q.mean), np.shape(q.scale_tril)
    if len(mean) not in (1, 2) or mean[-1] != M or tril != mean + (M,):
        raise ValueError(
            f"`posterior` has mean {mean} and scale_tril {tril}, but there are {M} inducing inputs: "
            f"use mean ({M},) with scale_tril ({M}, {M}), or mean (P, {M}) with scale_tril (P, {M}, {M}) for P outputs"
        )
    return mean[:-1]


def wanted(need, field):
    return "posterior" in need or f"posterior.{field}" in need
