"""Nearest earlier rows of an order, and the nearest of all for new points, beside SciPy's trees.

Error: the share of neighbours that are not those of brute force.
"""

import numpy as np
import pytest
from harness import record
from scipy.spatial import cKDTree

from fastsvgp.near.index import Nearest, earlier_rows

K = 20
every_size = pytest.mark.parametrize("N, D", [(36_000, 8), (15_000, 18), (60_000, 3)])
CHECKED = 40  # rows


def rows(rng, N, D):
    """Draw points of clusters, and an order."""
    centres = 2 * rng.standard_normal((100, D))
    return centres[rng.integers(0, 100, N)] + rng.standard_normal((N, D)), rng.permutation(N)


def trees_of_doubling_prefixes(points, order, k):
    """The plain way: ask a tree for more rows until enough of them are earlier."""
    out, start = np.full((len(points), k), -1, np.int32), 0
    while start < len(order):
        stop = min(len(order), max(2 * start, 4 * k))
        tree, ask, want = cKDTree(points[order[:stop]]), np.arange(start, stop), 2 * k + 8
        while len(ask):
            want = min(stop, want)
            found = tree.query(points[order[ask]], want)[1].reshape(len(ask), want)
            earlier = found < ask[:, None]
            rank = np.cumsum(earlier, axis=1)
            done = (rank[:, -1] >= np.minimum(k, ask)) | (want >= stop)
            row, column = np.nonzero(earlier & (rank <= k) & done[:, None])
            out[order[ask[row]], rank[row, column] - 1] = order[found[row, column]]
            ask, want = ask[~done], 3 * want
        start = stop
    return out


def missed(found, points, order):
    shares = []
    for i in range(len(order) - CHECKED, len(order)):
        earlier = order[:i]
        distances = ((points[earlier] - points[order[i]]) ** 2).sum(1)
        shares.append(np.isin(earlier[np.argsort(distances)[:K]], found[order[i]]).mean())
    return 1 - np.mean(shares)


@every_size
@pytest.mark.parametrize("way", [earlier_rows, trees_of_doubling_prefixes])
def bench_earlier_rows(benchmark, rng, N, D, way):
    points, order = rows(rng, N, D)
    error = missed(way(points, order, K), points, order)
    record(benchmark, lambda: way(points, order, K), error=error, unit=N * K)


@every_size
@pytest.mark.parametrize("way", ["ours", "tree"])
def bench_queries(benchmark, rng, N, D, way):
    """A thousand new points, 50 neighbours each; the index is there."""
    points, order = rows(rng, N, D)
    new = points[order[:1000]] + 0.1 * rng.standard_normal((1000, D))
    ask = Nearest(points, order).query if way == "ours" else cKDTree(points).query
    record(benchmark, lambda: ask(new, 50))
