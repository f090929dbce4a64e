"""Functions of inner products: polynomials, and the covariances of wide networks.

They are entrywise functions of s = sum_d weights_d x_d x'_d + offset and, for ``ArcCosine``, of
a = s(x, x) and b = s(x', x'). The cotangents of s, a and b go back through the weighted inner
products.
"""

from dataclasses import dataclass

import numpy as np

from .. import kernels
from ..records import leaf, record, static
from ..records.typed import Number
from .base import ALL, Covariance, needs, tiles
from .features import Explicit


def _power(s, n):
    """Return s to the power n >= 0 by repeated multiplication: faster than a power of floats."""
    if n == 0:
        return np.ones_like(s)
    result = None
    while True:
        if n % 2:
            result = s if result is None else result * s
        n //= 2
        if n == 0:
            return result.copy() if result is s else result
        s = s * s


def _diagonal(tile, K, X2):
    """Return the places of the diagonal in a tile of K(X, X); None if X2 is given."""
    if X2 is not None:
        return None
    rows, columns = (range(n)[part] for part, n in zip(tile, K.shape, strict=True))
    both = range(max(rows.start, columns.start), min(rows.stop, columns.stop))
    if not both:
        return None
    number = np.arange(len(both), like=K)
    return number + (both.start - rows.start), number + (both.start - columns.start)


@dataclass(frozen=True, eq=False, repr=False)
class OfProducts(Covariance):
    """Base of both: cotangents of s, a and b go back to the inputs, the weights and the offset."""

    per_feature = ("weights",)

    def _squares(self, X):
        return (self.weights * X * X).sum(1) + self.offset

    def _back(self, s_bar, sides, X1, X2, need, **own):
        """Return the cotangents from that of s, and pairs (cotangent of the square, X) of sides."""
        names = [name for name in ("X1", "X2") if name in need]
        names += ["weights"] * needs(need, "weights")
        *bars, weights_bar = kernels.inner_vjp(s_bar, X1, X2, self.weights, need=names)
        for X_bar, (bar, X) in zip(bars, sides, strict=False):
            if X_bar is not None:
                X_bar += 2 * self.weights * X * bar[:, None]
        return self._fields(need, X1, weights_bar, s_bar, sides, own), *bars

    def _fields(self, need, like, weights_bar, s_bar, sides, own):
        axis = 0 if np.ndim(self.weights) else None

        def sum_weights():
            return weights_bar + sum(
                (bar[:, None] * X * X).sum(axis, dtype=np.float64) for bar, X in sides
            )

        def sum_offset():
            squares = sum(bar.sum(dtype=np.float64) for bar, _ in sides)
            return s_bar.sum(dtype=np.float64) + squares

        return self.gradient(need, like, weights=sum_weights, offset=sum_offset, **own)

    def diag(self, X):
        return self._diagonal_terms(self._squares(X))[0]

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        _, slope, own = self._diagonal_terms(self._squares(X))
        q_bar = k_bar * slope
        own = {name: (k_bar * unit).sum(dtype=np.float64) for name, unit in own.items()}
        bar = self._fields(need, X, 0.0, np.zeros((), like=X), [(q_bar, X)], own)
        return bar, 2 * self.weights * X * q_bar[:, None] if "X" in need else None


@record
class Polynomial(OfProducts):
    """k = (sum_d weights_d x_d x'_d + offset)^degree: polynomials of this degree.

    Parameters
    ----------
    weights : () or (D,)
        Positive: one number for all columns, or one per column.
    offset : ()
        Positive.
    degree : int
        At least 1.

    Examples
    --------
    >>> fs.covariances.Polynomial(1.0, 0.5, degree=2).matrix(np.array([[1.0], [2.0]]))
    array([[ 2.25,  6.25],
           [ 6.25, 20.25]])
    """

    weights: Number = leaf("positive", default=1.0)
    offset: Number = leaf("positive", default=1.0)
    degree: int = static(default=3)

    def features(self, num, seeds, columns):
        if self.degree != 1:
            return super().features(num, seeds, columns)
        scale, root = np.sqrt(self.weights), np.sqrt(self.offset)
        return Explicit(  # Phi = (x sqrt(weights), sqrt(offset))
            columns + 1,
            lambda X: np.concatenate([X * scale, kernels.full((len(X), 1), root, X)], axis=1),
            lambda Phi_bar, X: Phi_bar[:, :-1] * scale,
        )

    def matrix(self, X1, X2=None):
        K = kernels.inner(X1, X2, self.weights)
        for tile in tiles(K.shape, K):
            K[tile] = _power(K[tile] + self.offset, self.degree)
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        s_bar = kernels.inner(X1, X2, self.weights)
        for tile in tiles(s_bar.shape, s_bar):
            slope = _power(s_bar[tile] + self.offset, self.degree - 1)
            slope *= self.degree
            np.multiply(slope, K_bar[tile], out=s_bar[tile])
        return self._back(s_bar, (), X1, X2, need)

    def _diagonal_terms(self, q):
        """Return k(x, x), its derivative in s(x, x), and derivatives in other fields."""
        return _power(q, self.degree), self.degree * _power(q, self.degree - 1), {}

    def check_dim(self, D):
        super().check_dim(D)
        if isinstance(self.degree, bool) or not isinstance(self.degree, int) or self.degree < 1:
            raise ValueError(
                "Polynomial: `degree` must be a whole number of at least 1, got"
                f" {self.degree!r:.80}"
            )


