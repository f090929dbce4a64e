"""A VIF that takes new rows has the optimal q(u) of all, in an order in which they are last."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.records import leaves

N, M, OLD = 40, 6, 30


def problem(rng, k=4, outputs=None, kind=fs.Whitened, mean=None):
    """Return a VIF with the optimal q(u) of the first rows, and all rows."""
    X = rng.uniform(-2, 2, (N, 2))
    Y = np.sin(3 * X[:, 0]) + 0.2 * rng.standard_normal(N)
    Y = np.stack([Y, -2 * Y**2], axis=1) if outputs else Y
    covariance, Z = fs.Matern32(1.3, np.array([0.9, 1.2])), X[:M] + 0.01
    q = fs.posteriors.at_prior(fs.Whitened, covariance, Z, outputs)
    plain = fs.SVGP(covariance, Z, q, fs.Gaussian(0.05), mean)
    q = fs.posteriors.convert(plain, kind).posterior
    near = fs.neighbours(X[:OLD], covariance, k, Y=Y[:OLD])
    model = fs.VIF(covariance, Z, q, plain.likelihood, mean, near)
    return fs.natural_step(model, X[:OLD], Y[:OLD], step_size=1.0)[0], X, Y


def assert_same(one, other, atol=1e-8):
    for (path, _, a), (_, _, b) in zip(leaves(one), leaves(other), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-7, atol=atol, err_msg=path)


@pytest.mark.parametrize("outputs", [None, 2])
@pytest.mark.parametrize("kind", [fs.Whitened, fs.Marginal, fs.posteriors.DualSites])
def test_new_rows_give_the_optimum_of_all(rng, kind, outputs):
    mean = fs.means.LinearMean(np.array([0.3, -0.2]), 0.1)
    model, X, Y = problem(rng, outputs=outputs, kind=kind, mean=mean)
    both = fs.condition(model, X[OLD:], Y[OLD:])
    np.testing.assert_array_equal(both.near.X, X)
    np.testing.assert_array_equal(both.near.order[OLD:], np.arange(OLD, N))
    np.testing.assert_array_equal(both.near.earlier[:OLD], model.near.earlier)
    assert (both.near.earlier[OLD:] < np.arange(OLD, N)[:, None]).all()
    best, _ = fs.natural_step(both, X, Y, step_size=1.0)
    assert_same(both, best)
    part = fs.condition(fs.condition(model, X[OLD:35], Y[OLD:35]), X[35:], Y[35:])
    assert_same(part, both)
    np.testing.assert_array_equal(part.near.earlier, both.near.earlier)
    assert len(model.near.X) == OLD


def test_weights_and_float32(rng):
    model, X, Y = problem(rng)
    weights = np.array([1.0, 0, 2, 1, 0, 1, 0.5, 1, 1, 3])
    holed = np.where(weights > 0, Y[OLD:], np.nan)
    both = fs.condition(model, X[OLD:], holed, weights=weights)
    kept = np.concatenate([np.arange(OLD), OLD + np.flatnonzero(weights)])
    np.testing.assert_array_equal(both.near.X, X[kept])
    weights = np.concatenate([np.ones(OLD), weights[weights > 0]])
    best, _ = fs.natural_step(both, X[kept], Y[kept], step_size=1.0, weights=weights)
    assert_same(both, best)
    single = fs.records.tree_map(np.float32, model)
    found = fs.condition(single, *(a[OLD:].astype(np.float32) for a in (X, Y)))
    assert found.posterior.mean.dtype == np.float32
    assert_same(found, fs.condition(model, X[OLD:], Y[OLD:]), atol=1e-3)


def test_what_is_refused(rng):
    model, X, Y = problem(rng)
    with pytest.raises(ValueError, match="`X` has 3 columns"):
        fs.condition(model, np.zeros((2, 3)), Y[:2])
    with pytest.raises(ValueError, match="no near rows"):
        fs.condition(fs.replace(model, near=None), X, Y)
    with pytest.raises(TypeError, match="VIF with a Poisson .* fs.fit .* old and new rows"):
        fs.condition(fs.replace(model, likelihood=fs.Poisson()), X, abs(np.rint(Y)))
