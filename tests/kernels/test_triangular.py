"""Triangular kernels against dense NumPy, here and, imported by ``tests/cuda``, on a device."""

import types

import numpy as np
import pytest
from support import triangular_problems as problems
from support.looped import looped
from support.numerics import assert_adjoint

from fastsvgp import kernels

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
BATCHES = [((), (4,)), ((4,), (4,)), ((4,), ()), ((2, 3), (3,)), ((1,), (4,)), ((), (2, 3))]


@every_dtype
@pytest.mark.parametrize("M, R, batch", problems.SHAPES)
def test_against_dense_matrices(twin_of, rng, M, R, batch, dtype):
    problems.check_all(twin_of("triangular"), rng, M, R, batch, dtype)


@pytest.mark.parametrize("M, R", [(5, 3), (33, 5), (70, 2)])
@looped("batch_L, batch_B", BATCHES)
def test_batches_broadcast(twin_of, rng, M, R, batch_L, batch_B):
    L, B = problems.problem(rng, M, R, batch_L, float)[0], rng.standard_normal((*batch_B, M, R))
    twin, batch, unread = (
        twin_of("triangular"),
        np.broadcast_shapes(batch_L, batch_B),
        problems.unread,
    )
    for transpose in (False, True):
        op = problems.transposed(L) if transpose else L
        X = np.linalg.solve(np.broadcast_to(op, (*batch, M, M)), np.broadcast_to(B, (*batch, M, R)))
        found = (
            twin.solve_triangular(unread(L), B, transpose),
            twin.multiply_triangular(unread(L), B, transpose),
        )
        problems.assert_agree(found, (X, op @ B), float)


@every_dtype
@pytest.mark.parametrize("M, R, batch", problems.SHAPES)
def test_reverse_rules_against_dense_matrices(door_of, rng, M, R, batch, dtype):
    problems.check_rules(door_of("triangular"), rng, M, R, batch, dtype)


@pytest.mark.parametrize("M, R", [(5, 3), (33, 5), (70, 2)])
@looped("batch_L, batch_B", BATCHES)
def test_the_cotangent_of_a_shared_factor_is_summed(door_of, rng, M, R, batch_L, batch_B):
    L, W, _, _, _, square = problems.problem(rng, M, R, batch_L, float)
    batch, T = np.broadcast_shapes(batch_L, batch_B), problems.transposed
    B, bar, square = (rng.standard_normal((*batch, M, n)) for n in (R, R, M))
    door, unread, wide = door_of("triangular"), problems.unread, np.broadcast_to(L, square.shape)

    def summed(L_bar):
        over = tuple(range(len(batch) - len(batch_L)))
        stretched = tuple(i for i, n in enumerate(batch_L) if n == 1)
        return np.tril(L_bar).sum(over).sum(stretched, keepdims=True)

    for transpose in (False, True):
        op = T(wide) if transpose else wide
        X, pulled = np.linalg.solve(op, B), np.linalg.solve(T(op), bar)
        for name, given, B_bar, (left, right) in (
            ("solve_triangular_vjp", X, pulled, (-pulled, X)),
            ("multiply_triangular_vjp", B, T(op) @ bar, (bar, B)),
        ):
            left, right = (right, left) if transpose else (left, right)
            found = getattr(door, name)(bar, unread(L), given, transpose)
            problems.assert_agree(found, (summed(left @ T(right)), B_bar), float)
    V, W_bar = np.linalg.solve(wide, np.tril(W)), np.linalg.solve(T(wide), np.tril(square))
    found = door.solve_tril_vjp(unread(square), unread(L), np.tril(V))
    problems.assert_agree(found, (summed(-W_bar @ T(V)), np.tril(W_bar)), float)


def test_strided_and_read_only_arguments(twin_of, rng):
    L, _, B, *_ = problems.problem(rng, 90, 8, (), float)
    wide, readonly, before = np.zeros((180, 180)), L.copy(), B.copy()
    wide[::2, ::2], readonly.flags.writeable = L, False
    for name in ("solve_triangular", "multiply_triangular"):
        operation = getattr(twin_of("triangular"), name)
        for given in (wide[::2, ::2], np.asfortranarray(L), readonly):
            np.testing.assert_array_equal(operation(given, np.asfortranarray(B)), operation(L, B))
    np.testing.assert_array_equal(B, before)


