"""Inducing inputs and lengthscales from data."""

import warnings
from typing import Any

import numpy as np
import pytest

from fastsvgp import kernels
from fastsvgp.covariances import RBF
from fastsvgp.covariances.base import Covariance
from fastsvgp.inducing import (
    choice,
    greedy_variance,
    kmeans,
    median_lengthscales,
)
from fastsvgp.records import leaf, record
from fastsvgp.records.inducing_sets import InducingPair


@record
class PlainRBF(Covariance):
    """exp(-|x - x'|^2 / (2 l^2)), written out."""

    lengthscale: Any = leaf("positive")

    def matrix(self, X1, X2=None):
        X2 = X1 if X2 is None else X2
        return np.exp(-0.5 * ((X1[:, None] - X2[None]) ** 2).sum(-1) / self.lengthscale**2)

    def diag(self, X):
        return np.ones(len(X))


@record
class PlainLinear(Covariance):
    """<x, x'>, of rank D."""

    def matrix(self, X1, X2=None):
        return X1 @ (X1 if X2 is None else X2).T

    def diag(self, X):
        return (X**2).sum(-1)


def distinct(Z):
    return len(np.unique(Z, axis=0))


BOTH = pytest.mark.parametrize(
    "choose",
    [kmeans, lambda X, M, rng=None: greedy_variance(X, M, PlainRBF(1.0), rng)],
    ids=["kmeans", "greedy"],
)


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64])
@pytest.mark.parametrize("N, M, D", [(1, 1, 1), (17, 17, 3), (300, 65, 2), (300, 3, 7)])
def test_shape_dtype_seed(rng, choose, dtype, N, M, D):
    X = (10 * rng.standard_normal((N, D))).astype(dtype)
    X = np.unique(X, axis=0) if dtype is np.int64 else X
    M = min(M, len(X))
    before = X.copy()
    Z = choose(X, M, 3)
    assert Z.shape == (M, D) and Z.dtype == (np.float32 if dtype is np.float32 else np.float64)
    assert distinct(Z) == M
    np.testing.assert_array_equal(Z, choose(X, M, np.random.default_rng(3)))
    np.testing.assert_array_equal(X, before)


@BOTH
def test_rows_repeat_only_if_too_few_are_distinct(rng, choose):
    X = rng.standard_normal((7, 2))[rng.integers(7, size=200)]
    X[:7] = np.unique(X, axis=0)[:7] if distinct(X) == 7 else X[:7]
    rows = distinct(X)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Z = choose(X, rows, rng)
    assert distinct(np.round(Z, 8)) == rows
    with pytest.warns(
        UserWarning, match=f"only {rows} of the 200 sampled rows.*are distinct.*3 are repeated"
    ) as caught:
        Z = choose(X, rows + 3, rng)
    assert [warning.filename for warning in caught] == [__file__]
    assert Z.shape == (rows + 3, 2)


@BOTH
def test_invalid_arguments_are_refused(choose):
    with pytest.raises(
        ValueError, match="5 inducing inputs were requested, but `X` has only 3 rows"
    ):
        choose(np.zeros((3, 2)), 5)
    with pytest.raises(TypeError, match="`M` must be a whole number of at least 1, got 'a'"):
        choose(np.zeros((3, 2)), "a")
    with pytest.raises(TypeError, match="`rng` must be None, a seed"):
        choose(np.zeros((3, 2)), 1, rng="a")
    with pytest.raises(ValueError, match="`M` must be a whole number of at least 1, got 0"):
        choose(np.zeros((3, 2)), 0)
    with pytest.raises(ValueError, match="`X` must have shape"):
        choose(np.zeros(3), 1)
    with pytest.raises(ValueError, match=r"`X` contains nan at index \(1, 0\);"):
        choose(np.array([[0.0], [np.nan]]), 1)
    with pytest.raises(TypeError, match="real numbers"):
        choose(np.array([["a"], ["b"]]), 1)


@BOTH
def test_memmap_larger_than_the_subset(tmp_path, rng, choose, monkeypatch):
    X = np.lib.format.open_memmap(
        tmp_path / "X.npy", mode="w+", shape=(200_000, 2), dtype=np.float32
    )
    X[:] = rng.standard_normal(X.shape)
    X.flush()
    X = np.load(tmp_path / "X.npy", mmap_mode="r")
    read = []
    real = choice.check.as_array
    monkeypatch.setattr(
        choice.check, "as_array", lambda name, a: read.append(np.size(a)) or real(name, a)
    )
    assert choose(X, 5, 0).shape == (5, 2)
    assert max(read) <= 2 * 50_000


class Frame:
    """The relevant part of a pandas.DataFrame: brackets select columns."""

    def __init__(self, values):
        self.values, self.shape, self.ndim = values, values.shape, values.ndim

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.values, dtype)

    def __getitem__(self, key):
        raise KeyError(key)


@BOTH
def test_data_frames_are_arrays(rng, choose):
    X = rng.standard_normal((30, 2))
    np.testing.assert_array_equal(choose(Frame(X), 5, 0), choose(X, 5, 0))


def test_kmeans_finds_clusters(rng):
    centres = 10 * rng.standard_normal((7, 3)) + 1000.0
    X = centres[rng.integers(7, size=700)] + 0.01 * rng.standard_normal((700, 3))
    Z = kmeans(X, 7, rng)
    assert np.abs(Z[:, None] - centres).max(-1).min(0).max() < 0.02


def test_kmeans_is_a_local_optimum_of_lloyd(rng):
    X = rng.standard_normal((400, 2))
    inertia = [
        choice._nearest(X, kmeans(X, 20, 5, iterations=i))[1].sum() for i in (0, 1, 3, 10, 30)
    ]
    assert (
        all(a >= b for a, b in zip(inertia[:-1], inertia[1:], strict=True))
        and inertia[-1] < 0.9 * inertia[0]
    )


