"""CuPy on a real GPU, and copies of arrays that keep their layout.

``cupy.asarray`` makes strided arrays dense and puts them at the start of an allocation. Padded
rows, every second column and misaligned addresses would become contiguous and aligned, so tests of
layouts would test nothing.
"""

import ctypes
import importlib
import os
import sys
import types

import numpy as np
import pytest

ALIGNMENT = 16  # bytes of the widest load of the kernels: an address modulo this is kept
# 0: every array is an allocation of its own, so that compute-sanitizer sees where it ends
POOL = "FASTSVGP_TEST_POOL"


def why_none():
    try:
        import cupy

        return None if cupy.cuda.runtime.getDeviceCount() else "CuPy finds no device"
    except Exception as error:  # not installed, no driver, a mismatch: keep the reason
        return f"no CUDA device ({type(error).__name__}: {error})"


def cupy_or_skip():
    """Return CuPy, for a test that runs on a device."""
    return _cupy(pytest.skip)


def cupy_or_exit():
    """Return CuPy, for a script that runs on a device."""
    return _cupy(sys.exit)


def _cupy(refuse):
    if reason := why_none():
        refuse(reason)
    import cupy

    if os.environ.get(POOL) == "0":
        cupy.cuda.set_allocator(None)
    return cupy


def laid_out(cupy, array):
    """Return a copy of a NumPy array with its strides, at its address modulo 16.

    Bytes between the entries are copied too. The allocation ends after the last entry, so tools
    detect reads beyond it.
    """
    if array.size == 0:
        return cupy.asarray(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    before = low % ALIGNMENT
    buffer = np.zeros(before + high - low, np.uint8)
    buffer[before:] = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
    start = cupy.asarray(buffer).data + (before + array.ctypes.data - low)
    return cupy.ndarray(array.shape, array.dtype, start, array.strides)


def on_device(cupy, stem, room="kernels.cuda"):
    """Return the CUDA twin of a family, or its front door, for NumPy arrays.

    Arrays are copied to the device with their layouts, and results back with theirs.
    """
    module = importlib.import_module(f"fastsvgp.{room}.{stem}")

    def there(a):
        return (
            type(a)(map(there, a))
            if isinstance(a, (list, tuple))
            else laid_out(cupy, a)
            if isinstance(a, np.ndarray)
            else a
        )

    back = lambda a: (  # noqa: E731
        tuple(map(back, a))
        if isinstance(a, tuple)
        else a.get(order="A")
        if isinstance(a, cupy.ndarray)
        else a
    )
    moved = lambda f: lambda *arguments: back(f(*map(there, arguments)))  # noqa: E731
    return types.SimpleNamespace(
        **{name: moved(f) for name, f in vars(module).items() if callable(f)}
    )


def on_host(cupy):
    """Return functions that copy to the device, with the same layout, and back."""

    def there(x):
        return laid_out(cupy, x) if isinstance(x, np.ndarray) else cupy.asarray(x)

    return types.SimpleNamespace(
        cupy=cupy, there=there, back=lambda x: x.get() if hasattr(x, "get") else x
    )
