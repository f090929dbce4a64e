"""Mean effects are averages of the posterior over rows, with the variance of the average."""

import numpy as np
import pytest
from oracles import sensitivity as oracle
from support.numerics import generator

import fastsvgp as fs
from fastsvgp.sensitivity.mean_effects import NORMAL

N, M, D = 24, 9, 3


@pytest.fixture
def rng():
    return generator(1)


@pytest.fixture
def X(rng):
    X = rng.uniform(-1, 1, (N, D))
    X[:, 2] = rng.integers(0, 3, N)
    return X


def svgp(rng, X, outputs=(), covariance=None, likelihood=None, dtype=np.float64):
    covariance = covariance or fs.RBF(1.3, np.array([0.7, 1.1, 0.9]))
    tril = 0.3 * np.tril(rng.standard_normal((*outputs, M, M)), -1) + 0.5 * np.eye(M)
    q = fs.Whitened(rng.standard_normal((*outputs, M)), tril)
    model = fs.SVGP(covariance, X[:M] + 0.05, q, likelihood or fs.Gaussian(0.1))
    return fs.records.tree_map(dtype, model)


def multi_gp(rng, X):
    one, two = svgp(rng, X), svgp(rng, X)
    layers = [fs.layers.Layer(one.covariance, one.inducing, each.posterior) for each in (one, two)]
    return fs.MultiGP(tuple(layers), one.likelihood, rng.standard_normal((2, 2)))


def vif(rng, X):
    one = svgp(rng, X)
    model = fs.VIF(one.covariance, one.inducing, one.posterior, one.likelihood)
    return fs.replace(model, near=fs.neighbours(X, one.covariance, 4, Y=np.sin(X[:, 0])))


def qsgp(rng, X):
    basis = fs.qsgp.RandomFourier(fs.RBF(1.0, np.ones(D)), num_features=20)
    weights = fs.qsgp.ChevronWeights(rng.standard_normal(20), np.eye(20, 1), np.ones(19))
    return fs.QSGP(basis, weights, fs.Gaussian(0.1))


def deep(rng, X):
    return fs.layers.deep_gp(X, fs.Gaussian(0.1), num_layers=2, M=6)


KINDS = {"MultiGP": multi_gp, "VIF": vif, "QSGP": qsgp, "SVGP": svgp}


def moments(model):
    """Mean and covariance of the first function of a model at rows."""

    def m(X):
        return fs.predict_f(model, X)[0].reshape(len(X), -1)[:, 0]

    def k(X):
        return fs.predict_f(model, X, full_cov=True)[1].reshape(-1, len(X), len(X))[0]

    return m, k


@pytest.mark.parametrize("kind", KINDS)
def test_bands_are_those_of_the_average_under_the_joint_posterior(rng, X, kind):
    model = KINDS[kind](rng, X)
    for effect in fs.effects(model, X, [0, (1, 2)], num_points=3):
        assert effect.grid.shape == ((3,) if len(effect.columns) == 1 else (3, 2))
        for g, point in enumerate(effect.grid):
            mean, var = oracle.effect(*moments(model), X, effect.columns, point)
            found = [np.ravel(part[g])[0] for part in effect[2:]]
            reach = NORMAL * np.sqrt(var)
            np.testing.assert_allclose(found, [mean, mean - reach, mean + reach], atol=2e-5)


def test_effects_of_an_additive_process_are_its_parts(rng, X):
    """f = f0(x0) + f1(x1): the effect is the part, plus the average of the other."""
    on = [fs.covariances.On(fs.RBF(1.0, np.ones(1)), (d,)) for d in range(2)]
    covariance = on[0] + on[1]
    y = np.sin(2 * X[:, 0]) + X[:, 1] ** 2
    K = covariance.matrix(X) + 1e-4 * np.eye(N)
    weights = np.linalg.solve(K, y)
    sgpr = fs.SGPR(covariance, X, noise_variance=1e-4)
    model = fs.optimal_svgp(sgpr, X, y, jitter=1e-9)
    first, second = fs.effects(model, X, [0, 1], num_points=7, jitter=1e-9)
    for d, effect in enumerate((first, second)):
        at = np.zeros((7, D))
        at[:, d] = effect.grid
        part = on[d].matrix(at, X) @ weights
        other = (on[1 - d].matrix(X) @ weights).mean()
        np.testing.assert_allclose(effect.mean, part + other, atol=1e-4)
    np.testing.assert_allclose(np.diff(first.mean), np.diff(np.sin(2 * first.grid)), atol=0.1)


def test_rows_and_their_order_count_once(rng, X):
    """Shuffled or repeated rows change nothing; an input that f ignores has a flat effect."""
    covariance = fs.covariances.On(fs.RBF(1.0, np.ones(2)), (0, 2))
    model = svgp(rng, X, covariance=covariance)
    expected = fs.effects(model, X)
    for rows in (rng.permutation(X), np.concatenate([X, X])):
        for one, other in zip(fs.effects(model, rows), expected, strict=True):
            for a, b in zip(one[1:], other[1:], strict=True):
                np.testing.assert_allclose(a, b, atol=1e-10)
    for part in expected[1][2:]:
        np.testing.assert_allclose(part, part[0], atol=1e-12)
    assert np.ptp(expected[0].mean) > 1e-3
    assert expected[2].grid.tolist() == sorted(set(X[:, 2]))


