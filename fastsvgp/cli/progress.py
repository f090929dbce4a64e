"""Warnings and log records as notes on stderr, beside the progress bar of training."""

import logging
import warnings
from contextlib import contextmanager

from ..runtime.progress_bar import Progress as Progress, beside

NOTES = 3  # shown per kind


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
