"""Pairwise problems of difficult sizes, and the assertions for every twin of the family."""

from unittest import mock

import numpy as np
from oracles import covariances as oracle
from support.numerics import (
    assert_as_accurate_as,
    assert_typically_as_accurate_as,
    exactly,
    generator,
    symmetric,
)

FAMILIES = ("rbf", "matern12", "matern32", "matern52")
NAMES = ("X1", "X2", "variance", "lengthscales")
SHAPES = [(1, 1, 1), (3, 17, 2), (65, 5, 3), (17, 130, 8), (70, 68, 11), (66, 67, 19)]  # N1, N2, D


def problem(rng, N1, N2, D, dtype, shared=False):
    """Return X1, X2, variance, lengthscales; two pairs of points are equal."""
    X1, X2 = rng.standard_normal((N1, D)), rng.standard_normal((N2, D))
    X2[0], X2[-1] = X1[0], X1[-1]
    lengthscales = np.sqrt(D) * (1.3 if shared else rng.uniform(0.7, 2.0, D))
    return X1.astype(dtype), X2.astype(dtype), dtype(1.7), np.asarray(lengthscales, dtype)[()]


def apart(rng, N1, N2, D, shared=False, dtype=np.float64):
    """Return the same along a line.

    Pairs have a minimal distance, so finite differences never cross the kinks of Matern-1/2 and
    3/2. A product of two rows sums D terms of one sign, most of which cancel in the squared
    distance of neighbours.
    """
    order = rng.permutation(N1 + N2)[:, None] * 0.1
    X = order * rng.choice([-1.0, 1.0], D) + rng.uniform(-0.03, 0.03, (N1 + N2, D))
    lengthscales = np.sqrt(D) * (1.3 if shared else rng.uniform(0.7, 2.0, D))
    return (
        X[:N1].astype(dtype),
        X[N1:].astype(dtype),
        dtype(1.7),
        np.asarray(lengthscales, dtype)[()],
    )


def check_matrix(twin, rng, family, N1, N2, D, dtype, shared=False):
    arguments = problem(rng, N1, N2, D, dtype, shared)
    X1, X2, *parameters = arguments
    for first, second in ((X1, X2), (X1, None), (X2, None)):
        K = twin.stationary(family, first, second, *parameters)
        other = first if second is None else second
        assert K.dtype == dtype and K.flags.c_contiguous
        truth = oracle.stationary(family, *exactly(first, other, *parameters))
        assert_as_accurate_as(K, oracle.stationary(family, first, other, *parameters), truth)
        if second is None:
            np.testing.assert_array_equal(K, K.T)
            np.testing.assert_array_equal(np.diag(K), np.full(len(K), parameters[0]))


def check_accuracy(twin, rng, family, D, dtype):
    """Check medians over several problems: for one, plain NumPy can be accurate by chance."""
    fast, plain, truth = [], [], []
    for number in range(16):
        arguments = apart(rng, 17, 65, D, number % 2, dtype)
        fast.append(twin.stationary(family, *arguments))
        plain.append(oracle.stationary(family, *arguments))
        truth.append(oracle.stationary(family, *exactly(*arguments)))
    assert_typically_as_accurate_as(fast, plain, truth, dtype=dtype)


def bars_of(twin, family, K_bar, arguments, known):
    """Return the cotangents by the twin, and by definition, in its dtype and more precise."""
    K = twin.stationary(family, *arguments) if known else None
    X1, X2, *parameters = arguments
    bars = twin.stationary_vjp(K_bar, family, *arguments, NAMES, K)
    definitions = []
    for change in (lambda *arrays: arrays, exactly):
        bar, first, second, *rest = change(K_bar, X1, X1 if X2 is None else X2, *parameters)
        one, two, *others = oracle.stationary_vjp(bar, family, first, second, *rest)
        definitions.append((one + two, None, *others) if X2 is None else (one, two, *others))
    for bar, same in zip(bars, definitions[1], strict=True):
        if same is not None:
            assert bar.dtype == X1.dtype and bar.shape == same.shape
    return bars, *definitions


