"""Features of covariances: they have the covariance, and a reverse rule in the points."""

import tracemalloc

import numpy as np
import pytest
from support.covariance_problems import cast
from support.looped import looped
from support.numerics import nine_point

import fastsvgp as fs
from fastsvgp import kernels

D, N = 3, 6
IMAGES = {"image_shape": (1, 3), "patch_shape": (1, 2)}
# covariances of finite rank: their features are exact
EXACT = {
    "linear": lambda rng: fs.Linear(rng.uniform(0.5, 2, D)),
    "linear shared": lambda rng: fs.Linear(0.7),
    "constant": lambda rng: fs.covariances.Constant(0.6),
    "cosine": lambda rng: fs.covariances.Cosine(1.2, rng.uniform(0.1, 0.4, D)),
    "polynomial": lambda rng: fs.covariances.Polynomial(rng.uniform(0.5, 2, D), 0.7, degree=1),
    "coregion": lambda rng: fs.covariances.Coregion(
        rng.standard_normal((4, 2)), rng.uniform(0.3, 1, 4)
    ).on(2),
    "categorical": lambda rng: fs.covariances.Categorical(1.3, 0.8).on(1),
    "categorical with a lengthscale per column": lambda rng: fs.covariances.Categorical(
        0.7, np.ones(1)
    ).on(0),
    "categories": lambda rng: fs.covariances.Categorical(0.7, rng.uniform(0.5, 2, 2)).on(2, 0),
    "categories with one lengthscale": lambda rng: fs.covariances.Categorical(1.2, 0.9).on(0, 1),
    "sum": lambda rng: fs.Linear(0.7) + 0.4 + fs.covariances.Cosine(1.1, 0.3),
    "product": lambda rng: fs.Linear(0.7) * fs.covariances.Cosine(1.1, 0.3) * 0.8,
    "change points": lambda rng: fs.covariances.ChangePoints(
        (fs.Linear(0.7), fs.covariances.Constant(0.9)), at=np.array([0.2]), steepness=1.5, column=1
    ),
    "on features": lambda rng: fs.covariances.OnFeatures(
        fs.Linear(0.8), fs.covariances.Network.random((D, 4, 2), rng=1)
    ),
    "convolutional": lambda rng: fs.covariances.Convolutional(
        fs.Linear(0.8), rng.standard_normal(2), **IMAGES
    ),
}
RANDOM = {
    "rbf": lambda rng: fs.RBF(1.3, rng.uniform(0.8, 2, D)),
    "matern12": lambda rng: fs.Matern12(1.3, 1.4),
    "matern32": lambda rng: fs.Matern32(0.8, rng.uniform(0.8, 2, D)),
    "matern52": lambda rng: fs.Matern52(0.8, rng.uniform(0.8, 2, D)),
    "rational quadratic": lambda rng: fs.covariances.RationalQuadratic(
        1.3, rng.uniform(0.8, 2, D), 0.7
    ),
    "sum of equal parts": lambda rng: fs.RBF(0.7, 1.1) + fs.RBF(0.7, 1.1),
    "sum and linear": lambda rng: fs.Matern52(0.7, 1.1) + fs.Linear(0.5),
    "product with linear": lambda rng: fs.RBF(0.7, 1.1) * fs.Linear(0.5) * 0.9,
    "product of rbf": lambda rng: (
        fs.RBF(0.7, rng.uniform(0.8, 2, D)) * fs.RBF(1.3, 1.1) * 0.9 * fs.RBF(1.2, 2.0)
    ),
    "mixture": lambda rng: fs.covariances.spectral_mixture(
        [0.8, 0.5], rng.uniform(0.1, 0.4, (2, D)), rng.uniform(0.1, 0.3, (2, D))
    ),
    "on": lambda rng: fs.RBF(0.8, 1.2).on(2, 0),
    "of an output": lambda rng: (
        fs.RBF(0.8, 1.2).on(0, 1)
        * fs.covariances.Coregion(rng.standard_normal((4, 1)), rng.uniform(0.3, 1, 4)).on(2)
    ),
    "of a category": lambda rng: (
        fs.covariances.Categorical(0.7, 2.1).on(1) * fs.Matern52(1.2, 0.9).on(0, 2)
    ),
    "periodic": lambda rng: fs.Periodic(fs.RBF(1.2, rng.uniform(0.8, 2, D)), 2.3),
    "periodic mixture": lambda rng: fs.Periodic(
        fs.covariances.RationalQuadratic(0.9, 1.1, 1.4), rng.uniform(2, 4, D)
    ),
    "change points of rbf": lambda rng: fs.covariances.ChangePoints(
        (fs.RBF(0.7, 0.9), fs.Matern32(0.9, 1.5)), at=np.array([0.2]), steepness=1.5, column=1
    ),
    "rbf on features": lambda rng: fs.covariances.OnFeatures(
        fs.RBF(0.8, 1.2), fs.covariances.Network.random((D, 4, 2), rng=1)
    ),
    "rbf of patches": lambda rng: fs.covariances.Convolutional(
        fs.RBF(0.8, 1.2), rng.standard_normal(2), **IMAGES
    ),
}
EVERY = EXACT | RANDOM


