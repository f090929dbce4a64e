"""Simulate Ctrl-C at a chosen point."""

import contextlib
import itertools
from unittest import mock

from fastsvgp.cli.progress import Progress


@contextlib.contextmanager
def at_call(owner, name, number):
    """Raise KeyboardInterrupt instead of the ``number``-th call of a function, counted from 1."""
    plain, calls = getattr(owner, name), itertools.count(1)

    def call(*args, **options):
        if next(calls) == number:
            raise KeyboardInterrupt
        return plain(*args, **options)

    with mock.patch.object(owner, name, call):
        yield


@contextlib.contextmanager
def after_step(number):
    """Raise KeyboardInterrupt after a step of a training whose progress the command line shows."""
    plain = Progress.__call__

    def call(self, step, value, info):
        plain(self, step, value, info)
        if step == number:
            raise KeyboardInterrupt

    with mock.patch.object(Progress, "__call__", call):
        yield
