"""What is to be said beside the progress of a training: warnings, and what the library logs, as notes on stderr."""

import logging
import warnings
from contextlib import contextmanager

from ..runtime.progress_bar import Progress as Progress, beside

NOTES = 3  # of one kind


@contextmanager
def notes(quiet):
    """While this is open, warnings and what the library logs become notes on stderr, a few of each kind, or ``quiet`` nothing."""
    counts = {}

    def note(kind, text):
        counts[kind] = counts.get(kind, 0) + 1
        if counts[kind] <= NOTES and not quiet:
            last = " (more notes of this kind are not shown)" if counts[kind] == NOTES else ""
            beside(f"  note       {text}{last}")

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
