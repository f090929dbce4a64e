"""Cholesky factors by our own kernels: LAPACK's accuracy and pivots, and how many launches."""

import functools
import pathlib

import numpy as np
import pytest
from cuda_host import cupy_on_host as host
from cuda_host.host_module import ORDERS, HostModule
from support.numerics import generator

from fastsvgp import kernels
from fastsvgp.errors import NotPositiveDefinite
from fastsvgp.kernels.cuda import factorisations
from fastsvgp.kernels.cuda.common import cholesky as own, loader
from fastsvgp.runtime import cuda_devices, deferred_checks, tuning

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
EDGES = [1, 31, 32, 33, 127, 128, 129, 255, 256, 257]
SOME = sorted(generator(39).choice(np.setdiff1d(np.arange(1, 301), EDGES), 5, replace=False))
JITTER = 0.1


def problem(rng, n, dtype, batch=()):
    """Return positive definite matrices, and the same with NaN above their diagonals."""
    X = rng.standard_normal((*batch, n, n + 3)) / np.sqrt(n)
    A = (X @ X.swapaxes(-1, -2)).astype(dtype)
    return A, np.where(np.tri(n), A, np.nan).astype(dtype)


def residual(L, A):
    """Return the largest entry of the lower triangle of ``L L' - A``, over that of A."""
    product, A = L.astype(np.float64) @ L.astype(np.float64).swapaxes(-1, -2), np.float64(A)
    return np.tril(abs(product - A)).max() / np.tril(abs(A)).max()


def assert_factor(L, A, slack=4):
    """Assert a lower factor whose residual is at most ``slack`` times that of LAPACK."""
    assert L.shape == A.shape and not np.triu(L, 1).any()
    assert (np.diagonal(L, axis1=-2, axis2=-1) > 0).all()
    plain = residual(np.linalg.cholesky(A.astype(L.dtype)), A)
    assert residual(L, A) <= slack * max(plain, np.finfo(L.dtype).eps)


@every_dtype
@pytest.mark.parametrize("n", [*EDGES, *map(int, SOME)])
def test_against_lapack(gpu, rng, n, dtype):
    A, given = problem(rng, n, dtype)
    noise, there = rng.uniform(0, 1, n).astype(dtype), gpu.there(given)
    assert own.serves(n, np.dtype(dtype))
    L = kernels.cholesky(there, JITTER, noise=gpu.there(noise))
    assert_factor(gpu.back(L), A + np.diag(np.float64(noise) + JITTER))
    np.testing.assert_array_equal(gpu.back(there), given)
    assert kernels.cholesky(there, JITTER, True, gpu.there(noise)) is there
    np.testing.assert_array_equal(gpu.back(there), gpu.back(L))


@every_dtype
@pytest.mark.parametrize("n, batch", [(5, (7,)), (40, (2, 3)), (130, (3,)), (290, (2,)), (3, (0,))])
def test_batches(gpu, rng, n, batch, dtype):
    A, given = problem(rng, n, dtype, batch)
    found = gpu.back(kernels.cholesky(gpu.there(given), JITTER))
    assert found.shape == A.shape
    for i in np.ndindex(batch):
        assert_factor(found[i], A[i] + JITTER * np.eye(n))
        np.testing.assert_array_equal(
            found[i], gpu.back(kernels.cholesky(gpu.there(given[i]), JITTER))
        )


def test_a_thousand_rows(real, rng):
    """Sums in several slices, and more blocks than multiprocessors."""
    A, given = problem(rng, 1000, np.float64)
    assert_factor(kernels.cholesky(real.asarray(given), JITTER).get(), A + JITTER * np.eye(1000))


def test_any_strides(gpu, rng):
    A, given = problem(rng, 150, np.float64)
    wide = np.full((300, 151), np.nan)
    wide[::2, :150] = given
    found = gpu.back(kernels.cholesky(gpu.there(wide)[::2, :150], JITTER))
    assert_factor(found, A + JITTER * np.eye(150))


@pytest.mark.parametrize("dtype, jitter", [(np.float64, 1e-7), (np.float32, 1e-3)])
def test_nearly_singular(gpu, rng, dtype, jitter):
    """Neighbours in one dimension, where products with an inverse would lose digits."""
    x = np.sort(rng.uniform(0, 1, 300))
    A = np.exp(-0.5 * (x[:, None] - x) ** 2 / 0.3**2).astype(dtype)
    assert_factor(gpu.back(kernels.cholesky(gpu.there(A), jitter)), A + jitter * np.eye(300))


@every_dtype
def test_cut_sums_do_not_depend_on_the_order(rng, dtype):
    """With many multiprocessors sums are cut into slices, whose last block adds the parts."""
    A, given = problem(rng, 420, dtype)
    found, grids = [], []
    for order in ORDERS:
        with host.cupy_on_host(order, multiprocessors=132) as cp, pytest.MonkeyPatch.context() as m:
            launch = loader.launch

            def noted(stem, kernel, dtype, grid, *others, launch=launch):
                grids.append(grid)
                launch(stem, kernel, dtype, grid, *others)

            m.setattr(loader, "launch", noted)
            found.append(kernels.cholesky(cp.asarray(given), JITTER).get())
    assert max(grid[1] for grid in grids if len(grid) > 1) > 1
    assert_factor(found[0], A + JITTER * np.eye(420))
    for other in found[1:]:
        np.testing.assert_array_equal(other, found[0])


