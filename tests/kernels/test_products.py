"""Matrix products and the fused passes between them."""

import numpy as np
import pytest

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cpu import products
from fastsvgp.kernels.cpu.common import blas, thread_pool
from fastsvgp.runtime.dispatch import shares_memory

SHAPES = [(1, 1), (3, 17), (65, 4), (70, 3000), (130, 40)]


@pytest.mark.parametrize("ta", [False, True])
@pytest.mark.parametrize("tb", [False, True])
def test_matmul(rng, ta, tb):
    for m, k, n in [(1, 1, 1), (3, 5, 2), (4, 0, 3), (65, 30, 17), (1, 30, 17), (65, 30, 1)]:
        A = rng.standard_normal((k, m) if ta else (m, k))
        B = rng.standard_normal((n, k) if tb else (k, n))
        truth = (A.T if ta else A) @ (B.T if tb else B)
        np.testing.assert_allclose(kernels.matmul(A, B, ta, tb), truth, rtol=1e-13, atol=1e-13)
        np.testing.assert_allclose(
            kernels.matmul(np.asfortranarray(A), B, ta, tb), truth, rtol=1e-13, atol=1e-13
        )
        wide = [np.repeat(X, 2, axis=1)[:, ::2] for X in (A, B)]
        for X in wide:
            X.flags.writeable = False
        np.testing.assert_allclose(kernels.matmul(*wide, ta, tb), truth, rtol=1e-13, atol=1e-13)
    A, B = rng.standard_normal((3, 4, 5)), rng.standard_normal((5, 2))
    np.testing.assert_allclose(kernels.matmul(A, B), A @ B, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("trans", [blas.N, blas.T])
def test_product_with_a_vector_overwrites_nan(rng, trans, dtype):
    """Beta is 0, so NaN in the output must have no effect."""
    A = rng.standard_normal((17, 65)).astype(dtype)
    op = A if trans == blas.N else A.T
    x, y = rng.standard_normal(op.shape[1]).astype(dtype), np.full(op.shape[0], np.nan, dtype)
    blas.gemv(A, x, y, trans)
    np.testing.assert_allclose(y, op @ x, rtol=0, atol=500 * np.finfo(dtype).eps)


@pytest.mark.parametrize("M, N", SHAPES)
@pytest.mark.parametrize("signs", ["negative", "positive", "mixed", "equal", "zero"])
def test_weighted_gram_with_weights_of_any_sign(rng, M, N, signs):
    A, w = rng.standard_normal((M, N)), rng.standard_normal(N)
    w = {
        "negative": -np.abs(w),
        "positive": np.abs(w),
        "mixed": w,
        "equal": np.full(N, -0.3),
        "zero": np.zeros(N),
    }[signs]
    truth = (A * w) @ A.T
    G = kernels.weighted_gram(A, w)
    np.testing.assert_allclose(np.tril(G), np.tril(truth), rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(
        np.tril(kernels.weighted_gram(A.copy(), w, overwrite_a=True)), np.tril(G)
    )
    out = np.tril(G) + np.triu(np.full((M, M), np.nan), 1)
    assert kernels.weighted_gram(A, w, out=out, add=True) is out
    assert kernels.symmetrise(out) is out
    np.testing.assert_allclose(out, 2 * truth, rtol=1e-11, atol=1e-11)
    np.testing.assert_array_equal(out, out.T)
    assert not kernels.weighted_gram(A[:, :0], w[:0]).any()


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("M, N", [(3, 5), (70, 200), (131, 40), (64, 0)])
def test_lower_triangles_in_a_share_for_each_thread(rng, monkeypatch, tune, M, N, threads):
    """Each entry is computed once, whatever number of rows a share has."""
    monkeypatch.setattr(thread_pool, "TRIANGLE", 0)
    monkeypatch.setattr(thread_pool, "allowed", lambda: threads)
    tune(triangle_rows=1)
    A, B = rng.standard_normal((2, M, N))
    fs.set_num_threads(threads)
    try:
        G = kernels.weighted_gram(A, np.full(N, 0.5))
        C = kernels.tril_product(A, B)
        twice = [kernels.weighted_gram(A, np.full(N, 0.5), out=G.copy(), add=True)]
        twice += [kernels.tril_product(A, B, out=C.copy(), add=True)]
    finally:
        fs.set_num_threads(None)
    np.testing.assert_allclose(np.tril(G), np.tril(0.5 * A @ A.T), rtol=0, atol=1e-12)
    np.testing.assert_allclose(C, np.tril(A @ B.T), rtol=0, atol=1e-12)
    np.testing.assert_allclose(np.tril(twice[0]), np.tril(A @ A.T), rtol=0, atol=1e-12)
    np.testing.assert_allclose(twice[1], 2 * np.tril(A @ B.T), rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("M, N", [*SHAPES, (5, 0)])
def test_fused_passes(rng, M, N, dtype):
    A, T = rng.standard_normal((2, M, N)).astype(dtype)
    x, a, w = (rng.standard_normal(n).astype(dtype) for n in (M, N, N))
    dots, squares = kernels.column_moments(A, x)
    wide = A.astype(float)
    np.testing.assert_allclose(
        dots, x.astype(float) @ wide, rtol=2e-6 if dtype == np.float32 else 1e-12, atol=1e-5
    )
    np.testing.assert_allclose(
        squares, (wide**2).sum(0), rtol=2e-7 if dtype == np.float32 else 1e-13
    )
    np.testing.assert_array_equal(kernels.scale_columns(A, w), A * w)
    own = A.copy()
    assert kernels.scale_columns(own, w, out=own) is own
    np.testing.assert_array_equal(own, A * w)
    _, inner = kernels.column_moments(A, x, T)
    np.testing.assert_allclose(
        inner, (wide * T).sum(0), rtol=1e-5 if dtype == np.float32 else 1e-11, atol=1e-5
    )
    outer = np.outer(x.astype(float), a)
    out = T.copy()
    assert kernels.add_outer(out, x, a) is out
    assert (
        np.abs(out - (T.astype(float) + outer))
        <= 2 * np.finfo(dtype).eps * (np.abs(T) + np.abs(outer))
    ).all()
    out = T.copy()
    assert kernels.add_outer(out, x, a, w) is out
    scaled = T.astype(float) * w
    assert (
        np.abs(out - (scaled + outer)) <= 3 * np.finfo(dtype).eps * (np.abs(scaled) + np.abs(outer))
    ).all()
    out = T.copy()
    assert kernels.add_scaled(out, A, -0.5) is out
    np.testing.assert_array_equal(out, T - dtype(0.5) * A)
    out = T.copy()
    dots = kernels.scale_add_outer(out, w, x, a, A)
    assert (np.abs(dots - wide @ a) <= 8 * np.finfo(dtype).eps * (np.abs(wide) @ np.abs(a))).all()
    assert (
        np.abs(out - (scaled + outer)) <= 3 * np.finfo(dtype).eps * (np.abs(scaled) + np.abs(outer))
    ).all()
    for scale in (False, True):
        out = T.copy()
        dots = kernels.add_outer_minus_scaled(out, x, a, A, w, scale)
        assert (
            np.abs(dots - wide @ a) <= 8 * np.finfo(dtype).eps * (np.abs(wide) @ np.abs(a))
        ).all()
        factor = w if scale else np.ones_like(w)
        truth = T.astype(float) * factor + outer - wide * w
        size = np.abs(T * factor) + np.abs(outer) + np.abs(A * w)  # before cancellation
        # on either side three products and two sums are rounded: by eps / 2 of their parts, and of
        # at most the size
        assert (np.abs(out - truth) <= 3 * np.finfo(dtype).eps * size).all()


def strided(A):
    """Return A in memory with gaps, read-only."""
    A = np.repeat(A, 2, axis=-1)[..., ::2]
    A.flags.writeable = False
    return A


def test_fused_passes_run_one_compiled_form(rng, monkeypatch):
    """Kernels receive arrays of one memory layout: another one would be compiled separately.

    Its loops would not be vectorised.
    """
    layouts = []

    def watched(kernel, rows, work, *args):
        layouts.extend(arg.flags.carray for arg in args if isinstance(arg, np.ndarray))
        return over_rows(kernel, rows, work, *args)

    over_rows = products.over_rows
    monkeypatch.setattr(products, "over_rows", watched)
    M, N = 7, 9
    A, T = rng.standard_normal((2, M, N))
    C, L = rng.standard_normal((2, M, M))
    x, a, w = (rng.standard_normal(n) for n in (M, N, N))
    for run in (
        lambda A, x, a, w, C, L: kernels.column_moments(A, x),
        lambda A, x, a, w, C, L: kernels.column_moments(A, x, 2 * A),
        lambda A, x, a, w, C, L: kernels.scale_columns(A, w),
        lambda A, x, a, w, C, L: kernels.add_outer(T.copy(), x, a),
        lambda A, x, a, w, C, L: kernels.add_outer(T.copy(), x, a, w),
        lambda A, x, a, w, C, L: kernels.add_scaled(T.copy(), A, 2.0),
        lambda A, x, a, w, C, L: kernels.scale_add_outer(T.copy(), w, x, a, A),
        lambda A, x, a, w, C, L: kernels.add_outer_minus_scaled(T.copy(), x, a, A, w),
        lambda A, x, a, w, C, L: kernels.tril_update(C, L, 0.5, np.empty((M, M))),
        lambda A, x, a, w, C, L: products.lower_copy(C),
    ):
        of_plain, of_strided = (run(*map(form, (A, x, a, w, C, L))) for form in (np.copy, strided))
        np.testing.assert_array_equal(of_plain, of_strided)
    assert layouts and all(layouts)


@pytest.mark.parametrize("M", [1, 3, 65, 200])
def test_lower_triangle_passes(rng, M):
    C, L = rng.standard_normal((2, M, M))
    L = np.tril(L) + np.triu(np.full((M, M), np.nan), 1)
    clean, inverse = np.tril(L), np.diag(1 / np.diagonal(L))
    np.testing.assert_allclose(kernels.tril_sum_of_squares(L), (clean**2).sum(), rtol=1e-13)
    for transpose in (False, True):
        truth = np.tril(C.T if transpose else C) - 0.7 * (clean - inverse)
        out = np.full((M, M), np.nan)
        assert kernels.tril_update(C, L, -0.7, out, transpose) is out
        np.testing.assert_allclose(out, truth, rtol=1e-12, atol=1e-12)
    straight = np.tril(C) - 0.7 * (clean - inverse)
    wide = np.zeros((M, 2 * M))
    for shared in (C, wide[:, :M]):
        with pytest.raises(
            ValueError, match="tril_update: with `transpose` `out` must not share memory with `C`"
        ):
            kernels.tril_update(shared, L, -0.7, shared[:, ::1], True)
    np.testing.assert_allclose(
        kernels.tril_update(C, L, -0.7, out=C), straight, rtol=1e-12, atol=1e-12
    )


def test_shared_memory():
    """By extents: rows that are interleaved with those of another array count as shared."""
    a = np.arange(24.0).reshape(4, 6)
    for one, other, shared in (
        (a, a, True), (a, a[1:2, 3:], True), (a[:2], a[2:], False),
        (a[::-1][:2], a[:2], False), (a[::-1][:2], a[1:3], True),
        (a[:, :3], a[:, 3:], True), (a[3], a[:3], False), (a[:0], a, False), (a, a.copy(), False),
    ):  # fmt: skip
        assert shares_memory(one, other) == shares_memory(other, one) == shared


def test_sum_of_squares_of_many_float32_numbers_keeps_its_digits(rng):
    L = np.tril(np.full((500, 500), 0.1, np.float32))
    np.testing.assert_allclose(
        kernels.tril_sum_of_squares(L), np.sum(L.astype(float) ** 2), rtol=1e-6
    )
