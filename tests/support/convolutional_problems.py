"""Convolutional covariances of small images, with and without places."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.records import tree_map

N, M, D = 3, 5, 12  # images, inducing patches, numbers of a patch
# 3 x 2 windows; the last column is in none
SHAPE = dict(image_shape=(7, 5, 2), patch_shape=(3, 2), stride=2)
P, COLUMNS = 6, 70

PATCH = {
    "rbf": lambda rng: fs.RBF(1.2, 3.0),
    "matern52": lambda rng: fs.Matern52(0.7, rng.uniform(2, 4, D)),
    "sum": lambda rng: fs.Matern32(0.7, rng.uniform(2, 4, D)) + fs.Linear(0.1) * fs.RBF(1.1, 3.0),
}
TABLE = {
    f"{name}{', places' * bool(location)}": (make, location)
    for name, make in PATCH.items()
    for location in (
        None,
        lambda rng: fs.Matern52(1.3, rng.uniform(1, 3, 2)) + fs.covariances.Constant(0.2),
    )
}
everything = pytest.mark.parametrize("name", TABLE)


def problem(rng, name, scalar=False, dtype=np.float64):
    """``(covariance, Z, other, X, others)``."""
    make, location = TABLE[name]
    weights = 0.4 if scalar else rng.standard_normal(P)
    covariance = fs.covariances.Convolutional(
        make(rng), weights, location and location(rng), **SHAPE
    )
    sets = [rng.standard_normal((m, D)) for m in (M, M - 1)]
    if location:
        sets = [np.hstack([Z, rng.uniform(0, 6, (len(Z), 2))]) for Z in sets]
    arrays = *sets, rng.standard_normal((N, COLUMNS)), rng.standard_normal((N - 1, COLUMNS))
    return tree_map(lambda a: np.asarray(a, dtype)[()], covariance), *(
        a.astype(dtype) for a in arrays
    )
