"""Fixtures of all tests."""

import contextlib
import inspect
import os
import pathlib
import signal

# OpenBLAS reads it when it loads; with other load, two threads wait for each other
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from support.numerics import SEED

HERE = pathlib.Path(__file__).parent
REFUSAL = "NotPositiveDefinite"
# families whose tests compile the most: each of two workers starts with one of these lines, and
# then runs half of the other tests
COMPILING = (
    ("pairwise", "products", "triangular", "cholesky"),
    ("patches", "fourier", "chevron", "quadrature", "newton_schulz"),
)


def expects_refusal(item):
    """Whether a test names ``NotPositiveDefinite``: itself, or in what it is given or refers to."""
    params = item.callspec.params.values() if hasattr(item, "callspec") else ()
    function = inspect.unwrap(item.function)
    names = function.__code__.co_names
    used = [function.__globals__.get(name) for name in names]

    def holds(value):
        if isinstance(value, dict):
            value = tuple(value.values())
        if isinstance(value, (tuple, list)):
            return any(map(holds, value))
        code = getattr(value, "__code__", None)  # of a function with cases
        return getattr(value, "__name__", "") == REFUSAL or REFUSAL in getattr(code, "co_names", ())

    return REFUSAL in names or holds([*params, *used])


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if expects_refusal(item):
            item.add_marker("refusal")

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
def _the_module_has_every_kernel():
    """Fail a test in which a kernel was compiled although a module is there."""
    from fastsvgp.kernels.cpu.common import compiled

    yield
    missed = dict(compiled.MISSES)
    compiled.MISSES.clear()
    assert not missed, f"called with arguments of other forms than they declare: {missed}"


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
