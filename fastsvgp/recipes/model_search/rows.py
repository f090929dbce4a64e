"""Rows of a table, and which of them are held out: none of these equals a training row."""

from dataclasses import dataclass
from typing import Any

import numpy as np

SHIFT = np.uint64(32)


@dataclass(frozen=True)
class Rows:
    """Training rows in units of the model: X (N, D), y (N,), weights (N,) or None."""

    X: np.ndarray
    y: np.ndarray
    weights: Any = None

    def __len__(self):
        return len(self.X)

    def some(self, chosen):
        weights = None if self.weights is None else self.weights[chosen]
        return Rows(self.X[chosen], self.y[chosen], weights)

    def drawn(self, count, rng):
        """At most ``count`` rows, chosen at random."""
        if len(self) <= count:
            return self
        return self.some(np.sort(rng.choice(len(self), count, replace=False)))

    def and_more(self, others):
        """These and others."""
        weights = None
        if self.weights is not None:
            weights = np.concatenate([self.weights, others.weights])
        return Rows(np.concatenate([self.X, others.X]), np.concatenate([self.y, others.y]), weights)


def held_out(rows, count, rng):
    """``(training, held)``: about ``count`` rows at random are held out; equal input rows stay together."""
    groups = groups_of(rows.X, rng)
    sizes = np.bincount(groups)
    order = rng.permutation(len(sizes))
    taken = np.searchsorted(np.cumsum(sizes[order]), count) + 1
    chosen = np.zeros(len(sizes), bool)
    chosen[order[:taken]] = True
    held = chosen[groups]
    return rows.some(~held), rows.some(held)


def groups_of(X, rng):
    """A number for each row (N,): equal rows have equal ones, and others only by chance."""
    bits = np.ascontiguousarray(X + 0.0).view(np.uint64)  # -0.0 is 0.0
    odd = rng.integers(2**63, size=X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashed = ((bits ^ (bits >> SHIFT)) * odd).sum(axis=1, dtype=np.uint64)
    return np.unique(hashed, return_inverse=True)[1].ravel()


def number_held(rows, part, least, most):
    """How many rows to hold out."""
    return int(np.clip(part * len(rows), least, most))


def distinct_count(rows: Rows):
    """How many distinct input rows there are."""
    return len(np.unique(groups_of(rows.X, np.random.default_rng(0))))
