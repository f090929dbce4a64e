"""Kernel arguments for numbers on the device or on the host, without synchronising."""

import numpy as np

from ....runtime import cuda_devices

NULL = np.uint64(0)  # a null pointer


def on_device(value):
    return isinstance(value, cuda_devices.cupy().ndarray)


def parameter(value, dtype):
    """Return a parameter () or (D,) as kernel arguments: address, feature stride, value.

    The address is null for a host number; the value is 0 for a device array.
    """
    if on_device(value):
        return (
            cuda_devices.cupy().ascontiguousarray(value, dtype=dtype),
            np.int32(value.ndim),
            dtype.type(0),
        )
    return NULL, np.int32(0), dtype.type(value)


def number(value, dtype):
    """Return a parameter () as kernel arguments: like ``parameter``, without the stride."""
    at, _, value = parameter(value, dtype)
    return at, value
