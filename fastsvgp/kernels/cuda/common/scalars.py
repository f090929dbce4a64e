"""How a number that may live on the device or on the host is handed to a kernel, without waiting for either."""

import numpy as np

from ....runtime import cuda_devices

NULL = np.uint64(0)  # a null pointer


def on_device(value):
    return isinstance(value, cuda_devices.cupy().ndarray)


def parameter(value, dtype):
    """A parameter () or (D,) as kernels take it: where it is, the step from feature to feature, and its value if it is here."""
    if on_device(value):
        return (
            cuda_devices.cupy().ascontiguousarray(value, dtype=dtype),
            np.int32(value.ndim),
            dtype.type(0),
        )
    return NULL, np.int32(0), dtype.type(value)


def number(value, dtype):
    """The same for a parameter (), which has no step."""
    at, _, value = parameter(value, dtype)
    return at, value
