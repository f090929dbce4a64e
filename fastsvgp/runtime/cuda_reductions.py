"""CuPy's sums by its own kernels, in training steps on a device.

By default CuPy reduces arrays by CUB. Its own kernels are one launch without further memory, can be
captured into a graph, and are what the tests without a GPU run. They are slower for long arrays,
but a step sums over no more than a batch. The setting is one for the process: within the context it
holds for all threads, and is restored afterwards.
"""

import contextlib
import threading

from . import cuda_devices

_lock = threading.Lock()
_inside = 0  # contexts that are active, in all threads
_before: list = []  # the settings outside


@contextlib.contextmanager
def plain_reductions():
    """Context in which CuPy reduces arrays by its own kernels."""
    global _inside
    core = cuda_devices.cupy()._core
    with _lock:
        if not _inside:
            _before[:] = core.get_reduction_accelerators(), core.get_routine_accelerators()
            core.set_reduction_accelerators([])
            core.set_routine_accelerators([])
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                core.set_reduction_accelerators(_before[0])
                core.set_routine_accelerators(_before[1])
