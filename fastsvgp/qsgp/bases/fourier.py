"""Random Fourier features of a stationary covariance (Rahimi and Recht 2007), never stored.

Cosine 2 p and sine 2 p + 1 of frequency p are scaled by s = sqrt(variance / num), num = m / 2
frequencies, so that the weights are N(0, I) and k(x, x) is exact. One sweep over the pairs of point
and frequency makes products with features and with their squares, forward and backward: see
``kernels.fourier_sweep``.
"""

import numpy as np

from ... import kernels
from ...records import record, static
from ...records.typed import Record
from .base import Basis, Energy, below, sum_of_squares


@record
class RandomFourier(Basis):
    """Random Fourier features: m = ``num_features`` functions with weights N(0, I).

    Their covariance tends to ``covariance`` as m grows.

    Parameters
    ----------
    covariance : RBF, Matern12, Matern32 or Matern52
    num_features : int
        Even: a cosine and a sine per frequency. Static.
    seed : int
        Frequencies are a pure function of the seed and of their number. Static.

    Notes
    -----
    Source: Rahimi and Recht 2007; Evans and Nair 2018, section 4, whose prior precision diag(q /
    variance) is I here.

    Examples
    --------
    >>> basis = fs.qsgp.RandomFourier(covariance, num_features=1000, seed=0)
    >>> basis.num_features, basis.covariance
    (1000, RBF(variance=1.0, lengthscales=<float64 (1,)>))
    """

    width = 2

    covariance: Record
    num_features: int = static()
    seed: int = static(default=0)

    def num_functions(self):
        return self.num_features

    def check_columns(self, D):
        covariance = self.covariance
        if not hasattr(covariance, "family"):
            kind = type(covariance).__name__
            raise TypeError(
                "RandomFourier: `covariance` must be an RBF, Matern12, Matern32 or Matern52, got"
                f" {kind}"
            )
        self.check_settings()
        covariance.check_dim(D)

    def check_settings(self):
        for name, value, least, what in (
            (
                "num_features",
                self.num_features,
                2,
                "an even number, a cosine and a sine per frequency",
            ),
            ("seed", self.seed, 0, "a whole number from 0 to 2^64 - 1"),
        ):
            whole = (
                isinstance(value, (int, np.integer))
                and not isinstance(value, bool)
                and least <= value < 2**64
            )
            if not whole or name == "num_features" and value % 2:
                raise ValueError(f"RandomFourier: `{name}` must be {what}, got {value!r:.200}")

    def _arguments(self, X, units=None):
        """Return the arguments of the kernels after inputs and right-hand sides."""
        k, num = self.covariance, self.num_features // 2
        return (
            k.family,
            int(self.seed),
            np.arange(num, like=X) if units is None else units,
            num,
            k.variance,
            k.lengthscales,
        )

    def features(self, X, units=None):
        identity = np.zeros((len(X), len(X)), X.dtype, like=X)
        identity.reshape(-1)[:: len(X) + 1] = 1
        return kernels.fourier_multiply(X, identity, *self._arguments(X, units), transpose=True)

    def products(self, X, weights):
        W, v, units, kept = weights
        need = ("out",) if v is None else ("out", "squares")
        arguments = self._arguments(X, units)
        return kernels.fourier_sweep(X, *arguments, W=W, v=v, need=need, kept=kept)[:2]

    def products_vjp(self, X, weights, out_bar, squares_bar, need):
        return self._sweep((), X, weights, out_bar, squares_bar, need)[1]

    def products_and_vjp(self, X, weights, out_bar, squares_bar, need):
        products = ("out",) if weights.v is None else ("out", "squares")
        return self._sweep(products, X, weights, out_bar, squares_bar, need)

    def _sweep(self, products, X, weights, out_bar, squares_bar, need):
        W, v, units, kept = weights
        need = below(need, "covariance")
        fields = tuple(
            name
            for name in ("variance", "lengthscales")
            if "covariance" in need or f"covariance.{name}" in need
        )
        sweep_need = *products, "W", *(() if v is None else ("v",)), *fields
        sides = {"W": W, "v": v, "U": out_bar, "u": None if v is None else squares_bar}
        out, squares, W_bar, v_bar, _, variance_bar, lengthscales_bar = kernels.fourier_sweep(
            X, *self._arguments(X, units), **sides, need=sweep_need, kept=kept
        )
        bars = (
            {"covariance": type(self.covariance)(variance_bar, lengthscales_bar)} if fields else {}
        )
        return (out, squares), (W_bar, v_bar, bars)

    def precisions(self, functions):
        return 1.0

    def precision_diagonal(self, jitter):
        return 1.0

    def energy(self, W, v, jitter):
        return Energy(sum_of_squares(W) + v.sum(dtype=np.float64), 0.0, None)

    def energy_vjp(self, quadratic_bar, log_det_bar, saved, W, v, need):
        return 2 * quadratic_bar * W, np.full_like(v, quadratic_bar), {}
