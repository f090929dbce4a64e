"""Atomic writes, removal of temporary files left by killed processes, and lock files."""

import os
import re
import tempfile
from contextlib import suppress
from typing import TypeAlias

try:
    import fcntl
except ImportError:  # Windows: no locks, and so no leftovers can be recognised
    fcntl = None  # type: ignore[assignment]

Path: TypeAlias = str | os.PathLike[str]


def as_path(name, path):
    """Convert a path to text.

    Whole numbers, which ``open`` takes as file descriptors, are rejected.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} must be a path (text or os.PathLike), got {path!r:.80}")
    return os.fsdecode(path)


def write_atomically(path, write, keep=None):
    """Write a temporary file beside ``path`` by ``write(file)`` and move it to ``path``.

    A failure leaves ``path`` unchanged. If ``path`` is a link, its target is replaced. A pipe or a
    device is written directly. If ``keep`` is given, an existing file is moved to ``keep(path)``
    once the new file is complete.
    """
    path = as_path("`path`", path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as file:
            write(file)
        return
    path = os.path.realpath(path)
    handle, temporary = _temporary(path)
    lock = None if fcntl is None else os.dup(handle)  # held until the file is renamed
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        kept = None
        if keep is not None and os.path.isfile(path):
            kept = keep(path)
            os.replace(path, kept)
        try:
            os.replace(temporary, path)
        except OSError:  # Windows, if another program has the file open
            if kept is not None:
                os.replace(kept, path)
            raise
    except BaseException:
        with suppress(FileNotFoundError):  # an interrupt can come after the rename
            os.unlink(temporary)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _temporary(path):
    """Open and lock a temporary file beside ``path``, whose name ``clear_leftovers`` finds."""
    folder, name = os.path.split(path)
    while True:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
        _lock(handle, wait=True)
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)  # ``clear_leftovers`` removed it before it was locked


def clear_leftovers(path):
    """Remove temporary files of ``write_atomically(path)`` that no process holds a lock on."""
    folder, name = os.path.split(os.path.realpath(path))
    ours = re.compile(re.escape(f".{name}.") + r"[a-z0-9_]{8}\.part")
    with suppress(OSError):
        for found in filter(ours.fullmatch, os.listdir(folder)):
            _clear(os.path.join(folder, found))


def _clear(path):
    with suppress(OSError):  # removed by another process, or no permission
        handle = os.open(path, os.O_RDWR)
        try:
            if _lock(handle):
                os.unlink(path)
        finally:
            os.close(handle)


# --- locks ----------------------------------------------------------------------------------------


class InUse(Exception):
    """Another process, named by the message, holds a lock."""


def take_lock(path):
    """Create a file and lock it until ``release_lock`` or the end of this process.

    Returns the handle for ``release_lock``. Raises ``InUse`` if another process holds the lock. On
    a file system without locks the file is still created, but locks out no process.
    """
    while True:
        handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
        if _lock(handle) is False:
            owner = os.read(handle, 1000).decode(errors="replace")
            os.close(handle)
            raise InUse(owner or "another process")
        with suppress(FileNotFoundError):
            if os.path.samestat(os.fstat(handle), os.stat(path)):
                break
        os.close(handle)  # the last holder removed the file in the meantime
    import socket  # imported late: most saves do not need it

    os.ftruncate(handle, 0)
    with suppress(OSError):  # a full disk; the text is only informative
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return handle


def release_lock(path, handle):
    """Remove the file of a lock and release the lock."""
    if fcntl is None:  # Windows removes no open file, and no process waits for a lock
        os.close(handle)
    with suppress(OSError):
        os.unlink(path)
    if fcntl is not None:
        os.close(handle)


def _lock(handle, wait=False):
    """Lock an open file until it and all duplicates of its handle are closed.

    Returns False if another process has the lock, and None if the file system has no locks.
    """
    if fcntl is None:
        return None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
    except BlockingIOError:
        return False
    except OSError:
        return None
    return True
