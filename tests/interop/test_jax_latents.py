"""The bound of several latent functions as a JAX function."""

import numpy as np
import pytest
from support.multi_gp_problems import MULTI, multi_of

import fastsvgp as fs

jax = pytest.importorskip("jax")
interop = pytest.importorskip("fastsvgp.interop.jax")
JITTER = 1e-2


@pytest.fixture(autouse=True)
def _wide():
    with jax.enable_x64(True):
        yield


@pytest.mark.parametrize("name", MULTI)
def test_value_and_gradients_are_those_of_the_bound(rng, name):
    model, X, Y = multi_of(rng, name)
    vector, unravel = fs.ravel(model)
    f = interop.bound(unravel, 50, jitter=JITTER)
    value, grad, X_bar = fs.elbo_and_grad(
        unravel(vector), X, Y, num_data=50, jitter=JITTER, inputs=True
    )
    found, bars = jax.jit(jax.value_and_grad(lambda v, X: -3 * f(v, X, Y), argnums=(0, 1)))(
        vector, X
    )
    assert float(found) == pytest.approx(-3 * value, rel=1e-12)
    np.testing.assert_allclose(bars[0], -3 * unravel.pullback(vector, grad), rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(bars[1], -3 * X_bar, rtol=1e-10, atol=1e-10)


def test_missing_outputs(rng):
    model, X, Y = multi_of(rng, "mixed")
    weights = (rng.random(Y.shape) < 0.7).astype(float)
    vector, unravel = fs.ravel(model)
    f = interop.bound(unravel, jitter=JITTER, weights=weights)
    value = fs.elbo(unravel(vector), X, Y, jitter=JITTER, weights=weights)
    assert float(f(vector, X, Y)) == pytest.approx(value, rel=1e-12)
