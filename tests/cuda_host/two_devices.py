"""What a program with two devices may and may not do, over ``devices.cpp`` (a script).

Each line that is printed is a check that has passed.
"""

import cuda_host.standin  # noqa: F401
import cupy
import numpy as np

import fastsvgp as fs
from fastsvgp import kernels
from fastsvgp.kernels.cuda.common import loader

M, N = 12, 60


def arrays(device, *shape):
    with cupy.cuda.Device(device):
        return cupy.asarray(np.random.default_rng(0).standard_normal(shape))


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
    assert "device 1" in refused(lambda: kernels.tril_product(here, there), ValueError)
    refused(lambda: here + there, ValueError)  # CuPy's own check


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


for check in (
    each_device_has_its_own,
    trainings_are_equal,
    kernels_refuse_another_device,
    launches_fail,
    copies_fail,
):
    check()
    print(check.__name__, flush=True)
