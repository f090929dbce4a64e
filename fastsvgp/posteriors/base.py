"""What every posterior offers to the bounds."""

from ..records import record

ALL = ("posterior", "blocks")


@record
class Posterior:
    """A Gaussian q(u) over the values at M inducing inputs.

    ``forward`` and ``vjp`` are the two halves of a bound; ``factor`` and ``condition`` are the prediction, split so that the
    work on Kuu is done once for many chunks of test inputs.
    """

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

    def factor(self, Kuu, jitter):
        """What depends on Kuu alone."""
        raise NotImplementedError

    def condition(self, factor, blocks):
        """``(mean (..., N), var (..., N) or covariance (..., N, N), clamped)`` at the inputs of ``blocks``.

        The covariance comes where ``blocks.Kff`` is given. ``blocks.Kuu`` is not read.
        """
        raise NotImplementedError


def wanted(need, field):
    return "posterior" in need or f"posterior.{field}" in need


