"""A covariance of some columns of the inputs.

Importing this module defines ``covariance.on(...)`` for all covariances.
"""

from typing import Any

import numpy as np

from .. import check
from ..records import record, static
from .base import ALL, Covariance, check_part, need_of, nested
from .features import Explicit, Mapped


@record
class On(Covariance):
    """k(x, x') = part(x[columns], x'[columns]). ``covariance.on(0, 2)`` makes one.

    Parameters
    ----------
    part : Covariance
        Covariance of these columns alone; can be a sum or product.
    columns : tuple of int
        Different columns of the inputs, counted from 0, in the order that ``part`` gets them.

    Examples
    --------
    >>> both = fs.RBF(1.0, np.ones(2)).on(0, 2) * fs.Matern32().on(1)
    >>> both.parts[1]
    On(part=Matern32(variance=1.0, lengthscales=1.0), columns=(1,))
    >>> both.matrix(np.zeros((4, 3))).shape
    (4, 4)
    """

    part: Any
    columns: tuple[int, ...] = static()

    def __post_init__(self):
        if isinstance(self.columns, list | tuple):
            whole = (int(c) if isinstance(c, np.integer) else c for c in self.columns)
            object.__setattr__(self, "columns", tuple(whole))
        nested(self, (self.part,))

    def _of(self, X):
        """Return the columns of X; None for None."""
        return None if X is None else np.stack([X[:, c] for c in self.columns], axis=1)

    def _back(self, bar, X):
        """Return the cotangent of X from that of its columns."""
        if bar is None:
            return None
        X_bar = np.zeros_like(X)
        for i, c in enumerate(self.columns):
            X_bar[:, c] = bar[:, i]
        return X_bar

    def features(self, num, seeds, columns):
        part = self.part.features(num, seeds, len(self.columns))
        if isinstance(part, Explicit):
            return Explicit(
                part.size,
                lambda X: part.matrix(self._of(X)),
                lambda Phi_bar, X: self._back(part.matrix_vjp(Phi_bar, self._of(X)), X),
            )
        return Mapped(part, lambda X: (self._of(X), X), self._back, width=len(self.columns))

    def _bar(self, part_bar):
        return None if part_bar is None else On(part_bar, columns=self.columns)

    def matrix(self, X1, X2=None):
        return self.part.matrix(self._of(X1), self._of(X2))

    def matrix_vjp(self, K_bar, K, X1, X2=None, need=ALL):
        own = need_of(need, "part")
        if not own:
            return None, None, None
        part_bar, X1_bar, X2_bar = self.part.matrix_vjp(K_bar, K, self._of(X1), self._of(X2), own)
        return self._bar(part_bar), self._back(X1_bar, X1), self._back(X2_bar, X2)

    def diag(self, X):
        return self.part.diag(self._of(X))

    def diag_vjp(self, k_bar, X, need=("covariance", "X")):
        own = need_of(need, "part")
        if not own:
            return None, None
        part_bar, X_bar = self.part.diag_vjp(k_bar, self._of(X), own)
        return self._bar(part_bar), self._back(X_bar, X)

    def code_columns(self, D):
        codes = self.part.code_columns(len(self.columns))
        return {self.columns[i]: levels for i, levels in codes.items()}

    def check_dim(self, D):
        columns = self.columns
        if type(columns) is not tuple or not columns:
            raise TypeError(
                "On: `columns` must be a tuple of column numbers such as (0, 2), got"
                f" {columns!r:.100}"
            )
        for column in columns:
            check.whole("columns of On", column, 0)
        for column in columns:
            if column >= D:
                raise ValueError(
                    f"On: `columns` names column {column}, but the inputs have D = {D} columns,"
                    f" 0 ... {D - 1}"
                )
            if columns.count(column) > 1:
                raise ValueError(
                    f"On: `columns` names column {column} twice, in {columns}; name each column"
                    " once"
                )
        check_part("On.part", self.part, len(columns))


def _on(self, *columns):
    """Return this covariance of some columns of the inputs: ``On(self, columns=columns)``.

    Parameters
    ----------
    *columns : int
        Different columns of the inputs, counted from 0.

    Examples
    --------
    >>> fs.RBF().on(1)
    On(part=RBF(variance=1.0, lengthscales=1.0), columns=(1,))
    """
    return On(self, columns=columns)


# Assigned here because ``base`` must not import this module
_on.__name__, _on.__qualname__ = "on", "Covariance.on"
Covariance.on = _on  # type: ignore[method-assign]
