"""Arrays on the device that lie there as they lie here.

``cupy.asarray`` makes strided arrays dense and puts them at the start of an allocation: padded rows, every second column and
addresses askew would all arrive contiguous and aligned, and tests of layouts would test nothing.
"""

import ctypes
import importlib
import types

import numpy as np

ALIGNMENT = 16  # bytes of the widest load of the kernels: an address modulo this is kept


def laid_out(cupy, array):
    """A copy of a NumPy array with its strides, at its address modulo 16.

    What lies between the entries comes along. Beyond the last one the allocation ends, so that tools see reads past it.
    """
    if array.size == 0:
        return cupy.asarray(array)
    low, high = np.lib.array_utils.byte_bounds(array)
    before = low % ALIGNMENT
    buffer = np.zeros(before + high - low, np.uint8)
    buffer[before:] = np.frombuffer((ctypes.c_uint8 * (high - low)).from_address(low), np.uint8)
    start = cupy.asarray(buffer).data + (before + array.ctypes.data - low)
    return cupy.ndarray(array.shape, array.dtype, start, array.strides)


def on_device(cupy, stem):
    """The CUDA twin of a family for NumPy arrays: they go to the device with their layouts, and results come back with theirs."""
    module = importlib.import_module(f"fastsvgp.kernels.cuda.{stem}")
    there = lambda a: laid_out(cupy, a) if isinstance(a, np.ndarray) else a  # noqa: E731
    back = lambda a: tuple(map(back, a)) if isinstance(a, tuple) else a.get(order="A") if isinstance(a, cupy.ndarray) else a  # noqa: E731
    moved = lambda f: lambda *arguments: back(f(*map(there, arguments)))  # noqa: E731
    return types.SimpleNamespace(**{name: moved(f) for name, f in vars(module).items() if callable(f)})
