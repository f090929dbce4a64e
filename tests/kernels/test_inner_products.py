"""Weighted inner products and their pullbacks, against dense definitions."""

import numpy as np
import pytest
from oracles import covariances as oracle
from support.numerics import assert_adjoint, exactly

from fastsvgp import kernels


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("shared", [True, False])
def test_inner_products(rng, shared, dtype):
    X1, X2 = rng.standard_normal((17, 3)).astype(dtype), rng.standard_normal((65, 3)).astype(dtype)
    weights = dtype(0.7) if shared else rng.uniform(0.5, 2, 3).astype(dtype)
    eps = np.finfo(dtype).eps
    K = kernels.inner(X1, X2, weights)
    assert K.dtype == dtype and K.flags.c_contiguous
    np.testing.assert_allclose(K, oracle.linear(X1, X2, weights), rtol=0, atol=50 * eps)
    S = kernels.inner(X2[:, ::-1][:, ::-1], None, weights)
    np.testing.assert_array_equal(S, S.T)
    np.testing.assert_allclose(S, oracle.linear(X2, X2, weights), rtol=0, atol=50 * eps)
    assert kernels.inner(X1[:0], X2, weights).shape == (0, 65) and kernels.inner(
        X1[:0], None, weights
    ).shape == (0, 0)


@pytest.mark.parametrize("shared", [True, False])
def test_inner_products_reversed(rng, shared):
    arguments = (
        rng.standard_normal((17, 3)),
        rng.standard_normal((65, 3)),
        0.7 if shared else rng.uniform(0.5, 2, 3),
    )
    K_bar = rng.standard_normal((17, 65))
    bars = kernels.inner_vjp(K_bar, *arguments)
    assert_adjoint(oracle.linear, exactly(*arguments), bars, K_bar, rng)
    for turned in (np.asfortranarray(K_bar), np.repeat(np.repeat(K_bar, 2, 0), 2, 1)[::2, ::2]):
        for a, b in zip(kernels.inner_vjp(turned, *arguments), bars, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-13, atol=1e-13)
    X, _, weights = arguments
    S_bar = rng.standard_normal((17, 17))
    S_bar += S_bar.T
    X_bar, none, weights_bar = kernels.inner_vjp(S_bar, X, None, weights)
    assert none is None
    assert_adjoint(
        lambda X, w: oracle.linear(X, X, w), exactly(X, weights), (X_bar, weights_bar), S_bar, rng
    )
    assert [b is None for b in kernels.inner_vjp(K_bar, *arguments, need=("X2",))] == [
        True,
        False,
        True,
    ]
    for bar, argument in zip(
        kernels.inner_vjp(K_bar[:, :0], X, X[:0], weights), (X, X[:0], weights), strict=True
    ):
        np.testing.assert_array_equal(bar, np.zeros(np.shape(argument)))
