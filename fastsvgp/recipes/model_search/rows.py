"""Rows of a table, and their split: no held-out row equals a training row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

SHIFT = np.uint64(32)
CHUNK = 8192  # rows that are hashed at a time


@dataclass(frozen=True)
class Rows:
    """Rows X (N, D), y (N,), weights (N,) or None. ``X`` is an array, or ``MappedInputs``."""

    X: Any
    y: np.ndarray
    weights: Any = None

    def __len__(self):
        return len(self.X)

    def some(self, chosen):
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(self.X[chosen], self.y[chosen], weights)

    def drawn(self, count, rng):
        """Draw at most ``count`` rows at random; those on disk are read."""
        if len(self) <= count:
            return self if isinstance(self.X, np.ndarray) else self.some(np.arange(len(self)))
        return self.some(np.sort(rng.choice(len(self), count, replace=False)))

    def and_more(self, others):
        """Append other rows."""
        weights = None
        if self.weights is not None:
            weights = np.concatenate([self.weights, others.weights])
        return Rows(np.concatenate([self.X, others.X]), np.concatenate([self.y, others.y]), weights)


def held_out(rows, count, rng):
    """Hold out about ``count`` rows; return ``(training, held)``. Equal inputs stay together."""
    groups = groups_of(rows.X, rng)
    sizes = np.bincount(groups)
    order = rng.permutation(len(sizes))
    # an input that most rows share would take most rows from the training
    small = order[sizes[order] <= max(count, 1)]
    order = small if len(small) > 1 else order
    taken = min(np.searchsorted(np.cumsum(sizes[order]), count) + 1, -(-len(order) // 2))
    chosen = np.zeros(len(sizes), bool)
    chosen[order[:taken]] = True
    held = chosen[groups]
    return rows.some(~held), rows.some(np.flatnonzero(held))  # numbers read rows on disk


def groups_of(X, rng):
    """Number the rows (N,): equal rows get equal numbers, others only by a hash collision."""
    odd = rng.integers(2**63, size=X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashed = np.empty(len(X), np.uint64)
    for start in range(0, len(X), CHUNK):
        rows = slice(start, start + CHUNK)
        bits = np.ascontiguousarray(X[rows] + 0.0).view(np.uint64)  # turns -0.0 into 0.0
        hashed[rows] = ((bits ^ (bits >> SHIFT)) * odd).sum(axis=1, dtype=np.uint64)
    return np.unique(hashed, return_inverse=True)[1].ravel()


def number_held(rows, part, least, most):
    """Return the number of rows to hold out."""
    return int(np.clip(part * len(rows), least, most))


def distinct_count(rows: Rows):
    """Count the distinct input rows."""
    return len(np.unique(groups_of(rows.X, np.random.default_rng(0))))
