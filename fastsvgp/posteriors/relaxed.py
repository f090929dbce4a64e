"""R-SVGP: the bound of L-SVGP with a factor of T, about (Kuu + S~)^-1, in place of the inverse: matrix products alone."""

import numpy as np

from .. import check
from ..records import leaf, record, static
from ..records.typed import Array
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from .pseudo_targets import PseudoData, with_noise
from .relaxed_pass import DirectionPass, Relaxation, RelaxedPass
from .trace_estimates import SampledPass


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
        L, lower triangular, positive diagonal; the strict upper triangle is never read. Keep it
        near a factor of the inverse:
        ``inverse_factor(Kuu + diag(variance + jitter), inverse_tril)`` whenever the others have
        moved, and hold it fixed in between. Shared by all outputs.
    preconditioned : bool
        Static.

    Notes
    -----
    The value is a lower bound of the evidence for every L, and that of ``LikelihoodForm`` at L L' =
    (Kuu + S~)^-1; there, with L held fixed, all other gradients are its gradients too. Value and
    gradients cost 5 M^2 B + 8/3 M^3 flops with exact traces (plus M^2 B + 3 M^3 for
    ``inverse_tril``), 7 M^2 B + 9 M^2 K with K probes; ``likelihood_direction`` 3 M^2 B + 3 M^3. By
    flops that is more than ``LikelihoodForm``: it is meant for devices whose products are much
    faster than factorisations.

    Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", eq. (3), (4)
    and (7).

    Examples
    --------
    >>> q = fs.Relaxed(mean=np.zeros(6), variance=np.ones(6), inverse_tril=0.5 * np.eye(6))
    >>> relaxed = fs.refresh_inverse(fs.replace(model, posterior=q))[0]
    >>> round(fs.elbo(relaxed, X, Y), 2)
    -151.55
    """

    mean: Array = leaf()
    variance: Array = leaf("positive")
    inverse_tril: Array = leaf("tril")
    preconditioned: bool = static(default=True)

    inverse_field = "inverse_tril"
    directions = ("likelihood",)
    random_quantities = ("probes",)

    def check_size(self, M):
        batch = super().check_size(M)
        if np.shape(self.inverse_tril) != (M, M):
            raise ValueError(
                f"`posterior` has inverse_tril {np.shape(self.inverse_tril)}, but there are {M}"
                f" inducing inputs: use ({M}, {M}), a factor of the inverse of Kuu + diag(variance)"
                " such as inverse_factor makes"
            )
        return batch

    def start_from(self, prior, columns=0, need=(), probes=None, direction=None):
        """As for every posterior; ``probes`` (M, K) of +-1 estimate the traces of the KL divergence."""
        if probes is not None:
            return SampledPass(self, prior, need, probes)
        relaxation = Relaxation(self, prior, need)
        if direction == "likelihood" and need and deferred_checks.none(~(relaxation.distance < 1)):
            return DirectionPass(self, need, relaxation)
        return RelaxedPass(self, need, relaxation)

    def draw(self, name, value, M, dtype, rng):
        """``probes``: an (M, K) array of +-1, drawn where it is the number K."""
        array = check.as_array(name, value)
        if array.ndim == 0:
            drawn = (
                2 * check.generator(rng).integers(0, 2, (M, check.whole(name, value))).astype(dtype)
                - 1
            )
            return np.asarray(drawn, like=self.mean)
        if array.ndim != 2 or array.shape[0] != M or array.shape[1] == 0:
            raise ValueError(
                f"`probes` must have one row for each of the {M} inducing inputs, shape ({M}, K),"
                f" got {array.shape}"
            )
        one_device((name, array), ("posterior.mean", self.mean))
        if not deferred_checks.none(abs(array) != 1):
            raise ValueError(
                "`probes` must hold +1 and -1 alone: rng.choice([-1.0, 1.0], (M, K)) draws them"
            )
        return array.astype(dtype, copy=False)

    def inverse_of(self, Kuu, jitter):
        return with_noise(Kuu, self.variance, jitter), self.variance.min() + jitter
