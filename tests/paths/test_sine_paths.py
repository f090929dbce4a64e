"""Functions drawn from a fixed basis: moments, gradients, and parts of them."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp.bounds import BasisSVGP, HilbertBasis


def model(rng, P=(), groups=None):
    basis = HilbertBasis(-np.ones(2), np.ones(2), np.array([4, 3]), 1.5, groups=groups)
    m = basis.size
    covariance = fs.RBF(1.0, np.array([0.6, 0.9]))
    if groups is not None:
        covariance = fs.RBF(1.0, 0.6).on(0) + fs.RBF(0.5, 0.9).on(1)
    L = np.tril(0.1 * rng.standard_normal((*P, m, m))) + 0.5 * np.eye(m)
    q = fs.Whitened(rng.standard_normal((*P, m)), L)
    mean = fs.means.LinearMean(rng.standard_normal((2, *P)), rng.standard_normal(P)[()])
    return BasisSVGP(covariance, basis, q, fs.Gaussian(0.1), mean)


@pytest.mark.parametrize("groups", [None, ((0,), (1,))])
@pytest.mark.parametrize("P", [(), (2,)])
def test_moments(rng, P, groups):
    one = model(rng, P, groups)
    X = rng.uniform(-1, 1, (5, 2))
    mean, var = fs.predict_f(one, X)
    values = fs.sample_paths(one, 4000, rng=1)(X)
    assert values.shape == (4000, 5, *P)
    assert (abs(values.mean(0) - mean) < 6 * np.sqrt(var / 4000)).all()
    assert (abs(values.var(0) / var - 1) < 6 * np.sqrt(2 / 4000)).all()


@pytest.mark.parametrize("own", [False, True])
def test_gradients_and_parts(rng, own):
    paths = fs.sample_paths(model(rng, (2,)), 3, rng=0)
    X = rng.uniform(-0.9, 0.9, (3, 4, 2) if own else (4, 2))
    values, vjp = paths.and_vjp(X)
    bar, move, h = rng.standard_normal(values.shape), rng.standard_normal(X.shape), 1e-6
    slope = (vjp(bar) * move).sum()
    differences = (bar * (paths(X + h * move) - paths(X - h * move))).sum() / (2 * h)
    np.testing.assert_allclose(slope, differences, rtol=1e-6, atol=1e-6)
    if not own:
        np.testing.assert_array_equal(paths[1](X)[0], values[1])
        many = paths(np.broadcast_to(X, (3, 4, 2)))
        np.testing.assert_allclose(many, values, atol=1e-12)


def test_saved_and_outside(rng, tmp_path):
    paths = fs.sample_paths(model(rng), 2, rng=0)
    fs.save(tmp_path / "p.npz", paths)
    X = rng.uniform(-1, 1, (4, 2))
    np.testing.assert_array_equal(fs.load(tmp_path / "p.npz")(X), paths(X))
    with pytest.raises(ValueError, match="`X`: 1 rows are outside of the box"):
        paths(np.array([[0.0, 9.0]]))
