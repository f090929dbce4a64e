"""Covariances of codes: categories, and indices of correlated outputs.

Codes are whole numbers 0 ... C - 1 in columns of the inputs. Their gradient is 0.
"""

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Array, Number
from ..runtime import tuning
from .base import ALL, Covariance, Homogeneous, needs_fields, no_inputs
from .features import Explicit

FEATURE_COLUMNS = 3  # beyond them the products of all columns' features are too many


@record
class Categorical(Homogeneous):
    """k = variance exp(-sum_d [x_d != x'_d] / lengthscales_d): equal codes are more alike.

    All columns hold codes. Use ``Categorical().on(3)`` for one of several columns.

    Parameters
    ----------
    variance : ()
        Positive.
    lengthscales : () or (D,)
        Positive: one number for all columns, or one per column. If it is large, the category
        hardly matters.

    Examples
    --------
    >>> covariance = fs.covariances.Categorical(2.0, lengthscales=0.5)
    >>> covariance.matrix(np.array([[0.0], [1.0], [0.0]])).round(4)
    array([[2.    , 0.2707, 2.    ],
           [0.2707, 2.    , 0.2707],
           [2.    , 0.2707, 2.    ]])
    """

    variance: Number = leaf("positive", default=1.0)
    lengthscales: Number = leaf("positive", default=1.0)
    per_feature = ("lengthscales",)

    def _unequal(self, X1, X2):
        """Yield (N1, N2) truth values for each column."""
        X2 = X1 if X2 is None else X2
        for d in range(X1.shape[1]):
            yield X1[:, d, None] != X2[:, d]

    def matrix(self, X1, X2=None):
        shape = len(X1), len(X1 if X2 is None else X2)
        K = kernels.full(shape, self.variance, X1)
        factors = np.exp(-1 / (self.lengthscales + np.zeros_like(X1, shape=X1.shape[1])))
        for unequal, factor in zip(self._unequal(X1, X2), factors, strict=True):
            K *= np.where(unequal, factor, 1)
        return K

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        W = K_bar * (self.matrix(X1, X2) if K is None else K)

        def sum_lengthscales():
            sums = [(W * unequal).sum(dtype=np.float64) for unequal in self._unequal(X1, X2)]
            sums = np.stack(sums) if np.ndim(self.lengthscales) else sum(sums)
            return sums / np.square(self.lengthscales)

        bar = self.gradient(
            need,
            X1,
            variance=lambda: W.sum(dtype=np.float64) / self.variance,
            lengthscales=sum_lengthscales,
        )
        return bar, *no_inputs(need, X1=X1, X2=X2)

    def features(self, num, seeds, columns):
        """Exact features: with q = exp(-1 / lengthscale) of each column,

            k = variance prod_d (q_d + (1 - q_d) [x_d = x'_d]).

        A factor has the features sqrt(q_d), and sqrt(1 - q_d) in the place of the code; all
        products of those of the columns are the features of k.
        """
        if columns > FEATURE_COLUMNS:
            raise TypeError(
                f"Categorical: it has features of at most {FEATURE_COLUMNS} columns, got {columns};"
                " draw joint values with sample_f"
            )
        codes = tuning.current.feature_codes

        def matrix(X):
            if len(X) and (last := int(X.max())) >= codes:
                raise ValueError(
                    f"Categorical: its features hold codes 0 to {codes - 1}, got {last}; a Coregion"
                    " has as many codes as its fields"
                )
            return self._feature_matrix(X, codes)

        return Explicit((1 + codes) ** columns, matrix, lambda Phi_bar, X: np.zeros_like(X))

    def _feature_matrix(self, X, codes):
        """Return the products (N, (1 + codes)^D) of the features of each column."""
        each = -1 / (self.lengthscales + np.zeros_like(X, shape=X.shape[1]))
        shared, own = np.sqrt(np.exp(each)), np.sqrt(-np.expm1(each))
        Phi = kernels.full((len(X), 1), self.variance, X) ** 0.5
        for d in range(X.shape[1]):
            factor = np.zeros_like(X, shape=(len(X), 1 + codes))
            factor[:, 0] = shared[d]
            factor[:, 1:] = (X[:, d : d + 1] == np.arange(codes, like=X)) * own[d]
            Phi = (Phi[:, :, None] * factor[:, None]).reshape(len(X), -1)
        return Phi

    def code_columns(self, D):
        return dict.fromkeys(range(D))


