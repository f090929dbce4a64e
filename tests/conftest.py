"""Fixtures and numerical helpers shared by all tests."""

import os
import pathlib
import signal

# read while it loads: beside anything else, two threads wait for one another
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from support.numerics import SEED

HERE = pathlib.Path(__file__).parent
# families whose tests compile the most; of two workers, each begins with half of the tests and one
# of these lines
COMPILING = (
    ("pairwise", "products", "triangular", "cholesky"),
    ("patches", "fourier", "chevron", "quadrature", "newton_schulz"),
)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    def of(families):
        files = {HERE / "kernels" / f"test_{family}.py" for family in families}
        return [item for item in items if item.path in files]

    first, second = map(of, COMPILING)
    known = {*first, *second}
    rest = [item for item in items if item not in known]
    half = max(len(items) // 2 - len(first), 0)
    items[:] = first + rest[:half] + second + rest[half:]


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
    from fastsvgp.kernels.cpu.common import scratch

    plain = scratch.empty

    def poisoned(shape, dtype):
        array = plain(shape, dtype)
        array[...] = np.finfo(array.dtype).max
        return array

    monkeypatch.setattr(scratch, "empty", poisoned)
