"""The CUDA twin of the Newton-Schulz family: the bodies of the CPU, and what only devices have."""

import functools
import itertools
import pathlib

import numpy as np
import pytest
from cuda_host import emulated as emulation
from cuda_host.cupy_on_host import copies, cupy_on_host
from cuda_host.host_module import HostModule
from oracles import inverse_factor as oracle
from support import newton_schulz_problems as problems

from fastsvgp.kernels.cpu import newton_schulz as cpu
from fastsvgp.kernels.cuda import tiled
from fastsvgp.kernels.cuda.common import loader, scratch
from tests.kernels.test_newton_schulz import (  # noqa: F401
    test_against_dense_matrices,
    test_an_update_may_overwrite_the_residual,
    test_curvature_along_the_step,
    test_empty_arrays,
    test_infinity_makes_the_norms_infinite,
    test_power_iteration_finds_the_largest_eigenvalue,
    test_power_iteration_of_no_matrices,
    test_power_iteration_of_zero_is_zero,
    test_step_sizes_and_broadcasting,
    test_strided_and_read_only_arguments,
    test_unit_steps_converge_to_the_factorised_inverse,
)

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])


@pytest.mark.parametrize("M, batch", problems.SHAPES)
def test_by_tensor_cores_that_cut_off(cutting, rng, M, batch):
    problems.check_all(cutting("newton_schulz"), rng, M, batch, np.float32)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_without_tensor_cores(rng, dtype, monkeypatch):
    """The code for devices older than sm_80."""

    @functools.cache
    def module_of(stem, dtype, sanitizer):
        path = pathlib.Path(loader.source_folder()) / f"{stem}.cu"
        return HostModule(path, [f"-DREAL={loader.C_NAMES[dtype]}", "-DPLAIN_FMA"], sanitizer)

    monkeypatch.setattr(emulation, "module_of", module_of)
    with emulation.emulated() as twin_of:
        problems.check_all(twin_of("newton_schulz"), rng, 130, (), dtype)


@pytest.mark.parametrize("start", [False, True])
def test_walk_is_decided_on_the_device(twin_of, rng, start):
    """Sizes and termination of four items: far, near, already converged, and not finite."""
    A, L, *_ = problems.problem(rng, 70, (4,), np.float64)
    L[0], L[2], L[3, 9, 9] = 3 * np.eye(70), oracle.inverse_factor(A[2]), np.inf
    (factors, D, rows, v), (_, truth, expected, vector) = (
        twin.newton_schulz_walk(
            A,
            L,
            np.ones((4, 70)),
            1e-5,
            14,
            twin.newton_schulz_gram(A, L) if start else None,
            (10, 3),
        )
        for twin in (twin_of("newton_schulz"), cpu)
    )
    for one, other in ((rows[:, :3], expected[:, :3]), (D[:3], truth[:3]), (v[:3], vector[:3])):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-11)
    np.testing.assert_array_equal(rows[:, 3, 5], 0)
    assert not np.isfinite(rows[:, 3, 0]).any()
    taken = (rows[..., 5] > 0).sum(0)
    assert taken[0] > taken[1] > 1 and (rows[taken[0] :, 0] == rows[-1, 0]).all()
    np.testing.assert_array_equal(taken[2:], 0)
    for i in range(2):
        found = factors[taken[i] - 1, i]
        assert oracle.residual(A[i], found) <= 1e-5 and not np.triu(found, 1).any()


@every_dtype
@pytest.mark.parametrize("M, batch", [(1, ()), (17, (2, 1)), (100, ())])
def test_a_walk_of_few_steps(twin_of, rng, M, batch, dtype):
    A, L, _, _, v = problems.problem(rng, M, batch, dtype)
    cases = (0, (3, 3)), (1, (2, 3)), (2, (0, 0)), (2, (0, 1))
    # one step solves M = 1, up to rounding, which decides whether another step is taken
    for steps, iterations in cases if M > 1 else cases[:2]:
        results = [
            twin.newton_schulz_walk(A, L, v, 0.0, steps, None, iterations)
            for twin in (twin_of("newton_schulz"), cpu)
        ]
        for one, other in zip(*results, strict=True):
            assert one.shape == other.shape and one.dtype == other.dtype
            np.testing.assert_allclose(one, other, rtol=0, atol=1e3 * M * np.finfo(dtype).eps)


