"""Rows of a search: their check, in memory or on disk, their units, and their split.

Inputs on disk are larger than memory: rows are read and scaled when they are used. No held-out row
equals a training row.
"""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ...errors import BadEntry
from ...inducing import unique_rows
from ..names import BINARY, MULTICLASS, likelihood_of, look_up
from ..scaling import (
    ClassScale,
    Scale,
    check_shapes,
    check_values,
    constant,
    constant_scale,
    usable_rows,
)

LIKELIHOODS = ("gaussian", "poisson", "classes", *BINARY, *MULTICLASS)
SHIFT = np.uint64(32)
FREEDOM = 30  # degrees of freedom below which a variance within groups says nothing
HASHED = 8192  # rows that are hashed at a time
CHUNK = 2**21  # numbers per chunk of a pass over all rows
RANKED = 20_000  # rows from which the quantiles of inputs are computed


@dataclass(frozen=True)
class SearchRows:
    """Rows X (N, D), y (N,), weights (N,) or None. ``X`` is an array, or ``MappedInputs``.

    Rows of one label (N,) stay together in every split; without labels, rows of equal inputs do.
    ``later``: labels are times in their order, and the latest rows are held out.

    Held-out rows have the least noise variance that training rows with equal inputs allow: held-out
    rows themselves hardly show it where their equals stay together.
    """

    X: Any
    y: np.ndarray
    weights: Any = None
    least_noise: float = 0.0
    labels: Any = None
    later: bool = False

    def __len__(self):
        return len(self.X)

    def some(self, chosen):
        weights, labels = (
            None if one is None else one[chosen] for one in (self.weights, self.labels)
        )
        return replace(
            self,
            X=self.X[chosen],
            y=self.y[chosen],
            weights=weights,
            labels=labels,
            least_noise=0.0,
        )

    def draw(self, count, rng):
        """Draw at most ``count`` rows at random; those on disk are read."""
        if len(self) <= count:
            return self if isinstance(self.X, np.ndarray) else self.some(np.arange(len(self)))
        return self.some(np.sort(rng.choice(len(self), count, replace=False)))

    def and_more(self, others):
        """Append other rows."""
        fields = ("X", "y", "weights", "labels")
        both = [[getattr(one, name) for one in (self, others)] for name in fields]
        X, y, weights, labels = (None if two[0] is None else np.concatenate(two) for two in both)
        return replace(self, X=X, y=y, weights=weights, labels=labels, least_noise=0.0)


def hold_out(rows, count, rng):
    """Return training rows and about ``count`` held-out rows. Rows of one label stay together."""
    held_out = mark(labels_of(rows, rng), rows.later, count, rng)
    return rows.some(~held_out), rows.some(np.flatnonzero(held_out))  # numbers read rows on disk


