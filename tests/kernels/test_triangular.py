"""Triangular kernels against dense NumPy; unused triangles hold NaN throughout."""

import numpy as np
import pytest
from support.numerics import assert_adjoint, assert_as_accurate_as

from fastsvgp import kernels

SIZES = [(1, 1), (3, 2), (17, 5), (65, 130), (130, 65), (200, 7), (300, 301)]


def factor(rng, M, batch=(), dtype=np.float64):
    """Return a well-conditioned lower factor with NaN above the diagonal, and one with zeros."""
    L = np.tril(rng.standard_normal((*batch, M, M))) / np.sqrt(M)
    diagonal = range(M)  # at least 1.5
    L[..., diagonal, diagonal] = 1.5 + np.abs(L[..., diagonal, diagonal])
    L = L.astype(dtype)
    return L + np.triu(np.full((M, M), np.nan, dtype), 1), L


@pytest.mark.parametrize("transpose", [False, True])
@pytest.mark.parametrize("M, R", SIZES)
def test_solve_and_multiply(rng, M, R, transpose):
    L, clean = factor(rng, M)
    B = rng.standard_normal((M, R))
    op = clean.T if transpose else clean
    np.testing.assert_allclose(
        kernels.solve_triangular(L, B, transpose), np.linalg.solve(op, B), rtol=1e-11, atol=1e-11
    )
    np.testing.assert_allclose(
        kernels.multiply_triangular(L, B, transpose), op @ B, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("M, R", [(5, 3), (70, 2)])
@pytest.mark.parametrize(
    "batch_L, batch_B",
    [((), (4,)), ((4,), (4,)), ((4,), ()), ((2, 3), (3,)), ((1,), (4,)), ((), (2, 3))],
)
def test_batches_broadcast(rng, M, R, batch_L, batch_B):
    L, clean = factor(rng, M, batch_L)
    B = rng.standard_normal((*batch_B, M, R))
    for transpose in (False, True):
        op = clean.swapaxes(-1, -2) if transpose else clean
        batch = np.broadcast_shapes(batch_L, batch_B)
        truth = np.linalg.solve(
            np.broadcast_to(op, (*batch, M, M)), np.broadcast_to(B, (*batch, M, R))
        )
        np.testing.assert_allclose(
            kernels.solve_triangular(L, B, transpose), truth, rtol=1e-11, atol=1e-11
        )
        np.testing.assert_allclose(
            kernels.multiply_triangular(L, B, transpose), op @ B, rtol=1e-12, atol=1e-12
        )


def test_any_strides_and_read_only_inputs(rng):
    _, clean = factor(rng, 90)
    wide = np.zeros((90, 180))
    wide[:, ::2] = clean
    readonly = clean.copy()
    readonly.flags.writeable = False
    B = np.asfortranarray(rng.standard_normal((90, 8)))
    truth = np.linalg.solve(clean, B)
    before = B.copy()
    for L in (wide[:, ::2], np.asfortranarray(clean), readonly, wide[::1, ::2][:, :]):
        np.testing.assert_allclose(kernels.solve_triangular(L, B), truth, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(B, before)


def test_overwrite_reuses_the_buffer_and_default_does_not(rng):
    L, clean = factor(rng, 20)
    B = rng.standard_normal((20, 30))
    before = B.copy()
    assert kernels.solve_triangular(L, B) is not B
    np.testing.assert_array_equal(B, before)
    assert kernels.solve_triangular(L, B, overwrite_b=True) is B
    np.testing.assert_allclose(clean @ B, before, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("M", [1, 3, 64, 65, 143, 200, 300])
def test_inverse_and_tril_solve(rng, M):
    L, clean = factor(rng, M, (2,))
    W, clean_W = factor(rng, M, (2,))
    X = kernels.inverse_triangular(L)
    np.testing.assert_allclose(X @ clean, np.broadcast_to(np.eye(M), (2, M, M)), atol=1e-11)
    own = clean.copy()
    assert kernels.inverse_triangular(own, overwrite_l=True) is own
    np.testing.assert_array_equal(own, X)
    Y = kernels.solve_tril(L, W)
    np.testing.assert_allclose(Y, np.linalg.solve(clean, clean_W), atol=1e-11)
    turned = kernels.solve_tril(L, W, transpose=True)
    truth = np.tril(np.linalg.solve(clean.swapaxes(-1, -2), clean_W))
    np.testing.assert_allclose(turned, truth, atol=1e-11)
    assert kernels.solve_tril(L, W, transpose=True, overwrite_w=True) is W
    np.testing.assert_array_equal(W, turned)
    assert not any(np.triu(lower, 1).any() for lower in (X, Y, turned))


@pytest.mark.parametrize("M", [1, 3, 17, 65, 200])
def test_tril_gram(rng, M):
    L, clean = factor(rng, M, (2,))
    w = rng.uniform(0.0, 2.0, M)
    for weights, truth in (
        (None, clean.swapaxes(-1, -2) @ clean),
        (w, clean.swapaxes(-1, -2) @ (w[:, None] * clean)),
    ):
        G = kernels.symmetrise(kernels.tril_gram(L, weights))
        np.testing.assert_allclose(G, truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("M, K", [(1, 1), (3, 0), (17, 5), (150, 20), (300, 65)])
def test_tril_product(rng, M, K):
    A, B = rng.standard_normal((2, M, K))
    truth = np.tril(A @ B.T)
    np.testing.assert_allclose(kernels.tril_product(A, B), truth, rtol=1e-12, atol=1e-12)
    out = np.full((M, M), np.nan)
    assert kernels.tril_product(A, B, out=out) is out
    np.testing.assert_allclose(out, truth, rtol=1e-12, atol=1e-12)
    out += np.triu(np.full((M, M), np.nan), 1)
    np.testing.assert_allclose(
        kernels.tril_product(A, B, out=out, add=True), 2 * truth, rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("M", [1, 3, 65, 97, 300])
def test_product_of_two_lower_factors(rng, M):
    A, B = np.tril(rng.standard_normal((2, 2, M, M)))
    truth = np.tril(A @ B.swapaxes(-1, -2))
    product = kernels.tril_product(A, B, lower=True)
    np.testing.assert_allclose(product, truth, rtol=1e-12, atol=1e-12)
    product += np.triu(np.full((M, M), np.nan), 1)
    kernels.tril_product(A, B, out=product, add=True, lower=True)
    np.testing.assert_allclose(product, 2 * truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("M", [1, 3, 65, 200, 300, 600])
def test_tril_multiply(rng, M):
    L, clean = factor(rng, M)
    B = rng.standard_normal((M, M))
    kept, truth = B.copy(), np.tril(clean @ B)
    np.testing.assert_allclose(np.tril(kernels.tril_multiply(L, B)), truth, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(B, kept)
    assert kernels.tril_multiply(L, B, overwrite_b=True) is B
    np.testing.assert_allclose(np.tril(B), truth, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("M, R", [(1, 1), (3, 5), (70, 4)])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_reverse_rules(rng, M, R, batch):
    L, clean = factor(rng, M, batch)
    B = rng.standard_normal((*batch, M, R))
    bar = rng.standard_normal((*batch, M, R))
    lower = [np.tril(rng.standard_normal(clean.shape)), rng.standard_normal(B.shape)]
    for transpose in (False, True):
        X = kernels.solve_triangular(L, B, transpose)
        bars = kernels.solve_triangular_vjp(bar, L, X, transpose)
        assert_adjoint(
            lambda a, b, t=transpose: kernels.solve_triangular(a, b, t),
            (clean, B),
            bars,
            bar,
            rng,
            directions=lower,
        )
        bars = kernels.multiply_triangular_vjp(bar, L, B, transpose)
        assert_adjoint(
            lambda a, b, t=transpose: kernels.multiply_triangular(a, b, t),
            (clean, B),
            bars,
            bar,
            rng,
            directions=lower,
        )
    square_bar = rng.standard_normal(clean.shape)
    X = kernels.inverse_triangular(L)
    X_bar = kernels.inverse_triangular_vjp(square_bar, X)
    assert_adjoint(
        kernels.inverse_triangular,
        (clean,),
        (X_bar,),
        np.tril(square_bar),
        rng,
        directions=lower[:1],
    )
    W, clean_W = factor(rng, M, batch)
    Y = kernels.solve_tril(L, W)
    both = [lower[0], np.tril(rng.standard_normal(clean.shape))]
    bars = kernels.solve_tril_vjp(square_bar, L, Y)
    assert_adjoint(
        kernels.solve_tril, (clean, clean_W), bars, np.tril(square_bar), rng, directions=both
    )


def test_shared_factor_sums_its_cotangent(rng):
    L, clean = factor(rng, 6)
    B, bar = rng.standard_normal((2, 3, 6, 4))
    X = kernels.solve_triangular(L, B)
    L_bar, B_bar = kernels.solve_triangular_vjp(bar, L, X)
    assert L_bar.shape == (6, 6) and B_bar.shape == B.shape
    directions = [np.tril(rng.standard_normal((6, 6))), rng.standard_normal(B.shape)]
    assert_adjoint(
        kernels.solve_triangular, (clean, B), (L_bar, B_bar), bar, rng, directions=directions
    )


@pytest.mark.parametrize("M", [3, 65, 200])
def test_float32_is_as_accurate_as_numpy(rng, M):
    L, clean = factor(rng, M, dtype=np.float32)
    B = rng.standard_normal((M, 9)).astype(np.float32)
    X = kernels.solve_triangular(L, B)
    assert X.dtype == np.float32
    assert_as_accurate_as(
        X, np.linalg.solve(clean, B), np.linalg.solve(clean.astype(float), B.astype(float))
    )
    assert_as_accurate_as(
        kernels.multiply_triangular(L, B), clean @ B, clean.astype(float) @ B.astype(float)
    )
