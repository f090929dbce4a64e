"""Nearest rows by brute force: an oracle."""

import numpy as np


def nearest_earlier(points, order, k, codes=None):
    """Return the k nearest rows among those earlier in the order, of the same code first."""
    out = np.full((len(points), k), -1)
    place = np.full(len(points), len(order))
    place[order] = np.arange(len(order))
    for i in range(len(points)):
        rows = [j for j in order if place[j] < place[i]]

        def key(j, i=i):
            other = codes is not None and codes[j] != codes[i]
            return other, np.sum((points[j] - points[i]) ** 2)

        best = sorted(rows, key=key)[:k]
        out[i, : len(best)] = best
    return out