def test_one_input_gives_the_prediction(rng, X):
    """Nothing is averaged: mean and band are those of predict_f."""
    X = X[:, :1]
    model = svgp(rng, X, covariance=fs.RBF(1.0, np.ones(1)))
    (effect,) = fs.effects(model, X, num_points=5)
    mean, var = fs.predict_f(model, effect.grid[:, None])
    np.testing.assert_allclose(effect.mean, mean, atol=1e-6)
    np.testing.assert_allclose(effect.high - effect.mean, NORMAL * np.sqrt(var), atol=1e-5)


def test_effects_on_targets_are_probabilities_and_rates(rng, X):
    classes = svgp(rng, X, (3,), likelihood=fs.Softmax(3))
    counts = svgp(rng, X, likelihood=fs.Poisson())
    (effect,) = fs.effects(classes, X, [0], num_points=4, targets=True)
    assert effect.mean.shape == (4, 3)
    np.testing.assert_allclose(effect.mean.sum(axis=1), 1, atol=1e-3)
    (rates,) = fs.effects(counts, X, [0], num_points=4, targets=True)
    at = X.copy()
    at[:, 0] = rates.grid[2]
    assert rates.mean[2] == pytest.approx(fs.predict_y(counts, at)[0].mean(), rel=1e-5)
    for one in (effect, rates):
        assert (one.low < one.high).all() and (one.low > 0).all()
        assert ((one.low <= one.mean + 0.02) & (one.mean <= one.high * 1.2)).all()


def test_draws_agree_with_the_closed_form(rng, X):
    """For Gaussian noise E[y | f] is f: bands of 200 draws are near those in closed form."""
    model = svgp(rng, X)
    (exact,) = fs.effects(model, X, [0], num_points=4)
    (drawn,) = fs.effects(model, X, [0], num_points=4, targets=True)
    np.testing.assert_allclose(drawn.mean, exact.mean, atol=1e-6)
    width = exact.high - exact.low
    np.testing.assert_allclose((drawn.low - exact.low) / width, 0, atol=0.15)
    np.testing.assert_allclose((drawn.high - exact.high) / width, 0, atol=0.15)


def test_a_deep_gp_and_float32(rng, X):
    (effect,) = fs.effects(deep(rng, X), X, [0], num_points=4)
    assert effect.mean.shape == (4,) and (effect.low < effect.high).all()
    single = svgp(generator(1), X, dtype=np.float32)
    double = svgp(generator(1), X)
    (one,) = fs.effects(single, X.astype(np.float32), [0], num_points=4)
    (two,) = fs.effects(double, X, [0], num_points=4)
    np.testing.assert_allclose(one.mean, two.mean, atol=1e-2)
    np.testing.assert_allclose(one.high, two.high, atol=2e-2)


def test_rows_are_drawn_only_if_there_are_more(rng, X):
    model = svgp(rng, X)
    few = fs.effects(model, X, [0], num_rows=10, rng=3)[0].mean
    assert np.abs(few - fs.effects(model, X, [0])[0].mean).max() > 1e-3
    np.testing.assert_array_equal(few, fs.effects(model, X, [0], num_rows=10, rng=3)[0].mean)


@pytest.mark.parametrize(
    "change, error, message",
    [
        ({"columns": [3]}, ValueError, r"`columns` has 3; an entry is a number from 0 to 2, or"),
        ({"columns": []}, ValueError, "`columns` is empty; leave it out for all columns"),
        ({"columns": [(0, 0)]}, ValueError, r"`columns` has \(0, 0\)"),
        ({"columns": [-1]}, ValueError, "`columns` must be a whole number of at least 0, got -1"),
        ({"columns": 1}, TypeError, r"`columns` must be a sequence, such as \[0, 2\], got 1"),
        ({"columns": "ab"}, TypeError, "`columns` must be a sequence"),
        ({"num_points": 0}, ValueError, "`num_points` must be a whole number of at least 1"),
        ({"targets": 1}, TypeError, "`targets` must be True or False"),
        ({"rng": -3}, TypeError, "rng"),
        ({"X": np.zeros((0, 3))}, ValueError, "`X` is an empty batch"),
        ({"X": np.full((2, 3), np.nan)}, ValueError, "`X`"),
        ({"X": np.zeros((2, 5))}, ValueError, "5 columns"),
        ({"model": {}}, TypeError, "`model` must be a fastsvgp."),
        (
            {"model": fs.SGPR(fs.RBF(1.0, np.ones(3)), np.zeros((1, 3)), noise_variance=0.1)},
            TypeError,
            "got SGPR: predict with info.svgp",
        ),
    ],
)
@pytest.mark.parametrize("function", ["effects", "sobol"])
def test_bad_input(rng, X, change, error, message, function):
    arguments = {"model": svgp(rng, X), "X": X} | change
    if function == "sobol" and "num_points" in change:
        arguments["num_points"], message = 300, "`num_points` must be a power of two, got 300"
    with pytest.raises(error, match=message):
        getattr(fs, function)(**arguments)
