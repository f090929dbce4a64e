"""Random Fourier features of stationary covariances, and of mixtures of their lengthscales.

Source: Rahimi & Recht, "Random features for large-scale kernel machines" (2007).
"""

import numpy as np

from ... import kernels
from .base import Features, part_seeds
from .explicit import Explicit


class StationaryFeatures(Features):
    """Features of a covariance of ``kernels.fourier_multiply``: ``num`` cosines and sines."""

    def __init__(self, covariance, num, seeds):
        self.size, self._covariance, self._seeds = num, covariance, seeds

    def _arguments(self, X, seed):
        k, num = self._covariance, self.size // 2
        return k.family, int(seed), np.arange(num, like=X), num, k.variance, k.lengthscales

    def _each(self, X, w):
        if X.ndim == 2 and np.ndim(self._seeds) == 0:
            return [(slice(None), X, self._seeds, w.reshape(-1, self.size))]
        seeds = np.broadcast_to(self._seeds, len(w)).tolist()
        return [(s, X if X.ndim == 2 else X[s], seeds[s], w[s]) for s in range(len(w))]

    def multiply(self, X, w):
        out = np.empty((*w.shape[:2], X.shape[-2]), X.dtype, like=X)
        for s, x, seed, rows in self._each(X, w):
            values = kernels.fourier_multiply(x, rows, *self._arguments(x, seed))
            out[s] = values.reshape(out[s].shape)
        return out

    def multiply_vjp(self, out_bar, X, w):
        X_bar = np.zeros_like(X)
        for s, x, seed, rows in self._each(X, w):
            bar = kernels.fourier_multiply_vjp(
                np.ascontiguousarray(out_bar[s].reshape(len(rows), -1), like=X),
                x,
                rows,
                *self._arguments(x, seed),
                need=("X",),
            )[0]
            if X.ndim == 2:
                X_bar += bar
            else:
                X_bar[s] = bar
        return X_bar


class ScaleMixture(Features):
    """Features of the rational quadratic covariance, a mixture of RBFs.

    With tau ~ Gamma(alpha, rate alpha), E exp(-tau r^2 / 2) = (1 + r^2 / (2 alpha))^-alpha. So a
    frequency is a normal one times the root of a draw of tau, by the inverse of its distribution
    function at a uniform number that is a function of seed and index as well.
    """

    def __init__(self, covariance, num, seeds):
        self.size, self._covariance, self._seeds = num, covariance, seeds

    def _of(self, seed, X):
        """Return the features of one seed for points with the columns of X."""
        import scipy.special

        k, num, D = self._covariance, self.size // 2, X.shape[-1]
        index, alpha = np.arange(num, like=X), np.asarray(k.alpha, np.float64, like=X)
        omega = kernels.fourier_frequencies("rbf", part_seeds(seed, 0), index, D, np.float64)
        normal = kernels.fourier_frequencies("rbf", part_seeds(seed, 1), index, 1, np.float64)
        tau = scipy.special.gammaincinv(alpha, scipy.special.ndtr(normal)) / alpha
        omega = omega * np.sqrt(tau) / k.lengthscales
        scale = np.sqrt(k.variance / num)

        def matrix(X):
            t = kernels.matmul(X.astype(np.float64, copy=False), omega, transpose_b=True)
            Phi = np.concatenate([np.cos(t), np.sin(t)], axis=1) * scale
            return Phi.astype(X.dtype, copy=False)

        def matrix_vjp(Phi_bar, X):
            Phi = matrix(X)
            t_bar = Phi[:, :num] * Phi_bar[:, num:] - Phi[:, num:] * Phi_bar[:, :num]
            return kernels.matmul(t_bar.astype(np.float64, copy=False), omega).astype(X.dtype)

        return Explicit(self.size, matrix, matrix_vjp)

    def multiply(self, X, w):
        if not np.ndim(self._seeds):
            return self._of(self._seeds, X).multiply(X, w)
        values = np.empty((*w.shape[:2], X.shape[-2]), X.dtype, like=X)
        for s, seed in enumerate(self._seeds.tolist()):
            x = X if X.ndim == 2 else X[s]
            values[s : s + 1] = self._of(seed, X).multiply(x, w[s : s + 1])
        return values

    def multiply_vjp(self, out_bar, X, w):
        if not np.ndim(self._seeds):
            return self._of(self._seeds, X).multiply_vjp(out_bar, X, w)
        X_bar = np.zeros_like(X)
        for s, seed in enumerate(self._seeds.tolist()):
            one = slice(s, s + 1)
            x = X if X.ndim == 2 else X[s]
            bar = self._of(seed, X).multiply_vjp(out_bar[one], x, w[one])
            if X.ndim == 2:
                X_bar += bar
            else:
                X_bar[s] = bar
        return X_bar