@record
class Coregion(Covariance):
    """k = B[i, j] of the codes i, j in the only column: B = weights weights' + diag(own).

    ``Coregion(...).on(3) * fs.RBF().on(0, 1, 2)`` is a model of coregionalised outputs whose number
    is in column 3.

    Parameters
    ----------
    weights : (C, R)
        Loadings of C codes on R shared functions.
    own : (C,)
        Positive: the variance of each code's own function.

    Examples
    --------
    >>> outputs = fs.covariances.Coregion(np.array([[1.0], [0.5]]), own=np.array([0.1, 0.2]))
    >>> outputs.matrix(np.array([[0.0], [1.0], [0.0]]))
    array([[1.1 , 0.5 , 1.1 ],
           [0.5 , 0.45, 0.5 ],
           [1.1 , 0.5 , 1.1 ]])
    """

    weights: Array = leaf()
    own: Array = leaf("positive")

    def features(self, num, seeds, columns):
        # the rows of (W, diag(sqrt(own)))
        C = len(self.own)
        roots = np.zeros((C, C), self.own.dtype, like=self.own)
        roots.reshape(-1)[:: C + 1] = np.sqrt(self.own)
        table = np.concatenate([self.weights, roots], axis=1)
        return Explicit(
            table.shape[1],
            lambda X: np.take(table, _codes(X), 0),
            lambda Phi_bar, X: np.zeros_like(X),
        )

    def _table(self):
        """Return B, (C, C), exactly symmetric."""
        B = kernels.inner(self.weights, None, 1.0)
        B.reshape(-1)[:: len(B) + 1] += self.own
        return B

    def matrix(self, X1, X2=None):
        rows = _codes(X1)
        return np.take(np.take(self._table(), rows, 0), rows if X2 is None else _codes(X2), 1)

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        covariance_bar = None
        if needs_fields(need):
            first = self._members(X1)
            second = first if X2 is None else self._members(X2)
            K_bar = K_bar.astype(np.float64, copy=False)
            B_bar = kernels.matmul(first, kernels.matmul(K_bar, second, transpose_b=True))
            covariance_bar = self._table_vjp(B_bar, need, X1)
        return covariance_bar, *no_inputs(need, X1=X1, X2=X2)

    def _members(self, X):
        """Return (C, N) ones where a row has the code, in float64: sums are long."""
        codes = np.arange(len(self.own), like=X)[:, None]
        return (codes == _codes(X)).astype(np.float64)

    def _table_vjp(self, B_bar, need, like):
        return self.gradient(
            need,
            like,
            weights=lambda: kernels.matmul(B_bar + B_bar.T, self.weights.astype(np.float64)),
            own=lambda: B_bar.diagonal().copy(),
        )

    def diag(self, X):
        return np.take(self._table().diagonal().copy(), _codes(X))

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        covariance_bar = None
        if needs_fields(need):
            sums = (self._members(X) * k_bar).sum(1)
            covariance_bar = self._table_vjp(np.diag(sums), need, X)
        return covariance_bar, *no_inputs(need, X=X)

    def code_columns(self, D):
        return {0: len(self.own)}

    def check_dim(self, D):
        weights, own = np.shape(self.weights), np.shape(self.own)
        if len(weights) != 2 or len(own) != 1 or weights[0] != own[0]:
            raise ValueError(
                "Coregion: `weights` must have shape (C, R) and `own` (C,), one entry per code, got"
                f" {weights} and {own}"
            )
        if D != 1:
            raise ValueError(
                f"Coregion: it takes the one column of codes, but the inputs have D = {D} columns;"
                " name the column: Coregion(...).on(column)"
            )


def _codes(X):
    """Return the only column as whole numbers."""
    return X[:, 0].astype(np.int64)
