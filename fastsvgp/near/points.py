"""Inputs as points whose distances order rows as the covariance does, and codes of categories.

A correlation is about 1 - r^2 / 2, r^2 = sum_d w_d (x_d - x'_d)^2, for near rows:

- of a function of distance, w_d = 1 / lengthscale_d^2; of points on circles or features, the same
  with their coordinates in the place of x_d;
- of a product, w is the sum over the factors;
- of a sum, w is the mean over the parts, weighted by their variances.

Linear functions, polynomials and constants have none. Points are the columns times sqrt(w_d), and
the coordinates of maps times theirs.
"""

from typing import Any, NamedTuple

import numpy as np

from ..covariances import Cosine, On, Product
from ..covariances.image_patches import OnPatches
from ..covariances.mapped import OfMap

MOVED = 1.2  # factor by which a scale must move for other rows to be near
LEAST = 0.05  # smallest relative scale of a column that counts
ODD = np.uint64(0x9E3779B97F4A7C15)  # the golden ratio times 2^64


class Points(NamedTuple):
    """Inputs as points (N, d), codes of categories (N,) or None, and what distances depend on.

    scales : (D + e,) of columns, and the e coordinates of the first row that are those of a map,
        such as features of a network, which change with their map
    """

    points: Any
    codes: Any
    scales: Any


def points_of(covariance, X):
    """Return the ``Points`` of inputs X (N, D); each point and code depends on its row alone.

    Columns that no distance depends on are left out, unless there are no others: then they have
    scale 1. Columns of codes are no coordinates: each combination of codes has one number.
    """
    if covariance.inducing_type is not None or isinstance(covariance, OnPatches):
        raise TypeError(
            f"near rows need distances between rows, which a {type(covariance).__name__} of images"
            " or sets has not; use an SVGP"
        )
    X = np.asarray(X, np.float64)
    columns = sorted(covariance.code_columns(X.shape[1]))
    squares, maps = _squared_scales(covariance, X)
    if not maps and not squares.any():
        squares = np.ones(X.shape[1])
    squares[columns] = 0
    used, scales = squares > 0, np.sqrt(squares)
    points = np.concatenate([X[:, used] * scales[used], *maps], axis=1)
    known = [abs(coordinates[0]) for coordinates in maps]
    codes = _number_codes(X[:, columns]) if columns else None
    return Points(points, codes, np.concatenate([scales, *known]))


def _squared_scales(covariance, X):
    """Return w (D,) of the columns, and a list of the coordinates of maps, times their scales."""
    D = X.shape[1]
    squares = np.zeros(D)
    if isinstance(covariance, On):
        columns = list(covariance.columns)
        squares[columns], maps = _squared_scales(covariance.part, X[:, columns])
        return squares, maps
    if isinstance(covariance, OfMap):
        mapped = covariance.map(X, X[:1])[0]
        inside, maps = _squared_scales(covariance.inside(), mapped)
        inside = np.ones(2) if isinstance(covariance, Cosine) else inside
        return squares, [*maps, mapped[:, inside > 0] * np.sqrt(inside[inside > 0])]
    parts = getattr(covariance, "parts", ())
    shares = np.ones(len(parts))
    if parts and not isinstance(covariance, Product):
        shares = np.array([part.diag(np.zeros((1, D)))[0] for part in parts], np.float64)
        shares /= shares.sum() or 1.0
    maps = []
    for part, share in zip(parts, shares, strict=True):
        own, coordinates = _squared_scales(part, X)
        squares += share * own
        maps += [np.sqrt(share) * one for one in coordinates]
    if hasattr(covariance, "lengthscales"):
        squares += 1 / np.square(covariance.lengthscales, dtype=np.float64)
    elif hasattr(covariance, "covariance"):
        return _squared_scales(covariance.covariance, X)
    return squares, maps


def _number_codes(columns):
    """Return a number (N,) for each combination of codes (N, C): the code itself if C is 1."""
    columns = columns.astype(np.uint64)
    numbers = columns[:, 0]
    for codes in columns.T[1:]:
        numbers = (numbers ^ (numbers >> np.uint64(29))) * ODD + codes
    return numbers.view(np.int64)


def scales_moved(before, now):
    """Whether the scales, relative to the largest, moved so far that other rows are near."""
    if before.shape != now.shape:
        return True
    a, b = before / before.max(), now / now.max()
    counts = np.maximum(a, b) > LEAST
    return bool((np.maximum(a, b) > MOVED * np.minimum(a, b))[counts].any())
