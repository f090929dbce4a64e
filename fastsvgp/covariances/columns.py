"""A covariance of some columns of the inputs.

Importing this module defines ``covariance.on(...)`` for all covariances.
"""

from typing import Any

import numpy as np

from .. import check
from ..records import record, static
from .base import Covariance, need_of
from .checks import check_part, set_depth
from .mapped import OfMap


@record
class On(OfMap):
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
        set_depth(self, (self.part,))

    def map(self, X, origin):
        def back(U_bar, need):
            X_bar = np.zeros_like(X)
            for i, c in enumerate(self.columns):
                X_bar[:, c] = U_bar[:, i]
            return None, X_bar

        return np.stack([X[:, c] for c in self.columns], axis=1), back

    def sizes(self, columns):
        return len(self.columns), len(self.columns)

    def code_columns(self, D):
        codes = self.part.code_columns(len(self.columns))
        return {self.columns[i]: levels for i, levels in codes.items()}

    def spectral_terms(self, D):
        terms = self.part.spectral_terms(len(self.columns))
        return [(tuple(self.columns[c] for c in at), *term) for at, *term in terms]

    def _own_frequencies(self, squares):
        """Return which rows depend on no other columns, and their squares in these."""
        others = np.delete(squares, self.columns, axis=1)
        own = np.isnan(others).all(axis=1)
        return own, squares[np.ix_(own, self.columns)]

    def log_spectral_density(self, squares):
        own, of_part = self._own_frequencies(squares)
        found = np.full(len(squares), -np.inf)
        found[own] = self.part.log_spectral_density(of_part)
        return found

    def log_spectral_density_vjp(self, log_bar, squares, need=("covariance",)):
        own, of_part = self._own_frequencies(squares)
        inner = need_of(need, "part")
        bar = self.part.log_spectral_density_vjp(log_bar[own], of_part, inner) if inner else None
        return self.gradient(need, squares, part=bar)

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
