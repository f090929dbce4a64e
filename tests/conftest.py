"""Fixtures of all tests."""

import contextlib
import os
import pathlib
import signal

# OpenBLAS reads it when it loads; with other load, two threads wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from support.numerics import SEED

HERE = pathlib.Path(__file__).parent
# families whose tests compile the most: each of two workers starts with one of these lines, and
# then runs half of the other tests
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
    """Restore the handler of Ctrl-C, which tests of interruptions send.

    Background jobs of a shell, and their children, ignore it.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def rng():
    return np.random.default_rng(SEED)


@pytest.fixture
def tune():
    """Function that replaces fields of ``runtime.tuning`` until the end of the test."""
    from fastsvgp.runtime import tuning

    with contextlib.ExitStack() as stack:
        yield lambda **changes: stack.enter_context(tuning.override(**changes))


@pytest.fixture(autouse=True)
def _fresh_memory_is_poison(monkeypatch):
    """Fill uninitialised memory of kernels with huge numbers.

    Code that reads them overflows, which is an error in tests, or gives a wrong result.
    """
    from fastsvgp.kernels.cpu.common import scratch

    plain = scratch.empty

    def poisoned(shape, dtype):
        array = plain(shape, dtype)
        array[...] = np.finfo(array.dtype).max
        return array

    monkeypatch.setattr(scratch, "empty", poisoned)
