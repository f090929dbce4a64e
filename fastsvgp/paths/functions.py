"""Contract of a set of functions that can be evaluated and differentiated at any points.

Points X are (N, D), the same for all S functions, or (S, n, D), own points of each. Values are
(S, P, n), the outputs in the middle. Cotangents come back in the shape of the points. A chain of
layers evaluates the functions of a layer at own points: the values of the functions below.
"""

from typing import Any, NamedTuple

import numpy as np

from ..covariances.features.points import by_rows


class Evaluation(NamedTuple):
    """Result of ``Functions.forward``: values (S, P, n), and residuals for ``pull``."""

    values: Any
    saved: Any


class Functions:
    """Base of S functions of P outputs: records of their weights.

    ``outputs`` are the axes of their outputs, () or (P,).
    """

    @property
    def num_functions(self):
        """Return S."""
        raise NotImplementedError

    def drawn(self):
        """Return the arrays of weights, a list."""
        raise NotImplementedError

    def check_points(self, X, name):
        """Raise ``ValueError`` unless points (n, D) fit."""
        raise NotImplementedError

    def forward(self, X):
        """Return the ``Evaluation`` at points X."""
        raise NotImplementedError

    def pull(self, bar, saved):
        """Return the cotangent of the points for that of the values (S, P, n).

        ``saved`` is kept.
        """
        raise NotImplementedError

    def take(self, index):
        """Return the functions of an index of the first axis: a slice, or whole numbers (K,)."""
        raise NotImplementedError


def taken(array, index):
    """Return the entries of an index, as ``Functions.take`` does."""
    index = index if isinstance(index, slice) else np.asarray(index, like=array)
    return np.ascontiguousarray(array[index], like=array)


def add_mean(values, mean, X):
    """Add a mean function, or None, to values (S, P, n) in place."""
    if mean is None:
        return
    m = mean(by_rows(X))
    values += m if X.ndim == 2 else m.reshape(-1, *X.shape[:2]).swapaxes(0, 1)


def pull_mean(bar, mean, X, outputs):
    """Return the cotangent of X through a mean function, for that of the values (S, P, n)."""
    bar = bar.sum(axis=0) if X.ndim == 2 else bar.swapaxes(0, 1).reshape(bar.shape[1], -1)
    bar = np.ascontiguousarray(bar, like=bar).reshape(*outputs, -1)
    return mean.vjp(bar, by_rows(X), ("X",))[1].reshape(X.shape)
