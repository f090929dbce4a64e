"""Stationary matrices and their pullbacks, against dense definitions.

``tests/cuda`` imports the bodies that take ``twin_of``, with a fixture ``form`` of its own.
"""

import numpy as np
import pytest
from oracles import covariances as oracle
from support import pairwise_problems as problems
from support.looped import looped
from support.numerics import (
    LONG,
    assert_adjoint,
    assert_typically_as_accurate_as,
    exactly,
)
from support.pairwise_problems import FAMILIES, NAMES, apart as problem, symmetric

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_family = pytest.mark.parametrize("family", FAMILIES)
STEP = 1e-4  # of differences: the pairs of `problem` are hundreds of steps from the kinks


def assert_same(bars, others):
    """Compare far more tightly than the adjoint identity does."""
    for a, b in zip(bars, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())


@looped("dtype", [np.float64, np.float32])
@looped("D", [1, 3, 8, 40, 200])
@pytest.mark.parametrize("family", FAMILIES)
def test_matrix_is_as_accurate_as_the_plain_definition(twin_of, form, rng, family, D, dtype):
    twin = twin_of("pairwise")
    K = twin.stationary(family, *problem(rng, 17, 65, D, dtype=dtype))
    assert K.dtype == dtype and K.flags.c_contiguous
    problems.check_accuracy(twin, rng, family, D, dtype)


