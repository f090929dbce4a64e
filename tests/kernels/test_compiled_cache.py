"""Compiled code beside the sources belongs to them; otherwise it is stored in a private folder."""

import os
import pathlib
import shutil
import stat
import subprocess
import sys
import tempfile

import numba
import pytest

import fastsvgp
import fastsvgp.kernels.cpu as cpu
from fastsvgp.kernels.cpu.common import ahead, numba_cache


def test_compiled_files_go_when_any_source_changes(tmp_path):
    package = tmp_path / "cpu"
    (package / "common").mkdir(parents=True)
    (package / "common" / "__init__.py").touch()
    shutil.copy(cpu.__file__, package / "__init__.py")
    for module in (ahead, numba_cache):
        shutil.copy(module.__file__, package / "common")
    (package / "common" / "callee.py").write_text("x = 1\n")
    cache = package / "common" / "__pycache__"
    run = [sys.executable, "-c", "from cpu.common import numba_cache; numba_cache.drop_stale()"]
    subprocess.run(run, cwd=tmp_path, check=True)
    cache.mkdir(exist_ok=True)  # missing if Python writes no bytecode
    old = cache / "caller.f-1.py311.nbi"
    old.write_bytes(b"machine code")
    subprocess.run(run, cwd=tmp_path, check=True)
    assert old.exists()
    (package / "common" / "callee.py").write_text("x = 2\n")
    subprocess.run(run, cwd=tmp_path, check=True)
    assert not old.exists()


