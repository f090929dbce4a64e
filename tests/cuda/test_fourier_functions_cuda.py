"""Features of many functions by the CUDA twin, emulated or on a device: the checks of the CPU."""

import shutil

import numpy as np
import pytest
from cuda_host.cupy_on_host import copies, cupy_on_host
from cuda_host.emulated import assert_same_in_any_order
from support import fourier_problems as problems

from fastsvgp import kernels
from fastsvgp.kernels.cuda import fourier as cuda_module
from fastsvgp.kernels.cuda.common import fourier_functions

every_dtype = pytest.mark.parametrize("dtype", [np.float64, np.float32])
every_kind = pytest.mark.parametrize("own", problems.KINDS)
emulation = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)


@every_dtype
@every_kind
@pytest.mark.parametrize("shape", problems.FUNCTIONS)
def test_by_definition(twin_of, rng, shape, own, dtype):
    problems.check_functions(twin_of("fourier"), rng, "rbf", shape, dtype, own)


@every_dtype
@pytest.mark.parametrize("family", problems.FAMILIES[1:])
def test_every_family(twin_of, rng, family, dtype):
    problems.check_functions(
        twin_of("fourier"), rng, family, (3, 2, 5, 4, 70), dtype, problems.KINDS[0]
    )


@every_kind
def test_runs_of_functions_join(twin_of, rng, own, monkeypatch):
    """Partial sums in little memory, a short third axis of the grid, and several tiles of points"""
    monkeypatch.setattr(cuda_module, "PARTS", 500)
    monkeypatch.setattr(fourier_functions, "FUNCTIONS", 2)
    monkeypatch.setattr(fourier_functions, "GROUPS_EACH", 1)
    shape = 5, 6, 300, 3, 40
    problems.check_functions(twin_of("fourier"), rng, "rbf", shape, np.float64, own)


@every_kind
@pytest.mark.parametrize("D", [3, 20])  # phases made in the kernel, and by a product before it
def test_leading_numbers_of_zero(twin_of, rng, own, D):
    cuda = twin_of("fourier")
    for shape in ((0, 2, 5, D, 9), (3, 0, 5, D, 9), (3, 2, 0, D, 9)):
        U, X, w, seeds, lengthscales, factors = problems.functions(rng, *shape, np.float64, own)
        model = w, "rbf", seeds, 9, 1.7, lengthscales, factors
        assert cuda.fourier_multiply_rows(X, *model).shape == shape[:3]
        X_bar = cuda.fourier_multiply_rows_vjp(U, X, *model)
        assert X_bar.shape == X.shape and not X_bar.any()


@emulation
@every_kind
def test_nothing_waits(rng, own):
    """Through the public functions, with no copy between devices."""
    arguments = problems.functions(rng, 3, 5, 40, 3, 21, np.float64, own)
    with cupy_on_host() as cupy:
        U, X, w, seeds, lengthscales, factors = (
            cupy.asarray(a) if isinstance(a, np.ndarray) else a for a in arguments
        )
        before = copies.to_host, copies.to_device
        model = w, "rbf", seeds, 21, cupy.asarray(1.7), lengthscales, factors
        before = copies.to_host, copies.to_device
        out = kernels.fourier_multiply_rows(X, *model)
        bar = kernels.fourier_multiply_rows_vjp(U, X, *model)
        assert all(isinstance(a, cupy.ndarray) for a in (out, bar))
        assert (copies.to_host, copies.to_device) == before


@emulation
@every_kind
def test_the_order_of_threads_changes_no_bit(rng, own):
    U, X, w, seeds, lengthscales, factors = problems.functions(
        rng, 3, 2, 30, 5, 40, np.float32, own
    )
    model = w, "rbf", seeds, 40, 1.7, lengthscales, factors

    def work(twin_of):
        cuda = twin_of("fourier")
        return (
            cuda.fourier_multiply_rows(X, *model),
            cuda.fourier_multiply_rows_vjp(U, X, *model),
        )

    assert_same_in_any_order(work)
