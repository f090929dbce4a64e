"""Sobol' indices against known values, enumeration of all combinations, and invariances."""

import numpy as np
import pytest
from oracles import sensitivity as oracle
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.sensitivity.sobol_indices import _evaluate, _shares
from tests.sensitivity.test_effects import KINDS, deep, svgp


@pytest.fixture
def rng():
    return generator(1)


@pytest.fixture
def X(rng):
    X = rng.uniform(-1, 1, (24, 3))
    X[:, 2] = rng.integers(0, 3, 24)
    return X


def of_function(f, X, groups=None, seed=0):
    groups = groups or [(d,) for d in range(X.shape[1])]
    points = _evaluate(lambda at: f(at)[:, None], X, groups, 8192, np.random.default_rng(seed))
    return _shares(*points)[0][:, 0]


def test_the_ishigami_function_has_its_indices():
    """Ishigami and Homma 1990, a = 7, b = 0.1: 0.3139, 0.4424 and 0 (and 0.2437 jointly)."""
    U = np.pi * np.linspace(-1, 1, 4001)[:, None] * np.ones(3)
    a, b = 7, 0.1

    def f(X):
        return (1 + b * X[:, 2] ** 4) * np.sin(X[:, 0]) + a * np.sin(X[:, 1]) ** 2

    V = a**2 / 8 + b * np.pi**4 / 5 + b**2 * np.pi**8 / 18 + 0.5
    exact = np.array([0.5 * (1 + b * np.pi**4 / 5) ** 2, a**2 / 8, 0]) / V
    np.testing.assert_allclose(of_function(f, U), exact, atol=3e-3)


@pytest.mark.parametrize("seed", [0, 1])
def test_sobols_product_has_its_indices(seed):
    """The g function, prod (|4 x - 2| + a) / (1 + a): V_d = 1 / (3 (1 + a_d)^2)."""
    a = np.array([0.0, 1.0, 4.5, 9.0, 99.0])
    U = np.linspace(0, 1, 4001)[:, None] * np.ones(5)
    V = 1 / (3 * (1 + a) ** 2)
    exact = V / (np.prod(1 + V) - 1)
    found = of_function(lambda X: np.prod((np.abs(4 * X - 2) + a) / (1 + a), axis=1), U, seed=seed)
    np.testing.assert_allclose(found, exact, atol=6e-3)


def test_the_index_of_a_function_of_one_column_is_1(rng):
    X = rng.standard_normal((500, 40))
    X[:, 1] = 0  # constant
    assert of_function(lambda X: np.exp(X[:, 3]), X)[3] == pytest.approx(1, abs=5e-3)
    found = of_function(lambda X: X @ np.arange(40.0), X)
    exact = np.arange(40) ** 2 * X.var(axis=0)
    np.testing.assert_allclose(found, exact / exact.sum(), atol=7e-3)
    assert found[0] < 1e-3 and found[1] == 0
    np.testing.assert_array_equal(of_function(lambda X: np.ones(len(X)), X), 0)


@pytest.mark.parametrize("groups", [[(0,), (1,), (2,)], [(0,), (1, 2)]])
def test_indices_of_a_posterior_mean_are_those_of_all_combinations(rng, X, groups):
    model = svgp(rng, X)
    found = fs.sobol(model, X, groups)
    exact = oracle.first_order(lambda at: fs.predict_f(model, at)[0], X, groups)
    np.testing.assert_allclose(found.first, exact, atol=8e-3)
    assert (found.low <= found.high).all() and (found.low >= 0).all() and (found.high <= 1).all()


def test_bands_are_those_of_draws(rng, X):
    """Indices of functions drawn by sample_f at all combinations, by the definition."""
    model, X = svgp(rng, X[:, ::2], covariance=fs.RBF(1.0, np.ones(2))), X[:8, ::2]
    found = fs.sobol(model, X, num_draws=400)
    grid = np.stack(np.meshgrid(X[:, 0], X[:, 1], indexing="ij"), axis=-1).reshape(-1, 2)
    draws = fs.sample_f(model, grid, 400, rng=1).reshape(400, 8, 8)
    V = draws.var(axis=(1, 2))
    exact = np.stack([draws.mean(axis=2).var(axis=1), draws.mean(axis=1).var(axis=1)]) / V
    low, high = np.quantile(exact, (0.025, 0.975), axis=1)
    np.testing.assert_allclose(found.low, low, atol=0.06)
    np.testing.assert_allclose(found.high, high, atol=0.06)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_model(rng, X, kind):
    model = KINDS[kind](rng, X)
    found = fs.sobol(model, X, num_draws=20, num_points=256)
    P = np.size(fs.predict_f(model, X[:1], var=False))
    assert found.first.shape == found.low.shape == ((3, 2) if P == 2 else (3,))
    assert (found.first.sum(axis=0) <= 1.01).all() and (found.low <= found.high).all()


def test_deep_gps_float32_and_targets(rng, X):
    options = {"num_draws": 20, "num_points": 256}
    assert fs.sobol(deep(rng, X), X, **options).first.shape == (3,)
    single, double = (svgp(generator(1), X, dtype=one) for one in (np.float32, np.float64))
    one, two = fs.sobol(single, X.astype(np.float32), **options), fs.sobol(double, X, **options)
    np.testing.assert_allclose(one.first, two.first, atol=1e-3)
    classes = svgp(rng, X, (3,), likelihood=fs.Softmax(3))
    assert fs.sobol(classes, X, targets=True, **options).first.shape == (3, 3)
    # E[y | f] is f for Gaussian noise
    np.testing.assert_allclose(
        fs.sobol(double, X, targets=True, **options).first, two.first, atol=1e-6
    )


def test_order_and_units_of_columns_do_not_matter(rng, X):
    model = svgp(rng, X)
    options = {"num_draws": 20, "num_points": 256}
    found, back = fs.sobol(model, X, **options), [2, 0, 1]
    np.testing.assert_allclose(
        fs.sobol(model, X, back, **options).first, found.first[back], atol=1e-2
    )
    longer = fs.records.replace_at(
        model, "covariance.lengthscales", 3 * model.covariance.lengthscales
    )
    longer = fs.replace(longer, inducing=3 * model.inducing)
    for one, other in zip(fs.sobol(longer, 3 * X, **options), found, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)
    shuffled = fs.sobol(model, rng.permutation(X), **options)
    np.testing.assert_allclose(shuffled.first, found.first, atol=1e-9)


def test_groups_of_many_different_rows_are_refused(rng):
    X = rng.standard_normal((80, 3))
    with pytest.raises(ValueError, match=r"\(0, 2\) have 80 different rows together; .* have 64"):
        fs.sobol(svgp(rng, X), X, [(0, 2)])


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_few_different_rows_at_long_lengthscales_are_drawn(rng, dtype):
    """1024 points, of which 9 differ, far below the lengthscale."""
    X = rng.integers(0, 3, (100, 2)).astype(np.float64)
    sgpr = fs.SGPR(fs.RBF(100.0, np.full(2, 300.0)), X[:9] + 0.1, noise_variance=0.01)
    model = fs.records.tree_map(dtype, fs.optimal_svgp(sgpr, X, X.sum(axis=1)))
    found = fs.sobol(model, X.astype(dtype))
    assert np.isfinite(found.low + found.high).all() and found.first.sum() > 0.9
    if dtype is np.float64:
        np.testing.assert_allclose(found.first, X.var(axis=0) / X.var(axis=0).sum(), atol=0.03)
