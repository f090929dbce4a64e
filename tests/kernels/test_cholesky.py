"""Cholesky kernels: factors, inverses, and the reverse rules built on the whitening lemma."""

import pickle

import numpy as np
import pytest
from support.numerics import assert_adjoint, assert_as_accurate_as

import fastsvgp as fs
from fastsvgp import kernels

SIZES = [1, 3, 17, 65, 130, 300]


def spd(rng, M, batch=(), dtype=np.float64):
    A = rng.standard_normal((*batch, M, M + 2))
    return (A @ A.swapaxes(-1, -2) / M + 0.5 * np.eye(M)).astype(dtype)


def symmetric(rng, shape):
    """Draw a symmetric matrix whose largest eigenvalue is about 3 for any number of rows."""
    step = rng.standard_normal(shape) / np.sqrt(shape[-1])
    return step + step.swapaxes(-1, -2)


def unread(A):
    return np.tril(A) + np.triu(np.full(A.shape[-2:], np.nan, A.dtype), 1)


@pytest.mark.parametrize("batch", [(), (2,), (2, 2)])
@pytest.mark.parametrize("M", SIZES)
def test_factor_and_inverses(rng, M, batch):
    A = spd(rng, M, batch)
    before = A.copy()
    L = kernels.cholesky(unread(A))
    np.testing.assert_allclose(L, np.linalg.cholesky(A), rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(A, before)
    inverse = np.linalg.inv(A)
    np.testing.assert_allclose(kernels.cholesky_inverse(unread(L)), inverse, rtol=1e-10, atol=1e-10)
    product = kernels.cholesky_product(unread(L))
    np.testing.assert_allclose(product, A, rtol=1e-12, atol=1e-12)
    np.testing.assert_array_equal(product, product.swapaxes(-1, -2))
    W = kernels.cholesky_of_inverse(unread(A))
    assert not np.triu(W, 1).any() and (np.diagonal(W, axis1=-2, axis2=-1) > 0).all()
    np.testing.assert_allclose(W @ W.swapaxes(-1, -2), inverse, rtol=1e-10, atol=1e-10)


def test_the_factor_may_take_the_place_of_the_matrix(rng):
    A = spd(rng, 40)
    truth = kernels.cholesky(A, 0.1)
    assert kernels.cholesky(A, 0.1, overwrite_a=True) is A
    np.testing.assert_array_equal(A, truth)


def test_jitter_is_added_to_the_diagonal_once(rng):
    A = spd(rng, 40)
    L = kernels.cholesky(A, 0.25)
    np.testing.assert_allclose(L @ L.T, A + 0.25 * np.eye(40), rtol=1e-12, atol=1e-12)


def test_noise_is_added_to_the_diagonal_beside_the_jitter(rng):
    A, noise = spd(rng, 40, (2,)), rng.uniform(0.1, 1.0, 40)
    truth = A + np.diag(noise) + 0.25 * np.eye(40)
    for overwrite in (False, True):
        L = kernels.cholesky(unread(A), 0.25, overwrite, noise)
        np.testing.assert_allclose(L @ L.swapaxes(-1, -2), truth, rtol=1e-12, atol=1e-12)
        assert not np.triu(L, 1).any()


@pytest.mark.parametrize("M, pivot", [(5, 0), (5, 4), (200, 150)])
def test_failure_names_batch_pivot_and_jitter(rng, M, pivot):
    A = np.tile(np.eye(M), (3, 1, 1))
    A[1, pivot, pivot] = -2.0
    with pytest.raises(
        fs.NotPositiveDefinite, match=rf"pivot {pivot} with jitter 0.5 in float64"
    ) as caught:
        kernels.cholesky(A, 0.5)
    error = caught.value
    assert (error.batch, error.pivot, error.jitter, error.size) == ((1,), pivot, 0.5, M)
    assert "duplicated" in str(error) and isinstance(error, np.linalg.LinAlgError)
    assert pickle.loads(pickle.dumps(error)).pivot == pivot
    with pytest.raises(fs.NotPositiveDefinite) as caught:
        kernels.cholesky_of_inverse(A[1])
    assert caught.value.pivot == pivot and caught.value.batch == ()


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("M", [3, 150])
def test_nan_and_infinity_fail_instead_of_passing_through(rng, M, bad):
    A = spd(rng, M)
    A[M - 1, M - 1] = bad
    with pytest.raises(fs.NotPositiveDefinite):
        kernels.cholesky(A)
    A = spd(rng, M)
    A[2, 1] = np.nan
    with pytest.raises(fs.NotPositiveDefinite):
        kernels.cholesky(A)


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize("M", [1, 3, 70])
def test_reverse_rules(rng, M, batch):
    A = spd(rng, M, batch)
    L = kernels.cholesky(A)
    bar = rng.standard_normal(A.shape)
    A_bar = kernels.cholesky_vjp(bar, L)
    np.testing.assert_array_equal(A_bar, A_bar.swapaxes(-1, -2))
    np.testing.assert_array_equal(A_bar, kernels.cholesky_vjp(unread(bar), unread(L)))
    steps = [symmetric(rng, A.shape)]
    assert_adjoint(kernels.cholesky, (A,), (A_bar,), np.tril(bar), rng, directions=steps)
    Y = kernels.cholesky_inverse(L)
    L_bar = kernels.cholesky_inverse_vjp(bar, unread(L), Y)
    steps = [np.tril(steps[0])]
    assert_adjoint(kernels.cholesky_inverse, (L,), (L_bar,), bar, rng, directions=steps)


@pytest.mark.parametrize("M, N", [(1, 1), (4, 3), (70, 20), (97, 2), (300, 7)])
def test_whitening_lemma(rng, M, N):
    """The gradient of g(L^-1 Y1, L^-1 Y2) in A = L L' depends only on C = sum X_bar X'."""
    A, Y = spd(rng, M), rng.standard_normal((2, M, N))
    bar = rng.standard_normal((2, M, N))
    white = lambda A: kernels.solve_triangular(kernels.cholesky(A), Y)  # noqa: E731
    L, X = kernels.cholesky(A), white(A)
    C = sum(b @ x.T for b, x in zip(bar, X, strict=True))
    A_bar = kernels.whitening_vjp(unread(C), L)
    assert_adjoint(white, (A,), (A_bar,), bar, rng, directions=[symmetric(rng, A.shape)])
    work = C.copy()
    assert kernels.whitening_vjp(work, L, overwrite_c=True) is work
    np.testing.assert_array_equal(work, A_bar)
    by_products = kernels.whitening_vjp(unread(C), L, inverse=kernels.inverse_triangular(L))
    np.testing.assert_allclose(by_products, A_bar, rtol=1e-10, atol=1e-10)
    np.testing.assert_array_equal(by_products, by_products.T)


def test_panels_within_panels(rng):
    """Above 776 rows a panel is wide enough to be split again."""
    A, C = spd(rng, 800), rng.standard_normal((800, 800))
    L, (X, C) = kernels.cholesky(unread(A)), (np.linalg.inv(np.linalg.cholesky(A)), np.tril(C))
    np.testing.assert_allclose(L, np.linalg.cholesky(A), rtol=1e-11, atol=1e-11)
    halved = C - np.diag(np.diag(C)) / 2
    truth = -0.5 * X.T @ (halved + halved.T) @ X
    np.testing.assert_allclose(kernels.whitening_vjp(unread(C), L), truth, rtol=1e-9, atol=1e-9)
    A[795, 795] = np.nan
    with pytest.raises(fs.NotPositiveDefinite) as caught:
        kernels.cholesky(A)
    assert caught.value.pivot == 795


@pytest.mark.parametrize("M", [3, 65, 200])
def test_float32_is_as_accurate_as_numpy(rng, M):
    A = spd(rng, M, dtype=np.float32)
    L = kernels.cholesky(A)
    assert L.dtype == np.float32
    truth = np.linalg.cholesky(A.astype(float))
    assert_as_accurate_as(L, np.linalg.cholesky(A), truth)
    X, wide = np.linalg.inv(L), np.linalg.inv(L.astype(float))
    assert_as_accurate_as(kernels.cholesky_inverse(L), X.T @ X, wide.T @ wide)
    assert_as_accurate_as(kernels.cholesky_product(L), L @ L.T, L.astype(float) @ L.T.astype(float))