@looped("dtype", [np.float64, np.float32])
@looped("D", [1, 8, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_matrix_with_itself_is_exactly_symmetric(rng, form, family, D, dtype):
    X, _, variance, lengthscales = problem(rng, 65, 0, D, dtype=dtype)
    X[7] = X[50]
    K = kernels.stationary(family, X, None, variance, lengthscales)
    np.testing.assert_array_equal(K, K.T)
    np.testing.assert_array_equal(np.diag(K), np.full(65, variance))
    assert K[7, 50] == variance
    other = kernels.stationary(family, X, X.copy(), variance, lengthscales)
    np.testing.assert_allclose(K, other, rtol=0, atol=8 * np.finfo(dtype).eps)


@looped("D", [1, 3, 8, 40])
@looped("shared", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_reverse_rule(rng, form, family, shared, D):
    arguments = problem(rng, 17, 65, D, shared)
    K_bar = rng.standard_normal((17, 65))
    K = kernels.stationary(family, *arguments)
    bars = kernels.stationary_vjp(K_bar, family, *arguments)
    assert [np.shape(b) for b in bars] == [np.shape(a) for a in arguments]
    assert_adjoint(
        lambda *a: oracle.stationary(family, *a), exactly(*arguments), bars, K_bar, rng, h=STEP
    )
    assert_same(kernels.stationary_vjp(K_bar, family, *arguments, K=K), bars)


@looped("D", [1, 8, 40])
@looped("shared", [True, False])
@pytest.mark.parametrize("family", FAMILIES)
def test_reverse_rule_of_the_symmetric_matrix(rng, form, family, shared, D):
    X, _, variance, lengthscales = problem(rng, 65, 0, D, shared)
    K_bar = rng.standard_normal((65, 65))
    K_bar += K_bar.T
    K = kernels.stationary(family, X, None, variance, lengthscales)
    X_bar, none, *rest = kernels.stationary_vjp(K_bar, family, X, None, variance, lengthscales)
    assert none is None

    def f(X, variance, lengthscales):
        return oracle.stationary(family, X, X, variance, lengthscales)

    assert_adjoint(f, exactly(X, variance, lengthscales), (X_bar, *rest), K_bar, rng, h=STEP)
    for known, bar in ((K, K_bar), (K, np.asfortranarray(K_bar)), (np.asfortranarray(K), K_bar)):
        other_bar, none, *others = kernels.stationary_vjp(
            bar, family, X, None, variance, lengthscales, K=known
        )
        assert none is None
        assert_same((other_bar, *others), (X_bar, *rest))


@looped("D", [3, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_float32_gradients_within_the_budget(rng, form, family, D):
    """Medians over several problems: the error of a single sum can be tiny by chance."""
    fast, plain, truth = [], [], []
    for _ in range(25):
        arguments = problem(rng, 17, 65, D, dtype=np.float32)
        K_bar = rng.standard_normal((17, 65)).astype(np.float32)
        fast.append(kernels.stationary_vjp(K_bar, family, *arguments))
        plain.append(oracle.stationary_vjp(K_bar, family, *arguments))
        truth.append(oracle.stationary_vjp(K_bar.astype(LONG), family, *exactly(*arguments)))
    for bars in zip(*(zip(*some, strict=True) for some in (fast, plain, truth)), strict=True):
        stacked = [np.stack(some) for some in bars]
        assert stacked[0].dtype == np.float32
        assert_typically_as_accurate_as(*stacked)


def near_problem(rng, D, shift, distance):
    """Pairs at a tiny distance among others, far from the origin; coordinates are exact floats."""
    X1 = shift + rng.standard_normal((17, D))
    X2 = shift + rng.standard_normal((65, D))
    X2[:17] = X1 + distance * rng.standard_normal((17, D))
    X2[3] = X1[3]
    return X1, X2


@looped("shift, distance", [(0.0, 1e-9), (1e6, 1e-6), (1e6, 1.0), (-1e6, 1e-9)])
@looped("D", [1, 8, 40])
@pytest.mark.parametrize("family", FAMILIES)
def test_tiny_distances_far_from_the_origin(twin_of, form, rng, family, D, shift, distance):
    twin = twin_of("pairwise")
    X1, X2 = near_problem(rng, D, shift, distance)
    lengthscales = np.sqrt(D) * rng.uniform(0.5, 2.0, D)
    long = exactly(X1, X2, 1.3, lengthscales)
    truth = oracle.stationary(family, *long)
    K = twin.stationary(family, X1, X2, 1.3, lengthscales)
    assert np.abs(K - truth).max() < 2e-15 * 1.3
    K_bar = rng.standard_normal(K.shape)
    exact = oracle.stationary_vjp(K_bar.astype(LONG), family, *long)
    for known in (None, K):
        bars = twin.stationary_vjp(K_bar, family, X1, X2, 1.3, lengthscales, NAMES, known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 1e-13 * max(1, np.abs(true).max())
    X, mixed = np.concatenate([X1, X2]), rng.standard_normal((82, 82))
    mixed += mixed.T
    exact = oracle.stationary_vjp(mixed.astype(LONG), family, *exactly(X, X, 1.3, lengthscales))
    bar = twin.stationary_vjp(mixed, family, X, None, 1.3, lengthscales, NAMES, None)[0]
    assert np.abs(bar - exact[0] - exact[1]).max() < 1e-13 * max(1, np.abs(exact[0]).max())


@pytest.mark.parametrize("family", FAMILIES)
@looped("spread", [5.0, 1e3, 1e9])
def test_inputs_far_apart_in_lengthscales(twin_of, form, rng, family, spread):
    """Clusters some lengthscales wide and ``spread`` apart: each keeps its accuracy.

    Their coordinates are exact.
    """
    twin = twin_of("pairwise")
    X = np.round(rng.standard_normal((90, 3)) * 2**20) / 2**20 + spread * np.repeat(
        [[-1.0], [0.0], [2.0]], 30, axis=0
    )
    lengthscales = rng.uniform(0.5, 2.0, 3)
    truth = oracle.stationary(family, *exactly(X, X, 1.3, lengthscales))
    K, S = (
        twin.stationary(family, X, X + 0, 1.3, lengthscales),
        twin.stationary(family, X, None, 1.3, lengthscales),
    )
    assert np.abs(K - truth).max() < 2e-14 * 1.3
    assert np.abs(S - truth).max() < 2e-14 * 1.3
    np.testing.assert_array_equal(S, S.T)
    K_bar = rng.standard_normal(K.shape)
    exact = oracle.stationary_vjp(K_bar.astype(LONG), family, *exactly(X, X, 1.3, lengthscales))
    for known in (None, K):
        bars = twin.stationary_vjp(K_bar, family, X, X + 0, 1.3, lengthscales, NAMES, known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 1e-13 * max(1, np.abs(true).max())


def test_matern12_resolves_tiny_distances(rng, form):
    """1 - k / s is r to first order: r keeps the accuracy that one rounding of k allows."""
    for D in (1, 8, 40):
        x = rng.standard_normal((1, D))
        step = np.zeros((1, D))
        step[0, 0] = 2.0**-30
        x[0, 0] = 1.0
        r_bar = kernels.stationary_vjp(np.ones((1, 1)), "matern12", x, x + step, 1.0, 1.0)
        # -dk/dr, one unit step away
        np.testing.assert_allclose(r_bar[0][0, 0], np.exp(-(2.0**-30)), rtol=1e-14)
        assert (
            abs(1 - kernels.stationary("matern12", x, x + step, 1.0, 1.0)[0, 0] - 2.0**-30) < 3e-16
        )


@every_dtype
def test_leading_batch_axes(twin_of, form, rng, dtype):
    twin, eps = twin_of("pairwise"), np.finfo(dtype).eps
    X1, X2 = (rng.standard_normal((2, 3, N, 2)).astype(dtype) for N in (5, 66))
    parameters = dtype(1.3), np.array([0.7, 1.2], dtype)
    for second in (X2, None):
        K = twin.stationary("rbf", X1, second, *parameters)
        bar = rng.standard_normal(K.shape).astype(dtype)
        bar += 0 if second is X2 else bar.swapaxes(-1, -2)
        first, other, *rest = exactly(X1, X1 if second is None else X2, *parameters)
        each = {
            at: oracle.stationary_vjp(bar[at].astype(LONG), "rbf", first[at], other[at], *rest)
            for at in np.ndindex(2, 3)
        }
        for at in each:
            truth = oracle.stationary("rbf", first[at], other[at], *rest)
            np.testing.assert_allclose(K[at], truth.astype(dtype), rtol=0, atol=4 * eps)
        for known in (None, K):
            found = twin.stationary_vjp(bar, "rbf", X1, second, *parameters, NAMES, known)
            due = [sum(one[i] for one in each.values()) for i in (2, 3)]
            for at, (one, two, *_) in each.items():
                one = one if second is X2 else one + two
                np.testing.assert_allclose(found[0][at], one.astype(dtype), rtol=0, atol=99 * eps)
                if second is X2:
                    np.testing.assert_allclose(found[1][at], two.astype(dtype), atol=99 * eps)
            assert second is X2 or found[1] is None
            for one, exact in zip(found[2:], due, strict=True):
                np.testing.assert_allclose(one, exact.astype(dtype), rtol=0, atol=999 * eps)


@every_dtype
@every_family
def test_matrices(twin_of, form, rng, family, dtype):
    for number, shape in enumerate(problems.SHAPES):
        problems.check_matrix(twin_of("pairwise"), rng, family, *shape, dtype, shared=number % 2)


@every_dtype
@pytest.mark.parametrize("known", [False, True])
def test_contractions(twin_of, rng, known, dtype):
    problems.check_contractions(
        twin_of("pairwise"), rng, dtype, known, families=["rbf"] if known else problems.FAMILIES
    )


@pytest.mark.parametrize("one", [False, True])
def test_vjp_computes_only_what_is_needed(twin_of, form, rng, one):
    twin = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 17, 17, 3, np.float64)
    arguments = (
        symmetric(rng, 17, np.float64),
        "matern52",
        X1,
        None if one else X2,
        *parameters,
    )
    everything = twin.stationary_vjp(*arguments, NAMES, None)
    for need in ((), *((name,) for name in NAMES), ("X1", "variance"), ("X2", "lengthscales")):
        some = twin.stationary_vjp(*arguments, need, None)
        for name, bar, expected in zip(NAMES, some, everything, strict=True):
            assert (bar is None) == (name not in need or expected is None)
            if bar is not None:
                np.testing.assert_allclose(bar, expected, rtol=1e-13)


def test_strides_and_orders(twin_of, form, rng):
    twin = twin_of("pairwise")
    X1, X2, *parameters = problems.problem(rng, 17, 64, 3, np.float64)
    K_bar = rng.standard_normal((17, 64))
    for family in ("matern32", "rbf"):
        K = twin.stationary(family, X1, X2, *parameters)
        expected = twin.stationary_vjp(K_bar, family, X1, X2, *parameters, NAMES, None)
        wide, tall, memory = (
            np.full((17, 6), np.nan),
            np.asfortranarray(X2),
            np.full(17 * 64 + 1, np.nan),
        )
        wide[:, ::2] = X1
        np.testing.assert_array_equal(twin.stationary(family, wide[:, ::2], tall, *parameters), K)
        spread, askew, turned = (
            np.full((34, 128), np.nan),
            memory[1:].reshape(17, 64),
            np.asfortranarray(K_bar),
        )
        spread[::2, ::2] = askew[:] = frozen = K_bar.copy()
        frozen.flags.writeable = tall.flags.writeable = False
        apart = np.repeat(K, 2, axis=1)[:, ::2]
        for bar, known in (
            (turned, np.asfortranarray(K)),
            (turned, K),
            (spread[::2, ::2], K),
            (askew, K),
            (frozen, apart),
        ):
            bars = twin.stationary_vjp(bar, family, wide[:, ::2], tall, *parameters, NAMES, known)
            for a, b in zip(bars, expected, strict=True):
                np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
        S, S_bar = (
            twin.stationary(family, X1, None, *parameters),
            symmetric(rng, 17, np.float64),
        )
        expected = twin.stationary_vjp(S_bar, family, X1, None, *parameters, NAMES, None)
        for bar, known in ((S_bar, np.asfortranarray(S)), (np.asfortranarray(S_bar), S)):
            for a, b in zip(
                twin.stationary_vjp(bar, family, X1, None, *parameters, NAMES, known),
                expected,
                strict=True,
            ):
                assert a is b is None or np.abs(a - b).max() < 1e-12


def test_parameters_on_the_device(twin_of, form, rng):
    """0-d arrays stay on the device and give the same results as numbers."""
    twin = twin_of("pairwise")
    X1, X2, *numbers = problems.problem(rng, 9, 5, 3, np.float32, shared=True)
    arrays, K_bar = [np.array(a) for a in numbers], rng.standard_normal((9, 5)).astype(np.float32)
    for one, other in ((numbers, arrays), (numbers, [float(a) for a in numbers])):
        results = []
        for variance, lengthscales in (one, other):
            K = twin.stationary("matern52", X1, X2, variance, lengthscales)
            bars = twin.stationary_vjp(K_bar, "matern52", X1, X2, variance, lengthscales, NAMES, K)
            results.append(
                (
                    K,
                    *bars,
                    twin.inner(X1, X2, variance),
                    *twin.inner_vjp(K_bar, X1, X2, variance, ("X1", "weights")),
                )
            )
        for a, b in zip(*results, strict=True):
            assert a is b is None or a.dtype == b.dtype == np.float32
            np.testing.assert_array_equal(a, b)


@every_dtype
@every_family
def test_tiny_lengthscales(twin_of, form, rng, family, dtype):
    """Only equal points are correlated, and only the variance has a non-zero cotangent."""
    twin = twin_of("pairwise")
    X1, X2, variance, _ = problems.problem(rng, 3, 5, 2, dtype)
    K_bar = rng.standard_normal((3, 5)).astype(dtype)
    for lengthscales in (np.finfo(dtype).tiny, np.finfo(dtype).smallest_subnormal):
        for shape in ((), (2,)):
            arguments = family, X1, X2, variance, np.full(shape, lengthscales, dtype)[()]
            K = twin.stationary(*arguments)
            np.testing.assert_array_equal(
                K, variance * np.array([[1, 0, 0, 0, 0], [0, 0, 0, 0, 0], [0, 0, 0, 0, 1]])
            )
            X1_bar, X2_bar, variance_bar, lengthscales_bar = twin.stationary_vjp(
                K_bar, *arguments, NAMES, None
            )
            assert not X1_bar.any() and not X2_bar.any() and not np.any(lengthscales_bar)
            np.testing.assert_allclose(variance_bar, K_bar[0, 0] + K_bar[2, 4], rtol=1e-5)


@every_dtype
@pytest.mark.parametrize("N1, N2, D", [*problems.SHAPES, (17, 65, 70)])  # the last one uses cuBLAS
def test_inner_products(twin_of, rng, N1, N2, D, dtype):
    problems.check_inner(twin_of("pairwise"), rng, N1, N2, D, dtype, shared=D % 2)


@looped("N1, N2", [(1, 1), (1, 3), (3, 1), (0, 3), (3, 0), (0, 0)])
def test_single_and_empty_inputs(twin_of, form, rng, N1, N2):
    twin = twin_of("pairwise")
    X1, X2 = rng.standard_normal((N1, 2)), rng.standard_normal((N2, 2))
    K = twin.stationary("rbf", X1, X2, 1.0, 0.5)
    truth = oracle.stationary("rbf", X1, X2, 1.0, 0.5)
    # exp of a rounded exponent
    assert (np.abs(K - truth) <= (1e-14 - 4 * np.finfo(float).eps * np.log(truth)) * truth).all()
    bars = twin.stationary_vjp(np.ones((N1, N2)), "rbf", X1, X2, 1.0, np.full(2, 0.5), NAMES, None)
    exact = oracle.stationary_vjp(np.ones((N1, N2)), "rbf", X1, X2, 1.0, np.full(2, 0.5))
    for bar, true in zip(bars, exact, strict=True):
        np.testing.assert_allclose(bar, true, rtol=1e-12)
    assert twin.inner(X1, X2, 0.5).shape == (N1, N2)
    assert twin.stationary("rbf", X1, None, 1.0, 0.5).shape == (N1, N1)
    bars = twin.stationary_vjp(np.ones((N1, N1)), "rbf", X1, None, 1.0, 0.5, NAMES, None)
    assert bars[0].shape == (N1, 2)


@pytest.mark.parametrize("family", FAMILIES)
@looped("D", [1, 3, 40])
def test_nan_stays_in_its_row_and_column(twin_of, form, rng, family, D):
    twin = twin_of("pairwise")
    X1, X2, variance, lengthscales = problem(rng, 17, 65, D)
    X1[4, -1] = np.nan
    K = twin.stationary(family, X1, X2, variance, lengthscales)
    assert np.isnan(K[4]).all() and np.isfinite(np.delete(K, 4, axis=0)).all()
    S = twin.stationary(family, X1, None, variance, lengthscales)
    assert np.isnan(S[4]).all() and np.isnan(S[:, 4]).all() and np.isnan(S).sum() == 33
    X1_bar, *rest = twin.stationary_vjp(
        np.ones((17, 65)), family, X1, X2, variance, lengthscales, NAMES, None
    )
    assert np.isnan(X1_bar[4]).all() and np.isfinite(np.delete(X1_bar, 4, axis=0)).all()
    assert all(np.isnan(bar).all() for bar in rest)


@pytest.mark.parametrize("family", FAMILIES)
@looped("dtype", [np.float64, np.float32])
@looped("D", [1, 5, 40])
def test_distances_whose_square_overflows(twin_of, form, rng, family, D, dtype):
    """Clusters effectively infinitely far apart are independent, and nothing becomes NaN."""
    twin = twin_of("pairwise")
    scale = np.sqrt(np.finfo(dtype).max)
    near = rng.standard_normal((2, 8, D)).astype(dtype)
    near[1] = near[0]
    far = (scale * np.arange(2, 5)[:, None] * np.ones(D)).astype(dtype)
    X1, X2 = np.concatenate([near[0], far]), np.concatenate([near[1], far + scale, far])
    K = twin.stationary(family, X1, X2, dtype(1.7), dtype(0.9))
    np.testing.assert_array_equal(K[:8, 8:], 0)
    np.testing.assert_array_equal(np.diag(K[8:, 11:]), dtype(1.7))
    for known in (None, K):
        bars = twin.stationary_vjp(
            np.ones_like(K), family, X1, X2, dtype(1.7), dtype(0.9), NAMES, known
        )
        alone = twin.stationary_vjp(
            np.ones((8, 8), dtype), family, X1[:8], X2[:8], dtype(1.7), dtype(0.9), NAMES, None
        )
        assert all(np.isfinite(bar).all() for bar in bars)
        np.testing.assert_allclose(bars[3], alone[3], rtol=1e-4 if dtype == np.float32 else 1e-12)
