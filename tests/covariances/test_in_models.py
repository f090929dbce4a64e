"""Covariances in models: bounds of each, in sums, products and ``On``, with orthogonal pairs."""

import numpy as np
import pytest
from support.covariance_problems import MORE, TABLE, cast
from support.gp_problems import lower_factor

import fastsvgp as fs
from fastsvgp.testing import assert_gradient

NAMES = pytest.mark.parametrize("name", [*MORE, "rational quadratic"])
M, M2, N, D = 5, 3, 30, 3
JITTER = 0.1  # the rank of some is low: keeps rounding out of the differences


def inside(rng, name):
    """Two of the covariance within a sum, a product and ``On``, with different numbers."""
    first, second = (TABLE[name](rng, 2) for _ in range(2))
    return 0.3 * first.on(2, 0) * fs.Matern52(0.8, 2.0).on(1) + 0.3 * second.on(0, 1) + 0.5


def pair(rng):
    sets = [field for m in (M, M2) for field in (rng.standard_normal(m), lower_factor(rng, m))]
    return fs.posteriors.InducingPair(
        *(rng.uniform(-2, 2, (m, D)) for m in (M, M2))
    ), fs.posteriors.Orthogonal(*sets)


STEP = 1e-4  # cosines of high frequency curve within a longer one


def data(rng):
    X = rng.uniform(-2, 2, (N, D))
    return X, np.sin(X[:, 0]) + 0.1 * rng.standard_normal(N)


@NAMES
@pytest.mark.parametrize("orthogonal", [False, True], ids=["one set", "pair"])
def test_gradients_of_bounds(rng, name, orthogonal):
    X, Y = data(rng)
    if orthogonal:
        inducing, posterior = pair(rng)
        covariance = inside(rng, name)
    else:
        inducing = rng.uniform(-2, 2, (M, D))
        posterior = fs.Whitened(rng.standard_normal(M), lower_factor(rng, M))
        covariance = TABLE[name](rng, D) + 0.1
    model = fs.SVGP(covariance, inducing, posterior, fs.Gaussian(0.1))
    _, grad, X_bar = fs.elbo_and_grad(model, X, Y, inputs=True, jitter=JITTER)
    assert_gradient(lambda moved: fs.elbo(moved, X, Y, jitter=JITTER), model, grad, step=STEP)
    assert_gradient(lambda moved: fs.elbo(model, moved, Y, jitter=JITTER), X, X_bar, step=STEP)


@NAMES
def test_single_precision_files_and_training(rng, name, tmp_path):
    X, Y = data(rng)
    posterior = fs.Whitened(np.zeros(M), np.eye(M))
    model = fs.SVGP(inside(rng, name), rng.uniform(-2, 2, (M, D)), posterior, fs.Gaussian(0.3))
    value, grad = fs.elbo_and_grad(model, X, Y, jitter=JITTER)
    low = cast(model, np.float32)
    found, low_grad = fs.elbo_and_grad(low, X.astype("f4"), Y.astype("f4"), jitter=JITTER)
    assert found == pytest.approx(value, rel=1e-4)
    for (path, _, ours), (_, _, exact) in zip(
        fs.records.leaves(low_grad), fs.records.leaves(grad), strict=True
    ):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(
            ours, exact, rtol=0, atol=2e-3 * max(1, np.abs(exact).max()), err_msg=path
        )
    fs.save(tmp_path / "model.npz", model)
    assert fs.elbo(fs.load(tmp_path / "model.npz"), X, Y) == fs.elbo(model, X, Y)
    vector, unravel = fs.ravel(model)
    assert fs.elbo(unravel(vector), X, Y, jitter=JITTER) == pytest.approx(value)
    trained, info = fs.fit(model, X, Y, steps=3, batch_size=N, rng=0)
    assert fs.elbo(trained, X, Y) > fs.elbo(model, X, Y)
