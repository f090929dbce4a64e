"""Fixtures and numerical helpers shared by all tests."""

import os
import signal

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read while it loads: beside anything else, two threads wait for one another

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from numerics import SEED  # noqa: E402


@pytest.fixture(scope="session", autouse=True)
def interruptible():
    """A shell's background jobs ignore Ctrl-C, and so do their children; the tests of interruptions send it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture(autouse=True)
def _fresh_memory_is_poison(monkeypatch):
    """What a kernel leaves uninitialised is a huge number: who reads it overflows, which is an error here, or is far off."""
    from fastsvgp.kernels.cpu import scratch

    plain = scratch.empty

    def poisoned(shape, dtype):
        array = plain(shape, dtype)
        array[...] = np.finfo(array.dtype).max
        return array

    monkeypatch.setattr(scratch, "empty", poisoned)