def mark(labels, later, count, rng):
    """Mark about ``count`` rows to hold out, (N,): those of whole labels, at most half of these.

    ``later``: those of the largest labels, not of random ones.
    """
    sizes = np.bincount(labels)
    order = np.flatnonzero(sizes)
    if later:
        order = order[::-1]
    else:
        order = rng.permutation(order)
        # an input that most rows share would take most rows from the training
        small = order[sizes[order] <= max(count, 1)]
        order = small if len(small) > 1 else order
    taken = min(np.searchsorted(np.cumsum(sizes[order]), count) + 1, -(-len(order) // 2))
    chosen = np.zeros(len(sizes), bool)
    chosen[order[:taken]] = True
    return chosen[labels]


def labels_of(rows, rng):
    """Return the labels (N,) of rows; without any, equal numbers of rows with equal inputs."""
    return groups_of(rows.X, rng) if rows.labels is None else rows.labels


def groups_of(X, rng):
    """Number the rows (N,): equal rows get equal numbers, others only by a hash collision."""
    odd = rng.integers(2**63, size=X.shape[1], dtype=np.uint64) * np.uint64(2) + np.uint64(1)
    hashed = np.empty(len(X), np.uint64)
    for start in range(0, len(X), HASHED):
        rows = slice(start, start + HASHED)
        bits = np.ascontiguousarray(X[rows] + 0.0).view(np.uint64)  # turns -0.0 into 0.0
        hashed[rows] = ((bits ^ (bits >> SHIFT)) * odd).sum(axis=1, dtype=np.uint64)
    return np.unique(hashed, return_inverse=True)[1].ravel()


def pooled_variance(rows):
    """Return the variance of targets within groups of rows with equal inputs; 0 if there are few.

    For a model without noise these targets contradict each other.
    """
    groups = groups_of(rows.X, np.random.default_rng(0))
    w = np.ones(len(rows)) if rows.weights is None else rows.weights
    counts, totals = np.bincount(groups, w), np.bincount(groups, w * rows.y)
    squares = w @ np.square(rows.y - (totals / counts)[groups])
    freedom = np.maximum(counts - 1, 0).sum()
    return float(squares / freedom) if freedom >= FREEDOM else 0.0


def number_held(rows, part, least, most):
    """Return the number of rows to hold out."""
    return int(np.clip(part * len(rows), least, most))


def distinct_count(rows: SearchRows):
    """Count the distinct input rows."""
    return len(np.unique(groups_of(rows.X, np.random.default_rng(0))))


# --- inputs on disk ---


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

    def scale(self, scale):
        """Return the same rows in the units of a model."""
        return MappedInputs(self._source, self._chosen, scale)

    def chunks(self):
        """Yield slices of rows that cover all of them."""
        size = max(CHUNK // self.shape[1], 1)
        return (slice(start, start + size) for start in range(0, len(self), size))


def check_mapped_rows(X, y, weights, labels):
    """Check data with inputs on disk chunk by chunk, as ``usable_rows`` does.

    Returns X as ``MappedInputs``, y, and weights or None.
    """
    X, y, weights = check_shapes(X, y, weights, labels)
    there = None if weights is None else np.flatnonzero(weights > 0)
    X = MappedInputs(X, there)
    if there is not None:
        y, weights = y[there], weights[there].astype(np.float64)
    targets = []
    for rows in X.chunks():
        try:
            targets.append(check_values(X[rows], y[rows], labels)[1])
        except BadEntry as error:
            row = rows.start + error.index[0]
            error.index = (int(row if there is None else there[row]), *error.index[1:])
            raise
    return X, np.concatenate(targets), weights


def scale_of(kind, X, y, scale_target, weights):
    """Fit a ``Scale`` of this kind to ``MappedInputs`` in two passes."""
    scale = kind.fit(np.empty((len(X), 0)), y, scale_target, weights=weights)
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
    scale.x_ends = np.stack(ends_of(X))
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
        rows = rows.draw(RANKED, np.random.default_rng(3))
    return rows.X, rows.weights


def scale_inputs(X, scale):
    """Convert inputs, in memory or on disk, to the units of a model."""
    return X.scale(scale) if isinstance(X, MappedInputs) else scale.X(X)


def scale_rows(rows, scale):
    """Convert rows to the units of a model; in memory they are contiguous."""
    X = scale_inputs(rows.X, scale)
    X = X if isinstance(X, MappedInputs) else np.ascontiguousarray(X)
    return replace(rows, X=X)


# --- the rows and the likelihood of a search ---


def task_of(likelihood, X, y, weights):
    """Check the data; return ``(likelihood, scale, rows)``.

    The likelihood is None for real-valued targets. ``rows`` are in float64: inputs are unscaled,
    targets are standardised, counts, or codes.
    """
    look_up("likelihood", likelihood, LIKELIHOODS)
    labels = likelihood not in ("gaussian", "poisson")
    y = np.asarray(y) if labels else y
    if on_disk(X):
        X, y, weights = check_mapped_rows(X, y, weights, labels)
    else:
        X, y, weights = usable_rows(X, y, weights, labels)
        X = X.astype(np.float64)
    if y.ndim != 1:
        raise ValueError(
            f"`y` must be ({len(X)},), one target for each row, got {y.shape}; for several targets"
            " use `regression`"
        )
    if labels:
        return _classes(likelihood, X, y, weights)
    y = y.astype(np.float64)
    scale = _scale_of(Scale, X, y, likelihood == "gaussian", weights)
    if likelihood == "poisson":
        chosen = likelihood_of("poisson", y, weights=weights)
        chosen.check_targets(y, "y")
        return chosen, scale, SearchRows(X, y, weights)
    # rounding of a mean is not noise
    equal = constant(np.ptp(y), y)
    return None, scale, SearchRows(X, np.zeros(len(y)) if equal else scale.y(y), weights)


def _scale_of(kind, X, y, scale_target, weights):
    if isinstance(X, MappedInputs):
        return scale_of(kind, X, y, scale_target, weights)
    return kind.fit(X, y, scale_target, weights=weights)


def _classes(likelihood, X, y, weights):
    scale = _scale_of(ClassScale, X, y, False, weights)
    C, usual = scale.set_classes(y)
    if likelihood == "classes":
        likelihood = usual
    if likelihood in BINARY and C != 2:
        raise ValueError(
            f"`likelihood` {likelihood!r} has 2 classes, but `y` has {C}; 'classes' chooses by `y`"
        )
    return likelihood_of(likelihood, num_classes=C), scale, SearchRows(X, scale.y(y), weights)
