"""Atomic writes, leftovers of killed processes, and lock files."""

import errno
import os
import pathlib
import subprocess
import sys
from contextlib import contextmanager

import pytest

from fastsvgp.files import atomic as files

ROOT = pathlib.Path(files.__file__).resolve().parents[2]


def write(path, content, **options):
    files.write_atomically(path, lambda file: file.write(content), **options)


@contextmanager
def busy(program, path):
    """Start a process that prints a line and then waits until it is killed."""
    command = [
        sys.executable,
        "-c",
        f"import sys; from fastsvgp import files\n{program}",
        str(path),
    ]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


WRITING = """
def write(file):
    file.write(b"half")
    print("ready", flush=True)
    sys.stdin.read()
files.write_atomically(sys.argv[1], write)
"""
HOLDING = """
files.take_lock(sys.argv[1])
print("ready", flush=True)
sys.stdin.read()
"""


def test_leftovers_go_and_files_of_living_processes_stay(tmp_path):
    path = tmp_path / "c.npz"
    others = [
        ".c.npz.backup01",
        ".c.npz.abcdefgh.part.txt",
        ".other.npz.abcdefgh.part",
        "c.npz.abcdefgh.part",
        "c.npz",
    ]
    for name in others:
        (tmp_path / name).write_text("of the user")
    with busy(WRITING, path):
        assert len(os.listdir(tmp_path)) == len(others) + 1
        files.clear_leftovers(path)
        assert len(os.listdir(tmp_path)) == len(others) + 1
    files.clear_leftovers(path)
    assert sorted(os.listdir(tmp_path)) == sorted(others) and path.read_text() == "of the user"
    files.clear_leftovers(tmp_path / "no" / "such" / "folder")


def test_a_temporary_file_removed_before_its_lock_is_made_again(tmp_path, monkeypatch):
    plain, waited = files._lock, []

    def slow(handle, wait=False):
        if wait and not waited:
            waited.append(os.listdir(tmp_path))
            files.clear_leftovers(tmp_path / "a")
        return plain(handle, wait)

    monkeypatch.setattr(files, "_lock", slow)
    write(tmp_path / "a", b"content")
    assert (
        len(waited[0]) == 1
        and os.listdir(tmp_path) == ["a"]
        and (tmp_path / "a").read_bytes() == b"content"
    )


def test_the_old_file_is_kept_once_the_new_file_is_complete(tmp_path, monkeypatch):
    path = tmp_path / "a"

    def kept(path):
        return path + ".previous"

    write(path, b"1", keep=kept)
    assert os.listdir(tmp_path) == ["a"]
    write(path, b"2", keep=kept)
    write(path, b"3")
    assert (path.read_bytes(), (tmp_path / "a.previous").read_bytes()) == (b"3", b"1")

    def full(handle):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write(path, b"4", keep=kept)
    assert (path.read_bytes(), (tmp_path / "a.previous").read_bytes()) == (b"3", b"1") and len(
        os.listdir(tmp_path)
    ) == 2


def test_a_lock_is_held_by_one_process_and_ends_with_it(tmp_path):
    path = tmp_path / "lock"
    with busy(HOLDING, path) as process:
        with pytest.raises(files.InUse, match=f"process {process.pid} on "):
            files.take_lock(path)
    handle = files.take_lock(path)  # its file is still there
    with pytest.raises(files.InUse, match=f"process {os.getpid()} on "):
        files.take_lock(path)
    files.release_lock(path, handle)
    assert os.listdir(tmp_path) == []
    files.release_lock(path, files.take_lock(path))


def test_without_locks_files_are_written_and_nothing_is_removed(tmp_path, monkeypatch):
    def none(handle, how):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(files.fcntl, "flock", none)
    (tmp_path / ".a.abcdefgh.part").write_text("who knows")
    files.clear_leftovers(tmp_path / "a")
    write(tmp_path / "a", b"content")
    files.release_lock(tmp_path / "lock", files.take_lock(tmp_path / "lock"))
    assert sorted(os.listdir(tmp_path)) == [".a.abcdefgh.part", "a"]


def test_numbers_are_refused_as_paths():
    for wrong in (1, True, None, 2.5, ["a"]):
        with pytest.raises(TypeError, match=r"`x` must be a path \(text or os.PathLike\), got "):
            files.as_path("`x`", wrong)
    assert files.as_path("`x`", pathlib.Path("a")) == files.as_path("`x`", b"a") == "a"
