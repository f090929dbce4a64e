"""Stationary matrices and their pullbacks, against dense definitions."""

import tracemalloc

import numpy as np
import pytest
from oracles import covariances as oracle
from support import pairwise_problems as problems
from support.looped import looped
from support.numerics import (
    LONG,
    assert_adjoint,
    assert_as_accurate_as,
    assert_typically_as_accurate_as,
    exactly,
)
from support.pairwise_problems import FAMILIES, NAMES, apart as problem

from fastsvgp import kernels
from fastsvgp.kernels.cpu import pairwise

STEP = 1e-4  # of differences: the pairs of `problem` are hundreds of steps from the kinks


@pytest.fixture(params=["small", "direct", "product"])
def form(request, monkeypatch):
    """Each form of the distances, whatever D and the size; the product form in many row tiles."""
    monkeypatch.setattr(pairwise, "DIRECT_BELOW", 0 if request.param == "product" else 10_000)
    monkeypatch.setattr(pairwise, "SMALL_BELOW", 1e12 if request.param == "small" else 0)
    monkeypatch.setattr(pairwise, "TILE", 40 * 65)
    return request.param


def assert_same(bars, others):
    """Compare far more tightly than the adjoint identity does."""
    for a, b in zip(bars, others, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * np.abs(b).max())


def typical(bar, K_bar):
    """Return the size of a cotangent.

    For a sum over all pairs it is the typical size of such sums: one sum can be small by chance.
    """
    return max(1, np.abs(bar).max(), np.linalg.norm(K_bar) / 4 if np.ndim(bar) < 2 else 0)


@looped("dtype", [np.float64, np.float32])
@looped("D", [1, 3, 8, 40, 200])
@pytest.mark.parametrize("family", FAMILIES)
def test_matrix_is_as_accurate_as_the_plain_definition(rng, form, family, D, dtype):
    K = kernels.stationary(family, *problem(rng, 17, 65, D, dtype=dtype))
    assert K.dtype == dtype and K.flags.c_contiguous
    problems.check_accuracy(pairwise, rng, family, D, dtype)


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


