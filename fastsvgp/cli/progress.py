"""What is shown on stderr: the compilation of kernels, and warnings and log records as notes.

Compilation has a bar on a terminal, a few lines elsewhere, and nothing if all kernels are compiled.
"""

import logging
import sys
import warnings
from contextlib import contextmanager

from ..runtime.progress_bar import Progress as Progress, print_beside

NOTES = 3  # shown per kind
FEW = 5  # Numba's own functions, which are never cached
LINES = 4  # printed without a terminal
LAYOUT = (
    "  compiling  {percentage:3.0f} %|{bar}| {n_fmt}/{total_fmt} kernels, once [{elapsed},"
    " {remaining} left]"
)


@contextmanager
def notes(quiet):
    """Print warnings and log records of the library as notes on stderr, a few per kind.

    ``quiet`` discards them.
    """
    counts = {}

    def note(kind, text):
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= NOTES and not quiet:
            last = " (more notes of this kind are not shown)" if counts[kind] == NOTES else ""
            print_beside(f"  note       {text}{last}")

    class Handler(logging.Handler):
        def emit(self, record):
            note(record.msg, record.getMessage())

    handler, log = Handler(logging.WARNING), logging.getLogger("fastsvgp")
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.showwarning = lambda message, category, *_, **__: note(category, message)
            yield
    finally:
        log.removeHandler(handler)


class Compiling:
    """Counter of compiled Numba kernels; an empty cache needs ``total``."""

    def __init__(self, total):
        self.total, self.done, self._bar = total, 0, None
        self.closed, self.end = False, None

    def count(self):
        """Count one more compiled kernel."""
        self.done += 1
        if self.done == FEW:
            self._begin()
        if self._bar is not None:
            self._bar.total = max(self.total, self.done)
            self._bar.update(self.done - self._bar.n)
        elif self.done > FEW and self.done % -(-self.total // LINES) == 0:
            print_beside(f"  compiling  {self.done} of {max(self.total, self.done)} kernels")

    def _begin(self):
        if sys.stderr.isatty():
            try:
                from tqdm import tqdm
            except ImportError:
                pass
            else:
                self._bar = tqdm(
                    total=self.total,
                    bar_format=LAYOUT,
                    mininterval=0.1,
                    dynamic_ncols=True,
                    leave=False,
                )
                return
        print_beside(
            f"  compiling  {self.total} kernels, once: up to a minute on an idle machine; later"
            " runs load them from the cache"
        )

    def close(self):
        self.closed = True
        if self.end is not None:
            self.end()
        if self._bar is not None:
            self._bar.close()


@contextmanager
def compiling(total, quiet):
    """Count the kernels compiled inside the context, and show progress unless ``quiet``."""
    if quiet:
        yield
        return
    from ..kernels.cpu.common.compiled import when_ready  # not for ``fastsvgp --help``

    shown = Compiling(total)

    def listen():  # when Numba is needed, which may be never
        if shown.closed:
            return
        from numba.core import event

        class Listener(event.Listener):
            def on_start(self, event):
                pass

            def on_end(self, event):
                shown.count()

        listener = Listener()
        event.register("numba:compile", listener)
        shown.end = lambda: event.unregister("numba:compile", listener)

    when_ready(listen)
    try:
        yield shown
    finally:
        shown.close()
