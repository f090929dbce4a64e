"""R-SVGP: the bound of L-SVGP with a factor of T, about (Kuu + S~)^-1, in place of the inverse: matrix products alone."""

from typing import Any

import numpy as np

from ..records import leaf, record, static
from .base import ALL, wanted
from .pseudo_data import PseudoData, with_noise
from .relaxation import DirectionPass, RelaxedPass
from .traces import SampledPass

DIRECTIONS = ("exact", "likelihood")


@record
class Relaxed(PseudoData):
    """``LikelihoodForm`` with P = 2 T - T (Kuu + S~) T, T = L L', for the inverse: no decomposition, no triangular solve.

    Parameters
    ----------
    mean : (..., M)
        m~. Preconditioned: w = P m~ in the mean Kuu w of u. Plain: w = m~.
    variance : (M,)
        Diagonal of S~, positive, shared by all outputs.
    inverse_tril : (M, M)
        L, lower triangular, positive diagonal; the strict upper triangle is never read. Keep it near a factor of the inverse:
        ``inverse_factor(Kuu + diag(variance + jitter), inverse_tril)`` whenever the others have moved, and hold it fixed in
        between. Shared by all outputs.
    preconditioned : bool
        Static.
    direction : str
        Static. "exact": gradients are those of the value. "likelihood": those of ``LikelihoodForm`` with P for the inverse. With
        d = ||L' (Kuu + S~) L - I||_F these are off by d^2 from the gradients of ``LikelihoodForm``, where the exact ones are off
        by d; they belong to no bound, and are taken only where d < 1 (else the exact ones are). They have none for
        ``inverse_tril``. Measured while training, the two differ by 7e-5 of their norm at d = 5e-4, and by 0.08 at d = 0.5.

    Notes
    -----
    The value is a lower bound of the evidence for every L, and that of ``LikelihoodForm`` at L L' = (Kuu + S~)^-1; there, with L
    held fixed, all other gradients are its gradients too. Value and gradients cost 5 M^2 B + 8/3 M^3 flops with exact traces
    (plus M^2 B + 3 M^3 for ``inverse_tril``), 7 M^2 B + 9 M^2 K with K probes, 3 M^2 B + 3 M^3 in the direction "likelihood". By
    flops that is more than ``LikelihoodForm``: it is meant for devices whose products are much faster than factorisations.

    Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", eq. (3), (4) and (7).
    """

    mean: Any = leaf()
    variance: Any = leaf("positive")
    inverse_tril: Any = leaf("tril")
    preconditioned: Any = static(default=True)
    direction: Any = static(default="exact")

    inverse_field = "inverse_tril"
    takes_probes = True

    def check_size(self, M):
        batch = super().check_size(M)
        if np.shape(self.inverse_tril) != (M, M):
            raise ValueError(
                f"`posterior` has inverse_tril {np.shape(self.inverse_tril)}, but there are {M} inducing inputs: use ({M}, {M}), "
                "a factor of the inverse of Kuu + diag(variance) such as inverse_factor makes"
            )
        if self.direction not in DIRECTIONS:
            raise ValueError(f"`direction` of the posterior must be one of {', '.join(DIRECTIONS)}, got {self.direction!r}")
        return batch

    def start(self, Kuu, jitter, columns=0, need=(), probes=None):
        """As for every posterior; ``probes`` (M, K) of +-1 estimate the traces of the KL divergence."""
        if probes is not None:
            return SampledPass(self, Kuu, jitter, need, probes)
        work = RelaxedPass(self, Kuu, jitter, need)
        if self.direction == "likelihood" and work.distance < 1 and need:
            return DirectionPass(work)
        return work

    def finish(self, work, kl_bar, need=ALL):
        mean_bar, variance_bar, tril_bar, Kuu_bar = work.finish(kl_bar, need)
        mean_bar = mean_bar.reshape(self.mean.shape) if wanted(need, "mean") else None
        bar = Relaxed(mean_bar, variance_bar, tril_bar, preconditioned=self.preconditioned, direction=self.direction)
        return bar, Kuu_bar

    def inverse_of(self, Kuu, jitter):
        return with_noise(Kuu, self.variance, jitter), self.variance.min() + jitter
