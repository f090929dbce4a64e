"""The table of covariances, and inputs for them.

A new covariance adds one row and, if needed, its definition to the oracles.
"""

import numpy as np
import pytest

from fastsvgp.covariances import (
    RBF,
    Additive,
    ArcCosine,
    ChangePoints,
    Constant,
    Cosine,
    Linear,
    Matern12,
    Matern32,
    Matern52,
    On,
    Periodic,
    Polynomial,
    Product,
    RationalQuadratic,
    Sum,
    spectral_mixture,
)
from fastsvgp.records import is_record, leaves, tree_map

# name: a covariance for inputs with D columns
TABLE = {
    "rbf": lambda rng, D: RBF(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "rbf shared": lambda rng, D: RBF(variance=0.8, lengthscales=1.1 * np.sqrt(D)),
    "matern12": lambda rng, D: Matern12(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern32": lambda rng, D: Matern32(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern52": lambda rng, D: Matern52(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)),
    "matern52 defaults": lambda rng, D: Matern52(),
    "linear": lambda rng, D: Linear(rng.uniform(0.5, 2.0, D) / D),
    "linear shared": lambda rng, D: Linear(0.7),
    "constant": lambda rng, D: Constant(0.6),
    "sum": (
        lambda rng, D: (
            RBF(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D))
            + Linear(rng.uniform(0.5, 2.0, D))
            + Constant(0.2)
        )
    ),
    "product": lambda rng, D: RBF(1.3, 2.0 * np.sqrt(D)) * Linear(rng.uniform(0.5, 2.0, D)),
    "three factors": (
        lambda rng, D: Matern32(0.9, np.sqrt(D)) * Constant(1.5) * Matern52(0.7, np.full(D, 2.0))
    ),
    "nested": (
        lambda rng, D: (
            (RBF(0.5, 1.5) + Constant(0.3) * Matern12(1.1, np.sqrt(D))) * (Linear(0.4) + Matern32())
        )
    ),
    "rational quadratic": lambda rng, D: RationalQuadratic(
        1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D), 0.6
    ),
    "rational quadratic shared": lambda rng, D: RationalQuadratic(0.8, 1.1 * np.sqrt(D), 3.0),
    "sum of one": lambda rng, D: Sum((Product((Matern52(1.2, np.sqrt(D)),)),)),
}
# whose definitions take long for many columns
MORE = {
    "on": lambda rng, D: On(
        RBF(1.3, rng.uniform(0.7, 2.0, (D + 1) // 2) * np.sqrt(D)),
        columns=tuple(range(0, D, 2))[::-1],
    ),
    "on in a product": (
        lambda rng, D: Matern32(0.9, np.sqrt(D)).on(0) * (Linear(0.7) + 0.3).on(D - 1) + 0.2
    ),
    "periodic": lambda rng, D: Periodic(
        RBF(1.3, rng.uniform(0.7, 2.0, D) * np.sqrt(D)), rng.uniform(2.0, 4.0, D)
    ),
    "periodic shared": lambda rng, D: Periodic(Matern52(0.8, 1.1 * np.sqrt(D)), 2.7),
    "periodic rational quadratic": lambda rng, D: Periodic(RationalQuadratic(1.3, 1.1, 0.7), 3.1),
    "periodic trend": lambda rng, D: Periodic(RBF(1.3, np.sqrt(D)), 3.1).on(0) * RBF(1.1, 3.0),
    "polynomial": lambda rng, D: Polynomial(rng.uniform(0.5, 2.0, D) / D, 0.7, degree=3),
    "polynomial shared": lambda rng, D: Polynomial(0.3, 1.2, degree=2) * Matern52(),
    "polynomial of degree 1": lambda rng, D: Polynomial(0.3, 1.2, degree=1),
    "arc cosine": lambda rng, D: ArcCosine(1.3, rng.uniform(0.5, 2.0, D) / D, 0.7),
    "arc cosine of order 2": lambda rng, D: ArcCosine(1.3, 0.4, 0.7, order=2),
    "cosine": lambda rng, D: Cosine(1.3, rng.uniform(-0.3, 0.3, D)),
    "cosine shared": lambda rng, D: Cosine(1.3, -0.2) * RBF(0.8, 1.1 * np.sqrt(D)) + 0.2,
    "spectral mixture": lambda rng, D: spectral_mixture(
        [0.7, 1.2], rng.uniform(0.0, 0.3, (2, D)), rng.uniform(0.1, 0.3, (2, D))
    ),
    "additive": lambda rng, D: Additive(rng.uniform(0.3, 1.0, min(D, 2)), rng.uniform(0.7, 2.0, D)),
    "additive shared": lambda rng, D: Additive(rng.uniform(0.3, 1.0, D), 1.4),
    "additive of one": lambda rng, D: Additive([0.8], rng.uniform(0.7, 2.0, D)),
    "change points": lambda rng, D: ChangePoints(
        (RBF(0.9, np.sqrt(D)), Linear(0.3), Matern52(0.6, 1.3)),
        np.array([-0.7, 0.6]),
        2.2,
        column=D - 1,
    ),
    "change points in any order": lambda rng, D: ChangePoints(
        (RBF(0.9), Constant(0.3), Matern52(0.6, 1.3), Linear(0.5)), np.array([0.6, -0.9, 0.1]), 2.2
    ),
    "change points in a product": (
        lambda rng, D: ChangePoints((RBF(0.9), RBF(1.2)), [0.1]) * Linear(0.7) + 0.2
    ),
}
TABLE |= MORE
DIMENSIONS = {name: (1, 3) if name in MORE else (1, 3, 8, 40) for name in TABLE}
DIMENSIONS["additive shared"] = 1, 3, 5  # it has all orders up to the number of columns
NEED = ("covariance", "inducing", "X")
everything = pytest.mark.parametrize("name", TABLE)
every_size = pytest.mark.parametrize(
    "name, D", [(name, D) for name in TABLE for D in DIMENSIONS[name]]
)


def cast(covariance, dtype):
    return tree_map(lambda leaf: np.asarray(leaf, dtype)[()], covariance)


def inputs(rng, N1, N2, D, dtype=np.float64):
    """Inputs whose pairs keep a distance, so that no difference is taken across a kink."""
    X = rng.permutation(N1 + N2)[:, None] * 0.1 * rng.choice([-1.0, 1.0], D) + rng.uniform(
        -0.03, 0.03, (N1 + N2, D)
    )
    X -= X.mean(0)
    return X[:N1].astype(dtype), X[N1:].astype(dtype)


def assert_same(a, b):
    """Check that two cotangents agree, records or arrays."""
    for u, v in zip(
        *([w for _, _, w in leaves(x)] if is_record(x) else [x] for x in (a, b)), strict=True
    ):
        np.testing.assert_allclose(u, v, rtol=1e-10, atol=1e-12)
