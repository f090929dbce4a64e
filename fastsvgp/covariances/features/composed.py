"""Features of sums, of products with finite ranks, and of functions of mapped inputs."""

import numpy as np

from ... import kernels
from .base import Features
from .points import as_rows, point_runs


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


class _InRuns(Features):
    """Features with arrays besides their results, which are made for runs of points.

    ``_numbers(X, w)`` is about their size for a point of all functions, with their cotangents.
    """

    def multiply(self, X, w):
        values = np.empty((*w.shape[:2], X.shape[-2]), X.dtype, like=X)
        for points in point_runs(X, self._numbers(X, w)):
            values[..., points] = self._values(_part(X, points), w)
        return values

    def multiply_vjp(self, out_bar, X, w):
        X_bar = np.empty_like(X)
        for points in point_runs(X, self._numbers(X, w)):
            bar = np.ascontiguousarray(out_bar[..., points], like=X)
            X_bar[..., points, :] = self._values_vjp(bar, _part(X, points), w)
        return X_bar


def _part(X, points):
    return np.ascontiguousarray(X[..., points, :], like=X)


class Modulated(_InRuns):
    """Features of a product with k(x, x') = sum_j c_j(x) c_j(x'): all products of both features.

        f(x) = sum_j c_j(x) g_j(x),    g_j_bar = c_j f_bar,    c_j_bar = sum_sp g_j f_bar

    with independent functions g_j of the other factor, which are outputs of its features: random
    ones share their cosines. ``known`` are the ``Explicit`` features c.
    """

    def __init__(self, base, known):
        self._base, self._known, self.size = base, known, base.size * known.size

    def _numbers(self, X, w):
        return 2 * self._known.size * w.shape[0] * (w.shape[1] + 1)

    def _own(self, X, w):
        """Return c at the points, to multiply values (S, P, size, n) with, and weights of g."""
        S, P, r = len(w), w.shape[1], self._known.size
        c = self._known.matrix(as_rows(X)).reshape(*X.shape[:-1], r).swapaxes(-1, -2)
        return c if X.ndim == 2 else c[:, None], w.reshape(S, P * r, -1)

    def _spread(self, g, w):
        """Split values (S, P size, n) into those of each c_j."""
        return g.reshape(*w.shape[:2], self._known.size, -1)

    def _values(self, X, w):
        c, own = self._own(X, w)
        return (self._spread(self._base.multiply(X, own), w) * c).sum(axis=2)

    def _values_vjp(self, bar, X, w):
        c, own = self._own(X, w)
        g_bar = (bar[:, :, None] * c).reshape(*own.shape[:2], -1)
        X_bar = self._base.multiply_vjp(g_bar, X, own)
        of_c = self._spread(self._base.multiply(X, own), w) * bar[:, :, None]
        c_bar = of_c.sum(axis=(0, 1) if X.ndim == 2 else 1).swapaxes(-1, -2)
        back = self._known.matrix_vjp(as_rows(np.ascontiguousarray(c_bar, like=X)), as_rows(X))
        return X_bar + back.reshape(X.shape)


class Mapped(_InRuns):
    """Features of a function of mapped inputs, g(phi(x)).

    ``forward(X)`` returns phi (n, F) and its pullback ``back(phi_bar)``, which together hold up to
    ``width`` numbers for a point.
    """

    def __init__(self, part, forward, width):
        self._part, self._forward, self._width, self.size = part, forward, width, part.size

    def _numbers(self, X, w):
        return 2 * self._width * (1 if X.ndim == 2 else len(X))

    def _map(self, X):
        phi, back = self._forward(as_rows(X))
        return phi.reshape(*X.shape[:-1], -1), back

    def _values(self, X, w):
        return self._part.multiply(self._map(X)[0], w)

    def _values_vjp(self, bar, X, w):
        phi, back = self._map(X)
        return back(as_rows(self._part.multiply_vjp(bar, phi, w))).reshape(X.shape)

    def multiply_inducing(self, inducing, w):
        """Return g at inducing inputs, which are mapped already."""
        return self._part.multiply(inducing, w)


class OfPatches(_InRuns):
    """Features of a weighted sum of a function over the windows of an image.

    f(x) = sum_r a_r g(x[r]), inducing variables g(Z): ``part`` are the features of g, and
    ``weights(X)`` returns a (R,).
    """

    def __init__(self, part, weights, geometry):
        self._part, self._weights, self._geometry = part, weights, geometry
        self.size = part.size

    def _numbers(self, X, w):
        H, W, C, h, width, stride = self._geometry
        R = ((H - h) // stride + 1) * ((W - width) // stride + 1)
        return 2 * R * (h * width * C * (1 if X.ndim == 2 else len(X)) + w.shape[0] * w.shape[1])

    def _windows(self, X):
        patches = kernels.gather_patches(as_rows(X), self._geometry)  # (N, R, columns)
        return patches.reshape(*X.shape[:-2], -1, patches.shape[-1])

    def _values(self, X, w):
        g = self._part.multiply(self._windows(X), w)
        return (g.reshape(*g.shape[:2], X.shape[-2], -1) * self._weights(X)).sum(axis=-1)

    def _values_vjp(self, bar, X, w):
        weights = self._weights(X)
        g_bar = (bar[..., None] * weights).reshape(*bar.shape[:2], -1)
        g_bar = self._part.multiply_vjp(np.ascontiguousarray(g_bar, like=X), self._windows(X), w)
        g_bar = g_bar.reshape(-1, len(weights), g_bar.shape[-1])
        return kernels.gather_patches_vjp(g_bar, self._geometry).reshape(X.shape)

    def multiply_inducing(self, inducing, w):
        """Return g at inducing patches."""
        return self._part.multiply(inducing, w)


class OfPoints(_InRuns):
    """Features of weighted sums of points, f(row) = sum_p w_p g(x_p); inducing variables g(Z).

    ``part`` are the features of g. ``split(X)`` returns x (..., n, P, D) and w (..., n, P), and
    ``join`` the cotangent of X from theirs: with f_bar, those of g(x_p) are w_p f_bar, and w_p_bar
    sums g(x_p) f_bar over the functions that share the points.
    """

    def __init__(self, part, split, join):
        self._part, self._split, self._join, self.size = part, split, join, part.size

    def _numbers(self, X, w):
        return 2 * X.shape[-1] * (w.shape[0] * w.shape[1] + (1 if X.ndim == 2 else len(X)))

    def _at_points(self, X):
        x, weights = self._split(X)
        return x.reshape(*X.shape[:-2], -1, x.shape[-1]), x.shape, weights

    def _values(self, X, w):
        flat, _, weights = self._at_points(X)
        g = self._part.multiply(flat, w).reshape(*w.shape[:2], *weights.shape[-2:])
        return (g * (weights if X.ndim == 2 else weights[:, None])).sum(axis=-1)

    def _values_vjp(self, bar, X, w):
        flat, shape, weights = self._at_points(X)
        g_bar = bar[..., None] * (weights if X.ndim == 2 else weights[:, None])
        g_bar = np.ascontiguousarray(g_bar.reshape(*bar.shape[:2], -1), like=X)
        x_bar = self._part.multiply_vjp(g_bar, flat, w).reshape(shape)
        g = self._part.multiply(flat, w).reshape(*bar.shape, -1)
        return self._join((x_bar, (g * bar[..., None]).sum(axis=(0, 1) if X.ndim == 2 else 1)))

    def multiply_inducing(self, inducing, w):
        """Return g at inducing points."""
        return self._part.multiply(inducing, w)
