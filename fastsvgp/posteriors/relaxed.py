"""R-SVGP: the bound of L-SVGP from matrix products only.

A factor of T, about (Kuu + S~)^-1, replaces the inverse.
"""

import numpy as np

from .. import check, kernels
from ..records import leaf, record, static
from ..records.typed import Array
from ..runtime import deferred_checks
from ..runtime.dispatch import one_device
from .pseudo_targets import PseudoData, add_noise, noisy_values
from .relaxed_pass import DirectionPass, Relaxation, RelaxedPass
from .trace_estimates import SampledPass


@record
class Relaxed(PseudoData):
    """R-SVGP: the ``LikelihoodForm`` of L-SVGP without factorisations.

    P = 2 T - T (Kuu + S~) T replaces the inverse of Kuu + S~, with T = L L'. Bounds need no
    decomposition and no triangular solve.

    Parameters
    ----------
    mean : (..., M)
        m~. Preconditioned: w = P m~ in the mean Kuu w of u. Plain: w = m~.
    variance : (M,)
        Diagonal of S~, shared by all outputs. Positive.
    inverse_tril : (M, M)
        L, lower triangular, positive diagonal; the strict upper triangle is never read. Shared by
        all outputs. Keep it near a factor of the inverse: compute
        ``inverse_factor(Kuu + diag(variance + jitter), inverse_tril)`` whenever the other
        parameters have moved, and hold it fixed in between.
    preconditioned : bool
        Whether the mean is preconditioned. Static.

    Notes
    -----
    The value is a lower bound of the evidence for every L. At L L' = (Kuu + S~)^-1 it is the value
    of ``LikelihoodForm``, and with L held fixed the other gradients agree as well. Value and
    gradients cost 5 M^2 B + 8/3 M^3 flops with exact traces (plus M^2 B + 3 M^3 for
    ``inverse_tril``), and 7 M^2 B + 9 M^2 K with K probes. ``lsvgp_direction`` costs 3 M^2 B +
    3 M^3. This is more flops than ``LikelihoodForm`` needs: use it on devices whose products are
    much faster than factorisations.

    Source: Cortinovis et al., "Inverse-Free Sparse Variational Gaussian Processes", eq. (3), (4)
    and (7).

    Examples
    --------
    >>> q = fs.posteriors.Relaxed(mean=np.zeros(6), variance=np.ones(6),
    ...     inverse_tril=0.5 * np.eye(6))
    >>> relaxed = fs.optim.update_inverse_factor(fs.replace(model, posterior=q))[0]
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
                " by inverse_factor"
            )
        return batch

    def start_from(self, prior, columns=0, need=(), probes=None, direction=None):
        """Begin a pass; ``probes`` (M, K) of +-1 estimate the traces of the KL divergence."""
        if probes is not None:
            return SampledPass(self, prior, need, probes)
        relaxation = Relaxation(self, prior, need)
        if direction == "likelihood" and need and deferred_checks.none(~(relaxation.distance < 1)):
            return DirectionPass(self, need, relaxation)
        return RelaxedPass(self, need, relaxation)

    def path_weights(self, prior, values, normal):
        """w - T (u0 + S~^1/2 h), w = (2 T - T K~ T) m~ (plain: m~), h standard normal.

        Products alone. The covariance of f is Kff - 2 Kfu T Kuf + Kfu T K~ T Kuf, that of q.
        """
        seen, w = noisy_values(self, values, normal)
        if self.preconditioned:
            half = self._times_T(w)
            K = add_noise(prior.Kuu, self.variance, prior.jitter)
            w = 2 * half - self._times_T(kernels.matmul(K, half))
        return w - self._times_T(seen)

    def _times_T(self, columns):
        """T x for each column of (P, M, S)."""
        half = kernels.multiply_triangular(self.inverse_tril, columns, transpose=True)
        return kernels.multiply_triangular(self.inverse_tril, half, overwrite_b=True)

    def draw(self, name, value, M, dtype, rng):
        """``probes``: an (M, K) array of +-1. A number K is replaced by K drawn probes."""
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
                "`probes` must hold +1 and -1 only: draw them by rng.choice([-1.0, 1.0], (M, K))"
            )
        return array.astype(dtype, copy=False)

    def inverse_of(self, Kuu, jitter):
        return add_noise(Kuu, self.variance, jitter), self.variance.min() + jitter