@record
class ArcCosine(OfProducts):
    """k = variance / pi (a a')^order J(t): functions of a wide network of one hidden layer.

    With a^2 = sum_d weights_d x_d^2 + offset, a' that of x', t the angle of x and x', c = cos t:

        order 1 (rectified linear units)    J = sin t + (pi - t) c
        order 2 (their squares)             J = 3 sin t c + (pi - t) (1 + 2 c^2)

    Parameters
    ----------
    variance : ()
        Positive.
    weights : () or (D,)
        Positive: one number for all columns, or one per column.
    offset : ()
        Positive.
    order : {1, 2}
        Order 0 has no derivative at x = x'.

    Notes
    -----
    Source: Cho & Saul, "Kernel methods for deep learning" (2009). dJ/dc = pi - t for order 1, and
    4 (sin t + (pi - t) c) for order 2.

    Examples
    --------
    >>> fs.covariances.ArcCosine(offset=0.5).matrix(np.array([[1.0], [-1.0]])).round(4)
    array([[1.5   , 0.2542],
           [0.2542, 1.5   ]])
    """

    variance: Number = leaf("positive", default=1.0)
    weights: Number = leaf("positive", default=1.0)
    offset: Number = leaf("positive", default=1.0)
    order: int = static(default=1)

    def _lengths(self, X1, X2):
        a = np.sqrt(self._squares(X1))
        return a, a if X2 is None else np.sqrt(self._squares(X2))

    def _angle(self, s, lengths, diagonal):
        """Return ``(c, sin t, pi - t)`` of a tile of s; at ``diagonal`` c is 1."""
        c = s + self.offset
        c /= lengths
        np.clip(c, -1, 1, out=c)
        if diagonal is not None:
            c[diagonal] = 1
        sine = 1 - c
        sine *= 1 + c  # 1 - c^2 would not round as the arc cosine does
        np.sqrt(sine, out=sine)
        rest = np.arccos(c)
        np.subtract(np.pi, rest, out=rest)
        return c, sine, rest

    def _J(self, c, sine, rest):
        if self.order == 1:
            return rest * c + sine
        return (2 * c * c + 1) * rest + 3 * (sine * c)

    def matrix(self, X1, X2=None):
        K, (first, second) = kernels.inner(X1, X2, self.weights), self._lengths(X1, X2)
        for tile in tiles(K.shape, K):
            lengths = first[tile[0], None] * second[tile[1]]
            J = self._J(*self._angle(K[tile], lengths, _diagonal(tile, K, X2)))
            K[tile] = J * (self.variance / np.pi) * lengths**self.order
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        s_bar, (first, second) = kernels.inner(X1, X2, self.weights), self._lengths(X1, X2)
        first_bar, second_bar = np.zeros_like(first), np.zeros_like(second)
        total = np.zeros((), like=X1)
        for tile in tiles(s_bar.shape, s_bar):
            rows, columns = tile
            lengths = first[rows, None] * second[columns]
            c, sine, rest = self._angle(s_bar[tile], lengths, _diagonal(tile, s_bar, X2))
            scale = K_bar[tile] * (self.variance / np.pi)
            if K is None:
                weighted = self._J(c, sine, rest) * scale * lengths**self.order
            else:
                weighted = K_bar[tile] * K[tile]
            total = total + weighted.sum(dtype=np.float64)
            # the slope of J in c, and d log K / d log |x| = order - s s_bar / (K_bar K)
            scale *= rest if self.order == 1 else 4 * (rest * c + sine) * lengths
            s_bar[tile] = scale
            weighted = self.order * weighted - scale * c * lengths
            first_bar[rows] += weighted.sum(1)
            if X2 is not None:
                second_bar[columns] += weighted.sum(0)
        # K_bar is symmetric without X2: both sides are one
        sides = [(first_bar / (1 if X2 is None else 2) / first**2, X1)]
        if X2 is not None:
            sides.append((second_bar / (2 * second**2), X2))
        return self._back(s_bar, sides, X1, X2, need, variance=total / self.variance)

    def _diagonal_terms(self, q):
        unit, slope = (q, 1) if self.order == 1 else (3 * q * q, 6 * q)
        return self.variance * unit, self.variance * slope, {"variance": unit}

    def check_dim(self, D):
        super().check_dim(D)
        if self.order not in (1, 2):
            raise ValueError(f"ArcCosine: `order` must be 1 or 2, got {self.order!r:.80}")
