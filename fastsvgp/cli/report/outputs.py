"""The folder of results: made before training, one process at a time, never another file's unasked, nothing half-written."""

import errno
import json
import os
import tempfile
from contextlib import contextmanager, suppress

from ... import files
from ...train import data_digests
from ..errors import UsageError

MODEL, METRICS, REPORT, CHECKPOINT = "model.npz", "metrics.json", "report.html", "checkpoint.npz"
PLAN = "plan.json"  # of a search that was interrupted
LOCK = ".fastsvgp.lock"
PLOTS = ("training.png", "fit.png", "predictions.png", "patches.png")
SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".data", ".npz", ".npy")


def default_folder(path):
    """``data/airfoil.v1.csv.gz`` -> ``airfoil.v1-fit``: the name without the suffixes that say how it is written."""
    name = os.path.basename(os.fspath(path))
    name = name[:-3] if name.lower().endswith(".gz") else name
    stem, suffix = os.path.splitext(name) if not name.startswith(".") else ("", name)
    name = stem if suffix.lower() in SUFFIXES else name
    return f"{name.lstrip('-') or 'fastsvgp'}-fit"


def source(path, task):
    """What tells the data of one fit from those of another: their file, and a digest of what was read from it."""
    # a pipe has a name, which says nothing about what comes through it
    regular = os.path.isfile(path)
    return {
        "file": os.path.realpath(path) if regular else None,
        "digest": data_digests.of(X=task.X, y=task.y),
    }


def check_owner(folder, now):
    """Refuse a default folder with results of other data; the same file, changed or not, or the same data may be fitted again."""
    if not any(os.path.exists(os.path.join(folder, name)) for name in (MODEL, METRICS)):
        return
    try:
        with open(os.path.join(folder, METRICS), encoding="utf-8") as file:
            then = json.load(file)
        then = then.get("source") or {"file": then["data"]}  # earlier versions kept the name alone
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        then = {"file": "data that nothing there names"}
    name, old = now["file"], then.get("file")
    same_file = name is not None and old in (name, os.path.basename(name))
    if not same_file and not (
        "digest" in then and not data_digests.differences(then["digest"], now["digest"])
    ):
        raise UsageError(
            f"{folder} holds the results of {old or 'what came through a pipe'}; name another"
            f" folder with --out, or write over them with --out {folder}"
        )


@contextmanager
def output_folder(path):
    """Make a folder for results, try that it can be written to, and keep other processes out of it.

    Temporary files of killed runs go. When the run fails, what this made and left empty is removed.
    """
    made = _missing_parents(path)
    lock = os.path.join(path, LOCK)
    with writing(path):
        os.makedirs(path, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            pass
        try:
            handle = files.take_lock(lock)
        except files.InUse as error:
            raise UsageError(
                f"{path} is in use by another fit ({error}); wait for its end, or choose another"
                " --out"
            ) from None
    try:
        for name in (MODEL, METRICS, REPORT, CHECKPOINT, *PLOTS):
            files.clear_leftovers(os.path.join(path, name))
        yield path
    except BaseException:
        files.release_lock(lock, handle)
        for folder in made:
            try:
                os.rmdir(folder)
            except OSError:  # it holds something by now
                break
        raise
    files.release_lock(lock, handle)


def _missing_parents(path):
    """The folders that do not exist yet, the deepest first."""
    missing, folder = [], os.path.abspath(path)
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


@contextmanager
def writing(path, kept=None):
    """Turn a failure to write ``path`` into a message with its name and what to do; ``kept()`` says what is not lost."""
    try:
        yield
    except OSError as error:
        what = f"cannot write {path}: {error.strerror or error}; nothing is left half-written"
        if kept is not None and (known := kept()):
            raise UsageError(f"{what}; {known}") from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "free some space, or choose another --out" if full else "choose another --out"
        raise UsageError(f"{what}; {todo}") from error


def rescued(write):
    """Call ``write(path)`` in a new folder elsewhere; its path, or None where nothing could be written anywhere."""
    for place in (tempfile.gettempdir(), os.getcwd(), os.path.expanduser("~")):
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="fastsvgp-", dir=place)
            try:
                path = os.path.join(folder, MODEL)
                write(path)
                return path
            except OSError:
                os.rmdir(folder)
    return None
