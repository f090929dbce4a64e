"""q(w) = N(mean, C C') of the weights of basis functions, with a chevron factor C.

C (m, m) is lower triangular: its first k columns are dense, and beyond them it has a diagonal alone (Evans and Nair 2018, section
2.1; Challis and Barber 2013). k = 0 is mean field, k = m every Gaussian. In memory and flops it is O(m k).
"""

from typing import Any

import numpy as np

from ..records import leaf, record


@record
class ChevronWeights:
    """q(w) = N(mean, C C') over the weights of m basis functions.

    Parameters
    ----------
    mean : (m,)
    columns : (m, k), k from 0 to m
        The first k columns of C. What it holds above the diagonal of its first k rows is never read; the diagonal is positive.
    diagonal : (m - k,), positive
        The diagonal of C beyond them.

    Notes
    -----
    Source: Evans and Nair, "Quadruply stochastic Gaussian processes", section 2.
    """

    mean: Any = leaf()
    columns: Any = leaf("columns")
    diagonal: Any = leaf("positive")

    def check_size(self, m):
        """Raise ``ValueError`` unless the fields fit m basis functions."""
        mean, columns, diagonal = np.shape(self.mean), np.shape(self.columns), np.shape(self.diagonal)
        k = columns[-1] if len(columns) == 2 else -1
        if mean != (m,) or not 0 <= k <= m or columns != (m, k) or diagonal != (m - k,):
            raise ValueError(
                f"`posterior` has mean {mean}, columns {columns} and diagonal {diagonal}, but there are {m} basis functions: use "
                f"mean ({m},), columns ({m}, k) and diagonal ({m} - k,) with k from 0 to {m} dense columns; one output"
            )
        return ()

    def by_rows(self):
        """``(W (1 + k, m), v (m,))``: the mean and the dense columns as rows, zeros above the diagonal, and the squared rest."""
        m, k = self.columns.shape
        W = np.empty((1 + k, m), self.mean.dtype, like=self.mean)
        W[0] = self.mean
        W[1:] = self.columns.T
        for r in range(1, k):
            W[1 + r, :r] = 0
        v = np.zeros(m, self.mean.dtype, like=self.mean)
        v[k:] = np.square(self.diagonal)
        return W, v

    def by_rows_vjp(self, W_bar, v_bar):
        """The record of cotangents from those of ``by_rows``. Overwrites ``W_bar``."""
        k = self.columns.shape[1]
        for r in range(1, k):
            W_bar[1 + r, :r] = 0
        columns_bar = np.ascontiguousarray(W_bar[1:].T, like=W_bar)
        return ChevronWeights(W_bar[0].copy(), columns_bar, 2 * self.diagonal * v_bar[k:])

    def log_det(self):
        """log det C, in float64."""
        pivots = np.concatenate([self.columns.diagonal(), self.diagonal])
        return np.log(pivots, dtype=np.float64).sum()

    def log_det_vjp(self, bar):
        """``(cotangents of the diagonal of the columns (k,), of the diagonal (m - k,))``."""
        return bar / self.columns.diagonal(), bar / self.diagonal
