"""CUDA graphs: the launches of a function, captured and replayed as one.

A graph repeats the captured launches with the same addresses. Therefore it has its own memory pool,
or shares one with graphs that run at other times, and any value that changes between launches must
be in an array that stays in place.
"""

import contextlib
import gc

from ....runtime import cuda_devices, cuda_reductions
from . import libraries, scratch


@contextlib.contextmanager
def _uncollected():
    """Keep Python's garbage collector from freeing device memory during a capture."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


class NotCaptured(RuntimeError):
    """The driver or a library refuses to capture a function; the message gives the reason."""


class Recorded:
    """A function ``body()`` that is run once, then captured, then launched as a graph.

    ``body`` launches kernels and never synchronises. The first run loads kernels, fills caches and
    the memory pool: little of that is allowed during capture. From the second call on, the device
    arrays that ``body`` returns are at fixed addresses, and each call overwrites them.

    beside : Recorded, optional
        A function that never runs at the same time: both share the memory of intermediate results,
        and the stream.
    """

    def __init__(self, body, beside=None):
        self._body = body
        if beside is None:
            cp = cuda_devices.cupy()
            self._pool, self._stream = cp.cuda.MemoryPool(), cp.cuda.Stream(non_blocking=True)
            scratch.hold(self._stream)
        else:
            self._pool, self._stream = beside._pool, beside._stream
        self._graph = self._result = self._workspace = None
        self._ran = False

    def __call__(self):
        """Return the result of ``body()``, ordered on the current stream.

        Raises ``NotCaptured`` at the second call if the capture fails.
        """
        if not self._ran:
            result = self._apart(self._body)
            self._ran = True
            return result
        if self._graph is None:
            self._graph = self._apart(self._capture)
        self._launch()
        return self._result

    def _launch(self):
        self._graph.launch(cuda_devices.cupy().cuda.get_current_stream())

    def _apart(self, function):
        """Call ``function`` on the graph's stream and pool, ordered with the current stream.

        CuPy's sums run without CUB.
        """
        cp = cuda_devices.cupy()
        current = cp.cuda.get_current_stream()
        self._stream.wait_event(current.record())
        try:
            with (
                cp.cuda.using_allocator(self._pool.malloc),
                self._stream,
                cuda_reductions.plain_reductions(),
            ):
                return function()
        finally:
            current.wait_event(self._stream.record())

    def _capture(self):
        with libraries.workspace() as self._workspace, _uncollected():
            self._stream.begin_capture()
            try:
                try:
                    self._result = self._body()
                finally:
                    graph = self._stream.end_capture()
            except Exception as error:
                # if the capture has failed, the error of its end only repeats that
                first = error.__context__ or error
                raise NotCaptured(f"{type(first).__name__}: {first}") from error
            return graph
