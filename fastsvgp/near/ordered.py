"""The nearest among the first rows of an order, by the method that suits their number and columns.

- Up to some number of rows they are scanned: see ``scan``. This is exact.
- Beyond it, with few columns, SciPy's trees find more rows of a prefix of the order than are
  wanted, and rows that are not early enough are passed over. This is exact.
- With many columns a tree reads most of its rows. Rows belong to the nearest of some centres, and
  the queries of a cell are compared with the rows of the cells around it. This is approximate:
  where neighbours lie in cells further away, others take their place.

Prefixes grow by ``GROWTH``, so most rows of a prefix are early enough. A result depends on the
query and the rows, not on the other queries.
"""

import numpy as np
import scipy  # submodules load at first use

from ..runtime.num_threads import get_num_threads
from .scan import Table, first_of

COLUMNS = 10  # most of a tree
SCANNED = 1 << 12  # rows, times columns, up to which a scan is no slower than a tree
MANY_SCANNED = 1 << 17  # rows, with more columns
GROWTH = 1.3  # of prefixes
BLOCK = 4096  # queries of a tree at a time
CELL = 400  # rows of a cell, about
LLOYD = 2
SHARED = 1 << 14  # rows that the queries of a cell are compared with


class Ordered:
    """Points (n, d) of rows in an order, with the rows' numbers (n,), which break ties."""

    def __init__(self, points, numbers):
        self._points, self._numbers, self._whole = points, numbers, None

    def __len__(self):
        return len(self._numbers)

    def search(self, asked, ends, k):
        """Return the nearest (m, k) of points (m, d), nearest first; -1 where there are fewer.

        Those of query i are among the first ``ends[i]`` rows; ``ends`` ascend.
        """
        out = np.full((len(asked), k), -1, np.int32)
        n, columns = self._points.shape
        if not columns:  # all distances are 0
            out[:, : min(k, n)] = self._numbers[:k]
            out[np.arange(k) >= ends[:, None]] = -1
        few = SCANNED * columns if columns <= COLUMNS else MANY_SCANNED
        start, stop = 0, min(n, few)
        while k and start < stop:
            at = slice(*np.searchsorted(ends, [start, stop], "right"))
            if at.start < at.stop:
                self._prefix(stop, few).search(asked[at], ends[at], k, out[at])
            start, stop = stop, min(n, int(GROWTH * stop))
        return out

    def _prefix(self, stop, few):
        """Return what searches the first ``stop`` rows; that of all rows is kept."""
        if stop == len(self._points) and self._whole is not None:
            return self._whole
        tree = Tree if self._points.shape[1] <= COLUMNS else Cells
        found = (Table if stop <= few else tree)(self._points[:stop], self._numbers[:stop])
        if stop == len(self._points):
            self._whole = found
        return found


class Tree:
    """A tree of points (n, d), d > 0. It breaks ties of more than ``4 k + 64`` rows by itself."""

    def __init__(self, points, numbers):
        leaf = min(max(8 * points.shape[1] - 8, 16), 64)
        self._tree, self._numbers = scipy.spatial.cKDTree(points, leafsize=leaf), numbers

    def search(self, asked, ends, k, out):
        """Write the nearest to ``out`` (m, k): of query i, among the first ``ends[i]`` rows."""
        near = scipy.spatial.cKDTree(asked).indices  # neighbours read the same leaves, in the cache
        for at in range(0, len(near), BLOCK):
            rows = near[at : at + BLOCK]
            n, share = self._tree.n, ends[rows].min() / self._tree.n
            want = int((k + 2 * np.sqrt(k * (1 - share))) / share) + 1
            while len(rows):
                want = min(n, want)
                done = self._few(asked, ends, k, out, rows, want)
                rows, want = rows[~done], 2 * want

    def _few(self, asked, ends, k, out, rows, want):
        """Write the nearest of these queries, from ``want`` rows; return which queries are done."""
        distances, found = self._tree.query(asked[rows], want, workers=get_num_threads())
        distances, found = (array.reshape(len(rows), want) for array in (distances, found))
        early = found < ends[rows, None]
        rank = np.cumsum(early, axis=1)
        last = np.take_along_axis(distances, (rank < k).sum(1, keepdims=True).clip(max=want - 1), 1)
        enough = (rank[:, -1] >= k) & ((last[:, 0] < distances[:, -1]) | (want > 4 * k + 64))
        done = enough | (want == self._tree.n)
        tied = done & (distances[:, 1:] == distances[:, :-1]).any(1)
        query, column = np.nonzero(early & (rank <= k) & (done & ~tied)[:, None])
        out[rows[query], rank[query, column] - 1] = self._numbers[found[query, column]]
        if tied.any():
            early, found = early[tied], found[tied]
            best = np.full((len(found), k), -1, np.int32)
            query = np.nonzero(early)[0]
            first_of(query, distances[tied][early], self._numbers[found[early]], best)
            out[rows[tied]] = best
        return done


class Cells:
    """Cells of points (n, d): rows of the same nearest centre, after ``LLOYD`` steps of k-means."""

    def __init__(self, points, numbers):
        count = max(1, len(points) // CELL)
        rows = np.linspace(0, len(points) - 1, count).astype(np.int64)
        self._middles, self._table = points[rows], Table(points, numbers)
        for _ in range(LLOYD):
            self._centres = Table(self._middles, np.arange(len(self._middles)))
            self._members = groups_of(self._nearest_cells(points, 1)[:, 0])
            self._middles = np.stack([points[rows].mean(0) for rows in self._members])
        self._centres = Table(self._middles, np.arange(len(self._middles)))
        self._sizes = np.array([len(rows) for rows in self._members])

    def _nearest_cells(self, points, k):
        count = len(self._centres.points)
        out = np.empty((len(points), min(k, count)), np.int32)
        self._centres.search(points, np.full(len(points), count), out.shape[1], out)
        return out

    def search(self, asked, ends, k, out):
        """Write the nearest to ``out`` (m, k): of query i, among the first ``ends[i]`` rows."""
        cell = self._nearest_cells(asked, 1)[:, 0]
        for queries in groups_of(cell):
            rows = self._shared(cell[queries[0]])
            best = np.full((len(queries), k), -1, np.int32)
            before = np.searchsorted(rows, ends[queries])
            self._table.some(rows).search(asked[queries], before, k, best)
            few = np.flatnonzero((before < k) & (before < ends[queries]))
            if few.size:
                own = np.full((len(few), k), -1, np.int32)
                self._table.search(asked[queries[few]], ends[queries[few]], k, own)
                best[few] = own
            out[queries] = best

    def _shared(self, cell):
        """Return the rows, ascending, that the queries of a cell are compared with."""
        cells = self._nearest_cells(self._middles[[cell]], 4 * SHARED // CELL)[0]
        enough = np.searchsorted(np.cumsum(self._sizes[cells]), SHARED) + 1
        return np.sort(np.concatenate([self._members[c] for c in cells[:enough]]), kind="stable")


def groups_of(labels):
    """Return the places of each label, ascending, in the order of the labels."""
    by = np.argsort(labels, kind="stable")
    return np.split(by, np.flatnonzero(np.diff(labels[by])) + 1) if len(by) else []
