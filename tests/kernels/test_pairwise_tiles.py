"""Stationary matrices of several tiles and row ranges on the CPU."""

import tracemalloc

import numpy as np
import pytest
from oracles import covariances as oracle
from support.looped import looped
from support.numerics import LONG, assert_as_accurate_as, exactly

from fastsvgp import kernels
from fastsvgp.kernels.cpu import pairwise


def typical(bar, K_bar):
    """Return the size of a cotangent.

    For a sum over all pairs it is the typical size of such sums: one sum can be small by chance.
    """
    return max(1, np.abs(bar).max(), np.linalg.norm(K_bar) / 4 if np.ndim(bar) < 2 else 0)


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
