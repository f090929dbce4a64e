"""Where a platform lacks what Linux has, the package still trains, saves and locks: simulated here.

One process hides what Windows and macOS lack, before the package is imported. It proves that no
line needs these; that the answers of those systems are right, only their machines can prove.
"""

import os
import subprocess
import sys

import pytest
import scipy.linalg.cython_blas

import fastsvgp.files.atomic as files
from fastsvgp.kernels.cpu.common import blas_threads

HIDE = {
    "windows": """
import ctypes, os, signal, sys
for name in ("fcntl", "resource", "grp", "pwd", "termios"):
    sys.modules[name] = None
for name in ("register_at_fork", "fork", "sched_getaffinity", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "pthread_sigmask"):
    if hasattr(signal, name):
        delattr(signal, name)
class Opaque(ctypes.PyDLL):  # symbols of the libraries that it is linked to are not found
    def __getattr__(self, name):
        if "openblas" in name:
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.PyDLL = Opaque
""",
    "macos": """
import ctypes, os
for name in ("sched_getaffinity",):
    if hasattr(os, name):
        delattr(os, name)
class Accelerate(ctypes.PyDLL):  # a BLAS without OpenBLAS's names
    def __getattr__(self, name):
        if "openblas" in name:
            raise AttributeError(name)
        return super().__getattr__(name)
ctypes.PyDLL = Accelerate
""",
}
NO_LINUX_FILES = """
import builtins, io
real = builtins.open
def hidden(path, *arguments, **options):
    if str(path).startswith(("/proc/", "/sys/")):
        raise FileNotFoundError(2, "no such file", str(path))
    return real(path, *arguments, **options)
builtins.open = io.open = hidden
"""
USE = """
import logging, numpy as np
import fastsvgp as fs
from fastsvgp.files import atomic
from fastsvgp.kernels.cpu.common import blas_threads, contention
from fastsvgp.runtime import num_threads

X = np.random.default_rng(0).standard_normal((40, 1))
start = fs.SGPR(fs.RBF(1.0, np.ones(1)), inducing=X[:5], noise_variance=0.1)
with fs.set_num_threads(2):
    model, info = fs.fit(start, X, np.sin(X[:, 0]), steps=3)
fs.save("model", info.svgp)
fs.save("model", info.svgp)  # over the old file
again = fs.load("model")
assert np.array_equal(fs.predict_y(again, X)[0], fs.predict_y(info.svgp, X)[0])
handle = atomic.take_lock("lock")
atomic.release_lock("lock", handle)
atomic.clear_leftovers("model")
assert blas_threads.scipys() is None and blas_threads.facts() is None
assert contention.idle() is None and contention.queued() is None
assert num_threads.cpu_quota() == 0 and fs.get_num_threads() >= 1
from fastsvgp.cli import main
assert main(["info"]) == 0
"""


@pytest.mark.parametrize("system", HIDE)
def test_without_what_linux_has_a_model_is_trained_and_saved(system, tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", HIDE[system] + NO_LINUX_FILES + USE],
        cwd=tmp_path,
        env=os.environ
        | {
            "PYTHONPATH": os.pathsep.join(filter(None, [os.getcwd(), os.environ.get("PYTHONPATH")]))
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    assert os.listdir(tmp_path) == ["model"]


def test_a_blas_that_cannot_be_opened_is_not_set(monkeypatch):
    blas_threads.scipys.cache_clear()

    def refused(path):
        assert path == scipy.linalg.cython_blas.__file__
        raise OSError("no such library")

    monkeypatch.setattr(blas_threads.ctypes, "PyDLL", refused)
    try:
        assert blas_threads.scipys() is None
    finally:
        monkeypatch.undo()
        blas_threads.scipys.cache_clear()


@pytest.mark.parametrize("keep", [None, lambda path: f"{path}.previous"])
def test_a_target_that_is_open_stays_as_it_was(tmp_path, monkeypatch, keep):
    """Windows refuses to replace a file that a process has open."""
    path, plain = tmp_path / "a", os.replace
    path.write_bytes(b"1")

    def refused(source, target):
        if os.fspath(source).endswith(".part"):
            raise PermissionError(13, "the file is in use", target)
        plain(source, target)

    monkeypatch.setattr(os, "replace", refused)
    with pytest.raises(PermissionError, match="in use"):
        files.write_atomically(path, lambda file: file.write(b"2"), keep=keep)
    assert path.read_bytes() == b"1" and os.listdir(tmp_path) == ["a"]


def test_a_lock_file_is_removed_where_open_files_cannot_be(tmp_path, monkeypatch):
    """Windows refuses to remove a file before its last handle is closed."""
    monkeypatch.setattr(files, "fcntl", None)
    handle, plain, opened = files.take_lock(tmp_path / "lock"), os.unlink, [True]

    def closing(number):
        opened.clear()
        os.fdopen(number).close()

    def removing(path):
        if opened:
            raise PermissionError(13, "the file is in use", path)
        plain(path)

    monkeypatch.setattr(files.os, "unlink", removing)
    monkeypatch.setattr(files.os, "close", closing)
    files.release_lock(tmp_path / "lock", handle)
    monkeypatch.undo()
    assert os.listdir(tmp_path) == []
