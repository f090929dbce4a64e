"""Rank scaling of inputs: the monotone map per column, its inverse, and its JSON."""

import json

import numpy as np
import pytest
from scipy.special import ndtri

from fastsvgp.recipes.fitted import scale_from_json, scale_to_json
from fastsvgp.recipes.scaling import KNOTS, Monotone, Scale


def skewed(rng, N=2000):
    return np.exp(2 * rng.standard_normal(N))


def test_ranks_become_normal_quantiles(rng):
    x = skewed(rng)
    column = Monotone.fit(x)
    assert len(column.knots) <= KNOTS and (np.diff(column.values) > 0).all()
    z = np.interp(x, column.knots, column.values)
    assert abs(z.mean()) < 1e-12 and abs(z.std() - 1) < 1e-12
    ranks = (np.argsort(np.argsort(x)) + 0.5) / len(x)
    # linear between knots in the units of x: the far tails of a skewed column are coarse
    assert np.corrcoef(z, ndtri(ranks))[0, 1] > 0.999


def test_few_values_are_at_their_mid_ranks():
    x = np.repeat([0.0, 1.0, 10.0], [2, 5, 3])
    column = Monotone.fit(x)
    at = ndtri(np.array([1.0, 4.5, 8.5]) / 10)
    z = np.repeat(at, [2, 5, 3])
    np.testing.assert_allclose(column.values, (at - z.mean()) / z.std(), rtol=1e-13)


def test_map_goes_on_beyond_its_ends_and_is_affine_for_two_values(rng):
    X = np.c_[skewed(rng), rng.integers(0, 2, 2000), np.full(2000, 3.0)]
    scale = Scale.fit(X, X[:, 0], True)
    ranks = scale.add_column_maps(X)
    assert [column is None for column in ranks.x_map] == [False, True, True]
    column, (low, high) = ranks.x_map[0], (X[:, 0].min(), X[:, 0].max())
    far = np.array([[low - 0.1, 0.0, 3.0], [high + 0.1, 1.0, 3.0], [high, 5.0, 3.0]])
    out = ranks.X(far)
    assert out[2, 0] == column.values[-1]
    # the mean slope of the unit of values nearest to an end
    inner = np.interp([column.values[0] + 1, column.values[-1] - 1], column.values, column.knots)
    slopes = 1 / np.abs(inner - [low, high])
    np.testing.assert_allclose(column.values[0] - out[0, 0], 0.1 * slopes[0], rtol=0.2)
    np.testing.assert_allclose(out[1, 0] - column.values[-1], 0.1 * slopes[1], rtol=0.2)
    np.testing.assert_allclose(ranks.X_back(out), far, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(out[:, 1:], scale.X(far)[:, 1:])
    assert np.isfinite(ranks.X(np.array([[1e150, 0, 0], [-1e150, 0, 0]]))).all()


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_map_inverts_and_survives_json(rng, dtype):
    X = np.c_[skewed(rng), rng.standard_normal(2000)].astype(dtype)
    ranks = Scale.fit(X, X[:, 0], True).add_column_maps(X)
    Z = ranks.X(X[:50])
    assert Z.dtype == dtype
    np.testing.assert_allclose(ranks.X_back(Z), X[:50], rtol=1e-4 if dtype == np.float32 else 1e-9)
    again = scale_from_json(json.loads(json.dumps(scale_to_json(ranks))))
    np.testing.assert_array_equal(again.X(X), ranks.X(X))


def test_a_weight_of_two_is_the_row_twice(rng):
    x = rng.standard_normal(300).round(2)
    counts = rng.integers(1, 4, 300)
    one, other = Monotone.fit(x, counts.astype(float)), Monotone.fit(np.repeat(x, counts))
    np.testing.assert_array_equal(one.knots, other.knots)
    np.testing.assert_allclose(one.values, other.values, atol=1e-12)


def test_ranks_under_weights_that_sum_to_one_are_those_of_equal_weights(rng):
    x = skewed(rng, 300)
    plain, weighted = Monotone.fit(x), Monotone.fit(x, np.full(300, 1 / 300))
    np.testing.assert_allclose(weighted.values, plain.values, rtol=1e-9, atol=1e-12)
