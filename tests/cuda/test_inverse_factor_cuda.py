"""The inner loop on device arrays: the same steps to the same factor, wherever it starts and however it ends."""

import numpy as np
import pytest
from cuda_host import cupy_on_host

import fastsvgp as fs

M = 20


@pytest.fixture
def cupy(gpu):
    return gpu.cupy


def covariance(rng):
    Z = rng.uniform(-2, 2, (M, 2))
    return np.exp(-((Z[:, None] - Z[None]) ** 2).sum(-1) / 2) + 0.01 * np.eye(M)


STARTS = {
    "cold": lambda A: None,
    "far": lambda A: 100 * np.eye(M) + np.triu(np.full((M, M), np.nan), 1),
    "small": lambda A: 1e-4 * np.eye(M),
    "columns": lambda A: np.diag(np.geomspace(1e-8, 1e3, M)),
    "signs": lambda A: np.linalg.cholesky(np.linalg.inv(A)) * np.where(np.arange(M) % 2, 1, -1.1),
}


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("start", STARTS)
def test_equals_the_cpu(cupy, rng, start, dtype):
    A = covariance(rng).astype(dtype)
    L = STARTS[start](A)
    L = None if L is None else L.astype(dtype)
    expected, truth = fs.inverse_factor(A, L)
    got, info = fs.inverse_factor(cupy.asarray(A), None if L is None else cupy.asarray(L))
    assert isinstance(got, cupy.ndarray) and got.dtype == dtype
    assert (info.converged, info.steps, info.reason) == (True, truth.steps, "converged")
    np.testing.assert_allclose(got.get(), expected, rtol=0, atol=1e4 * np.finfo(dtype).eps * np.abs(expected).max())
    assert isinstance(info.residual, float) and info.log_det == pytest.approx(truth.log_det, rel=1e-4)


def test_other_ends_and_batches(cupy, rng):
    A = covariance(rng)
    searched = fs.inverse_factor(cupy.asarray(A), step_size=lambda t: 1e6)[1]
    assert searched.converged and searched.searches == searched.steps
    rounded = fs.inverse_factor(cupy.asarray(A.astype("f")), tolerance=1e-6)[1]
    assert rounded.reason == "rounding" and 0 < rounded.reachable < 1e-3
    assert fs.inverse_factor(cupy.asarray([[1, 1.5], [1.5, 1]]))[1].reason == "indefinite"
    both, info = fs.inverse_factor(cupy.asarray(np.stack([A, 2 * A])))
    assert info.converged.all()
    np.testing.assert_array_equal(both.get()[0], fs.inverse_factor(cupy.asarray(A))[0].get())
    assert not fs.inverse_factor(cupy.asarray(A), max_steps=2)[1].converged


def test_a_step_of_the_loop_waits_for_three_short_copies(cupy, rng):
    """Norms, the diagonal of the factor, the largest eigenvalue: matrices stay on the device."""
    if cupy is not cupy_on_host.cupy:
        pytest.skip("a real device does not count copies")
    A = cupy.asarray(covariance(rng))

    def copied(steps):
        before = cupy_on_host.copies.to_host
        fs.inverse_factor(A, max_steps=steps)
        return cupy_on_host.copies.to_host - before

    assert copied(4) - copied(3) == 3


def test_arrays_of_two_devices_are_refused(cupy, rng):
    A = covariance(rng)
    with pytest.raises(TypeError, match="device"):
        fs.inverse_factor(cupy.asarray(A), np.eye(M))
