"""Features of sums, of products with finite ranks, and of functions of mapped inputs."""

import numpy as np

from ... import kernels
from .base import Features
from .points import by_rows


class Stacked(Features):
    """Features of a sum: those of its parts, side by side."""

    def __init__(self, parts):
        self._parts = parts
        self.size = sum(part.size for part in parts)

    def _each(self, w):
        stop = 0
        for part in self._parts:
            start, stop = stop, stop + part.size
            yield part, np.ascontiguousarray(w[..., start:stop], like=w)

    def multiply(self, X, w):
        return sum(part.multiply(X, own) for part, own in self._each(w))

    def multiply_vjp(self, out_bar, X, w):
        return sum(part.multiply_vjp(out_bar, X, own) for part, own in self._each(w))


class Modulated(Features):
    """Features of a product with k(x, x') = sum_j c_j(x) c_j(x'): all products of both features.

        f(x) = sum_j c_j(x) g_j(x),    g_j_bar = c_j f_bar,    c_j_bar = sum_sp g_j f_bar

    with independent functions g_j of the other factor. ``known`` are the ``Explicit`` features c.
    """

    def __init__(self, base, known):
        self._base, self._known, self.size = base, known, base.size * known.size

    def _each(self, X, w):
        """Yield c_j at the points, to multiply values with, and the weights of g_j."""
        c = self._known.matrix(by_rows(X))
        for j in range(self._known.size):
            c_j = c[:, j] if X.ndim == 2 else c[:, j].reshape(len(X), 1, -1)
            start = j * self._base.size
            yield c_j, np.ascontiguousarray(w[..., start : start + self._base.size], like=w)

    def multiply(self, X, w):
        return sum(c * self._base.multiply(X, own) for c, own in self._each(X, w))

    def multiply_vjp(self, out_bar, X, w):
        X_bar, c_bars = np.zeros_like(X), []
        for c, own in self._each(X, w):
            X_bar += self._base.multiply_vjp(out_bar * c, X, own)
            of_c = out_bar * self._base.multiply(X, own)
            c_bars.append(of_c.sum(axis=(0, 1) if X.ndim == 2 else 1).reshape(-1))
        c_bar = np.stack(c_bars, axis=1)
        return X_bar + self._known.matrix_vjp(c_bar, by_rows(X)).reshape(X.shape)


class Mapped(Features):
    """Features of a function of mapped inputs, g(phi(x)).

    ``forward(X)`` returns phi (n, F) and residuals for ``back(phi_bar, residuals)``.
    """

    def __init__(self, part, forward, back):
        self._part, self._forward, self._back, self.size = part, forward, back, part.size

    def _mapped(self, X):
        phi, residuals = self._forward(by_rows(X))
        return phi.reshape(*X.shape[:-1], -1), residuals

    def multiply(self, X, w):
        return self._part.multiply(self._mapped(X)[0], w)

    def multiply_vjp(self, out_bar, X, w):
        phi, residuals = self._mapped(X)
        phi_bar = self._part.multiply_vjp(out_bar, phi, w)
        return self._back(by_rows(phi_bar), residuals).reshape(X.shape)

    def multiply_inducing(self, inducing, w):
        """Return g at inducing inputs, which are mapped already."""
        return self._part.multiply(inducing, w)


class OfPatches(Features):
    """Features of a weighted sum of a function over the windows of an image.

    f(x) = sum_r a_r g(x[r]), inducing variables g(Z): ``part`` are the features of g, and
    ``weights(X)`` returns a (R,).
    """

    def __init__(self, part, weights, geometry):
        self._part, self._weights, self._geometry = part, weights, geometry
        self.size = part.size

    def _windows(self, X):
        patches = kernels.gather_patches(by_rows(X), self._geometry)  # (N, R, columns)
        return patches.reshape(*X.shape[:-2], -1, patches.shape[-1])

    def multiply(self, X, w):
        g = self._part.multiply(self._windows(X), w)
        return (g.reshape(*g.shape[:2], X.shape[-2], -1) * self._weights(X)).sum(axis=-1)

    def multiply_vjp(self, out_bar, X, w):
        weights = self._weights(X)
        g_bar = (out_bar[..., None] * weights).reshape(*out_bar.shape[:2], -1)
        bar = self._part.multiply_vjp(np.ascontiguousarray(g_bar, like=X), self._windows(X), w)
        bar = bar.reshape(-1, len(weights), bar.shape[-1])
        return kernels.gather_patches_vjp(bar, self._geometry).reshape(X.shape)

    def multiply_inducing(self, inducing, w):
        """Return g at inducing patches."""
        return self._part.multiply(inducing, w)
