"""Fixtures and numerical helpers shared by all tests."""

import os
import pathlib
import signal
import subprocess
import sys

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read while it loads: beside anything else, two threads wait for one another

import numpy as np  # noqa: E402
import pytest  # noqa: E402
from numerics import SEED  # noqa: E402

HERE = pathlib.Path(__file__).parent
KEPT = pathlib.Path(os.environ.get("NUMBA_CACHE_DIR") or HERE.parent / "fastsvgp" / "kernels" / "cpu")
NOTHING_COMPILED = not any(KEPT.rglob("*.nbi"))
FIRST = ("pairwise", "products", "triangular", "cholesky")  # families that their tests compile, before all other tests
BESIDE = ("chevron", "quadrature", "newton_schulz", "fourier", "patches")  # meanwhile, by their tests, in another process
COMPILING = pytest.StashKey()


def _family(item):
    return item.path.stem.removeprefix("test_") if item.path.parent == HERE / "kernels" else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    items.sort(key=lambda item: _family(item) not in FIRST)


def pytest_collection_finish(session):
    """Where nothing is compiled yet, two processes do that at one time; later runs find it."""
    families = {_family(item) for item in session.items}
    if session.config.option.collectonly or not (NOTHING_COMPILED and families.issuperset(FIRST + BESIDE)):
        return
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *(f"{HERE}/kernels/test_{name}.py" for name in BESIDE)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    session.config.stash[COMPILING] = subprocess.Popen(command, cwd=HERE.parent, **quiet)


def pytest_sessionfinish(session):
    if compiling := session.config.stash.get(COMPILING, None):
        compiling.kill()
        compiling.wait()


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