@pytest.mark.parametrize("symmetric", [False, True])
def test_vjp_computes_only_what_is_needed(rng, form, symmetric):
    X1, X2, variance, lengthscales = problem(rng, 17, 17, 3)
    X2 = None if symmetric else X2
    K_bar = rng.standard_normal((17, 17))
    K_bar += K_bar.T
    everything = kernels.stationary_vjp(K_bar, "matern52", X1, X2, variance, lengthscales)
    for i, name in enumerate(NAMES):
        alone = kernels.stationary_vjp(
            K_bar, "matern52", X1, X2, variance, lengthscales, need=(name,)
        )
        assert [b is None for b in alone] == [everything[i] is None or j != i for j in range(4)]
        if everything[i] is not None:
            np.testing.assert_allclose(alone[i], everything[i], rtol=1e-13)


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
def test_tiny_distances_far_from_the_origin(rng, form, family, D, shift, distance):
    X1, X2 = near_problem(rng, D, shift, distance)
    lengthscales = np.sqrt(D) * rng.uniform(0.5, 2.0, D)
    long = exactly(X1, X2, 1.3, lengthscales)
    truth = oracle.stationary(family, *long)
    K = kernels.stationary(family, X1, X2, 1.3, lengthscales)
    assert np.abs(K - truth).max() < 2e-15 * 1.3
    K_bar = rng.standard_normal(K.shape)
    exact = oracle.stationary_vjp(K_bar.astype(LONG), family, *long)
    for known in (None, K):
        bars = kernels.stationary_vjp(K_bar, family, X1, X2, 1.3, lengthscales, K=known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 1e-13 * max(1, np.abs(true).max())
    X, mixed = np.concatenate([X1, X2]), rng.standard_normal((82, 82))
    mixed += mixed.T
    exact = oracle.stationary_vjp(mixed.astype(LONG), family, *exactly(X, X, 1.3, lengthscales))
    bar = kernels.stationary_vjp(mixed, family, X, None, 1.3, lengthscales)[0]
    assert np.abs(bar - exact[0] - exact[1]).max() < 1e-13 * max(1, np.abs(exact[0]).max())


@pytest.mark.parametrize("family", FAMILIES)
@looped("spread", [5.0, 1e3, 1e9])
def test_inputs_far_apart_in_lengthscales(rng, form, family, spread):
    """Clusters some lengthscales wide and ``spread`` apart: each keeps its accuracy.

    Their coordinates are exact.
    """
    X = np.round(rng.standard_normal((90, 3)) * 2**20) / 2**20 + spread * np.repeat(
        [[-1.0], [0.0], [2.0]], 30, axis=0
    )
    lengthscales = rng.uniform(0.5, 2.0, 3)
    truth = oracle.stationary(family, *exactly(X, X, 1.3, lengthscales))
    K, S = (
        kernels.stationary(family, X, X + 0, 1.3, lengthscales),
        kernels.stationary(family, X, None, 1.3, lengthscales),
    )
    assert np.abs(K - truth).max() < 2e-14 * 1.3
    assert np.abs(S - truth).max() < 2e-14 * 1.3
    np.testing.assert_array_equal(S, S.T)
    K_bar = rng.standard_normal(K.shape)
    exact = oracle.stationary_vjp(K_bar.astype(LONG), family, *exactly(X, X, 1.3, lengthscales))
    for known in (None, K):
        bars = kernels.stationary_vjp(K_bar, family, X, X + 0, 1.3, lengthscales, K=known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 1e-13 * max(1, np.abs(true).max())


@looped("D", [3, 8, 17])
@pytest.mark.parametrize("family", ["rbf", "matern12", "matern52"])
@looped("dtype", [np.float64, np.float32])
def test_many_columns_take_several_tiles(rng, form, dtype, family, D):
    """More than one tile of columns, with a partial last one."""
    X1, X2 = (
        rng.standard_normal((21, D)).astype(dtype),
        rng.standard_normal((2100, D)).astype(dtype),
    )
    K_bar = rng.standard_normal((21, 2100)).astype(dtype)
    arguments = X1, X2, dtype(1.2), rng.uniform(1, 3, D).astype(dtype)
    long = exactly(*arguments)
    K = kernels.stationary(family, *arguments)
    np.testing.assert_allclose(
        K, oracle.stationary(family, *long).astype(float), rtol=0, atol=20 * np.finfo(dtype).eps
    )
    exact = oracle.stationary_vjp(K_bar.astype(LONG), family, *long)
    for known in (None, K):
        bars = kernels.stationary_vjp(K_bar, family, *arguments, K=known)
        for bar, true in zip(bars, exact, strict=True):
            assert np.abs(bar - true).max() < 200 * np.finfo(dtype).eps * typical(true, K_bar)


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


def test_forms_agree_on_a_mixture_of_clusters(rng, monkeypatch):
    """Tight clusters far apart: half of the pairs are contracted as near pairs."""
    X = np.repeat(rng.standard_normal((2, 37)) * 5, 40, axis=0) + 1e-3 * rng.standard_normal(
        (80, 37)
    )
    K_bar = rng.standard_normal((80, 80))
    results = []
    for below in (0, 100):
        monkeypatch.setattr(pairwise, "DIRECT_BELOW", below)
        K = kernels.stationary("matern12", X, X.copy(), 1.0, 2.0)
        results.append((K, *kernels.stationary_vjp(K_bar, "matern12", X, X.copy(), 1.0, 2.0, K=K)))
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-12 * max(1, np.abs(b).max()))


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_large_matrices_use_threads_and_column_tiles(rng, form, dtype):
    X1, X2 = (
        rng.standard_normal((290, 5)).astype(dtype),
        rng.standard_normal((530, 5)).astype(dtype),
    )
    K_bar = rng.standard_normal((290, 530)).astype(dtype)
    arguments = X1, X2, dtype(1.2), dtype(0.9)
    long = exactly(*arguments)
    K = kernels.stationary("matern32", *arguments)
    assert_as_accurate_as(
        K, oracle.stationary("matern32", *arguments), oracle.stationary("matern32", *long)
    )
    bars = kernels.stationary_vjp(K_bar, "matern32", *arguments, K=K)
    exact = oracle.stationary_vjp(K_bar.astype(LONG), "matern32", *long)
    for bar, true in zip(bars, exact, strict=True):
        assert np.abs(bar - true).max() < 100 * np.finfo(dtype).eps * typical(true, K_bar)
    S = kernels.stationary("matern32", X2, None, *arguments[2:])
    np.testing.assert_array_equal(S, S.T)
    truth = oracle.stationary("matern32", long[1], *long[1:])
    np.testing.assert_allclose(S, truth.astype(float), rtol=0, atol=20 * np.finfo(dtype).eps)


def test_reverse_rule_holds_row_tiles_only(rng, form):
    X1, X2 = rng.standard_normal((700, 3)), rng.standard_normal((900, 3))
    K_bar = rng.standard_normal((700, 900))
    K = kernels.stationary("rbf", X1, X2, 1.0, 1.0)
    kernels.stationary_vjp(K_bar, "rbf", X1, X2, 1.0, 1.0, K=K)
    for known in (None, K):
        tracemalloc.start()
        kernels.stationary_vjp(K_bar, "rbf", X1, X2, 1.0, 1.0, K=known)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < K_bar.nbytes / 8


@looped("N1, N2", [(1, 1), (1, 3), (3, 1), (0, 3), (3, 0), (0, 0)])
def test_single_and_empty_inputs(rng, form, N1, N2):
    X1, X2 = rng.standard_normal((N1, 2)), rng.standard_normal((N2, 2))
    K = kernels.stationary("rbf", X1, X2, 1.0, 0.5)
    truth = oracle.stationary("rbf", X1, X2, 1.0, 0.5)
    # exp of a rounded exponent
    assert (np.abs(K - truth) <= (1e-14 - 4 * np.finfo(float).eps * np.log(truth)) * truth).all()
    bars = kernels.stationary_vjp(np.ones((N1, N2)), "rbf", X1, X2, 1.0, np.full(2, 0.5))
    exact = oracle.stationary_vjp(np.ones((N1, N2)), "rbf", X1, X2, 1.0, np.full(2, 0.5))
    for bar, true in zip(bars, exact, strict=True):
        np.testing.assert_allclose(bar, true, rtol=1e-12)
    assert kernels.stationary("rbf", X1, None, 1.0, 0.5).shape == (N1, N1)
    assert kernels.stationary_vjp(np.ones((N1, N1)), "rbf", X1, None, 1.0, 0.5)[0].shape == (N1, 2)


def test_strides_orders_and_read_only_inputs(rng, form):
    X1, X2, variance, lengthscales = problem(rng, 17, 65, 3)
    K_bar = rng.standard_normal((17, 65))
    K = kernels.stationary("matern32", X1, X2, variance, lengthscales)
    expected = kernels.stationary_vjp(K_bar, "matern32", X1, X2, variance, lengthscales)
    wide, tall = np.full((17, 6), np.nan), np.asfortranarray(X2)
    wide[:, ::2] = X1
    tall.flags.writeable = False
    np.testing.assert_array_equal(
        kernels.stationary("matern32", wide[:, ::2], tall, variance, lengthscales[::-1][::-1]), K
    )
    spread = np.full((34, 130), np.nan)
    spread[::2, ::2] = K_bar
    frozen = K_bar.copy()
    frozen.flags.writeable = False
    turned = np.asfortranarray(K_bar)
    for bar, known in (
        (turned, np.asfortranarray(K)),
        (turned, K),
        (spread[::2, ::2], K),
        (frozen, K),
    ):
        bars = kernels.stationary_vjp(
            bar, "matern32", wide[:, ::2], tall, variance, lengthscales, K=known
        )
        for a, b in zip(bars, expected, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12)
    for name, i in (("X1", 0), ("X2", 1)):
        bars = kernels.stationary_vjp(
            np.asfortranarray(K_bar), "matern32", X1, X2, variance, lengthscales, need=(name,)
        )
        assert [b is None for b in bars] == [j != i for j in range(4)]
        np.testing.assert_allclose(bars[i], expected[i], rtol=1e-12, atol=1e-12)


def test_leading_batch_axes(rng):
    X1, X2 = rng.standard_normal((2, 3, 5, 2)), rng.standard_normal((2, 3, 4, 2))
    lengthscales = np.array([0.7, 1.2])
    K = kernels.stationary("rbf", X1, X2, 1.3, lengthscales)
    K_bar = rng.standard_normal(K.shape)

    def f(X1, X2, variance, lengthscales):
        return np.stack(
            [
                [
                    oracle.stationary("rbf", X1[i, j], X2[i, j], variance, lengthscales)
                    for j in range(3)
                ]
                for i in range(2)
            ]
        )

    due = f(X1, X2, 1.3, lengthscales)
    # exp(-x) has x times the rounding error of x
    assert (np.abs(K / due - 1) <= 1e-14 * np.maximum(1, -np.log(due / 1.3))).all()
    arguments = X1, X2, 1.3, lengthscales
    assert_adjoint(
        f, exactly(*arguments), kernels.stationary_vjp(K_bar, "rbf", *arguments, K=K), K_bar, rng
    )
    S = kernels.stationary("rbf", X1, None, 1.3, lengthscales)
    S_bar = rng.standard_normal(S.shape)
    S_bar += S_bar.swapaxes(-1, -2)
    X_bar, none, *rest = kernels.stationary_vjp(S_bar, "rbf", X1, None, 1.3, lengthscales)
    assert none is None
    assert_adjoint(
        lambda X, *rest: f(X, X, *rest), exactly(X1, 1.3, lengthscales), (X_bar, *rest), S_bar, rng
    )


@pytest.mark.parametrize("family", FAMILIES)
@looped("D", [1, 3, 40])
def test_nan_stays_in_its_row_and_column(rng, form, family, D):
    X1, X2, variance, lengthscales = problem(rng, 17, 65, D)
    X1[4, -1] = np.nan
    K = kernels.stationary(family, X1, X2, variance, lengthscales)
    assert np.isnan(K[4]).all() and np.isfinite(np.delete(K, 4, axis=0)).all()
    S = kernels.stationary(family, X1, None, variance, lengthscales)
    assert np.isnan(S[4]).all() and np.isnan(S[:, 4]).all() and np.isnan(S).sum() == 33
    X1_bar, *rest = kernels.stationary_vjp(
        np.ones((17, 65)), family, X1, X2, variance, lengthscales
    )
    assert np.isnan(X1_bar[4]).all() and all(np.isnan(bar).all() for bar in rest)


@pytest.mark.parametrize("family", FAMILIES)
@looped("dtype", [np.float64, np.float32])
@looped("D", [1, 5, 40])
def test_distances_whose_square_overflows(rng, form, family, D, dtype):
    """Clusters effectively infinitely far apart are independent, and nothing becomes NaN."""
    scale = np.sqrt(np.finfo(dtype).max)
    near = rng.standard_normal((2, 8, D)).astype(dtype)
    near[1] = near[0]
    far = (scale * np.arange(2, 5)[:, None] * np.ones(D)).astype(dtype)
    X1, X2 = np.concatenate([near[0], far]), np.concatenate([near[1], far + scale, far])
    K = kernels.stationary(family, X1, X2, dtype(1.7), dtype(0.9))
    np.testing.assert_array_equal(K[:8, 8:], 0)
    np.testing.assert_array_equal(np.diag(K[8:, 11:]), dtype(1.7))
    for known in (None, K):
        bars = kernels.stationary_vjp(
            np.ones_like(K), family, X1, X2, dtype(1.7), dtype(0.9), K=known
        )
        alone = kernels.stationary_vjp(
            np.ones((8, 8), dtype), family, X1[:8], X2[:8], dtype(1.7), dtype(0.9)
        )
        assert all(np.isfinite(bar).all() for bar in bars)
        np.testing.assert_allclose(bars[3], alone[3], rtol=1e-4 if dtype == np.float32 else 1e-12)
