"""What a rank sums in: five words and then numbers, flat float64, in memory that stays for the next call.

Numbers of a model on a device are packed there. A group that sums on devices sums them there as
well: only the words are copied to the host, with the numbers of the host that lie behind them. For
other groups all go through host memory that is pinned, in one copy down and one copy up.
"""

import numpy as np

from ..runtime import cuda_devices

WORDS = 5


def buffer_of(group, home):
    """One for numbers that live where ``home`` does; None is the host."""
    if home is None:
        return OnHost()
    return OnDevice(home) if sums_on_device(group) else Pinned(home)


def sums_on_device(group):
    """Whether ``sum`` and ``broadcast`` of a group take arrays on devices too."""
    return bool(getattr(group, "sums_on_device", False))


def on_current_device(numbers):
    """A copy of them there."""
    return cuda_devices.cupy().asarray(numbers)


class OnHost:
    """For models on the host, and for sums of single numbers."""

    def __init__(self):
        self._memory, self._buffer = np.empty(WORDS), None

    def reserve(self, size):
        """Have memory for so many numbers."""
        if len(self._memory) < WORDS + size:
            self._memory = np.empty(WORDS + size)

    def _begin(self, packing, words):
        self.reserve(packing.size)
        self._buffer = self._memory[: WORDS + packing.size]
        self._buffer[:WORDS] = words
        return self._buffer[WORDS:]

    def write(self, packing, words, values):
        """Words and numbers of this rank."""
        packing.pack(values, self._begin(packing, words))

    def zero(self, packing, words):
        """Words, and zeros for the numbers."""
        self._begin(packing, words)[:] = 0

    def sum(self, group):
        """Sum over the ranks; the words of it."""
        group.sum(self._buffer)
        return self._buffer[:WORDS].copy()

    def read(self, packing, like):
        """The numbers, as ``Packing.unpack`` gives them."""
        return packing.unpack(self._buffer[WORDS:], like)


class OnDevice:
    """For a group that sums on devices."""

    def __init__(self, home):
        self._memory, self._buffer, self._near = np.empty(WORDS, like=home), None, None

    def reserve(self, size):
        """As ``OnHost.reserve``."""
        if len(self._memory) < WORDS + size:
            self._memory = np.empty(WORDS + size, like=self._memory)

    def _begin(self, packing, words, near):
        self.reserve(packing.size)
        self._buffer, self._near = self._memory[: WORDS + packing.size], np.empty(WORDS + near)
        self._buffer[:WORDS].set(np.array(words, float))
        return self._buffer[WORDS:]

    def write(self, packing, words, values):
        """As ``OnHost.write``."""
        packing.pack(values, self._begin(packing, words, packing.end_on_host(values)))

    def zero(self, packing, words):
        """As ``OnHost.zero``: the sum of the others waits for this device."""
        self._begin(packing, words, 0).fill(0.0)

    def sum(self, group):
        """As ``OnHost.sum``: the one copy to the host, which waits for the device."""
        group.sum(self._buffer)
        self._buffer[: len(self._near)].get(out=self._near)
        return self._near[:WORDS].copy()

    def read(self, packing, like):
        """As ``OnHost.read``."""
        return packing.unpack(self._buffer[WORDS:], like, self._near[WORDS:])


class Pinned:
    """For a group that sums on the host alone."""

    def __init__(self, home):
        self._there, self._near, self._buffer, self._sent = (
            np.empty(0, like=home),
            _pinned(WORDS),
            None,
            None,
        )

    def reserve(self, size):
        """As ``OnHost.reserve``: on the device, and pinned on the host."""
        if len(self._there) < size:
            self._there = np.empty(size, like=self._there)
        if len(self._near) < WORDS + size:
            self._near = _pinned(WORDS + size)

    def write(self, packing, words, values):
        """As ``OnHost.write``: packed on the device, and copied to the host."""
        self.reserve(packing.size)
        if self._sent is not None:
            # the copy up of the last sum may be under way, on another stream
            self._sent.synchronize()
        there, self._buffer = self._there[: packing.size], self._near[: WORDS + packing.size]
        packing.pack(values, there)
        self._buffer[:WORDS] = words
        there.get(out=self._buffer[WORDS:])

    def zero(self, packing, words):
        """As ``OnHost.zero``. The device, which may be what failed, is not asked."""
        self._buffer = np.zeros(WORDS + packing.size)
        self._buffer[:WORDS] = words

    def sum(self, group):
        """As ``OnHost.sum``."""
        group.sum(self._buffer)
        return self._buffer[:WORDS].copy()

    def read(self, packing, like):
        """As ``OnHost.read``."""
        there, near = self._there[: packing.size], self._buffer[WORDS:]
        there.set(near)
        self._sent = cuda_devices.cupy().cuda.get_current_stream().record()
        return packing.unpack(there, like, near)


def _pinned(size):
    return np.frombuffer(cuda_devices.cupy().cuda.alloc_pinned_memory(8 * size), np.float64, size)
