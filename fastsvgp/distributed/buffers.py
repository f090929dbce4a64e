"""Buffers of all-reduces: leaves packed into flat float64 memory, triangles packed.

The memory is kept for the next call. Values of a model on a device are packed there. A group that
sums on devices also sums them there, and only values of the host are copied to the host. For other
groups all values go through pinned host memory, in one copy to the host and one back.
"""

import functools
import math

import numpy as np

from .. import kernels
from ..runtime import cuda_devices
from ..runtime.deferred_checks import on_device

TRIANGLES = "tril", "symmetric"


class Packing:
    """Layout of leaves in a buffer: ``items`` are pairs of a kind and a shape.

    ``size`` is the length of the buffer in float64.
    """

    def __init__(self, items):
        self._items, self.size = [], 0
        for kind, shape in items:
            count = math.prod(shape)
            if kind in TRIANGLES:
                count = math.prod(shape[:-2]) * (shape[-1] * (shape[-1] + 1) // 2)
            self._items.append((kind, shape, slice(self.size, self.size + count)))
            self.size += count

    def pack(self, values, out):
        """Write ``values`` to ``out`` (size,).

        Values on a device are packed there, and copied to a host buffer in one copy.
        """
        device_like = next((value for value in values if on_device(value)), None)
        there = (
            out if device_like is None or on_device(out) else np.empty(self.size, like=device_like)
        )
        for (kind, shape, at), value in zip(self._items, values, strict=True):
            if kind in TRIANGLES:
                packed = there[at].reshape(*shape[:-2], -1)
                kernels.pack_tril(value if on_device(value) else np.asarray(value), packed)
            else:
                there[at].reshape(shape)[...] = (
                    np.asarray(value, like=there) if type(value) is np.ndarray else value
                )
        if there is not out:
            out[:] = there.get()

    def unpack(self, buffer, like, near=None):
        """Return new leaves from ``buffer``, with the types, dtypes and devices of ``like``.

        near : a copy on the host, if there is one, of a buffer on a device
        """
        device_like = next((value for value in like if on_device(value)), None)
        if device_like is None or not on_device(buffer):
            near = buffer
        elif near is None:  # copied up to the last leaf of the host
            at_host = [at.stop for (*_, at), value in zip(self._items, like, strict=True)
                       if not on_device(value)]  # fmt: skip
            near = buffer[: max(at_host)].get() if at_host else None
        there = (
            buffer
            if device_like is None or on_device(buffer)
            else np.asarray(buffer, like=device_like)
        )
        return [
            _unpack_leaf(value, kind, (there if on_device(value) else near)[at], shape)
            for (kind, shape, at), value in zip(self._items, like, strict=True)
        ]


@functools.cache
def _packing(items):
    return Packing(items)


def packing_of(kinds, values):
    """Return the ``Packing`` of leaves of these kinds."""
    return _packing(tuple(zip(kinds, map(np.shape, values), strict=True)))


def _unpack_leaf(value, kind, part, shape):
    if kind in TRIANGLES:
        square = kernels.unpack_tril(part.reshape(*shape[:-2], -1), shape[-1], value.dtype)
        return kernels.symmetrise(square) if kind == "symmetric" else square
    if not hasattr(value, "dtype"):
        return float(part[0])
    part = part.reshape(shape).astype(value.dtype)
    return part if type(value) is np.ndarray or on_device(value) else part[()]


def sums_on_device(group):
    """Return whether ``sum`` and ``broadcast`` of a group take arrays on devices too."""
    return bool(getattr(group, "sums_on_device", False))


def to_current_device(numbers):
    """Copy numbers to the current device."""
    return cuda_devices.cupy().asarray(numbers)


class Buffer:
    """Buffer on the device of ``device_like``, where its group sums; None is the host."""

    def __init__(self, device_like=None):
        self._memory = np.empty(0, like=device_like)

    def write(self, packing, values):
        """Pack values; return the array to sum."""
        if len(self._memory) < packing.size:
            self._memory = np.empty(packing.size, like=self._memory)
        numbers = self._memory[: packing.size]
        packing.pack(values, numbers)
        return numbers

    def read(self, packing, like):
        """Return the values, as ``Packing.unpack`` does."""
        return packing.unpack(self._memory[: packing.size], like)


class Pinned(Buffer):
    """Buffer for values on a device and a group that sums only on the host."""

    def __init__(self, device_like):
        super().__init__(device_like)
        self._near, self._sent = _allocate_pinned(1), None

    def write(self, packing, values):
        if self._sent is not None:
            # the copy to the device of the last sum can still be running, on another stream
            self._sent.synchronize()
        if len(self._near) < packing.size:
            self._near = _allocate_pinned(packing.size)
        return super().write(packing, values).get(out=self._near[: packing.size])

    def read(self, packing, like):
        there, near = self._memory[: packing.size], self._near[: packing.size]
        there.set(near)
        self._sent = cuda_devices.cupy().cuda.get_current_stream().record()
        return packing.unpack(there, like, near)


def _allocate_pinned(size):
    return np.frombuffer(cuda_devices.cupy().cuda.alloc_pinned_memory(8 * size), np.float64, size)
