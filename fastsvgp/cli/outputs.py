"""The folder of results: made before training starts, never left half-filled by a run that could not write."""

import errno
import os
import tempfile
from contextlib import contextmanager

from .errors import UsageError


def default_folder(path):
    """``data/airfoil.data.csv.gz`` -> ``airfoil-fit``."""
    stem = os.path.basename(os.fspath(path)).split(".")[0]
    return f"{stem or 'fastsvgp'}-fit"


@contextmanager
def output_folder(path):
    """Make a folder for results and try that it can be written to; when the run fails, remove what this made and left empty."""
    made = _missing_parents(path)
    with writing(path):
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
    try:
        yield path
    except BaseException:
        for folder in made:
            try:
                os.rmdir(folder)
            except OSError:  # it holds something by now
                break
        raise


def _missing_parents(path):
    """The folders that do not exist yet, the deepest first."""
    missing, folder = [], os.path.abspath(path)
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


@contextmanager
def writing(path):
    """Turn a failure to write ``path`` into a message with its name and what to do."""
    try:
        yield
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "free some space, or choose another --out" if full else "choose another --out"
        raise UsageError(f"cannot write {path}: {error.strerror or error}; nothing is left half-written; {todo}") from error
