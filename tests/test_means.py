"""Mean functions: values by definition, reverse rules by five-point differences."""

import numpy as np
import pytest

from fastsvgp.means import ConstantMean, LinearMean, ZeroMean
from fastsvgp.records import leaves, tree_map
from fastsvgp.testing import assert_gradient

# name: (mean for D = 3 inputs, P, definition for one output p and one point x)
W, B = np.array([[0.5, -1.0, 2.0], [1.5, 0.3, -0.7]]), np.array([0.1, -0.4])
TABLE = {
    "zero": (ZeroMean(), None, lambda p, x: 0.0),
    "constant": (ConstantMean(0.7), None, lambda p, x: 0.7),
    "constant of each output": (ConstantMean(B), 2, lambda p, x: B[p]),
    "linear": (LinearMean(W[0], 0.7), None, lambda p, x: W[0] @ x + 0.7),
    "linear without bias": (LinearMean(W[0]), None, lambda p, x: W[0] @ x),
    "linear of each output": (LinearMean(W, B), 2, lambda p, x: W[p] @ x + B[p]),
    "linear, biases apart": (LinearMean(W[0], B), 2, lambda p, x: W[0] @ x + B[p]),
    "linear, one bias": (LinearMean(W, 0.3), 2, lambda p, x: W[p] @ x + 0.3),
}
everything = pytest.mark.parametrize("name", TABLE)


@everything
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("N", [0, 1, 17])
def test_values(rng, name, dtype, N):
    mean, P, definition = TABLE[name]
    mean = tree_map(lambda leaf: np.asarray(leaf, dtype)[()], mean)
    X = rng.standard_normal((N, 3)).astype(dtype)
    value = mean(X)
    assert value.dtype == dtype and value.shape == ((N,) if P is None else (P, N))
    expected = np.array([[definition(p, x) for x in X] for p in range(P or 1)], float).reshape(
        value.shape
    )
    np.testing.assert_allclose(value, expected, rtol=0, atol=20 * np.finfo(dtype).eps)


@everything
@pytest.mark.parametrize("outputs", [None, 2])
def test_reverse_rule(rng, name, outputs):
    """An output axis that the mean lacks is summed over, because the mean is broadcast."""
    mean, P, _ = TABLE[name]
    if P is not None and outputs is None:
        pytest.skip("a mean with an output axis never meets latent means without one")
    X = rng.standard_normal((17, 3))
    mean_bar = rng.standard_normal((17,) if outputs is None else (outputs, 17))
    record_bar, X_bar = mean.vjp(mean_bar, X)
    assert type(record_bar) is type(mean)

    assert_gradient(lambda mean: (mean_bar * mean(X)).sum(), mean, record_bar, rng=rng)
    if X_bar.any():
        assert_gradient(lambda X: (mean_bar * mean(X)).sum(), X, X_bar, rng=rng)
    else:  # a constant
        np.testing.assert_array_equal(mean(X + 1), mean(X))
    assert mean.vjp(mean_bar, X, need=("mean",))[1] is None
    assert mean.vjp(mean_bar, X, need=("X",))[0] is None


@everything
def test_gradients_have_the_dtype_of_the_arrays(rng, name):
    mean, P, _ = TABLE[name]
    mean = tree_map(lambda leaf: np.asarray(leaf, np.float32)[()], mean)
    X = rng.standard_normal((5, 3)).astype(np.float32)
    record_bar, X_bar = mean.vjp(np.ones((5,) if P is None else (P, 5), np.float32), X)
    assert X_bar.dtype == np.float32 and all(
        v.dtype == np.float32 for _, _, v in leaves(record_bar)
    )
