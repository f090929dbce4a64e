"""The rational quadratic covariance, a function of r^2 with one more number.

With s = r^2 / (2 alpha) and k = variance (1 + s)^-alpha:

    dk / dr^2 = -k / (2 (1 + s))        dk / dalpha = k (s / (1 + s) - log(1 + s)).

Source: Rasmussen & Williams, Gaussian Processes for Machine Learning (2006), section 4.2.1.
"""

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Number
from .base import ALL, wanted
from .features import ScaleMixture
from .stationary import OfDistance
from .tiles import tiles


@record
class RationalQuadratic(OfDistance):
    """k = variance (1 + r^2 / (2 alpha))^-alpha: a mixture of RBFs of all lengthscales.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column.
    alpha : ()
        Positive. The tail is heavy for a small number; for a large one the covariance is an RBF.

    Examples
    --------
    >>> fs.RationalQuadratic(1.0, 2.0, alpha=0.5).matrix(np.array([[0.0], [2.0]])).round(4)
    array([[1.    , 0.7071],
           [0.7071, 1.    ]])
    """

    alpha: Number = leaf("positive", default=1.0)

    def _s(self, X1, X2):
        """Return s, (N1, N2): r^2 with longer lengthscales."""
        return kernels.squared_distances(X1, X2, self.lengthscales * np.sqrt(2 * self.alpha))

    def matrix(self, X1, X2=None):
        K = self._s(X1, X2)
        for tile in tiles(K.shape, K):
            part = K[tile]
            np.log1p(part, out=part)
            part *= -self.alpha
            np.exp(part, out=part)
            part *= self.variance
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        K = self.matrix(X1, X2) if K is None else K
        names = [name for name in ("X1", "X2") if name in need]
        names += ["lengthscales"] * wanted(need, "lengthscales")
        W, of_variance = self._s(X1, X2), np.zeros((), like=X1)
        of_alpha, moving = of_variance, wanted(need, "alpha")
        for tile in tiles(K.shape, K):
            w, s = K_bar[tile] * K[tile], W[tile]
            of_variance = of_variance + w.sum(dtype=np.float64)
            inverse = 1 + s
            np.divide(1, inverse, out=inverse)
            if moving:
                logs = np.log1p(s)
                s *= inverse
                logs -= s
                of_alpha = of_alpha - np.vdot(w, logs)
            np.multiply(w, inverse, out=s)  # W = -2 K_bar dk / dr^2
        bars = [None] * 3
        if names:
            bars = kernels.squared_distances_vjp(W, X1, X2, self.lengthscales, need=names)
            bars = [None if bar is None else -0.5 * bar for bar in bars]
        *inputs, lengthscales_bar = bars
        variance_bar = of_variance / self.variance
        bar = self.gradient(
            need, X1, variance=variance_bar, lengthscales=lengthscales_bar, alpha=of_alpha
        )
        return bar, *inputs

    def features(self, num, seeds, columns):
        return ScaleMixture(self, num, seeds)
