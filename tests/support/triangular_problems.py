"""Triangular problems of difficult sizes, and the assertions for every twin of the family."""

import numpy as np
from support.newton_schulz_problems import transposed, unread
from support.numerics import assert_as_accurate_as, generator

# M, R, batch
SHAPES = [(1, 1, ()), (3, 2, (2,)), (17, 65, (2, 4)), (65, 70, ()), (128, 7, (2,)), (150, 9, (2,))]


def problem(rng, M, R, batch, dtype):
    """Return two well-conditioned factors, two (M, R) matrices, weights and a square matrix."""
    L, W = (
        np.tril(rng.standard_normal((*batch, M, M))) / np.sqrt(M) + 1.5 * np.eye(M)
        for _ in range(2)
    )
    B, C = rng.standard_normal((2, *batch, M, R))
    arrays = L, W, B, C, rng.uniform(0.0, 2.0, M), rng.standard_normal(L.shape)
    return tuple(a.astype(dtype) for a in arrays)


def assert_agree(ones, others, dtype, slack=64):
    for one, other in zip(ones, others, strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(
            one, other, rtol=0, atol=slack * np.finfo(dtype).eps * max(1, np.abs(other).max())
        )


def substituted(L, B):
    """Return L^-1 B by rows, in any precision."""
    X = np.zeros(np.broadcast_shapes(L.shape[:-2], B.shape[:-2]) + B.shape[-2:], B.dtype)
    for i in range(L.shape[-1]):
        X[..., i, :] = (B[..., i, :] - (L[..., i, :i, None] * X[..., :i, :]).sum(-2)) / L[
            ..., i, i, None
        ]
    return X


def solved(L, B, transpose=False):
    if transpose:
        return substituted(transposed(L)[..., ::-1, ::-1], B[..., ::-1, :])[..., ::-1, :]
    return substituted(L, B)


def definition(L, W, B, C, w, square):
    """Return all results of the family, in the dtype of the arrays."""
    X, Y = solved(L, B), solved(L, B, True)
    return [
        X, Y, L @ B, transposed(L) @ B,
        solved(L, W), solved(L, np.broadcast_to(np.eye(L.shape[-1], dtype=L.dtype), L.shape)),
        np.tril(transposed(L) @ L), np.tril(transposed(L) @ (w[:, None] * L)), np.tril(L @ square),
        L @ np.tril(W),
        np.tril(B @ transposed(C)), np.tril(square + B @ transposed(C)),
        np.tril(solved(L, np.tril(W), True)), np.tril(L @ transposed(np.tril(W))),
        np.tril(square + L @ transposed(np.tril(W))),
    ]  # fmt: skip


def results_of(twin, L, W, B, C, w, square):
    """Return the same from a twin; unused triangles of arguments hold NaN."""
    full, lowers, (L, W, square) = square, tuple(map(np.tril, (L, W))), map(unread, (L, W, square))
    X, Y = twin.solve_triangular(L, B), twin.solve_triangular(L, B, True)
    V, inverse = twin.solve_tril(L, W), twin.inverse_triangular(L)
    results = [
        X,
        Y,
        twin.multiply_triangular(L, B),
        twin.multiply_triangular(L, B, True),
        V,
        inverse,
        np.tril(twin.tril_gram(L)),
        np.tril(twin.tril_gram(L, w)),
        np.tril(twin.tril_multiply(L, full)),
        twin.tril_multiply(L, lowers[1], False, True),
        twin.tril_product(B, C),
        twin.tril_product(B, C, square.copy(), True),
        twin.solve_tril(L, W, True),
        *_products_of_lowers(twin, *lowers, square),
    ]
    for lower in (V, inverse, *results[-5:]):
        assert not np.triu(lower, 1).any()
    return results


def _products_of_lowers(twin, L, W, square):
    return (
        twin.tril_product(L, W, None, False, True),
        twin.tril_product(L, W, square.copy(), True, True),
    )


def rules_by_definition(L, W, B, C, w, square):
    """Return all cotangents of the family, in the dtype of the arrays; C is that of results."""
    X, Y, V, S = solved(L, B), solved(L, B, True), solved(L, W), solved(L, np.tril(square), True)
    inverse = solved(L, np.broadcast_to(np.eye(L.shape[-1], dtype=L.dtype), L.shape))
    return [
        -np.tril(solved(L, C, True) @ transposed(X)), solved(L, C, True),
        -np.tril(Y @ transposed(solved(L, C))), solved(L, C),
        np.tril(C @ transposed(B)), transposed(L) @ C, np.tril(B @ transposed(C)), L @ C,
        -np.tril(S @ transposed(V)), np.tril(S),
        -np.tril(transposed(inverse) @ np.tril(square) @ transposed(inverse)),
    ]  # fmt: skip


def rules_of(door, L, W, B, C, w, square):
    """Return the same from a front door; unused triangles of arguments hold NaN."""
    L, W, square = map(unread, (L, W, square))
    X, Y = door.solve_triangular(L, B), door.solve_triangular(L, B, True)
    results = [
        *door.solve_triangular_vjp(C, L, X),
        *door.solve_triangular_vjp(C, L, Y, True),
        *door.multiply_triangular_vjp(C, L, B),
        *door.multiply_triangular_vjp(C, L, B, True),
        *door.solve_tril_vjp(square, L, door.solve_tril(L, W)),
        door.inverse_triangular_vjp(square, unread(door.inverse_triangular(L))),
    ]
    for lower in (*results[:8:2], *results[8:]):
        assert not np.triu(lower, 1).any()
    return results


SLACK = 8  # inverted blocks reached 4.4 times the error of substitution, over 12 seeds


def check_all(twin, rng, M, R, batch, dtype):
    _check(results_of, definition, twin, *problem(rng, M, R, batch, dtype))


def check_rules(door, rng, M, R, batch, dtype):
    _check(rules_of, rules_by_definition, door, *problem(rng, M, R, batch, dtype))


def _check(found, definition, twin, *arrays):
    dtype = arrays[0].dtype
    plain, truth = definition(*arrays), definition(*(a.astype(np.longdouble) for a in arrays))
    for result, in_dtype, exact in zip(found(twin, *arrays), plain, truth, strict=True):
        assert result.dtype == dtype and result.shape == exact.shape and result.flags.c_contiguous
        assert_as_accurate_as(result, in_dtype, exact, SLACK)


def small_run(twin, dtype):
    """Run every kernel on more than one block, for slow runs"""
    L, _, B, C, *_ = problem(generator(1), 40, 70, (), dtype)
    long = generator(2).standard_normal((70, 300)).astype(dtype)
    twin.tril_product(long, long)  # in slices, which are summed
    twin.multiply_triangular(unread(L), B)
    twin.tril_product(B, C, unread(L), True)
    twin.tril_multiply(unread(L), L)
    twin.solve_triangular(unread(L), B)
    twin.solve_triangular(unread(L), C, True)
