"""If a device runs out of memory, the message has the requested size and the main argument."""

import re
import shutil

import numpy as np
import pytest
from cuda_host import cupy_on_host

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.runtime.memory import explained

pytestmark = pytest.mark.skipif(
    shutil.which("g++") is None, reason="the host emulation of CUDA needs g++"
)
f8 = np.float64


class OutOfMemoryError(MemoryError):
    """Like that of CuPy."""


@pytest.fixture
def largest(monkeypatch):
    """Return a function that sets the size from which arrays do not fit."""

    def refuse_from(limit):
        def init(self, host):
            if host.base is None and host.nbytes >= limit:
                raise OutOfMemoryError(
                    f"Out of memory allocating {host.nbytes:,} bytes (allocated so far: 512 bytes)."
                )
            plain(self, host)

        plain = cupy_on_host.ndarray.__init__
        monkeypatch.setattr(cupy_on_host.ndarray, "__init__", init)

    with cupy_on_host.cupy_on_host() as cupy:
        refuse_from.there = cupy.asarray
        yield refuse_from


def small_model(rng, M, D=3):
    covariance = fs.RBF(f8(1.3), np.ones(D))
    return fs.SVGP(
        covariance,
        rng.standard_normal((M, D)),
        fs.Whitened(np.zeros(M), np.eye(M)),
        fs.Gaussian(f8(0.3)),
    )


def said_of(function, *arguments, **settings):
    """Return ``(bytes, driver, message)`` of the error."""
    with pytest.raises(MemoryError) as caught:
        function(*arguments, **settings)
    message = str(caught.value)
    found = re.search(
        r"^out of memory: ([\d,]+) bytes were requested .*`(\S+)` determines it", message
    )
    assert found, message
    return int(found[1].replace(",", "")), found[2], message


def test_bounds(rng, largest):
    there = (
        fs.to_device(small_model(rng, 17)),
        *(largest.there(rng.standard_normal(shape)) for shape in ((65, 3), 65)),
    )
    largest(8 * 17 * 65)
    num_bytes, driver, message = said_of(fs.elbo_and_grad, *there)
    assert (num_bytes, driver) == (8 * 17 * 65, "X")
    sizes = (
        "of `inducing` (17, 3), `X` (65, 3), `Y` (65,), `X` determines it: use smaller batches or"
        " float32"
    )
    assert (
        message.endswith(sizes)
        and "(Out of memory allocating 8,840 bytes (allocated so far: 512 bytes))" in message
    )
    num_bytes, driver, _ = said_of(
        fs.collapsed_bound, fs.SGPR(there[0].covariance, there[0].inducing, f8(0.3)), *there[1:]
    )
    assert (num_bytes, driver) == (8 * 17 * 65, "X")


@pytest.mark.parametrize("predict", [fs.predict_f, fs.predict_y])
def test_predictions(rng, largest, predict):
    model, Xs = fs.to_device(small_model(rng, 70)), largest.there(rng.standard_normal((1000, 3)))
    largest(8 * 70 * 70)
    num_bytes, driver, message = said_of(predict, model, Xs, chunk_size=10)
    assert (num_bytes, driver) == (8 * 70 * 70, "inducing") and message.endswith(
        "use fewer inducing inputs or float32"
    )
    q = fs.to_device(fs.Whitened(np.zeros(60), np.eye(60)))
    smaller = fs.replace(model, inducing=model.inducing[:60].copy(), posterior=q)
    num_bytes, driver, message = said_of(predict, smaller, Xs, chunk_size=500)
    assert (num_bytes, driver) == (8 * 60 * 500, "chunk_size") and message.endswith(
        "use a smaller `chunk_size` or float32"
    )


def test_full_covariances(rng, largest):
    model, Xs = fs.to_device(small_model(rng, 17)), largest.there(rng.standard_normal((90, 3)))
    largest(8 * 90 * 90)
    num_bytes, driver, message = said_of(fs.predict_f, model, Xs, full_cov=True, chunk_size=10)
    assert (num_bytes, driver) == (8 * 90 * 90, "Xs") and message.endswith(
        "use fewer rows at a time or float32"
    )
    assert said_of(fs.sample_f, model, Xs, 2)[:2] == (8 * 90 * 90, "Xs")


def test_models_and_data_are_moved(rng, largest):
    model = small_model(rng, 40)
    there, X, Y = fs.to_device(model), rng.standard_normal((2000, 3)), rng.standard_normal(2000)
    largest(8 * 40 * 40)
    assert said_of(fs.to_device, model)[:2] == (8 * 40 * 40, "posterior.scale_tril")
    sgpr = fs.SGPR(there.covariance, there.inducing, f8(0.3))
    assert said_of(fs.fit, sgpr, X, Y, steps=1)[:2] == (8 * 2000 * 3, "X")
    assert said_of(fs.fit, there, X, Y, steps=1, batch_size=1000)[:2] == (8 * 1000 * 3, "X")


def test_kernels_and_factors_called_directly(rng, largest):
    m, k, N, n = 3000, 4, 300, 50
    dense, diagonal, z = (largest.there(rng.standard_normal(shape)) for shape in ((m, k), m - k, m))
    X, U, W = (largest.there(rng.standard_normal(shape)) for shape in ((N, 2), (3, N), (3, 2 * n)))
    indices, A = largest.there(np.arange(n)), largest.there(np.eye(60))
    waves = "rbf", 1, indices, 100, 1.0, 1.0
    cases = [
        (lambda: kernels.chevron_multiply_vjp(z, dense, diagonal, z), m * k, "dense"),
        (lambda: kernels.chevron_multiply(dense, diagonal, z), m, "z"),
        (lambda: kernels.stationary("rbf", X, None, 1.0, 1.0), N * N, "X1"),
        (lambda: kernels.stationary("rbf", X[:40], X, 1.0, 1.0), 40 * N, "X2"),
        (lambda: kernels.fourier_multiply(X, W, *waves), 3 * N, "X"),
        (lambda: fs.inverse_factor(A), 60 * 60, "A"),
        (lambda: fs.newton_schulz_step(A, A, 1.0), 60 * 60, "A"),
    ]
    for call, numbers, driver in sorted(cases, key=lambda case: -case[1]):
        largest(8 * numbers)
        assert said_of(call)[:2] == (8 * numbers, driver)


def test_unknown_driver_names_the_largest_argument():
    said = str(
        explained(
            MemoryError("no room"),
            {"A": np.zeros((3, 2)), "B": np.zeros(70, np.float32), "jitter": 10**9},
        )
    )
    assert said == "out of memory (no room); of `A` (3, 2), `B` (70,), `B` determines it"
    assert str(explained(MemoryError("no room"), {"steps": 3})) == "out of memory (no room)"
