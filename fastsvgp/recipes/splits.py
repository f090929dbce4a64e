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


# --- signs of groups and of time in a table ---

LEVELS, ROWS, ORDERED = 10, 3, 100  # levels of a group, rows of each, rows of an order of time
EXPLAINS, SMOOTH = 0.5, 0.5  # part of the variance of y, and correlation of means of neighbours
MOST = 10**7  # numbers of a table that is looked at


class Sign(NamedTuple):
    """A sign that ``option`` fits: the position of a column, and a reason in words."""

    option: str
    column: int
    why: str


def signs(X, y):
    """Return signs that rows are not exchangeable: at most one ``Sign`` of groups, and of time.

    Groups are levels of several rows each, whose means explain most of y without following their
    order, or that two columns share. A time increases with the rows.

    X : (N, D); y : (N,) numbers or codes
    """
    N, D = X.shape
    if D < 2 or X.size > MOST or np.ndim(y) != 1:
        return []
    found, partitions = [], {}
    for column in range(D):
        values, first, levels, counts = np.unique(
            X[:, column], return_index=True, return_inverse=True, return_counts=True
        )
        if N >= ORDERED and 2 * len(values) > N and np.all(np.diff(X[:, column]) >= 0):
            found.append(Sign("time", column, "increases with the rows"))
        if not LEVELS <= len(values) <= N // ROWS or np.median(counts) < ROWS:
            continue
        levels = levels.ravel()
        number = f"has {len(values)} values of about {np.median(counts):.0f} rows each"
        share, follows = _explained(levels, counts, y)
        if share > EXPLAINS and follows < SMOOTH:
            why = f"{number}, whose means explain {100 * share:.0f} % of y"
            found.append(Sign("groups", column, why))
        partition = first[levels].tobytes()
        if partition in partitions:
            why = f"{number}, as column {partitions[partition]} has"
            found.append(Sign("groups", column, why))
        partitions.setdefault(partition, column)
    return list({one.option: one for one in found[::-1]}.values())


def _explained(levels, counts, y):
    """Return the share of the variance of y that means of levels explain, less what chance gives.

    Also the correlation of means of neighbouring levels.
    """
    means = np.bincount(levels, y) / counts
    inside = np.sum(np.square(y - means[levels])) / max(len(y) - len(counts), 1)
    total = np.var(y, ddof=1)
    if not total > 0 or not (np.ptp(means[1:]) > 0 and np.ptp(means[:-1]) > 0):
        return 0.0, 1.0
    return 1 - inside / total, float(np.corrcoef(means[1:], means[:-1])[0, 1])
