"""Inputs on disk that are larger than memory: rows are read and scaled when they are used."""

import numpy as np

from ...errors import BadEntry
from ...inducing import unique_rows
from ..scaling import checked_rows, constant_scale, shaped_rows
from .rows import Rows

CHUNK = 2**21  # numbers per chunk of a pass over all rows
RANKED = 20_000  # rows from which the quantiles of inputs are computed


def on_disk(X):
    """Whether X is memory-mapped and too long for its duplicate rows to be merged."""
    return isinstance(X, np.memmap) and X.ndim == 2 and len(X) > unique_rows.SORTED


class MappedInputs:
    """Rows of a memory-mapped array, in float64 and scaled.

    A mask gives other ``MappedInputs``; a slice or numbers of rows give an array.

    Parameters
    ----------
    source : (N, D) array
    chosen : (n,) array of int, optional
        Numbers of the rows, increasing; None for all.
    scale : Scale, optional
        Scaling of the inputs.
    """

    ndim, dtype = 2, np.dtype(np.float64)

    def __init__(self, source, chosen=None, scale=None):
        self._source, self._chosen, self._scale = source, chosen, scale
        self.shape = (len(source) if chosen is None else len(chosen), source.shape[1])

    def __len__(self):
        return self.shape[0]

    def __getitem__(self, rows):
        if isinstance(rows, np.ndarray) and rows.dtype.kind == "b":
            rows = np.flatnonzero(rows) if self._chosen is None else self._chosen[rows]
            return MappedInputs(self._source, rows, self._scale)
        X = self._source[rows if self._chosen is None else self._chosen[rows]]
        X = np.array(X, np.float64)
        return X if self._scale is None else self._scale.X(X)

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self[:], dtype)

    def scaled(self, scale):
        """Return the same rows in the units of a model."""
        return MappedInputs(self._source, self._chosen, scale)

    def chunks(self):
        """Yield slices of rows that cover all of them."""
        size = max(CHUNK // self.shape[1], 1)
        return (slice(start, start + size) for start in range(0, len(self), size))


def mapped_rows(X, y, weights, labels):
    """Check data with inputs on disk chunk by chunk, as ``usable_rows`` does.

    Returns X as ``MappedInputs``, y, and weights or None.
    """
    X, y, weights = shaped_rows(X, y, weights, labels)
    there = None if weights is None else np.flatnonzero(weights > 0)
    X = MappedInputs(X, there)
    if there is not None:
        y, weights = y[there], weights[there].astype(np.float64)
    targets = []
    for rows in X.chunks():
        try:
            targets.append(checked_rows(X[rows], y[rows], labels)[1])
        except BadEntry as error:
            row = rows.start + error.index[0]
            error.index = (int(row if there is None else there[row]), *error.index[1:])
            raise
    return X, np.concatenate(targets), weights


def scale_of(kind, X, y, scale_target, weights):
    """Fit a ``Scale`` of this kind to ``MappedInputs`` in two passes."""
    scale = kind.of(np.empty((len(X), 0)), y, scale_target, weights=weights)
    counts = np.ones(len(X)) if weights is None else weights
    total, largest = np.zeros(X.shape[1]), np.zeros(X.shape[1])
    for rows in X.chunks():
        part = X[rows]
        total += counts[rows] @ part
        largest = np.maximum(largest, np.abs(part, out=part).max(axis=0))
    scale.x_mean = total / counts.sum()
    squares = np.zeros(X.shape[1])
    for rows in X.chunks():
        part = X[rows]
        part -= scale.x_mean
        squares += counts[rows] @ np.square(part, out=part)
    scale.x_scale = constant_scale(np.sqrt(squares / counts.sum()), largest)
    return scale


def ends_of(X):
    """Return the smallest and the largest value of each column, (D,), in memory or on disk."""
    parts = [X] if isinstance(X, np.ndarray) else (X[rows] for rows in X.chunks())
    low, high = zip(*((part.min(axis=0), part.max(axis=0)) for part in parts), strict=True)
    return np.min(low, axis=0), np.max(high, axis=0)


def sample_for_ranks(rows):
    """Return the rows from which ranks of inputs are computed: all, or ``RANKED`` of those on disk.

    Returns inputs and weights.
    """
    if isinstance(rows.X, MappedInputs):
        rows = rows.drawn(RANKED, np.random.default_rng(3))
    return rows.X, rows.weights


def in_units(X, scale):
    """Convert inputs, in memory or on disk, to the units of a model."""
    return X.scaled(scale) if isinstance(X, MappedInputs) else scale.X(X)


def scaled_rows(rows, scale):
    """Convert rows to the units of a model; in memory they are contiguous."""
    X = in_units(rows.X, scale)
    X = X if isinstance(X, MappedInputs) else np.ascontiguousarray(X)
    return Rows(X, rows.y, rows.weights)
