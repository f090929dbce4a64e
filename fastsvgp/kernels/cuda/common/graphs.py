"""Many launches as one: what a function does on a device, captured into a graph.

A graph repeats what was launched while it was captured, with the same addresses. So its memory is a
pool of its own, and whatever changes from one launch to the next has to stand in arrays that stay
where they are.
"""

from ....runtime import cuda_devices
from . import libraries


class NotCaptured(RuntimeError):
    """The driver, or a library, refuses to capture what a function does; says why."""


class Recorded:
    """``body()``, a function that launches kernels and waits for nothing: run as it is once, then captured, then launched as one.

    The first run loads kernels, makes what is kept, and fills the pool: little of that is allowed
    under capture. What ``body`` returns, arrays on the device, stands in the same place from the
    second call on, and is written anew by each.
    """

    def __init__(self, body):
        cp = cuda_devices.cupy()
        self._body, self._pool, self._stream = (
            body,
            cp.cuda.MemoryPool(),
            cp.cuda.Stream(non_blocking=True),
        )
        self._graph = self._result = self._workspace = None
        self._ran = False

    def __call__(self):
        """What ``body()`` returns, in the order of the current stream.

        ``NotCaptured`` at the second call, where it cannot be.
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
        """Call it on the stream and with the memory of the graph, after what was launched before and before what comes next."""
        cp = cuda_devices.cupy()
        current = cp.cuda.get_current_stream()
        self._stream.wait_event(current.record())
        try:
            with cp.cuda.using_allocator(self._pool.malloc), self._stream:
                return function()
        finally:
            current.wait_event(self._stream.record())

    def _capture(self):
        with libraries.workspace() as self._workspace:
            self._stream.begin_capture()
            try:
                try:
                    self._result = self._body()
                finally:
                    graph = self._stream.end_capture()
            except Exception as error:
                # where the capture has failed, its end says no more than that
                first = error.__context__ or error
                raise NotCaptured(f"{type(first).__name__}: {first}") from error
            return graph
