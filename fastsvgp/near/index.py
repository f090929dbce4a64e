"""Nearest rows of a data set: among those that come earlier in an order, or among all.

Both are a search among the first rows of an order: see ``ordered``. Categories have an index each;
where one has too few rows, the nearest of all others follow.
"""

import numpy as np
import scipy  # submodules load at first use

from .ordered import Ordered, groups_of


def earlier_rows(points, order, k, codes=None):
    """Return the k nearest rows (N, k) of each among those earlier in ``order``, nearest first.

    ``order`` holds the usable rows; others have the nearest of all of these. -1: there are fewer.
    Rows at one distance come by number. With ``codes`` (N,), rows of the same code come first, then
    others.
    """
    nearest = Nearest(points, order, codes)
    of = None if codes is None else codes[order]
    out = np.empty((len(points), k), np.int32)
    out[order] = nearest.search(points[order], np.arange(len(order)), k, of)
    rest = np.setdiff1d(np.arange(len(points)), order)
    out[rest] = nearest.query(points[rest], k, None if codes is None else codes[rest])
    return out


class Nearest:
    """The nearest of some rows, for new points.

    points : (N, d)
    usable : (n,) numbers of the rows
    codes : (N,), or None
    """

    def __init__(self, points, usable, codes=None):
        self._codes, self._rows = codes, Ordered(points[usable], usable)
        self._of_code = {}
        if codes is not None:
            for places in groups_of(codes[usable]):
                rows = usable[places]
                self._of_code[codes[rows[0]]] = places, Ordered(points[rows], rows)

    def query(self, points, k, codes=None):
        """Return the k nearest rows (n, k) of points (n, d), nearest first; -1: there are fewer.

        With ``codes`` (n,) rows of the same code come first.
        """
        return self.search(points, np.full(len(points), np.iinfo(np.int32).max), k, codes)

    def search(self, points, ends, k, codes=None):
        """Return the nearest (n, k) among the first ``ends`` (n,), ascending, of the rows."""
        ends = np.minimum(ends, len(self._rows))
        if codes is None or self._codes is None:
            return self._rows.search(points, ends, k)
        out = np.full((len(points), k), -1, np.int32)
        for at in groups_of(codes):
            if (code := codes[at[0]]) in self._of_code:
                places, rows = self._of_code[code]
                out[at] = rows.search(points[at], np.searchsorted(places, ends[at]), k)
        short = np.flatnonzero((out < 0).any(1))
        others = self._rows.search(points[short], ends[short], k)
        out[short] = _merge(out[short], others, self._codes, codes[short])
        return out


def _merge(same, others, codes, codes_of_rows):
    """Fill rows of the same code up with the nearest of other codes."""
    k = same.shape[1]
    foreign = np.where(
        (others >= 0) & (codes_of_rows[:, None] != codes[np.maximum(others, 0)]), others, -1
    )
    both = np.concatenate([same, foreign], axis=1)
    first = np.argsort(both < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(both, first, axis=1)


def place_rows(points):
    """Return the place (N,) of each row in the order of the leaves of a tree."""
    places = np.empty(len(points), np.int64)
    places[scipy.spatial.cKDTree(points).indices] = np.arange(len(points))
    return places