def test_blas_loads_with_our_timeout_and_keeps_the_environment(tmp_path):
    code = """
import os, sys
import numpy
seen = []
class Watch:
    def find_spec(self, name, *_):
        if name == "scipy.linalg":
            seen.append(os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
sys.meta_path.insert(0, Watch())
import fastsvgp.kernels.cpu
print(seen, os.environ.get("OPENBLAS_THREAD_TIMEOUT"))
"""
    clean = {name: value for name, value in os.environ.items() if name != "OPENBLAS_THREAD_TIMEOUT"}
    for given, expected in (({}, "['20'] None"), ({"OPENBLAS_THREAD_TIMEOUT": "25"}, "['25'] 25")):
        run = subprocess.run(
            [sys.executable, "-c", code],
            env=clean | given,
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.strip() == expected


COMPILE = """
import numpy as np
from fastsvgp.kernels.cpu.common.thread_pool import _watch
_watch(np.ones(1, np.uint8), 1)
import numba
print(numba.config.CACHE_DIR)
"""


@pytest.fixture
def installation(tmp_path):
    """``run(**environment)`` compiles a function of a copy in a read-only folder, without a home.

    Files in place of folders keep out the superuser too.
    """
    package = tmp_path / "site" / "fastsvgp"
    shutil.copytree(
        pathlib.Path(fastsvgp.__file__).parent,
        package,
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    (package / "kernels" / "cpu" / "common" / "__pycache__").write_text("not a folder")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "file").write_text("not a folder")
    nowhere = str(tmp_path / "file" / "home")

    def run(**environment):
        clean = {name: value for name, value in os.environ.items() if not name.startswith("NUMBA_")}
        clean |= {
            "HOME": nowhere,
            "XDG_CACHE_HOME": nowhere,
            "LOCALAPPDATA": nowhere,
            "PYTHONPATH": str(package.parent),
            "FASTSVGP_KERNELS": "none",
        }
        clean |= {"TMPDIR": str(tmp_path / "tmp"), "PYTHONDONTWRITEBYTECODE": "1"} | environment
        command = [sys.executable, "-c", COMPILE]
        return subprocess.run(
            command, env=clean, cwd=tmp_path, capture_output=True, text=True, timeout=120
        )

    run.package, run.tmp = package, tmp_path / "tmp"
    return run


def files(folder):
    return {file.name: file.stat().st_mtime_ns for file in folder.rglob("thread_pool._watch-*.nb?")}


def test_compiled_code_goes_to_a_temporary_folder_if_need_be(installation):
    first = installation()
    assert first.returncode == 0, first.stderr
    assert (
        "set NUMBA_CACHE_DIR to a folder of yours" in first.stderr
        and first.stderr.count("UserWarning") == 1
    )
    place = pathlib.Path(first.stdout.strip())
    assert place.is_relative_to(installation.tmp)
    (top,) = installation.tmp.iterdir()
    assert stat.S_IMODE(top.stat().st_mode) == stat.S_IMODE(place.stat().st_mode) == 0o700
    there = files(place)
    assert len(there) == 2
    # the next process finds it
    assert installation().stdout == first.stdout and files(place) == there
    (installation.package / "kernels" / "cpu" / "common" / "thread_pool.py").open("a").write(
        "# changed\n"
    )
    # code of other sources is stored elsewhere
    assert installation().stdout.strip() not in ("", str(place))


def test_writable_folder_is_used_without_warning(installation, tmp_path):
    given = installation(NUMBA_CACHE_DIR=str(tmp_path / "given"))
    assert (
        given.returncode == 0
        and not given.stderr
        and given.stdout.strip() == str(tmp_path / "given")
    )
    assert files(tmp_path / "given")
    (installation.package / "kernels" / "cpu" / "common" / "__pycache__").unlink()
    beside = installation()
    assert beside.returncode == 0 and not beside.stderr and not beside.stdout.strip()
    assert files(installation.package / "kernels" / "cpu" / "common" / "__pycache__")
    assert not list(installation.tmp.iterdir())


@pytest.fixture
def temporary(monkeypatch, tmp_path):
    """The folder for temporary files, and where ours would be."""
    if not hasattr(os, "getuid"):
        pytest.skip("no user numbers on this platform")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(numba_cache.atexit, "register", lambda *_: None)
    return tmp_path / f"fastsvgp-compiled-{os.getuid()}"


def test_the_temporary_folder_is_the_same_each_time(temporary):
    assert numba_cache._temporary() == numba_cache._temporary() == temporary / ahead.sources()[:16]


def a_file(place):
    place.write_text("")


def open_to_all(place):
    place.mkdir()
    place.chmod(0o777)


def a_link(place):
    place.with_name("elsewhere").mkdir(mode=0o700)
    place.symlink_to(place.with_name("elsewhere"))


@pytest.mark.parametrize("take", [a_file, open_to_all, a_link])
def test_a_name_that_is_taken_is_left_alone(temporary, take):
    take(temporary)
    place = numba_cache._temporary()
    assert place.parent == temporary.parent and place.name not in (temporary.name, "elsewhere")
    assert stat.S_IMODE(place.stat().st_mode) == 0o700 and place != numba_cache._temporary()
    assert not any(path.is_dir() for path in temporary.parent.glob(f"{temporary.name}/*"))


def test_a_folder_of_another_user_is_left_alone(temporary, monkeypatch):
    other = os.getuid() + 1
    monkeypatch.setattr(os, "getuid", lambda: other)
    theirs = temporary.with_name(f"fastsvgp-compiled-{other}")
    assert theirs not in numba_cache._temporary().parents and not list(theirs.iterdir())


def test_a_folder_of_one_process_goes_with_it(tmp_path):
    for owner, stays in ((os.getpid() + 1, True), (os.getpid(), False)):
        place = tmp_path / "place"
        place.mkdir(exist_ok=True)
        numba_cache._remove(place, owner)
        assert place.exists() == stays


def test_missing_temporary_folder_is_reported(monkeypatch):
    def refuse(**_):
        raise RuntimeError("cannot cache function: no locator available")

    def full():
        raise FileNotFoundError("No usable temporary directory found")

    monkeypatch.setattr(numba, "njit", refuse)
    monkeypatch.setattr(numba_cache, "_temporary", full)
    with pytest.raises(OSError, match="set NUMBA_CACHE_DIR to one .No usable temporary"):
        numba_cache.find_place()
