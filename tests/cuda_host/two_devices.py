"""What a program with two devices may and may not do (a script).

It runs over ``devices.cpp`` and ``device_libraries.cpp``.

Each line that is printed is a check that has passed.
"""

import dataclasses

import cuda_host.standin  # noqa: F401
import cupy
import numpy as np

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda.common import blas, libraries, loader

M, N = 12, 60


def arrays(device, *shape):
    with cupy.cuda.Device(device):
        return cupy.asarray(np.random.default_rng(0).standard_normal(shape))


def data(device):
    return arrays(device, N, 2), arrays(device, N)


def q(device):
    with cupy.cuda.Device(device):
        return fs.Whitened(cupy.zeros(M), cupy.eye(M))


def refused(call, *errors):
    try:
        call()
    except errors as error:
        return str(error)
    raise AssertionError("nothing was refused")


def each_device_has_its_own():
    assert cupy.cuda.runtime.getDeviceCount() == 2
    for device in range(2):
        A = arrays(device, M, M)
        assert A.device.id == device
        with cupy.cuda.Device(device):
            found = kernels.tril_product(A, A)
            assert found.device.id == device
            np.testing.assert_allclose(found.get(), np.tril(A.get() @ A.get().T), atol=1e-13)
            spd = A @ A.T + cupy.eye(M)  # by the libraries
            L = blas.potrf(spd.copy(), cupy.zeros(1, np.int32)).T
            X = blas.solve(cupy.ascontiguousarray(cupy.tril(L)), kernels.matmul(spd, A))
            np.testing.assert_allclose((cupy.tril(L).T @ A).get(), X.get(), atol=1e-11)


def trainings_are_equal():
    rng, losses = np.random.default_rng(1), []
    X, y = rng.standard_normal((N, 2)), rng.standard_normal(N)
    for device in range(2):
        with cupy.cuda.Device(device):
            q = fs.Whitened(np.zeros(M), np.eye(M))
            covariance, noise = fs.RBF(np.float64(1), np.ones(2)), fs.Gaussian(np.float64(0.3))
            model = fs.to_device(fs.SVGP(covariance, X[:M], q, noise))
            losses.append(fs.fit(model, X, y, steps=5, batch_size=20, rng=0)[1].values)
    np.testing.assert_array_equal(*losses)


def kernels_refuse_another_device():
    here, there = arrays(0, M, M), arrays(1, M, M)
    for kernel in (kernels.tril_product, kernels.matmul, kernels.solve_triangular):
        said = refused(lambda kernel=kernel: kernel(here, there), TypeError)
        assert "` on GPU 0, `B` on GPU 1; move models" in said, said
        said = refused(lambda kernel=kernel: kernel(there, there), ValueError)
        assert said.startswith("`A` is on GPU 1, but the current device is 0; call in") or (
            said.startswith("`L` is on GPU 1")
        ), said
    launch = lambda: loader.launch(  # noqa: E731, past the front door
        "products", "row_squares", there.dtype, (M,), (256,), (there, np.int64(M), arrays(0, M))
    )
    assert "an array is on device 1" in refused(launch, ValueError)
    refused(lambda: here + there, ValueError)  # CuPy's own check


def steps_refuse_another_device():
    model, X, y = fs.SVGP(fs.RBF(1.0, 1.0), arrays(0, M, 2), q(0), fs.Gaussian(0.3)), *data(0)
    assert np.isfinite(float(fs.elbo(model, X, y)))
    said = refused(lambda: fs.elbo(model, data(1)[0], y), ValueError)
    assert said.startswith("`X` is on GPU 1, but the current device is 0"), said
    moved = dataclasses.replace(model, inducing=arrays(1, M, 2))
    said = refused(lambda: fs.elbo(moved, X, y), ValueError)
    assert said.startswith("`inducing` is on GPU 1, but the current device is 0"), said


def launches_fail():
    """Past the check of ``loader.launch``."""
    there, out = arrays(1, M, M), arrays(0, 1)
    launch = loader._prepare(0, "products", there.dtype, "row_squares").function
    errors = cupy.cuda.driver.CUDADriverError
    refused(lambda: launch((M,), (256,), (there, np.int64(M), out)), errors)
    with cupy.cuda.Device(1):
        rows = cupy.empty(M)
        refused(lambda: launch((M,), (256,), (there, np.int64(M), rows)), errors)  # its module


def copies_fail():
    here, there, runtime = arrays(0, M), arrays(1, M), cupy.cuda.runtime
    either = runtime.memcpyDeviceToDevice
    given = here.data.ptr, there.data.ptr, 8 * M, either
    refused(lambda: runtime.memcpy(*given), runtime.CUDARuntimeError)
    refused(lambda: runtime.memcpyAsync(*given, 0), runtime.CUDARuntimeError)
    runtime.memcpyPeer(here.data.ptr, 0, there.data.ptr, 1, 8 * M)
    with cupy.cuda.Device(1):
        other = cupy.cuda.Stream(non_blocking=True)
    refused(lambda: here.data.memset_async(0, 8, other), runtime.CUDARuntimeError)


def library_calls_fail():
    """Past the checks of the front door."""
    here, there, out = arrays(0, M, M), arrays(1, M, M), cupy.empty((M, M))
    refused(lambda: blas.gemm(here, there, out), RuntimeError)
    refused(lambda: blas.solve(there, out), RuntimeError)
    refused(lambda: blas.potrf(there, cupy.zeros(1, np.int32)), RuntimeError)
    work, info = cupy.empty(32 * M), cupy.zeros(1, np.int32)
    address = [a.data.ptr for a in (there, work, info)]
    given = there.dtype, libraries.LOWER, M, address[0], M, address[1], work.size, address[2]
    refused(lambda: libraries.potrf(*given), RuntimeError)


def handles_belong_to_a_device():
    here, there = arrays(0, M, M), arrays(1, M, M)
    handle, call = libraries._cublas(), libraries._cublas
    try:
        libraries._cublas = lambda: handle  # of device 0, with a stream of it
        with cupy.cuda.Device(1):
            refused(lambda: blas.gemm(there, here, cupy.empty((M, M))), RuntimeError)
    finally:
        libraries._cublas = call


def products_of_cupy_fail():
    """It does not check the device of the operands of products."""
    here, there = arrays(0, 2, M, M), arrays(1, 2, M, M)
    errors = cupy.cuda.cublas.CUBLASError
    refused(lambda: here[0] @ there[0], errors)
    refused(lambda: here @ there, errors)


for check in (
    each_device_has_its_own,
    trainings_are_equal,
    kernels_refuse_another_device,
    steps_refuse_another_device,
    launches_fail,
    copies_fail,
    library_calls_fail,
    handles_belong_to_a_device,
    products_of_cupy_fail,
):
    check()
    print(check.__name__, flush=True)
