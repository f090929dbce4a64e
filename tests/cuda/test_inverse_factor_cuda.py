"""The inner loop on device arrays: the steps and factors of the CPU, for any start and end."""

import numpy as np
import pytest
from cuda_host import cupy_on_host
from oracles import inverse_factor as oracle

import fastsvgp as fs
from fastsvgp.optim.inverse import iteration

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
    expected, truth = fs.optim.inverse_factor(A, L)
    got, info = fs.optim.inverse_factor(cupy.asarray(A), None if L is None else cupy.asarray(L))
    assert isinstance(got, cupy.ndarray) and got.dtype == dtype
    assert (info.converged, info.steps, info.reason) == (True, truth.steps, "converged")
    np.testing.assert_allclose(
        got.get(), expected, rtol=0, atol=1e4 * np.finfo(dtype).eps * np.abs(expected).max()
    )
    assert isinstance(info.residual, float) and info.log_det == pytest.approx(
        truth.log_det, rel=1e-4
    )


def test_other_ends_and_batches(cupy, rng):
    A = covariance(rng)
    searched = fs.optim.inverse_factor(cupy.asarray(A), step_size=lambda t: 1e6)[1]
    assert searched.converged and searched.searches == searched.steps
    rounded = fs.optim.inverse_factor(cupy.asarray(A.astype("f")), tolerance=1e-6)[1]
    assert rounded.reason == "rounding" and 0 < rounded.reachable < 1e-3
    assert fs.optim.inverse_factor(cupy.asarray([[1, 1.5], [1.5, 1]]))[1].reason == "indefinite"
    both, info = fs.optim.inverse_factor(cupy.asarray(np.stack([A, 2 * A])))
    assert info.converged.all()
    np.testing.assert_array_equal(both.get()[0], fs.optim.inverse_factor(cupy.asarray(A))[0].get())
    assert not fs.optim.inverse_factor(cupy.asarray(A), max_steps=2)[1].converged


def waits_of(A, L=None, **settings):
    """Count the copies that the loop waits for, without those of argument checks."""
    settings = {"schedule": None, "tolerance": 1e-3, "max_steps": 100} | settings
    before = cupy_on_host.copies.to_host
    info = iteration.newton_schulz_iterate(A, L, **settings)[1]
    return cupy_on_host.copies.to_host - before, info


def test_four_steps_of_the_loop_synchronise_once(cupy, rng):
    """Matrices stay on the device; numbers are read for the start, and after every four steps."""
    if cupy is not cupy_on_host.cupy:
        pytest.skip("a real device does not count copies")
    A = cupy.asarray(covariance(rng))
    cold = 1 + 1  # the scaling of the diagonal, and the resulting start
    for steps in range(8):
        waits, info = waits_of(A, max_steps=steps)
        assert not info.converged and info.steps == steps and info.searches == 0
        assert waits == cold + -(-steps // 4)
    L, info = iteration.newton_schulz_iterate(A, None, None, 1e-3, 100)
    assert waits_of(A, L) == (1, info._replace(steps=0))
    before = info.steps
    waits, info = waits_of(A, L * 1.01)
    # no more speculative steps than can be needed
    assert info.converged and info.steps == 1 and waits == 2
    assert waits_of(A)[0] <= cold + before // 4 + 1


def test_speculative_steps_are_undone(cupy, rng, monkeypatch):
    """A step that makes no progress is undone, with all after it, and replaced by a search."""
    A, progress, values = covariance(rng), iteration._progress, []

    def refused(now, new, size):
        values.append(now.objective)
        return len(values) not in (3, 6) and progress(now, new, size)

    monkeypatch.setattr(iteration, "_progress", refused)
    results = []
    for where in (np.copy, cupy.asarray):
        values.clear()
        L, info = iteration.newton_schulz_iterate(where(A), None, None, 1e-3, 100)
        assert info.converged and info.searches == 2 and len(values) == info.steps + 2
        assert values[2] == values[3] and values[5] == values[6]  # from the same point again
        assert oracle.residual(A, L if where is np.copy else L.get()) == pytest.approx(
            info.residual, rel=1e-6
        )
        results.append(info)
    assert results[0].steps == results[1].steps
    assert results[0].log_det == pytest.approx(results[1].log_det, abs=1e-3)


def test_arrays_of_two_devices_are_refused(cupy, rng):
    A = covariance(rng)
    with pytest.raises(TypeError, match="device"):
        fs.optim.inverse_factor(cupy.asarray(A), np.eye(M))
