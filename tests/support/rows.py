"""Nearest rows by brute force: an oracle."""

import numpy as np


def nearest_earlier(points, order, k, codes=None):
    """Return the k nearest rows among those earlier in the order, of the same code first."""
    out = np.full((len(points), k), -1)
    place = np.full(len(points), len(order))
    place[order] = np.arange(len(order))
    for i in range(len(points)):
        code = None if codes is None else codes[i]
        best = nearest(points[i], code, points, order[: place[i]], k, codes)
        out[i, : len(best)] = best
    return out


def nearest(point, code, points, rows, k, codes=None):
    """Return the k nearest of some rows, of the same code first; ties go by number."""
    distances = ((points[rows] - point) ** 2).sum(1)
    other = np.zeros(len(rows)) if codes is None else codes[rows] != code
    return rows[np.lexsort((rows, distances, other))][:k]