def test_nothing_waits_for_the_device(rng):
    A, L, S, bar, v = problems.problem(rng, 20, (2,), np.float64)
    with cupy_on_host() as cp:
        from fastsvgp.kernels.cuda import newton_schulz as twin

        A, L, S, bar, v = map(cp.asarray, (A, L, S, bar, v))
        before = copies.to_host
        D, _ = twin.newton_schulz_gram(A, L)
        twin.newton_schulz_walk(A, L, v, 1e-6, 2)
        sizes = cp.asarray(np.ones(2))
        twin.newton_schulz_update(L, D, sizes)
        twin.newton_schulz_step(A, L, 0.5)
        twin.newton_schulz_step_vjp(bar, A, L, D, sizes)
        twin.newton_schulz_curvature(A, L, D)
        twin.tril_congruence(L, S)
        assert copies.to_host == before


def test_the_order_of_threads_changes_no_bit(rng):
    arrays = problems.problem(rng, 100, (), np.float32)
    emulation.assert_same_in_any_order(
        lambda twin: problems.results_of(twin("newton_schulz"), *arrays, 0.7)
    )


def test_splitting_of_sums_changes_only_rounding(rng):
    """Few multiprocessors: whole sums. Many: slices that are added afterwards."""
    arrays, results = problems.problem(rng, 200, (), np.float64), []
    for multiprocessors in (1, 1000):
        with emulation.emulated(multiprocessors=multiprocessors) as twin_of:
            results.append(problems.results_of(twin_of("newton_schulz"), *arrays, 0.7))
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-13 * max(1, np.abs(other).max()))


def test_counters_of_split_sums_are_reset(rng):
    """Whichever block finishes a tile last, and if some items are idle."""
    A, L, *_ = problems.problem(rng, 130, (2,), np.float64)
    for order in ("forward", "reverse", "random"):
        with emulation.emulated(order, multiprocessors=132) as twin_of:
            twin = twin_of("newton_schulz")
            expected = twin.newton_schulz_step(A, L, 1.0)
            D, _ = twin.newton_schulz_gram(A, L)
            stepped = twin.newton_schulz_update(L, D, np.array([0.0, 1.0]))
            np.testing.assert_array_equal(stepped, [np.tril(L[0]), expected[1]])
            (kept,) = scratch._kept.values()
            assert kept.parts["d"].size and kept.counters(1).size and not kept.counters(1).any()


def of_tile(which, row, column, high, deep):
    """Return the tiles of k of one tile of the result, by the definition of the range."""
    return {
        tiled.BETWEEN: row - column + 1,
        tiled.FROM_ROW: deep - row,
        tiled.UP_TO_COLUMN: column + 1,
        tiled.UP_TO_ROW: row + 1,
        tiled.WHOLE: deep,
        tiled.ROWS_UP_TO_ROW: row + 1,
        tiled.ROWS_FROM_ROW: deep - row,
        tiled.ROWS_WHOLE: deep,
    }[which]


@pytest.mark.parametrize("which", range(8))
def test_lengths_are_those_of_the_tiles(which):
    for high, wide in ((1, 1), (2, 5), (7, 3)):
        rows = which >= tiled.ROWS_UP_TO_ROW
        deep = 4 if which in (tiled.WHOLE, tiled.ROWS_WHOLE) else high
        found = tiled._lengths(which, high, wide if rows else high, deep)
        each = [length for length, number in found for _ in range(number)]
        tiles = itertools.product(range(high), range(wide if rows else high))
        expected = [of_tile(which, i, j, high, deep) for i, j in tiles if rows or j <= i]
        assert each == sorted(expected, reverse=True)


@pytest.mark.parametrize("which", [*range(8)])
def test_split_sums_have_enough_counters(which):
    for multiprocessors, items, both in itertools.product((1, 2, 20, 132), (1, 2, 7, 100), (1, 2)):
        for n, columns in [
            *itertools.product((1, 63, 65, 200, 512, 1000, 2000, 7000), (1, 100, 3000))
        ]:
            wide = columns if which >= tiled.ROWS_UP_TO_ROW else n
            deep = columns if which in (tiled.WHOLE, tiled.ROWS_WHOLE) else n
            size, mode = (items, n, wide, deep), tiled.Mode(0, 0, 0, which, both, 0, 0, 0)
            tiles, slices, _ = tiled._plan(multiprocessors, size, mode, (0,) * 7)
            assert slices == 1 or items * tiles < tiled.CUT_UP_TO * multiprocessors