@pytest.mark.parametrize("n", [40, 300])
def test_tensor_cores_that_cut_off(rng, n, monkeypatch):
    monkeypatch.setenv("CUDA_HOST_TRUNCATING", "1")
    A, given = problem(rng, n, np.float32)
    with host.cupy_on_host() as cp:
        found = kernels.cholesky(cp.asarray(given), JITTER).get()
    assert_factor(found, A + JITTER * np.eye(n))


@every_dtype
def test_without_tensor_cores(rng, dtype, monkeypatch):
    """The code for devices older than sm_80."""

    @functools.cache
    def module_of(stem, dtype, sanitizer):
        path = pathlib.Path(loader.source_folder()) / f"{stem}.cu"
        return HostModule(path, [f"-DREAL={loader.C_NAMES[dtype]}", "-DPLAIN_FMA"], sanitizer)

    monkeypatch.setattr(host, "module_of", module_of)
    A, given = problem(rng, 270, dtype)
    with host.cupy_on_host() as cp:
        found = kernels.cholesky(cp.asarray(given), JITTER).get()
    assert_factor(found, A + JITTER * np.eye(270))


# --- pivots ---------------------------------------------------------------------------------------


def spoilt(rng, n, pivot, value):
    """Return a matrix whose elimination fails at a pivot, from a diagonal entry of this value."""
    A, given = problem(rng, n, np.float64)
    given[pivot, pivot] = value
    return given


@pytest.mark.parametrize("rows", [tuning.Tuning().own_cholesky_rows, 0], ids=["own", "library"])
@pytest.mark.parametrize("value", [np.nan, -1.0, np.inf])
@pytest.mark.parametrize("n", [1, 5, 128, 129, 260])
def test_failed_pivots(gpu, rng, tune, n, value, rows):
    tune(own_cholesky_rows=rows)
    for pivot in {0, n // 2, n - 1}:
        A = spoilt(rng, n, pivot, value)
        with pytest.raises(NotPositiveDefinite) as here:
            kernels.cholesky(A, 1e-6)
        with pytest.raises(NotPositiveDefinite) as there:
            kernels.cholesky(gpu.there(A), 1e-6)
        assert there.value.pivot == pivot
        assert str(here.value) == str(there.value)


@pytest.mark.parametrize("n", [5, 200])
def test_of_a_batch_the_first_failure_is_named(gpu, rng, n):
    A = problem(rng, n, np.float64, (2, 2))[1]
    A[0, 1, n - 1, n - 1] = A[1, 0, 0, 0] = -1
    for where in (A, gpu.there(A)):
        with pytest.raises(NotPositiveDefinite) as found:
            kernels.cholesky(where, JITTER)
        assert found.value.batch == (0, 1) and found.value.pivot == n - 1


@pytest.mark.parametrize("n", [5, 260])
def test_deferred_failures_are_counted_without_waiting(rng, n):
    A = problem(rng, n, np.float64, (3,))[1]
    A[0, n - 1, n - 1], A[2, 0, 0] = -1, np.nan
    with host.cupy_on_host() as cp:
        there = cp.asarray(A)
        with deferred_checks.deferred(there) as checks:
            before = host.copies.to_host
            L = kernels.cholesky(there, JITTER)
            kernels.cholesky(there[1], JITTER)
            assert host.copies.to_host == before
            assert checks.flag.get()[0] == 2
        assert np.isfinite(L[1].get()).all()


# --- launches -------------------------------------------------------------------------------------


@pytest.fixture
def launches():
    """Names of launched kernels; none of them runs."""
    names = []
    # not ``monkeypatch``, which would put the emulation back when that has ended
    with host.cupy_on_host(multiprocessors=132), pytest.MonkeyPatch.context() as patched:
        patched.setattr(loader, "launch", lambda stem, kernel, *_: names.append(kernel))
        yield names


@pytest.mark.parametrize("M, batch, count", [(100, (), 1), (100, (64,), 1), (1000, (), 15),
                                             (1000, (4,), 15), (1024, (), 15)])  # fmt: skip
def test_launches(launches, M, batch, count):
    A = host.cupy.empty((*batch, M, M), np.float64)
    with deferred_checks.deferred(A):
        kernels.cholesky(A, JITTER, overwrite_a=True)
    assert len(launches) == count and set(launches) <= {"factor_block", "factor_panel"}
    assert launches[::2] == ["factor_block"] * (count // 2 + 1)


def test_large_matrices_are_those_of_the_library(launches, tune):
    A = host.cupy.ones((40, 40), np.float64) + host.cupy.eye(40)
    cases = {(40, 10**9): True, (39, 10**9): False, (40, 3 * 8192): True, (40, 3 * 8192 - 1): False}
    for (rows, memory), ours in cases.items():
        launches.clear()
        tune(own_cholesky_rows=rows)
        with pytest.MonkeyPatch.context() as patched, deferred_checks.deferred(A):
            patched.setattr(cuda_devices, "shared_memory_limit", lambda memory=memory: memory)
            factorisations.cholesky(A)
        assert launches == (["factor_block"] if ours else ["turn", "check_pivots", "turn"])


def test_shared_memory_of_other_devices():
    """A device with 99 KB takes our kernels in float32, and in float64 up to 128 rows."""
    assert own._shared_memory(128, np.dtype(np.float64)) <= 99 * 1024
    assert own._shared_memory(129, np.dtype(np.float32)) <= 99 * 1024
    assert own._shared_memory(129, np.dtype(np.float64)) <= 163 * 1024
