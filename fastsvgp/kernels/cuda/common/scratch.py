"""Scratch of launches whose blocks count one another: memory per stream, not per launch.

Launches on one stream run in order, so they share their counters and their sums of slices. The
scratch is an attribute of CuPy's stream and ends with it: a later stream can get the same address,
but not the same counters. A stream of another library (``ExternalStream``) and the default streams
have no object of their own; their scratch is kept for good.

A graph holds the addresses of the scratch of its capture. Therefore memory that a larger piece
replaces is kept as long as the scratch. The graphs of ``graphs.Recorded`` hold their stream. A
graph that a user captures can outlive its stream, so the scratch is then kept for good.
"""

import threading
from typing import Any

import numpy as np

from ....runtime import cuda_devices

PER_THREAD = 2  # the handle of the per-thread default stream; smaller ones are default streams too
ATTRIBUTE = "_fastsvgp_scratch"

_kept: dict = {}  # by device and handle
_captured: list = []  # of streams on which a user has captured
_local = threading.local()  # by device, of the per-thread default stream


class Scratch:
    """Counters that are zero between launches, and memory that grows."""

    def __init__(self, for_good):
        """Allocate nothing yet; ``for_good``: this outlives every graph that refers to it."""
        self.for_good, self.parts = for_good, {}
        self._counters: Any = None
        self._replaced: list = []

    def counters(self, size):
        """Return ``size`` or more numbers, uint32, which are zero; a launch leaves zeros behind."""
        if self._counters is None or self._counters.size < size:
            self._replaced.append(self._counters)
            self._counters = _zeros(size)
        return self._counters

    def parts_of(self, size, dtype):
        """Return ``size`` or more numbers of a dtype; at least twice as many if they grow."""
        parts = self.parts.get(dtype.char)
        if parts is None or parts.size < size:
            if parts is not None:
                self._replaced.append(parts)
                size = max(size, 2 * parts.size)
            parts = self.parts[dtype.char] = cuda_devices.cupy().empty(size, dtype)
        return parts


def _zeros(size):
    """Allocate zeros; during a capture they are set on another stream, or they would be captured.

    That memory is never given back (see ``of_stream``), so no other stream can get it.
    """
    cp = cuda_devices.cupy()
    if not cp.cuda.get_current_stream().is_capturing():
        return cp.zeros(size, np.uint32)
    with cp.cuda.Stream(non_blocking=True) as aside:
        zeros = cp.zeros(size, np.uint32)
        aside.synchronize()
    return zeros


def of_stream():
    """Return the scratch of the current stream."""
    stream = cuda_devices.cupy().cuda.get_current_stream()
    scratch = getattr(stream, ATTRIBUTE, None) or _of_new_stream(stream)
    if not scratch.for_good and stream.is_capturing():
        scratch.for_good = True
        _captured.append(scratch)
    return scratch


def hold(stream):
    """Give a stream its scratch; the caller keeps the stream as long as each graph of it."""
    setattr(stream, ATTRIBUTE, Scratch(for_good=True))


def _of_new_stream(stream):
    cuda = cuda_devices.cupy().cuda
    if type(stream) is cuda.Stream and stream.ptr > PER_THREAD:
        setattr(stream, ATTRIBUTE, Scratch(for_good=False))
        return getattr(stream, ATTRIBUTE)
    kept = _kept
    if stream.ptr == PER_THREAD:  # it is another stream in each thread
        kept = _local.kept = getattr(_local, "kept", {})
    place = cuda.get_device_id(), stream.ptr
    return kept.get(place) or kept.setdefault(place, Scratch(for_good=True))