def points(rng, covariance, *shape, dtype=np.float64):
    X = rng.uniform(-1.5, 1.5, (*shape, D))
    for column, levels in covariance.code_columns(D).items():
        X[..., column] = rng.integers(0, levels or 4, shape)
    return X.astype(dtype)


def moves(covariance, X):
    """Return 1 for columns that can move: not codes."""
    free = np.ones_like(X)
    free[..., list(covariance.code_columns(D))] = 0
    return free


@pytest.mark.parametrize("name", EXACT)
@looped("own", [False, True])
def test_finite_ranks_are_exact(rng, name, own):
    covariance = EXACT[name](rng)
    X, features = points(rng, covariance, N), covariance.features(10, 3, D)
    w = np.eye(features.size)[:, None]  # function j is feature j
    at = np.broadcast_to(X, (len(w), N, D)).copy() if own else X
    Phi = features.multiply(at, w)[:, 0]
    np.testing.assert_allclose(Phi.T @ Phi, covariance.matrix(X), rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", RANDOM)
def test_random_features_have_the_covariance(rng, name):
    """On average over seeds: every entry within five standard errors."""
    covariance, seeds = RANDOM[name](rng), 400
    X, products = points(rng, covariance, N), []
    for _ in range(seeds):
        features = covariance.features(8, int(rng.integers(0, 2**63)), D)
        Phi = features.multiply(X, np.eye(features.size)[:, None])[:, 0]
        products.append(Phi.T @ Phi)
    mean, error = np.mean(products, 0), np.std(products, 0) / np.sqrt(seeds)
    assert np.all(np.abs(mean - covariance.matrix(X)) <= 5.5 * error + 1e-12)


@pytest.mark.parametrize("name", [name for name in RANDOM if not name.startswith("of a")])
def test_the_random_numbers_of_a_feature_are_independent(rng, name):
    """Few seeds with many features each: a factor that follows its frequency shows itself."""
    covariance = RANDOM[name](rng)
    X, products = points(rng, covariance, N), []
    for _ in range(60):
        features = covariance.features(256, int(rng.integers(0, 2**63)), D)
        Phi = features.multiply(X, np.eye(features.size)[:, None])[:, 0]
        products.append(Phi.T @ Phi)
    mean, error = np.mean(products, 0), np.std(products, 0) / np.sqrt(60)
    assert np.all(np.abs(mean - covariance.matrix(X)) <= 6 * error + 1e-12)


@pytest.mark.parametrize("name", EVERY)
@looped("own", [False, True])
@looped("seeds", ["one", "each"])
def test_reverse_rule(rng, name, own, seeds):
    covariance, S, P = EVERY[name](rng), 2, 2
    seeds = 7 if seeds == "one" else np.array([3, 2**63 + 1], np.uint64)
    features = covariance.features(6, seeds, D)
    X = points(rng, covariance, *((S, 4) if own else (4,)))
    w, bar = rng.standard_normal((S, P, features.size)), rng.standard_normal((S, P, 4))
    X_bar = features.multiply_vjp(bar, X, w)
    assert X_bar.shape == X.shape
    direction = rng.standard_normal(X.shape) * moves(covariance, X)
    # short steps: the frequencies of a Matern12 have heavy tails
    expected = nine_point(lambda h: (features.multiply(X + h * direction, w) * bar).sum(), h=2e-4)
    np.testing.assert_allclose((X_bar * direction).sum(), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", EVERY)
def test_own_points_and_dtypes(rng, name):
    """Own points that are equal give the values at shared ones; float32 those of float64."""
    covariance, S = EVERY[name](rng), 3
    features = covariance.features(6, np.array([3, 2**63 + 1, 9], np.uint64), D)
    X, w = points(rng, covariance, 4), rng.standard_normal((S, 2, features.size))
    shared = features.multiply(X, w)
    np.testing.assert_allclose(
        features.multiply(np.broadcast_to(X, (S, 4, D)).copy(), w), shared, atol=1e-12
    )
    single = cast(covariance, np.float32).features(6, np.array([3, 2**63 + 1, 9], np.uint64), D)
    found = single.multiply(X.astype("f4"), w.astype("f4"))
    assert found.dtype == np.float32
    assert single.multiply_vjp(found, X.astype("f4"), w.astype("f4")).dtype == np.float32
    np.testing.assert_allclose(found, shared, atol=3e-4 * max(1, np.abs(shared).max()))


@pytest.mark.parametrize(
    "covariance",
    [
        fs.covariances.Additive([1.0]),
        fs.RBF() + fs.covariances.ArcCosine(),
        fs.covariances.Polynomial(degree=2),
        fs.covariances.Categorical().on(0, 1, 2, 3),
        fs.RBF() * fs.Matern32(),
    ],
    ids=repr,
)
def test_covariances_without_features_say_so(covariance):
    with pytest.raises(TypeError, match=r"features.*sample_f"):
        covariance.features(10, 3, 1)


@pytest.mark.parametrize("name", EVERY)
@looped("own", [False, True])
def test_runs_of_points_join(rng, name, own, monkeypatch):
    """Values and cotangents do not depend on the memory; no points are no values."""
    covariance, S, n = EVERY[name](rng), 2, 7
    features = covariance.features(6, np.array([3, 8], np.uint64), D)
    X = points(rng, covariance, *((S, n) if own else (n,)))
    w, bar = rng.standard_normal((S, 2, features.size)), rng.standard_normal((S, 2, n))
    whole = features.multiply(X, w), features.multiply_vjp(bar, X, w)
    monkeypatch.setattr(kernels, "chunk_numbers", lambda like: 60)
    for found, once in zip(
        (features.multiply(X, w), features.multiply_vjp(bar, X, w)), whole, strict=True
    ):
        np.testing.assert_allclose(found, once, rtol=0, atol=1e-12 * max(1, np.abs(once).max()))
    none = X[..., :0, :]
    assert features.multiply(none, w).shape == (S, 2, 0)
    assert features.multiply_vjp(bar[..., :0], none, w).shape == none.shape


@pytest.mark.parametrize("own", [False, True])
@pytest.mark.parametrize("name", ["patches", "product", "network"])
def test_memory_of_runs(rng, name, own):
    """It does not grow with the points: at most twice that of a run, 2^21 numbers."""
    covariance, columns = {
        "patches": (
            fs.covariances.Convolutional(fs.RBF(), 0.1, image_shape=(8, 8), patch_shape=(3, 3)),
            64,
        ),
        "product": (fs.RBF() * fs.covariances.Coregion(np.ones((9, 3)), np.ones(9)).on(0), 2),
        "network": (
            fs.covariances.OnFeatures(fs.RBF(), fs.covariances.Network.random((2, 500, 3), rng=0)),
            2,
        ),
    }[name]
    S, n = 4, 3000
    features = covariance.features(4, 0, columns)
    X = np.zeros((S, n, columns) if own else (4 * n, columns))
    w, bar = np.ones((S, 2, features.size)), np.ones((S, 2, X.shape[-2]))
    few = np.ascontiguousarray(X[..., :2, :])
    features.multiply_vjp(features.multiply(few, w), few, w)  # loads the code
    for call, size in (
        (lambda: features.multiply(X, w), bar.size),
        (lambda: features.multiply_vjp(bar, X, w), X.size + bar.size),
    ):
        tracemalloc.start()
        call()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak <= 8 * (size + 2**22)


def test_quantiles_of_a_mixture_are_drawn_once(rng, monkeypatch):
    covariance, seeds = (
        fs.covariances.RationalQuadratic(1.0, 1.1, rng.uniform(0.5, 2)),
        np.arange(3),
    )
    X, w = points(rng, covariance, 4), rng.standard_normal((3, 1, 6))
    first = covariance.features(6, seeds.astype(np.uint64), D).multiply(X, w)
    monkeypatch.setattr(kernels, "fourier_frequencies", None)
    again = covariance.features(6, seeds.astype(np.uint64), D).multiply(X, w)
    np.testing.assert_array_equal(again, first)


def test_codes_beyond_the_features_are_named(tune):
    features = fs.covariances.Categorical().features(4, 0, 1)
    tune(feature_codes=3)
    few = fs.covariances.Categorical().features(4, 0, 1)
    for some, last in ((features, 31), (few, 2)):
        w = np.ones((1, 1, some.size))
        assert some.multiply(np.array([[last]], float), w).shape == (1, 1, 1)
        with pytest.raises(ValueError, match=rf"codes 0 to {last}, got {last + 1}; a Coregion"):
            some.multiply(np.array([[last + 1], [0]], float), w)
