"""Inputs as points whose distances order rows as the covariance does, and codes of categories."""

from typing import Any, NamedTuple

import numpy as np

STEPS = np.geomspace(1e-6, 1e6, 97)  # along each column
LEVEL = 0.9  # correlation of two rows that are one unit of a column apart
MOVED = 1.2  # factor by which a scale must move for other rows to be near
LEAST = 0.05  # smallest relative scale of a column that counts


class Points(NamedTuple):
    """Inputs as points (N, d), codes of categories (N,) or None, and what distances depend on.

    scales : (d,) of columns; (2 d,) for a covariance of features, which change with their map: the
        first row's point comes after them, so that other features are seen
    """

    points: Any
    codes: Any
    scales: Any


def points_of(covariance, X):
    """Return the ``Points`` of inputs X (N, D).

    Columns are multiplied by 1 / lengthscale. Where the covariance has no lengthscales of its own,
    as a sum or a product, the scale of a column is 1 / h, h the step along it, from the first row,
    that takes the correlation to 0.9. Columns that it does not depend on have a scale of zero.
    Columns of codes are no coordinates: each combination of codes has one number.
    """
    if covariance.inducing_type is not None:
        raise TypeError(
            f"near rows need distances between rows, which a {type(covariance).__name__} of images"
            " or sets has not; use an SVGP"
        )
    inner, rows, _ = covariance.inner(np.asarray(X, np.float64))
    columns = inner.code_columns(rows.shape[1])
    plain = [d for d in range(rows.shape[1]) if d not in columns]
    codes = None
    if columns:
        codes = np.unique(rows[:, list(columns)], axis=0, return_inverse=True)[1].ravel()
    scales = _scales(inner, rows[:1], plain)
    points = np.ascontiguousarray(rows[:, plain] * scales)
    mapped = inner is not covariance
    return Points(points, codes, np.concatenate([scales, abs(points[0])]) if mapped else scales)


def _scales(covariance, row, columns):
    """Return the scale of each of these columns."""
    lengthscales = getattr(covariance, "lengthscales", None)
    if lengthscales is not None and len(columns) == row.shape[1]:
        return np.broadcast_to(1 / np.asarray(lengthscales, np.float64), len(columns)).copy()
    there = np.repeat(row, len(STEPS) * len(columns), axis=0)
    for i, column in enumerate(columns):
        there[i * len(STEPS) : (i + 1) * len(STEPS), column] += STEPS
    k = covariance.Kff(np.ascontiguousarray(row), there)[0]
    k = k / np.sqrt(covariance.kff(row)[0] * covariance.kff(there))
    scales = np.zeros(len(columns))
    for i, falls in enumerate(k.reshape(len(columns), -1)):
        below = np.flatnonzero(falls < LEVEL)
        if below.size:
            j = below[0]
            h = STEPS[j]
            if j:  # between two steps, in the logarithm
                part = (falls[j - 1] - LEVEL) / (falls[j - 1] - falls[j])
                h = STEPS[j - 1] * (STEPS[j] / STEPS[j - 1]) ** part
            scales[i] = 1 / h
    return scales if scales.any() else np.ones(len(columns))


def scales_moved(before, now):
    """Whether the scales, relative to the largest, moved so far that other rows are near."""
    if before.shape != now.shape:
        return True
    a, b = before / before.max(), now / now.max()
    counts = np.maximum(a, b) > LEAST
    return bool((np.maximum(a, b) > MOVED * np.minimum(a, b))[counts].any())
