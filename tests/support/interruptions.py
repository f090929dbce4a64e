"""Ctrl-C at a chosen place, for tests of what it leaves."""

import contextlib
import itertools
from unittest import mock

from fastsvgp.cli.progress import Progress


@contextlib.contextmanager
def at_call(owner, name, number):
    """While this lasts it comes in the place of a function's call of that number, from 1."""
    plain, calls = getattr(owner, name), itertools.count(1)

    def call(*args, **options):
        if next(calls) == number:
            raise KeyboardInterrupt
        return plain(*args, **options)

    with mock.patch.object(owner, name, call):
        yield


@contextlib.contextmanager
def after_step(number):
    """While this lasts it comes after a step of a training that the command line shows."""
    plain = Progress.__call__

    def call(self, step, value, info):
        plain(self, step, value, info)
        if step == number:
            raise KeyboardInterrupt

    with mock.patch.object(Progress, "__call__", call):
        yield
