"""q(w) = N(mean, C C') of the weights of basis functions, with a chevron factor C.

C (m, m) is lower triangular: its first k columns are dense, and beyond them it has only a diagonal
(Evans and Nair 2018, section 2.1; Challis and Barber 2013). k = 0 is mean field, k = m a full
Gaussian. Memory and flops are O(m k).
"""

import numpy as np

from .. import kernels
from ..records import leaf, record
from ..records.typed import Array


@record
class ChevronWeights:
    """q(w) = N(mean, C C') over the weights of m basis functions.

    Parameters
    ----------
    mean : (m,)
    columns : (m, k), k from 0 to m
        First k columns of C. Entries above the diagonal of the first k rows are never read; the
        diagonal is positive.
    diagonal : (m - k,), positive
        Diagonal of C beyond them.

    Notes
    -----
    Source: Evans and Nair, "Quadruply stochastic Gaussian processes", section 2.

    Examples
    --------
    >>> q = fs.qsgp.ChevronWeights(mean=np.zeros(5), columns=np.eye(5, 2), diagonal=np.ones(3))
    >>> [path for path, _, _ in fs.records.leaves(q)]
    ['mean', 'columns', 'diagonal']
    """

    mean: Array = leaf()
    columns: Array = leaf("columns")
    diagonal: Array = leaf("positive")

    def check_size(self, m):
        """Raise ``ValueError`` unless the fields fit m basis functions."""
        mean = np.shape(self.mean)
        columns = np.shape(self.columns)
        diagonal = np.shape(self.diagonal)
        k = columns[-1] if len(columns) == 2 else -1
        if mean != (m,) or not 0 <= k <= m or columns != (m, k) or diagonal != (m - k,):
            raise ValueError(
                f"`posterior` has mean {mean}, columns {columns} and diagonal {diagonal}, but there"
                f" are {m} basis functions: use mean ({m},), columns ({m}, k) and diagonal ({m} -"
                f" k,) with k from 0 to {m} dense columns; one output"
            )
        return ()

    def to_rows(self):
        """Return ``(W (1 + k, m), v (m,))``: mean and dense columns as rows, and the squared rest.

        W is zero above the diagonal of C.
        """
        m, k = self.columns.shape
        W = np.empty((1 + k, m), self.mean.dtype, like=self.mean)
        W[0] = self.mean
        W[1:] = self.columns.T
        for r in range(1, k):
            W[1 + r, :r] = 0
        v = np.zeros(m, self.mean.dtype, like=self.mean)
        v[k:] = np.square(self.diagonal)
        return W, v

    def to_rows_vjp(self, W_bar, v_bar):
        """Return the cotangents as a record, from those of ``to_rows``. Overwrites ``W_bar``."""
        k = self.columns.shape[1]
        for r in range(1, k):
            W_bar[1 + r, :r] = 0
        columns_bar = np.ascontiguousarray(W_bar[1:].T, like=W_bar)
        return ChevronWeights(W_bar[0].copy(), columns_bar, 2 * self.diagonal * v_bar[k:])

    def log_det(self):
        """Return log det C, in float64."""
        return kernels.chevron_log_det(self.columns, self.diagonal)

    def log_det_vjp(self, bar):
        """Return cotangents of the diagonal of the columns (k,) and of the diagonal (m - k,)."""
        return bar / self.columns.diagonal(), bar / self.diagonal

    def variances(self):
        """Return the diagonal of C C' (m,)."""
        W, v = self.to_rows()
        return v + np.square(W[1:]).sum(axis=0)

    def marginal(self, rows):
        """Return q of some of the weights: the nearest chevron with min(k, n) dense columns.

        ``rows`` (n,) are increasing row numbers. 2 n k^2 flops.

        The remaining part of C, F = [rows of the columns, their diagonal], has covariance F F'. If
        the first k rows are all kept, F is a chevron. Else, with h = min(k, n), F1 its first h rows
        and the thin F1' = Q R,

            F1 Q = R' lower triangular,    F Q the first h columns of the Cholesky factor of F F',

        and the remainder of a row's variance, |F_i|^2 - |F_i Q|^2, goes to its diagonal. In a
        chevron the others are independent given the first h weights, so this one, whose
        conditionals are those of F F', minimises KL[N(0, F F') || chevron]. All variances are
        exact, and the covariances with the first h; the KL is zero if any chevron reaches zero.
        """
        k, n = self.columns.shape[1], len(rows)
        own = np.zeros_like(self.mean)
        own[k:] = self.diagonal
        mean, columns, own = self.mean[rows], self.columns[rows], own[rows]
        if np.array_equal(rows[:k], np.arange(k)):
            return ChevronWeights(mean, columns, own[k:])
        from scipy import linalg

        h = min(k, n)
        columns = np.where(rows[:, None] >= np.arange(k), columns, 0).astype(np.float64)
        first = np.concatenate([columns[:h].T, np.diag(own[:h].astype(np.float64))])
        Q, R = linalg.qr(first, mode="economic")
        signs = np.copysign(1.0, R.diagonal())  # those of a Cholesky factor are positive
        rest = columns[h:]
        of_rest = kernels.matmul(rest, np.ascontiguousarray(Q[:k] * signs))
        # negative only by rounding
        left = np.maximum(np.square(rest).sum(axis=1) - np.square(of_rest).sum(axis=1), 0)
        columns = np.concatenate([R.T * signs, of_rest])
        diagonal = np.sqrt(np.square(own[h:], dtype=np.float64) + left)
        return ChevronWeights(mean, *(array.astype(mean.dtype) for array in (columns, diagonal)))