def check_contractions(twin, rng, dtype, known, shapes=SHAPES, families=FAMILIES):
    """Check the errors of all problems together, each scaled to one.

    The plain error of a single sum can be tiny by chance. A sum of n terms of size one has the size
    of its root, also where they cancel.
    """
    errors = {name: ([], []) for name in NAMES}
    for number, (N1, N2, D) in enumerate(shapes):
        X1, X2, *parameters = problem(rng, N1, N2, D, dtype, shared=number % 2)
        sizes = {name: np.sqrt(max(N1 * N2, 1)) for name in ("variance", "lengthscales")}
        K_bar, S_bar = rng.standard_normal((N1, N2)).astype(dtype), symmetric(rng, N1, dtype)
        for family in families:
            for bar, second in ((K_bar, X2), (S_bar, None)):
                results = bars_of(twin, family, bar, (X1, second, *parameters), known)
                for name, fast, plain, truth in zip(NAMES, *results, strict=True):
                    if truth is None:
                        assert fast is None
                        continue
                    scale = max(np.abs(truth).max(initial=0), sizes.get(name, 1))
                    for result, collected in zip((fast, plain), errors[name], strict=True):
                        collected.append(float(np.abs(result - truth).max(initial=0) / scale))
    for name, (fast, plain) in errors.items():
        # NumPy adds pairs of pairs; the kernels add row by row
        floor = (4 if name in ("variance", "lengthscales") else 1) * np.finfo(dtype).eps
        assert max(fast) <= 4 * max(*plain, floor), (name, fast, plain)


def check_inner(twin, rng, N1, N2, D, dtype, shared):
    X1, X2, _, weights = problem(rng, N1, N2, D, dtype, shared)
    for second in (X2, None):
        other = X1 if second is None else X2
        K = twin.inner(X1, second, weights)
        assert K.dtype == dtype and K.flags.c_contiguous
        assert_as_accurate_as(
            K, oracle.linear(X1, other, weights), oracle.linear(*exactly(X1, other, weights))
        )
        K_bar = (
            symmetric(rng, N1, dtype)
            if second is None
            else rng.standard_normal((N1, N2)).astype(dtype)
        )
        X1_bar, X2_bar, weights_bar = twin.inner_vjp(
            K_bar, X1, second, weights, ("X1", "X2", "weights")
        )
        bar, a, b, w = exactly(K_bar, X1, other, weights)
        pulled, tolerance = (bar @ b) * w, 50 * np.finfo(dtype).eps * np.sqrt(N1 * N2)
        np.testing.assert_allclose(
            X1_bar, 2 * pulled if second is None else pulled, rtol=0, atol=tolerance * 10
        )
        if second is None:
            np.testing.assert_array_equal(K, K.T)
            assert X2_bar is None
        else:
            np.testing.assert_allclose(X2_bar, (bar.T @ a) * w, rtol=0, atol=tolerance * 10)
        expected = (a * (bar @ b)).sum(None if shared else 0)
        assert np.shape(weights_bar) == np.shape(weights) and weights_bar.dtype == dtype
        np.testing.assert_allclose(
            weights_bar, expected, rtol=0, atol=tolerance * max(1, np.abs(expected).max())
        )


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs.

    Contracted blocks have four tiles, or one. The form by products does not depend on the dtype,
    and runs in float32.
    """
    rng = generator(1)
    X1, X2, *parameters = problem(rng, 67, 130, 9, dtype, shared=True)
    K_bar = rng.standard_normal((67, 130)).astype(dtype)
    with mock.patch.object(twin, "BLOCKS_EACH", 1):
        bars = twin.stationary_vjp(K_bar, "matern32", X1, X2, *parameters, NAMES, None)
    assert all(np.isfinite(bar).all() for bar in bars)
    assert np.isfinite(twin.squared_distances(X1[:19], X2[:33], 2.0)).all()
    X2, K_bar = X2[:64], np.ascontiguousarray(K_bar[:, :64])  # aligned rows
    K = twin.stationary("rbf", X1, X2, 1.7, 2.0)
    X1_bar, *_ = twin.stationary_vjp(K_bar, "rbf", X1, X2, 1.7, 2.0, ("X1", "lengthscales"), K)
    assert np.isfinite(X1_bar).all() and np.isfinite(twin.inner(X1, X2, 0.5)).all()
    if dtype == np.float32:
        with mock.patch.object(twin, "DIRECT_BELOW", 0):
            X1, X2, K_bar = X1[:3], X2[:33], np.ascontiguousarray(K_bar[:3, :33])
            K = twin.stationary("rbf", X1, None, 1.7, 2.0)
            bars = twin.stationary_vjp(K_bar, "matern12", X1, X2, 1.7, 2.0, NAMES, None)
            assert np.isfinite(K).all() and all(np.isfinite(bar).all() for bar in bars)
