"""Files that appear whole or not at all; temporary ones that a killed process left; locks that end with their process."""

import os
import re
import tempfile
from contextlib import suppress
from typing import TypeAlias

try:
    import fcntl
except ImportError:  # on Windows nothing is locked, and so nothing is known to be left over
    fcntl = None  # type: ignore[assignment]

Path: TypeAlias = str | os.PathLike[str]


def as_path(name, path):
    """A path as text.

    Whole numbers, which ``open`` takes for files that are open already, are refused.
    """
    if not isinstance(path, (str, bytes, os.PathLike)):
        raise TypeError(f"{name} must be a path (text or os.PathLike), got {path!r}")
    return os.fsdecode(path)


def write_atomically(path, write, keep=None):
    """Call ``write(file)`` on a temporary file beside ``path`` and move it there; on any failure leave ``path`` as it was.

    Through a link the file that it stands for is written. A pipe or a device is written to; nothing
    can be moved onto it. What was there before is moved to the path ``keep(path)``, if that is
    given, once the new file is whole.
    """
    path = as_path("`path`", path)
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        with open(path, "wb") as file:
            write(file)
        return
    path = os.path.realpath(path)
    handle, temporary = _temporary(path)
    lock = None if fcntl is None else os.dup(handle)  # held until the file has its name
    try:
        with os.fdopen(handle, "wb") as file:
            write(file)
            file.flush()
            os.fsync(file.fileno())
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        if keep is not None and os.path.isfile(path):
            os.replace(path, keep(path))
        os.replace(temporary, path)
    except BaseException:
        with suppress(FileNotFoundError):  # an interrupt may come when it has its name already
            os.unlink(temporary)
        raise
    finally:
        if lock is not None:
            os.close(lock)


def _temporary(path):
    """An open temporary file beside ``path``, locked; its name is one that ``clear_leftovers`` knows."""
    folder, name = os.path.split(path)
    while True:
        handle, temporary = tempfile.mkstemp(dir=folder, prefix=f".{name}.", suffix=".part")
        _lock(handle, wait=True)
        if os.path.exists(temporary):
            return handle, temporary
        os.close(handle)  # taken for a leftover before it was locked


def clear_leftovers(path):
    """Remove the temporary files of ``write_atomically(path)`` whose process has ended: nobody holds their lock."""
    folder, name = os.path.split(os.path.realpath(path))
    ours = re.compile(re.escape(f".{name}.") + r"[a-z0-9_]{8}\.part")
    with suppress(OSError):
        for found in filter(ours.fullmatch, os.listdir(folder)):
            _clear(os.path.join(folder, found))


def _clear(path):
    with suppress(OSError):  # another process was faster, or it is not ours to remove
        handle = os.open(path, os.O_RDWR)
        try:
            if _lock(handle):
                os.unlink(path)
        finally:
            os.close(handle)


# --- locks ---------------------------------------------------------------------------------------------------------------


class InUse(Exception):
    """Another process holds a lock; the text says which."""


def take_lock(path):
    """Make a file and lock it until ``release_lock``, or until this process ends in whatever way.

    Returns what ``release_lock`` needs. Raises ``InUse`` where another holds it. On a file system
    without locks it is made all the same, and keeps nobody out.
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
        os.close(handle)  # who held it removed the file in between
    import socket  # late: few who save a model need it

    os.ftruncate(handle, 0)
    with suppress(OSError):  # a full disk; the words are for people only
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
    return handle


def release_lock(path, handle):
    """Remove the file of a lock, and let go of it."""
    with suppress(OSError):
        os.unlink(path)
    os.close(handle)


def _lock(handle, wait=False):
    """Lock an open file for as long as it, or a duplicate of its number, is open.

    Returns False where another has the lock, and None where the file system knows no locks.
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
