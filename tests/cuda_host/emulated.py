"""CUDA twins on the host: CuPy is NumPy, a launch is a run of the emulation."""

import contextlib
import functools
import importlib
import pathlib
import threading
import types
from unittest import mock

import numpy as np
from cuda_host.host_module import ORDERS, HostModule

from fastsvgp.kernels.cuda.common import blas, loader, scratch
from fastsvgp.runtime import cuda_devices


def _empty(shape, dtype=float):
    """Return memory that holds NaN, so that entries that a kernel does not write show."""
    return (
        np.full(shape, np.nan, dtype)
        if np.dtype(dtype).kind == "f"
        else np.full(shape, np.iinfo(dtype).min, dtype)
    )


class Stream(contextlib.nullcontext):
    """The only stream: launched work is already done."""

    ptr = 0

    def __init__(self, non_blocking=False):
        super().__init__(self)

    def synchronize(self):
        pass

    def is_capturing(self):
        return False

    def record(self):
        return self  # also serves as an event: only waiting is needed


class Device:
    """One of several devices; the choice has no effect on the work."""

    used = threading.local()

    def __init__(self, device):
        self.id, self.pci_bus_id = device, f"0000:{device:02X}:00.0"

    def use(self):
        self.used.id = self.id


CUDA = types.SimpleNamespace(
    Stream=Stream, get_current_stream=Stream, get_device_id=lambda: 0, Device=Device
)
CUDA.alloc_pinned_memory = lambda size: bytearray(size)
OTHERS = {"empty": _empty, "cuda": CUDA, "lib": np.lib}
ARRAYS = types.SimpleNamespace(**{name: getattr(np, name) for name in np.__all__} | OTHERS)


@functools.cache
def module_of(stem, dtype, sanitizer):
    source = pathlib.Path(loader.source_folder()) / f"{stem}.cu"
    return HostModule(source, (f"-DREAL={loader.C_NAMES[dtype]}",), sanitizer)


def _gemm(A, B, C, transpose_a=False, transpose_b=False, alpha=1.0, beta=0.0):
    """``blas.gemm`` for NumPy arrays, which warns of nothing."""
    with np.errstate(all="ignore"):
        product = alpha * ((A.T if transpose_a else A) @ (B.T if transpose_b else B))
    C[...] = product + beta * C if beta else product
    return C


@contextlib.contextmanager
def emulated(order="forward", sanitizer=None, multiprocessors=2, shared_memory=227 * 1024):
    """Let the modules of ``fastsvgp.kernels.cuda`` take NumPy arrays, within the context.

    Threads run in the given order.
    """

    def launch(stem, kernel, dtype, grid, block, arguments, shared_memory=0):
        module = module_of(stem, str(dtype), sanitizer)
        module.launch(kernel, grid, block, arguments, shared_memory, order, seed=len(kernel))

    limits = {
        "multiprocessors": lambda: multiprocessors,
        "shared_memory_limit": lambda: shared_memory,
    }
    device = mock.patch.multiple(cuda_devices, cupy=lambda: ARRAYS, **limits)
    launches = mock.patch.object(loader, "launch", launch)
    products, kept = (
        mock.patch.object(blas, "gemm", _gemm),
        mock.patch.dict(scratch._kept, clear=True),
    )
    with device, launches, products, kept:
        yield lambda stem: importlib.import_module(f"fastsvgp.kernels.cuda.{stem}")


def assert_same_in_any_order(work):
    """Assert that ``work(twin_of)`` returns the same bits whichever thread runs first."""
    results = []
    for order in ORDERS:
        with emulated(order) as twin_of:
            results.append(work(twin_of))
    for other in results[1:]:
        for one, two in zip(results[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
