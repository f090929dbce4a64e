"""The CUDA twin of the triangular family: the bodies of the CPU, and what only devices have."""

import numpy as np
import pytest
from cuda_host.cupy_on_host import copies, cupy_on_host
from cuda_host.emulated import assert_same_in_any_order, emulated
from support import triangular_problems as problems

from fastsvgp import kernels
from fastsvgp.kernels.cpu import triangular as cpu
from fastsvgp.kernels.cuda import triangular as cuda
from tests.kernels.test_triangular import (  # noqa: F401
    test_against_dense_matrices,
    test_batches_broadcast,
    test_empty_arrays,
    test_given_memory_holds_the_result,
    test_reverse_rules_against_dense_matrices,
    test_strided_and_read_only_arguments,
    test_the_cotangent_of_a_shared_factor_is_summed,
)

assert_agree = problems.assert_agree


@pytest.mark.parametrize("M, R, batch", problems.SHAPES)
def test_by_tensor_cores_that_cut_off(cutting, rng, M, R, batch):
    problems.check_all(cutting("triangular"), rng, M, R, batch, np.float32)


def test_truncation_makes_sums_too_small(cutting, rng, monkeypatch):
    """With truncation positive sums are too small, and not otherwise."""
    A, B = rng.uniform(0.5, 1, (2, 64, 400)).astype(np.float32)
    truth = np.tril(A.astype(float) @ B.T.astype(float))
    cut = cutting("triangular").tril_product(A, B) - truth
    monkeypatch.delenv("CUDA_HOST_TRUNCATING")
    rounded = cutting("triangular").tril_product(A, B) - truth
    assert cut.sum() < -5 * abs(rounded.sum())


@pytest.mark.parametrize("batch_L, batch_B", [((), ()), ((), (3,)), ((3,), (3,)), ((3,), ())])
@pytest.mark.parametrize("transpose", [False, True])
def test_large_factors(gpu, rng, batch_L, batch_B, transpose):
    """A single factor uses cuBLAS; those of a batch are split into blocks."""
    L, B = (
        problems.problem(rng, 200, 5, batch_L, float)[0],
        problems.problem(rng, 200, 5, batch_B, float)[2],
    )
    cp = gpu.cupy
    there = cp.asarray(problems.unread(L)), cp.asarray(B)
    X = cuda.solve_triangular(*there, transpose)
    assert_agree([X.get()], [cpu.solve_triangular(L, B, transpose)], float)
    np.testing.assert_array_equal(there[1].get(), B)
    if batch_L == batch_B:
        assert_agree([cuda.solve_tril(there[0], there[0]).get(),
                      cuda.inverse_triangular(there[0]).get()],
                     [np.broadcast_to(np.eye(200), L.shape), cpu.inverse_triangular(L)],
                     float)  # fmt: skip
        assert cuda.solve_triangular(*there, transpose, overwrite_b=True) is there[1]
        np.testing.assert_array_equal(there[1].get(), X.get())


@pytest.mark.parametrize("M", [20, 140])
def test_nothing_waits_for_the_device(rng, M):
    arrays = problems.problem(rng, M, 3, (2,), float)
    with cupy_on_host() as cp:
        from fastsvgp.kernels.cuda import triangular as twin

        L, W, B, C, w, square = map(cp.asarray, arrays)
        before = copies.to_host
        X = twin.solve_triangular(L, B)
        kernels.solve_triangular_vjp(C, L[0], X)
        kernels.multiply_triangular_vjp(C, L, B)
        kernels.solve_tril_vjp(square, L, twin.solve_tril(L, W))
        kernels.inverse_triangular_vjp(square, twin.inverse_triangular(L))
        twin.tril_gram(L, w)
        twin.tril_product(B, C, square, True)
        assert copies.to_host == before


@pytest.mark.parametrize("kilobytes, blocks", [(227, 1), (99, 2), (64, 2)])
def test_less_shared_memory(rng, kilobytes, blocks, monkeypatch):
    """The shared memory of devices outside data centres."""
    L, _, B, *_ = problems.problem(rng, 128, 5, (2,), float)
    # undone in this order
    with emulated(shared_memory=kilobytes * 1024) as twin_of, monkeypatch.context() as patch:
        twin, launches = twin_of("triangular"), []
        launch = twin.loader.launch
        patch.setattr(twin.loader, "launch", lambda *call: launches.append(call) or launch(*call))
        assert_agree([twin.solve_triangular(L, B)], [cpu.solve_triangular(L, B)], float)
        solves = [call for call in launches if call[1] == "solve"]
        assert len(solves) == blocks and all(call[-1] <= kilobytes * 1024 for call in solves)


def test_the_order_of_threads_changes_no_bit(rng):
    arrays = problems.problem(rng, 70, 9, (2,), np.float32)
    assert_same_in_any_order(lambda twin: problems.results_of(twin("triangular"), *arrays))


def test_splitting_of_sums_changes_only_rounding(rng):
    """Few multiprocessors: whole sums.

    Many: slices that are added afterwards; rows of tiles have different numbers of them.
    """
    L, _, B, C, w, square = problems.problem(rng, 200, 70, (), float)
    results = []
    for multiprocessors in (1, 1000):
        with emulated(multiprocessors=multiprocessors) as twin_of:
            twin = twin_of("triangular")
            lower = (
                twin.tril_multiply(problems.unread(L), square),
                twin.tril_gram(L, w),
                twin.tril_product(B, C),
            )
            results.append(
                [
                    *map(np.tril, lower),
                    *(twin.multiply_triangular(L, B, transpose) for transpose in (False, True)),
                ]
            )
    assert_agree(*results, float)
    assert_agree(results[1][:1], [np.tril(L @ square)], float)


@pytest.mark.parametrize("M", [129, 200, 256, 300, 513])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_inverses_by_blocks(gpu, rng, M, dtype):
    """Numbers of blocks that are not powers of two, and last blocks of any size.

    Nothing above the diagonal is read.
    """
    L = problems.problem(rng, M, 1, (), np.dtype(dtype))[0]
    X = cuda.inverse_triangular(gpu.cupy.asarray(problems.unread(L))).get()
    assert not np.triu(X, 1).any()
    bound = (
        4
        * np.finfo(dtype).eps
        * (np.abs(L.astype(float)) @ np.abs(X.astype(float))).max()
        * np.sqrt(M)
    )
    assert np.abs(L.astype(float) @ X - np.eye(M)).max() <= bound
