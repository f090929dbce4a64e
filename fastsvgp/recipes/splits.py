"""Splits that mirror the use of a model: for new rows, for new groups, or for the future."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from .. import check


class Labels(NamedTuple):
    """Labels (N,) of rows: those of one label stay together. ``later``: they are ordered by time.

    ``column``: position of the groups or the times among the inputs, or None.
    """

    labels: Any
    later: bool
    column: Any


@dataclass(frozen=True)
class Split:
    """What will be new where a model is used, and so in the rows that judge it.

    Parameters
    ----------
    groups : int or (N,) array, optional
        Whole groups will be new, such as patients: a column of X, or labels of rows. A column of
        labels is then no input.
    time : int or (N,) array, optional
        The future will be new: a column of X, or times of rows.
    name : str
        Of the groups or of the time, in reports.

    Examples
    --------
    >>> patients = np.repeat(np.arange(20), 2)
    >>> found = fs.search(X, Y, seconds=1.0, split=fs.recipes.Split(groups=patients), rng=0)
    >>> found.holds.startswith("for new groups")
    True
    """

    groups: Any = None
    time: Any = None
    name: str = ""

    @property
    def what(self):
        """What the scores hold for."""
        if self.groups is not None:
            return f"new values of {self.name!r}" if self.name else "new groups"
        return "later times" if self.time is not None else "new rows"

    def labels(self, X):
        """Return ``Labels`` of the rows of X (N, D); None if rows are split at random."""
        if self.groups is not None and self.time is not None:
            raise ValueError("`split` has `groups` and `time`; give the one that is new in use")
        name = "groups" if self.time is None else "time"
        given = self.groups if self.time is None else self.time
        if given is None:
            return None
        values, column = np.asarray(given), None
        if not values.ndim:
            column = check.whole(name, given, 0)
            if column >= X.shape[1]:
                raise ValueError(
                    f"`{name}` is column {column}, but `X` has {X.shape[1]} columns, counted from 0"
                )
            values = X[:, column]
        if values.shape != (len(X),):
            raise ValueError(
                f"`{name}` must be ({len(X)},), one for each row of `X`, or the number of a column;"
                f" got shape {values.shape}"
            )
        if values.dtype.kind in "fmM" and not np.all(values == values):
            raise ValueError(f"`{name}` has missing values; fill them in, or leave out these rows")
        if values.dtype == object:
            values = values.astype(str)
        found, labels = np.unique(values, return_inverse=True)
        if len(found) < 2:
            raise ValueError(f"`{name}` is the same in all rows, so nothing can be held out")
        return Labels(labels.ravel(), name == "time", column)
