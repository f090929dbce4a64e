"""Location and validity of Numba's on-disk cache.

Numba's cache checks the file of a function, not the files of the functions that it calls: after an
upgrade that changes one file, its callers would run old machine code. Therefore the compiled files
beside the sources carry one stamp of all sources, and are dropped when it changes. (If
``NUMBA_CACHE_DIR`` is set, empty that folder after an upgrade.)

Numba stores them in ``NUMBA_CACHE_DIR``, else beside the sources, else in the user's cache folder:
the first that is writable. If none is (a container without a home, a read-only installation) Numba
refuses to compile at all; then the files are stored in a private temporary folder of this user,
with a warning. It must be private, because we would execute any machine code in it.
"""

import atexit
import os
import pathlib
import shutil
import stat
import tempfile
import warnings

from .ahead import FOLDER, sources


def drop_stale():
    """Drop files beside the sources that were compiled from other sources."""
    cache = FOLDER / "__pycache__"
    stamp_file = cache / "fastsvgp.stamp"
    try:
        if stamp_file.exists() and stamp_file.read_text() == sources():
            return
        for file in [*FOLDER.rglob("__pycache__/*.nbi"), *FOLDER.rglob("__pycache__/*.nbc")]:
            file.unlink(missing_ok=True)
        cache.mkdir(exist_ok=True)
        stamp_file.write_text(sources())
    except OSError:  # a read-only installation: it cannot hold compiled files either
        pass


def _tried():
    """The probe function: Numba is asked where its compiled code would be stored."""


def find_place():
    """Set a temporary cache folder if Numba finds no folder for compiled code."""
    import numba

    try:
        numba.njit(cache=True)(_tried)
        return
    except RuntimeError:  # "no locator available"
        pass
    try:
        place = _temporary()
    except OSError as error:
        raise OSError(
            f"no folder for compiled code can be written; set NUMBA_CACHE_DIR to one ({error})"
        ) from error
    numba.config.CACHE_DIR = str(place)
    warnings.warn(
        f"neither {FOLDER / '__pycache__'} nor the user's cache folder can be written: compiled"
        f" code goes to {place}, where it may not stay; set NUMBA_CACHE_DIR to a folder of yours to"
        " keep it",
        stacklevel=2,
    )


def _temporary():
    """Return a private folder of this user, the same in the next process if possible."""
    if hasattr(os, "getuid"):
        place = pathlib.Path(tempfile.gettempdir(), f"fastsvgp-compiled-{os.getuid()}")
        try:
            place.mkdir(mode=0o700, exist_ok=True)
            found = place.lstat()
            if (
                stat.S_ISDIR(found.st_mode)
                and found.st_uid == os.getuid()
                and stat.S_IMODE(found.st_mode) == 0o700
            ):
                place = place / sources()[:16]  # of these sources, so nothing in it is stale
                place.mkdir(mode=0o700, exist_ok=True)
                return place
        except OSError:  # owned by another user, or not a folder
            pass
    place = pathlib.Path(tempfile.mkdtemp(prefix="fastsvgp-compiled-"))
    atexit.register(_remove, place, os.getpid())
    return place


def _remove(place, owner):
    if os.getpid() == owner:  # not a forked child
        shutil.rmtree(place, ignore_errors=True)
