"""All-reduce buffers: a header of five numbers, then packed values, in flat float64 memory.

The memory is kept for the next call. Values of a model on a device are packed there. A group that
sums on devices also sums them there, and only the header is copied to the host, with the values of
the host that follow it. For other groups all values go through pinned host memory, in one copy to
the host and one back.
"""

import numpy as np

from ..runtime import cuda_devices

HEADER = 5


def buffer_of(group, device_like):
    """Make a buffer for values on the device of ``device_like``; None is the host."""
    if device_like is None:
        return OnHost()
    return OnDevice(device_like) if sums_on_device(group) else Pinned(device_like)


def sums_on_device(group):
    """Return whether ``sum`` and ``broadcast`` of a group take arrays on devices too."""
    return bool(getattr(group, "sums_on_device", False))


def on_current_device(numbers):
    """Copy numbers to the current device."""
    return cuda_devices.cupy().asarray(numbers)


class OnHost:
    """Buffer for models on the host, and for single numbers."""

    def __init__(self):
        self._memory, self._buffer = np.empty(HEADER), None

    def reserve(self, size):
        """Allocate memory for this number of values."""
        if len(self._memory) < HEADER + size:
            self._memory = np.empty(HEADER + size)

    def _begin(self, packing, header):
        self.reserve(packing.size)
        self._buffer = self._memory[: HEADER + packing.size]
        self._buffer[:HEADER] = header
        return self._buffer[HEADER:]

    def write(self, packing, header, values):
        """Write the header and the values of this rank."""
        packing.pack(values, self._begin(packing, header))

    def zero(self, packing, header):
        """Write the header, and zeros for the values."""
        self._begin(packing, header)[:] = 0

    def sum(self, group):
        """All-reduce; return the header of the sum."""
        group.sum(self._buffer)
        return self._buffer[:HEADER].copy()

    def read(self, packing, like):
        """Return the values, as ``Packing.unpack`` does."""
        return packing.unpack(self._buffer[HEADER:], like)


class OnDevice:
    """Buffer for a group that sums on devices."""

    def __init__(self, device_like):
        self._memory, self._buffer, self._near = np.empty(HEADER, like=device_like), None, None

    def reserve(self, size):
        """As ``OnHost.reserve``."""
        if len(self._memory) < HEADER + size:
            self._memory = np.empty(HEADER + size, like=self._memory)

    def _begin(self, packing, header, near):
        self.reserve(packing.size)
        self._buffer, self._near = self._memory[: HEADER + packing.size], np.empty(HEADER + near)
        self._buffer[:HEADER].set(np.array(header, float))
        return self._buffer[HEADER:]

    def write(self, packing, header, values):
        """As ``OnHost.write``."""
        packing.pack(values, self._begin(packing, header, packing.end_on_host(values)))

    def zero(self, packing, header):
        """As ``OnHost.zero``; on the device, where the others sum."""
        self._begin(packing, header, 0).fill(0.0)

    def sum(self, group):
        """As ``OnHost.sum``; makes the only copy to the host, which synchronises."""
        group.sum(self._buffer)
        self._buffer[: len(self._near)].get(out=self._near)
        return self._near[:HEADER].copy()

    def read(self, packing, like):
        """As ``OnHost.read``."""
        return packing.unpack(self._buffer[HEADER:], like, self._near[HEADER:])


class Pinned:
    """Buffer for a group that sums only on the host."""

    def __init__(self, device_like):
        self._there, self._near, self._buffer, self._sent = (
            np.empty(0, like=device_like),
            _pinned(HEADER),
            None,
            None,
        )

    def reserve(self, size):
        """As ``OnHost.reserve``, on the device and in pinned host memory."""
        if len(self._there) < size:
            self._there = np.empty(size, like=self._there)
        if len(self._near) < HEADER + size:
            self._near = _pinned(HEADER + size)

    def write(self, packing, header, values):
        """As ``OnHost.write``; packs on the device and copies to the host."""
        self.reserve(packing.size)
        if self._sent is not None:
            # the copy to the device of the last sum can still be running, on another stream
            self._sent.synchronize()
        there, self._buffer = self._there[: packing.size], self._near[: HEADER + packing.size]
        packing.pack(values, there)
        self._buffer[:HEADER] = header
        there.get(out=self._buffer[HEADER:])

    def zero(self, packing, header):
        """As ``OnHost.zero``, without the device, which can be the cause of the failure."""
        self._buffer = np.zeros(HEADER + packing.size)
        self._buffer[:HEADER] = header

    def sum(self, group):
        """As ``OnHost.sum``."""
        group.sum(self._buffer)
        return self._buffer[:HEADER].copy()

    def read(self, packing, like):
        """As ``OnHost.read``."""
        there, near = self._there[: packing.size], self._buffer[HEADER:]
        there.set(near)
        self._sent = cuda_devices.cupy().cuda.get_current_stream().record()
        return packing.unpack(there, like, near)


def _pinned(size):
    return np.frombuffer(cuda_devices.cupy().cuda.alloc_pinned_memory(8 * size), np.float64, size)
