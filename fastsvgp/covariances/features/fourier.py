"""Random Fourier features of stationary covariances, and of mixtures of their lengthscales.

Source: Rahimi & Recht, "Random features for large-scale kernel machines" (2007).
"""

import functools

import numpy as np

from ... import kernels
from ...runtime.devices import constant_like, copy_to
from .base import Features, part_seeds


class StationaryFeatures(Features):
    """Features of a covariance of ``kernels.fourier_multiply``: ``num`` cosines and sines."""

    family: str | None = None  # that of the covariance

    def __init__(self, covariance, num, seeds):
        self.size, self._covariance, self._seeds = num, covariance, seeds

    def _arguments(self, X):
        k, seeds = self._covariance, self._seeds
        seeds = copy_to(seeds, X) if np.ndim(seeds) else seeds
        family, num = self.family or k.family, self.size // 2
        return family, seeds, num, k.variance, k.lengthscales, self._factors(X)

    def _factors(self, X):
        """Return factors of the frequencies on the device of X, or None."""
        return None

    def multiply(self, X, w):
        return kernels.fourier_multiply_rows(X, w, *self._arguments(X))

    def multiply_vjp(self, out_bar, X, w):
        out_bar = np.ascontiguousarray(out_bar, like=X)
        return kernels.fourier_multiply_rows_vjp(out_bar, X, w, *self._arguments(X))


class ScaleMixture(StationaryFeatures):
    """Features of the rational quadratic covariance, a mixture of RBFs.

    With tau ~ Gamma(alpha, rate alpha), E exp(-tau r^2 / 2) = (1 + r^2 / (2 alpha))^-alpha. So a
    frequency is a normal one times the root of a draw of tau, by the inverse of its distribution
    function at a uniform number that is a function of seed and index as well.
    """

    family = "rbf"

    def _factors(self, X):
        seeds, own = self._seeds, np.ndim(self._seeds) > 0
        seeds = tuple(np.atleast_1d(part_seeds(seeds, 0)).tolist())
        given = seeds, self.size // 2, float(self._covariance.alpha), X.dtype
        factors = constant_like(X, _roots_of_gamma, *given)
        return factors if own else factors[0]


@functools.lru_cache(maxsize=8)
def _roots_of_gamma(seeds, num, alpha, dtype):
    """Return roots of Gamma(alpha, rate alpha) draws, (seeds, num); a quantile takes 1 us."""
    import scipy.special

    index = np.arange(num)
    normal = [kernels.fourier_frequencies("rbf", seed, index, 1)[:, 0] for seed in seeds]
    tau = scipy.special.gammaincinv(alpha, scipy.special.ndtr(np.stack(normal))) / alpha
    roots = np.sqrt(tau).astype(dtype)
    roots.flags.writeable = False
    return roots
