"""Nearest rows of a data set: among those that come earlier in an order, or among all.

Trees are SciPy's. The earlier rows of a row are found in trees of prefixes of the order, of
doubling length: half of a tree is earlier than its later half, so twice as many neighbours as
wanted suffice for most rows.
"""

import numpy as np
import scipy  # submodules load at first use

BLOCK = 4096  # rows of one query


def earlier_rows(points, order, k, codes=None):
    """Return the k nearest rows (N, k) of each among those earlier in ``order``, nearest first.

    ``order`` holds the usable rows; others have the nearest of all of these. -1: there are fewer.
    With ``codes`` (N,), rows of the same code come first, then others.
    """
    out = np.full((len(points), k), -1, np.int32)
    if k:
        _earlier(points, order, k, out)
        if codes is not None:
            same = np.full_like(out, -1)
            for code in np.unique(codes):
                _earlier(points, order[codes[order] == code], k, same)
            out = _merge(same, out, codes, codes)
        rest = np.setdiff1d(np.arange(len(points)), order)
        if rest.size:
            of = None if codes is None else codes[rest]
            out[rest] = Nearest(points, order, codes).query(points[rest], k, of)
    return out


def _earlier(points, order, k, out):
    """Write the nearest earlier rows of the rows in ``order`` to ``out``."""
    start = 0
    while start < len(order):
        stop = min(len(order), max(2 * start, 4 * k))
        tree = scipy.spatial.cKDTree(points[order[:stop]])
        for first in range(start, stop, BLOCK):
            ask = np.arange(first, min(first + BLOCK, stop))
            want = min(stop, 2 * k + 8)
            while len(ask):
                found = _query(tree, points[order[ask]], want)
                earlier = found < ask[:, None]
                rank = np.cumsum(earlier, axis=1)
                done = (rank[:, -1] >= np.minimum(k, ask)) | (want >= stop)
                row, column = np.nonzero(earlier & (rank <= k) & done[:, None])
                out[order[ask[row]], rank[row, column] - 1] = order[found[row, column]]
                ask, want = ask[~done], min(stop, 3 * want)
        start = stop


def _query(tree, points, k):
    return tree.query(points, k)[1].reshape(len(points), k)


def _merge(same, others, codes, codes_of_rows):
    """Fill rows of the same code up with the nearest of other codes."""
    k = same.shape[1]
    foreign = np.where(
        (others >= 0) & (codes_of_rows[:, None] != codes[np.maximum(others, 0)]), others, -1
    )
    both = np.concatenate([same, foreign], axis=1)
    first = np.argsort(both < 0, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(both, first, axis=1)


class Nearest:
    """The nearest of some rows, for new points.

    points : (N, d)
    usable : (n,) numbers of the rows
    codes : (N,), or None
    """

    def __init__(self, points, usable, codes=None):
        self._codes = codes
        groups = {None: usable}
        if codes is not None:
            groups |= {code: usable[codes[usable] == code] for code in np.unique(codes[usable])}
        self._trees = {
            code: (scipy.spatial.cKDTree(points[rows]), rows) for code, rows in groups.items()
        }

    def query(self, points, k, codes=None):
        """Return the k nearest rows (n, k) of points (n, d), nearest first; -1: there are fewer.

        With ``codes`` (n,) rows of the same code come first.
        """
        out = self._of(None, points, k)
        if codes is None or self._codes is None:
            return out
        same = np.full_like(out, -1)
        for code in np.unique(codes):
            if code in self._trees:
                same[codes == code] = self._of(code, points[codes == code], k)
        return _merge(same, out, self._codes, codes)

    def _of(self, code, points, k):
        tree, rows = self._trees[code]
        out = np.full((len(points), k), -1, np.int32)
        count = min(k, len(rows))
        for first in range(0, len(points) if count else 0, BLOCK):
            at = slice(first, first + BLOCK)
            out[at, :count] = rows[_query(tree, points[at], count)]
        return out


def place_rows(points):
    """Return the place (N,) of each row in the order of the leaves of a tree."""
    places = np.empty(len(points), np.int64)
    places[scipy.spatial.cKDTree(points).indices] = np.arange(len(points))
    return places
