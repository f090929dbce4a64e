"""Functions drawn from the weights of a fixed basis: exact draws, and their gradients.

f_s(x) = mean(x) + sum_j phi_j(x) d_j v_sj with v ~ q(v), so no random features are needed. A column
of x moves phi by its cosines: ``HilbertBasis.features`` with ``slope``.
"""

import numpy as np

from .. import kernels
from ..hilbert.basis import DENSE_NUMBERS, HilbertBasis
from ..means import Mean
from ..records import data, leaf, plus, record, replace, static
from ..records.typed import Array
from .layer_paths import add_mean


@record
class SinePaths:
    """Functions in a fixed basis.

    Parameters
    ----------
    basis : HilbertBasis
    weights : (S, P, m)
        Of the functions of the basis.
    mean : Mean, optional
    outputs : () or (P,)
        Axes of the outputs. Static.
    """

    basis: HilbertBasis = data()
    weights: Array = leaf()
    mean: Mean | None = None
    outputs: tuple = static(default=())

    @property
    def num_functions(self):
        """S."""
        return len(self.weights)

    def weight_arrays(self):
        """Return the arrays of weights, a list."""
        return [self.weights]

    def check_points(self, X, name):
        """Raise ``ValueError`` unless points (n, D) lie in the box."""
        self.basis.angles(X, name)

    def _parts(self, X):
        """Yield (functions, points, angles, weights (s, P, m)) of runs of points."""
        size = max(64, DENSE_NUMBERS // self.basis.size)
        for s in [slice(None)] if X.ndim == 2 else [slice(i, i + 1) for i in range(len(X))]:
            rows = X if X.ndim == 2 else X[s.start]
            for start in range(0, len(rows), size):
                at = slice(start, start + size)
                yield s, at, self.basis.angles(rows[at]), np.asarray(self.weights[s], np.float64)

    def forward(self, X):
        S, P, m = self.weights.shape
        values = np.empty((S, P, X.shape[-2]), X.dtype)
        for s, at, angles, w in self._parts(X):
            products = kernels.matmul(w.reshape(-1, m), self.basis.features(angles))
            values[s, :, at] = products.reshape(*w.shape[:2], -1)
        of_mean = add_mean(values, self.mean, X, self.outputs)

        def back(bar):
            X_bar = np.empty_like(X)
            for s, at, angles, w in self._parts(X):
                own = np.asarray(bar[s, :, at], np.float64).reshape(-1, angles.shape[1])
                of_features = kernels.matmul(w.reshape(-1, m), own, transpose_a=True)
                for column in range(self.basis.D):
                    slopes = self.basis.features(angles, slope=column)
                    there = X_bar if X.ndim == 2 else X_bar[s.start]
                    there[at, column] = (of_features * slopes).sum(axis=0)
            return plus(of_mean(bar), X_bar)

        return values, back

    def take(self, index):
        """Return the functions of an index of the first axis: a slice, or whole numbers (K,)."""
        return replace(self, weights=np.ascontiguousarray(self.weights[index]))
