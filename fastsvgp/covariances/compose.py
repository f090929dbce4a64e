"""Sums and products of covariances. Importing this module gives all covariances ``+`` and ``*``."""

from functools import reduce
from operator import iadd, imul

import numpy as np

from ..records import record
from .base import ALL, Covariance


class _Composite(Covariance):
    """Entrywise combination of the matrices of ``parts``: all of them are new arrays, so the first one collects the result."""

    def __post_init__(self):
        object.__setattr__(self, "parts", tuple(self.parts))  # from a list too

    def matrix(self, X1, X2=None):
        return self._combine([part.matrix(X1, X2) for part in self.parts])

    def diag(self, X):
        return self._combine([part.diag(X) for part in self.parts])

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        pairs = zip(self.parts, self._cotangents(K_bar, lambda part: part.matrix(X1, X2)), strict=True)
        return self._gather([part.matrix_vjp(part_bar, own, X1, X2, need) for part, (part_bar, own) in pairs])

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        pairs = zip(self.parts, self._cotangents(k_bar, lambda part: part.diag(X)), strict=True)
        return self._gather([part.diag_vjp(part_bar, X, need) for part, (part_bar, _) in pairs])

    def _gather(self, results):
        """The record of the parts' cotangents, and the sums of those of the inputs."""
        part_bars, *input_bars = zip(*results, strict=True)
        return (
            None if part_bars[0] is None else type(self)(part_bars),
            *(None if bars[0] is None else reduce(np.add, bars) for bars in input_bars),
        )

    def check_dim(self, D):
        if not self.parts:
            raise ValueError(f"{type(self).__name__}: `parts` is empty; give at least one covariance")
        for i, part in enumerate(self.parts):
            try:
                part.check_dim(D)
            except ValueError as error:
                raise ValueError(f"{type(self).__name__}.parts.{i}: {error}") from None


@record
class Sum(_Composite):
    """k = sum of the parts: a sum of independent functions. ``a + b`` makes one. parts : tuple of covariances."""

    parts: tuple

    def _combine(self, matrices):
        return reduce(iadd, matrices)

    def _cotangents(self, K_bar, matrix):
        """Each part with the cotangent as it is; its own matrix, not kept by the sum, is left to its reverse rule."""
        return ((K_bar, None) for _ in self.parts)


@record
class Product(_Composite):
    """k = product of the parts. ``a * b`` makes one. parts : tuple of covariances."""

    parts: tuple

    def _combine(self, matrices):
        return reduce(imul, matrices)

    def _cotangents(self, K_bar, matrix):
        """Each part with the cotangent times the other parts' matrices: no quotient, because a part may be 0."""
        matrices = [matrix(part) for part in self.parts]
        for i, own in enumerate(matrices):
            yield reduce(np.multiply, matrices[:i] + matrices[i + 1 :], K_bar), own


def _joined(kind):
    def operator(self, other):
        if not isinstance(other, Covariance):
            return NotImplemented
        left, right = (x.parts if type(x) is kind else (x,) for x in (self, other))
        return kind(left + right)

    return operator


# here, where the classes they make are known: base must not import this module
Covariance.__add__ = _joined(Sum)
Covariance.__mul__ = _joined(Product)
