"""Random Fourier features of a stationary covariance (Rahimi and Recht 2007), none of which is ever stored.

Cosine 2 p and sine 2 p + 1 of frequency p are scaled by s = sqrt(variance / num), num = m / 2 frequencies, so that the weights
are N(0, I) and k(x, x) is exact. Squares need no kernel of their own: with c^2 = (1 + cos 2 theta) / 2, and the sine's,

    (phi * phi) v = s^2 / 2 sum_i v_i + s / 2 [s sum_p (v_2p - v_2p+1) cos(2 theta_p)],

and what is in brackets is a product with features of the inputs 2 X.
"""

from typing import Any

import numpy as np

from .. import kernels
from ..records import record, static
from .base import Basis, Energy, below, sum_of_squares


@record
class RandomFourier(Basis):
    """Random Fourier features: m = ``num_features`` functions of weights N(0, I), whose covariance tends to ``covariance``.

    Parameters
    ----------
    covariance : RBF, Matern12, Matern32 or Matern52
    num_features : int
        Even: a cosine and a sine for each frequency. Static.
    seed : int
        Frequencies are a pure function of it and of their number. Static.

    Notes
    -----
    Source: Rahimi and Recht 2007; Evans and Nair 2018, section 4, whose prior precision diag(q / variance) is I here.
    """

    width = 2

    covariance: Any
    num_features: Any = static()
    seed: Any = static(default=0)

    def num_functions(self):
        return self.num_features

    def check_columns(self, D):
        covariance = self.covariance
        if not hasattr(covariance, "family"):
            kind = type(covariance).__name__
            raise TypeError(f"RandomFourier: `covariance` must be an RBF, Matern12, Matern32 or Matern52, got {kind}")
        self.check_settings()
        covariance.check_dim(D)

    def check_settings(self):
        for name, value, least, what in (
            ("num_features", self.num_features, 2, "an even number, a cosine and a sine for each frequency"),
            ("seed", self.seed, 0, "a whole number from 0 to 2^64 - 1"),
        ):
            whole = isinstance(value, (int, np.integer)) and not isinstance(value, bool) and least <= value < 2**64
            if not whole or name == "num_features" and value % 2:
                raise ValueError(f"RandomFourier: `{name}` must be {what}, got {value!r:.200}")

    def _arguments(self, X, units=None):
        """What the kernels want to know after inputs and right-hand sides."""
        k, num = self.covariance, self.num_features // 2
        return k.family, int(self.seed), np.arange(num, like=X) if units is None else units, num, k.variance, k.lengthscales

    def features(self, X, units=None):
        identity = np.zeros((len(X), len(X)), X.dtype, like=X)
        identity.reshape(-1)[:: len(X) + 1] = 1
        return kernels.fourier_multiply(X, identity, *self._arguments(X, units), transpose=True)

    def products(self, X, W, v, units=None, kept=None):
        arguments = self._arguments(X, units)
        out = kernels.fourier_multiply(X, W, *arguments)
        if v is None:
            return out, None
        wave, scale = kernels.fourier_multiply(2 * X, _differences(v), *arguments), self._scale(X)
        return out, scale / 2 * (scale * _sum(v) + wave)

    def _scale(self, X):
        return np.sqrt(self.covariance.variance / (self.num_features // 2)).astype(X.dtype)

    def products_vjp(self, out_bar, squares_bar, X, W, v, need, units=None, kept=None):
        arguments, scale, need = self._arguments(X, units), self._scale(X), below(need, "covariance")
        fields = tuple(name for name in ("variance", "lengthscales") if "covariance" in need or f"covariance.{name}" in need)
        asked = "w", *fields
        _, W_bar, variance_bar, lengthscales_bar = kernels.fourier_multiply_vjp(out_bar, X, W, *arguments, need=asked)
        v_bar = None
        if v is not None:
            wave_bar, u = scale / 2 * squares_bar, _differences(v)
            _, u_bar, _, of_wave = kernels.fourier_multiply_vjp(wave_bar, 2 * X, u, *arguments, need=asked)
            each = scale * scale / 2 * _sum(squares_bar)
            v_bar = np.empty_like(v)
            v_bar[::2], v_bar[1::2] = each + u_bar[::2], each - u_bar[::2]
            if "variance" in fields:  # squares are linear in the variance, and in v
                variance_bar = variance_bar + _sum(v * v_bar) / self.covariance.variance
            if "lengthscales" in fields:
                lengthscales_bar = lengthscales_bar + of_wave
        bars = {"covariance": type(self.covariance)(variance_bar, lengthscales_bar)} if fields else {}
        return W_bar, v_bar, bars

    def precisions(self, functions):
        return np.ones(1)

    def precision_diagonal(self, jitter):
        return 1.0

    def energy(self, W, v, jitter):
        return Energy(sum_of_squares(W) + v.sum(dtype=np.float64), 0.0, None)

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        return 2 * quadratic_bar * W, np.full_like(v, quadratic_bar), {}


def _differences(v):
    """Right-hand sides (m,) of the waves: those of cosines, zeros of sines."""
    u = np.zeros_like(v)
    u[::2] = v[::2] - v[1::2]
    return u


def _sum(v):
    """Accumulated in float64, in the dtype that came."""
    return v.sum(dtype=np.float64).astype(v.dtype)
