"""Fixtures of the CUDA tests: the emulation, with one of three thread orders, and a GPU if present.

The order is chosen by the name of a test and by the seed. So the tests of a kernel cover all three
orders, and another seed gives other orders.
"""

import functools
import importlib.util
import shutil
import zlib

import pytest
from cuda_host import sanitized
from cuda_host.cupy_on_host import cupy_on_host
from cuda_host.emulated import emulated
from cuda_host.host_module import ORDERS
from support.numerics import SEED
from support.real_device import cupy_or_skip, on_device, on_host

DEVICE = pytest.param("device", marks=pytest.mark.on_device)
# without CuPy, all tests on a device would be skipped, one by one
PLACES = ["emulated", DEVICE] if importlib.util.find_spec("cupy") else ["emulated"]


def _order(request):
    """Return the thread order of one test."""
    return ORDERS[zlib.crc32(f"{SEED} {request.node.nodeid}".encode()) % len(ORDERS)]


@pytest.fixture(params=PLACES)
def twin_of(request):
    """Return a function from the stem of a family to its CUDA twin, which takes NumPy arrays."""
    if request.param == "device":
        yield functools.partial(on_device, cupy_or_skip())
        return
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    with emulated(_order(request)) as twin:
        yield twin


@pytest.fixture
def door_of(gpu):
    """Return a function from the stem of a family to its front door, for NumPy arrays."""
    return lambda stem: on_device(gpu.cupy, stem, "kernels")


@pytest.fixture
def cutting(monkeypatch):
    """``twin_of`` with tensor cores that truncate where an addition would round, as on devices."""
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    monkeypatch.setenv("CUDA_HOST_TRUNCATING", "1")
    with emulated() as twin:
        yield twin


@pytest.fixture(params=PLACES)
def gpu(request):
    """Copies to and from the device, for calls of the front door: the emulation or a GPU."""
    if request.param == "device":
        yield on_host(cupy_or_skip())
        return
    if shutil.which("g++") is None:
        pytest.skip("the host emulation of CUDA needs g++")
    with cupy_on_host(_order(request)) as module:
        yield on_host(module)


@pytest.fixture(params=["thread", "address"])
def sanitizer(request):
    if reason := sanitized.why_not(request.param):
        pytest.skip(reason)
    return request.param


@pytest.fixture(params=[DEVICE])
def real(request):
    """CuPy on a device."""
    return cupy_or_skip()