def test_seeding_is_the_distribution_of_kmeans_plus_plus():
    """Frequencies of the third seed, given two of four points, match D^2 weights to five sigma."""
    X = np.array([[0.0], [1.0], [3.0], [7.0]])
    counts, expected = np.zeros((4, 4, 4)), np.zeros((4, 4, 4))
    for a in range(4):
        second = (X[:, 0] - X[a, 0]) ** 2
        for b in range(4):
            third = np.minimum(second, (X[:, 0] - X[b, 0]) ** 2)
            expected[a, b] = 0.25 * second[b] / second.sum() * third / max(third.sum(), 1e-300)
    rng, draws = np.random.default_rng(0), 4000
    for _ in range(draws):
        counts[tuple(choice._kmeans_seeds(X, 3, rng))] += 1
    error = np.sqrt(expected * (1 - expected) / draws)
    assert (np.abs(counts / draws - expected) <= 5 * error).all()


def test_greedy_is_greedy(rng):
    """Against conditional variances from dense algebra, choice by choice."""
    X = rng.standard_normal((40, 2))
    covariance = PlainRBF(0.7)
    Z = greedy_variance(X, 12, covariance, rng)
    K = covariance.matrix(X)
    for m in range(1, 12):
        Kuf, Kuu = covariance.matrix(Z[:m], X), covariance.matrix(Z[:m])
        left = np.diag(K) - np.sum(Kuf * np.linalg.solve(Kuu, Kuf), axis=0)
        taken = np.flatnonzero((X == Z[m]).all(1))
        assert left[taken] >= left.max() - 1e-9


def test_greedy_beyond_the_rank(rng):
    X = rng.standard_normal((50, 3))
    Z = greedy_variance(X, 20, PlainLinear(), rng)
    assert distinct(Z) == 20 and np.linalg.matrix_rank(Z[:3]) == 3


def test_greedy_ties_are_broken_by_the_generator():
    X = np.arange(5.0)[:, None] * 100
    assert len({float(greedy_variance(X, 1, PlainRBF(1.0), seed)[0, 0]) for seed in range(20)}) > 1


@pytest.mark.parametrize("N", [1, 17, 1024, 5000])
def test_deflate(rng, N):
    factor = rng.standard_normal((N, 5))
    factor[:, 3:] = np.nan
    column, variance = rng.standard_normal(N), rng.uniform(1, 2, N)
    pivot = N // 2
    row = (column - factor[:, :3] @ factor[pivot, :3]) / np.sqrt(variance[pivot])
    left = variance - row**2
    kernels.deflate(factor, 3, pivot, column, variance)
    np.testing.assert_allclose(factor[:, 3], row, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(variance, left, rtol=1e-12, atol=1e-12)


def test_median_lengthscales(rng):
    X = np.stack(
        [rng.standard_normal(3000), 100 * rng.standard_normal(3000), np.full(3000, 5.0)], axis=1
    )
    lengths = median_lengthscales(X, rng)
    np.testing.assert_allclose(lengths, [0.954 * np.sqrt(3), 95.4 * np.sqrt(3), 1.0], rtol=0.05)
    assert median_lengthscales(X.astype(np.float32), rng).dtype == np.float32
    one = median_lengthscales(X[:, :2], rng, ard=False)
    assert type(one) is float and 90 < one < 100
    # most pairs agree; the others differ by one
    binary = (rng.random((500, 1)) < 0.1).astype(float)
    np.testing.assert_array_equal(median_lengthscales(binary, rng), [1.0])
    np.testing.assert_array_equal(median_lengthscales(np.ones((1, 2)), rng), [1.0, 1.0])
    assert median_lengthscales(np.ones((4, 2)), rng, ard=False) == 1.0


def test_kmeans_stops_once_no_row_changes_its_centre(rng, monkeypatch):
    X, rounds, nearest = rng.standard_normal((50, 2)), [], choice._nearest
    monkeypatch.setattr(choice, "_nearest", lambda X, Z: rounds.append(len(Z)) or nearest(X, Z))
    Z = kmeans(X, 4, rng=0, iterations=2**31)
    assert rounds.count(4) < 60
    np.testing.assert_array_equal(Z, kmeans(X, 4, rng=0, iterations=200))
    assert not np.array_equal(Z, kmeans(X, 4, rng=0, iterations=1))


def test_two_sets_are_chosen_together(rng):
    X = rng.standard_normal((300, 2))
    for choose in (
        kmeans,
        lambda X, M, rng: greedy_variance(X, M, RBF(), rng=rng),
    ):
        pair, one = choose(X, (7, 4), rng=3), choose(X, 11, rng=3)
        assert type(pair) is InducingPair and pair.Z.shape == (7, 2) and pair.O.shape == (4, 2)
        np.testing.assert_array_equal(np.vstack([pair.Z, pair.O]), one)
    for wrong, error, message in (
        ((7, 4, 2), ValueError, "`M` must be a number, or two of them for an InducingPair, got 3"),
        ((7, 0), ValueError, "`M` must be a whole number of at least 1"),
        ((7, "4"), TypeError, "`M` must be a whole number"),
        ((290, 11), ValueError, "301 inducing inputs were requested, but `X` has only 300 rows"),
    ):
        with pytest.raises(error, match=message):
            kmeans(X, wrong)


def test_covariance_first_is_refused_with_the_order(rng):
    with pytest.raises(
        TypeError, match="got int; the arguments are X, M, covariance, in this order"
    ):
        greedy_variance(RBF(), rng.standard_normal((9, 2)), 3)
