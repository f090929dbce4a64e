"""Requirements on both twins of the family of squared distances."""

import numpy as np
from support.numerics import LONG, symmetric

SHAPES = [(17, 65, 3), (1, 1, 1), (33, 16, 8), (5, 0, 2), (20, 21, 45)]
NEED = ("X1", "X2", "lengthscales")


def definition(X1, X2, lengthscales):
    X1, X2, lengthscales = (np.asarray(a, LONG) for a in (X1, X2, lengthscales))
    return (((X1[:, None] - X2) / lengthscales) ** 2).sum(-1)


def vjp_by_definition(R_bar, X1, X2, lengthscales):
    R_bar, X1, X2, lengthscales = (np.asarray(a, LONG) for a in (R_bar, X1, X2, lengthscales))
    difference = X1[:, None] - X2
    pull = 2 * R_bar[:, :, None] * difference / lengthscales**2
    lengthscales_bar = -(pull * difference / lengthscales).sum((0, 1))
    lengthscales_bar = lengthscales_bar if lengthscales.ndim else lengthscales_bar.sum()
    return pull.sum(1), -pull.sum(0), lengthscales_bar


def problem(rng, N1, N2, D, dtype):
    X1, X2 = (rng.standard_normal((N, D)).astype(dtype) for N in (N1, N2))
    return X1, X2, rng.uniform(0.5, 2.0, D).astype(dtype)


def check_distances(twin, rng, N1, N2, D, dtype):
    X1, X2, lengthscales = problem(rng, N1, N2, D, dtype)
    rtol = 8 * np.finfo(dtype).eps
    for scale in (lengthscales, lengthscales[0]):
        R = twin.squared_distances(X1, X2, scale)
        assert R.dtype == dtype and R.shape == (N1, N2)
        np.testing.assert_allclose(R, definition(X1, X2, scale), rtol=rtol)
        R = twin.squared_distances(X1, None, scale)
        np.testing.assert_array_equal(R, R.T)
        assert not np.diag(R).any()
        np.testing.assert_allclose(R, definition(X1, X1, scale), rtol=rtol)


def check_vjp(twin, rng, N1, N2, D, dtype):
    X1, X2, lengthscales = problem(rng, N1, N2, D, dtype)
    R_bar = rng.standard_normal((N1, N2)).astype(dtype)
    both = symmetric(rng, N1, dtype)
    for scale in (lengthscales, lengthscales[0]):
        exact = vjp_by_definition(R_bar, X1, X2, scale)
        for ordered in (R_bar, np.asfortranarray(R_bar)):
            close(twin.squared_distances_vjp(ordered, X1, X2, scale, NEED), exact, dtype)
        X1_bar, X2_bar, l_bar = vjp_by_definition(both, X1, X1, scale)
        found = twin.squared_distances_vjp(both, X1, None, scale, NEED)
        assert found[1] is None
        close((found[0], found[2]), (X1_bar + X2_bar, l_bar), dtype)
    for name in NEED:
        bars = twin.squared_distances_vjp(R_bar, X1, X2, lengthscales, (name,))
        assert [bar is not None for bar in bars] == [other == name for other in NEED]


def close(found, exact, dtype):
    for ours, theirs in zip(found, exact, strict=True):
        assert ours.dtype == dtype and ours.shape == theirs.shape
        size = max(1, np.abs(theirs).max(initial=0))
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=200 * np.finfo(dtype).eps * size)


def check_near_points(twin, rng, dtype):
    """Distances and cotangents of near points keep their relative accuracy."""
    far, step = dtype(1000), dtype(2.0**-10)
    X1 = far + step * rng.integers(-8, 8, (9, 2)).astype(dtype)
    X2 = far + step * rng.integers(-8, 8, (7, 2)).astype(dtype)
    R = twin.squared_distances(X1, X2, step)
    np.testing.assert_allclose(R, definition(X1, X2, step), rtol=8 * np.finfo(dtype).eps)
    R_bar = rng.standard_normal((9, 7)).astype(dtype)
    exact = vjp_by_definition(R_bar, X1, X2, step)
    for ours, theirs in zip(
        twin.squared_distances_vjp(R_bar, X1, X2, step, NEED), exact, strict=True
    ):
        size = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=100 * np.finfo(dtype).eps * size)