def test_given_memory_holds_the_result(twin_of, rng):
    twin = twin_of("triangular")
    if not isinstance(twin, types.ModuleType):
        pytest.skip("results of a device are copied to new arrays")
    L, W, B, C, _, square = problems.problem(rng, 70, 9, (), float)
    factor, unread = problems.unread(L), problems.unread
    for name, *arguments, at in (
        ("solve_triangular", factor, B, False, 1),
        ("multiply_triangular", factor, B, False, 1),
        ("tril_multiply", factor, square, 1),
        ("solve_tril", factor, unread(W), False, 1),
        ("solve_tril", factor, unread(W), True, 1),
        ("inverse_triangular", L, 0),
    ):
        operation, memory, given = getattr(twin, name), arguments[at].copy(), arguments[at]
        arguments[at] = memory
        expected = operation(*arguments)
        np.testing.assert_array_equal(memory, given)
        found = operation(*arguments, True)
        # on a device most kernels decline what they may do
        assert found is memory or ("cuda" in twin.__name__ and name != "solve_triangular")
        np.testing.assert_array_equal(*map(np.tril, (found, expected)))
    memory = np.full((70, 70), np.nan)
    for lower, (one, other) in ((False, (B, C)), (True, np.tril((L, W)))):
        truth = np.tril(one @ other.T)
        for add, times in ((False, 1), (True, 2)):
            assert twin.tril_product(one, other, memory, add, lower) is memory
            np.testing.assert_allclose(np.tril(memory), times * truth, rtol=0, atol=1e-12)
            memory = unread(memory)


def test_empty_arrays(twin_of, rng):
    twin, L = twin_of("triangular"), problems.problem(rng, 5, 1, (), float)[0]
    assert twin.solve_triangular(L, np.zeros((5, 0))).shape == (5, 0)
    assert twin.solve_triangular(L, np.zeros((0, 5, 2))).shape == (0, 5, 2)
    assert twin.multiply_triangular(L, np.zeros((5, 0))).shape == (5, 0)
    assert twin.inverse_triangular(np.zeros((0, 5, 5))).shape == (0, 5, 5)
    none = np.zeros((5, 0))
    np.testing.assert_array_equal(twin.tril_product(none, none), np.zeros((5, 5)))
    np.testing.assert_array_equal(twin.tril_product(none, none, problems.unread(L), True), L)


# --- only on the CPU: sizes that an emulation is too slow for, and differences --------------------


@pytest.mark.parametrize("M, R", [(65, 130), (97, 1), (143, 20), (200, 7), (300, 301), (600, 3)])
def test_more_blocks(rng, M, R):
    arrays = problems.problem(rng, M, R, (2,) if M <= 200 else (), float)
    found = problems.results_of(kernels, *arrays)
    problems.assert_agree(found, problems.definition(*arrays), float, 2000)


@looped("batch", [(), (2,)])
@looped("M, R", [(1, 1), (3, 5), (70, 4)])
def test_reverse_rules(rng, M, R, batch):
    L, W, B, bar, _, square_bar = problems.problem(rng, M, R, batch, float)
    lower, other = np.tril(rng.standard_normal((2, *L.shape)))
    X, Y = kernels.inverse_triangular(L), kernels.solve_tril(L, W)
    rules = [
        (kernels.inverse_triangular, (L,), (kernels.inverse_triangular_vjp(square_bar, X),)),
        (kernels.solve_tril, (L, W), kernels.solve_tril_vjp(square_bar, L, Y)),
    ]
    for f, args, bars in rules:
        assert_adjoint(f, args, bars, np.tril(square_bar), rng, directions=[lower, other])
    for transpose in (False, True):
        X = kernels.solve_triangular(L, B, transpose)
        for f, bars in (
            (kernels.solve_triangular, kernels.solve_triangular_vjp(bar, L, X, transpose)),
            (kernels.multiply_triangular, kernels.multiply_triangular_vjp(bar, L, B, transpose)),
        ):
            directions = [lower, rng.standard_normal(B.shape)]
            f = lambda L, B, f=f, turned=transpose: f(L, B, turned)  # noqa: E731
            assert_adjoint(f, (L, B), bars, bar, rng, directions=directions)
