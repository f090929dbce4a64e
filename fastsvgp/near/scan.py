"""The nearest of the first rows of a table, by products of matrices: exact for any columns.

With the points x of the rows and q of a query, both from a common centre, the order of distances is
that of

    v = |x|^2 / 2 - q'x = (|x - q|^2 - |q|^2) / 2,

so one product in float32 has all rows of a block of queries. Minima over groups of rows bound the
k-th smallest: k groups have an entry each up to the k-th smallest minimum. Few rows are below the
bound; their distances are then computed in float64, and decide. The cost is D + 2 flops per pair in
float32, and no partial sort of all rows.

**The bound holds for rounded numbers.** A product of D + 1 terms, of rounded factors, has an error
of at most c (|q| |x| + |x|^2 / 2), c = (3 (D + 1) / 2 + 5 / 2) u to first order, u the unit
roundoff. No row within r of the query, r the distance of the bound, has a norm above b = |q| + r.
So the k rows that make the bound and a row that belongs to the nearest ones are both moved by at
most e = c (|q| b + b^2 / 2), and the bound is raised by 2 e, and by twice this for higher orders.
"""

import copy

import numpy as np

from .. import kernels

NUMBERS = 1 << 21  # of one block of products
FEWEST = 16  # queries of a block: with fewer, products are slow
CANDIDATES = 1 << 18  # rows that are compared at a time
CROWDED = 32  # times k candidates of a query: float32 does not tell rows apart


class Table:
    """Points (n, d) of rows with their numbers (n,), which break ties."""

    def __init__(self, points, numbers, dtype=np.float32):
        self.points, self.numbers = points, numbers
        self._rows = self._wide = None
        self._centre = np.median(points, axis=0)
        rows = points - self._centre
        squares = np.square(rows).sum(1)
        self._scale = 1 / np.sqrt(squares.max() or 1.0)
        self._columns = np.empty((rows.shape[1] + 1, len(rows)), dtype)
        self._columns[:-1] = rows.T * self._scale
        self._columns[-1] = squares * (self._scale**2 / 2)

    def some(self, rows):
        """Return the table of some rows. Their points are not copied."""
        new = copy.copy(self)
        new._rows, new._wide = rows, None
        new._columns = np.take(self._columns, rows, axis=1)
        return new

    def search(self, asked, ends, k, out):
        """Write the nearest to ``out`` (n, k): of query i, among the first ``ends[i]`` rows."""
        at = 0
        while at < len(asked):
            width = int(ends[at : at + FEWEST].max())
            size = min(max(FEWEST, NUMBERS // max(width, 1)), 1024)
            block = slice(at, at + size)
            self._search(asked[block], ends[block], k, out[block])
            at += size

    def _search(self, asked, ends, k, out):
        width = int(ends.max())
        if not width:
            return
        factors, squares = self._factors(asked)
        v = kernels.matmul(factors, self._columns[:, :width])
        for i in np.flatnonzero(ends < width):
            v[i, ends[i] :] = np.inf
        below = v <= self._bounds(_minima(v, k), squares, k)[:, None]
        count = np.count_nonzero(below)
        if count > CROWDED * k * len(asked) and v.dtype == np.float32:
            if self._wide is None:
                rows = slice(None) if self._rows is None else self._rows
                self._wide = Table(self.points[rows], self.numbers[rows], np.float64)
            return self._wide._search(asked, ends, k, out)
        step = max(1, len(asked) * CANDIDATES // max(count, 1))
        for at in range(0, len(asked), step):
            part = slice(at, at + step)
            query, row = np.divmod(np.flatnonzero(below[part].ravel()), width)
            row = row if self._rows is None else self._rows[row]
            distances = self.points[row]
            distances -= asked[part][query]
            distances = np.square(distances, out=distances).sum(1)
            first_of(query, distances, self.numbers[row], out[part])

    def _factors(self, asked):
        """Return the factors (n, D + 1) of v, and |q|^2; infinity where any row is a candidate."""
        queries = (asked - self._centre) * self._scale
        squares = np.square(queries).sum(1)
        far = squares > 1e30  # so that nothing overflows
        queries[far], squares[far] = 0, np.inf
        factors = np.empty((len(queries), queries.shape[1] + 1), self._columns.dtype)
        np.negative(queries, out=factors[:, :-1], casting="same_kind")
        factors[:, -1] = 1
        return factors, squares

    def _bounds(self, minima, squares, k):
        """Return the bounds (n,) of the k-th v of each query, raised by what rounding can do."""
        most = np.finfo(minima.dtype).max
        if minima.shape[1] < k:
            return np.full(len(minima), most)
        bounds = np.partition(minima, k - 1, axis=1)[:, k - 1].astype(np.float64)
        norms = np.sqrt(squares)
        largest = norms + np.sqrt(np.maximum(squares + 2 * bounds, 0))
        unit = np.finfo(minima.dtype).eps / 2 * (1.5 * len(self._columns) + 2.5)
        bounds += 4 * unit * largest * (norms + largest / 2)
        return np.minimum(bounds, most).astype(minima.dtype)


def _minima(v, k):
    """Return the minima of at least 4 k groups of the entries of each row, if it has as many."""
    while (width := v.shape[1]) >= 1024 or width >= max(256, 8 * k):
        groups = max(512 if width >= 1024 else width // 2, 4 * k)
        each, rest = divmod(width, groups)
        minima = v[:, : each * groups].reshape(len(v), each, groups).min(1)
        np.minimum(minima[:, :rest], v[:, each * groups :], out=minima[:, :rest])
        v = minima
    return v


def first_of(query, distances, numbers, out):
    """Write to ``out`` (n, k) the numbers of the nearest candidates; ties go by number.

    Candidates belong to the queries ``query``.
    """
    by = np.lexsort((numbers, distances, query))
    query = query[by]
    rank = np.arange(len(query)) - np.searchsorted(query, np.arange(len(out)))[query]
    kept = rank < out.shape[1]
    out[query[kept], rank[kept]] = numbers[by[kept]]
