"""The output folder.

It is made before training and locked for one process. Results of other data are never overwritten
unless the user names the folder. No file is left half-written.
"""

import errno
import json
import os
import tempfile
from contextlib import contextmanager, suppress

from ... import files
from ...train import data_digests
from ..errors import UsageError

MODEL, METRICS, REPORT, CHECKPOINT = "model.npz", "metrics.json", "report.html", "checkpoint.npz"
PLAN = "plan.json"  # decisions of an interrupted search
SEARCH = "search.npz"  # its finished stages
UNTARGETED = "without_target.csv"  # predictions of the rows that have no target
LOCK = ".fastsvgp.lock"
PLOTS = ("training.png", "fit.png", "predictions.png", "patches.png")
SUFFIXES = (".csv", ".tsv", ".txt", ".dat", ".data", ".npz", ".npy")


def default_folder(path):
    """Return the default folder: ``airfoil.v1-fit`` for ``data/airfoil.v1.csv.gz``."""
    name = os.path.basename(os.fspath(path))
    name = name[:-3] if name.lower().endswith(".gz") else name
    stem, suffix = os.path.splitext(name) if not name.startswith(".") else ("", name)
    name = stem if suffix.lower() in SUFFIXES else name
    return f"{name.lstrip('-') or 'fastsvgp'}-fit"


def source(path, task):
    """Identify the data of a fit by their file and a digest of their content."""
    # the name of a pipe does not identify its content
    regular = os.path.isfile(path)
    second = {} if task.second is None else {"second": task.second.values}
    return {
        "file": os.path.realpath(path) if regular else None,
        "digest": data_digests.compute(X=task.X, y=task.y, **second),
    }


def check_owner(folder, now):
    """Refuse a default folder that holds results of other data.

    The same file, changed or not, and the same data from another file can be fitted again.
    """
    if not any(os.path.exists(os.path.join(folder, name)) for name in (MODEL, METRICS)):
        return
    try:
        with open(os.path.join(folder, METRICS), encoding="utf-8") as file:
            then = json.load(file)["source"]
        old, digest = then["file"], then["digest"]
    except (OSError, ValueError, LookupError, TypeError):
        old, digest = "unknown data", {}
    same_file = now["file"] is not None and old == now["file"]
    if not same_file and data_digests.differences(digest, now["digest"]):
        raise UsageError(
            f"{folder} holds the results of {old or 'data from a pipe'}; choose another folder with"
            f" --out, or overwrite them with --out {folder}"
        )


@contextmanager
def output_folder(path):
    """Make an output folder, check that it is writable, and lock it against other processes.

    Temporary files of killed runs are removed. If the run fails, folders made here are removed if
    they are empty.
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
                f"{path} is in use by another fit ({error}); wait until it ends, or choose another"
                " --out"
            ) from None
    try:
        for name in (MODEL, METRICS, REPORT, CHECKPOINT, SEARCH, UNTARGETED, *PLOTS):
            files.clear_leftovers(os.path.join(path, name))
        yield path
    except BaseException:
        files.release_lock(lock, handle)
        for folder in made:
            try:
                os.rmdir(folder)
            except OSError:  # it is not empty
                break
        raise
    files.release_lock(lock, handle)


def _missing_parents(path):
    """Return the folders on ``path`` that do not exist, deepest first."""
    missing, folder = [], os.path.abspath(path)
    while not os.path.exists(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


@contextmanager
def writing(path, describe_kept=None):
    """Turn a failure to write ``path`` into a ``UsageError`` with advice.

    ``describe_kept()`` says what is not lost.
    """
    try:
        yield
    except OSError as error:
        what = f"cannot write {path}: {error.strerror or error}; no half-written file is left"
        if describe_kept is not None and (known := describe_kept()):
            raise UsageError(f"{what}; {known}") from error
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        todo = "free some space, or choose another --out" if full else "choose another --out"
        raise UsageError(f"{what}; {todo}") from error


def write_file(path, content, kept=None):
    """Write bytes to a file, atomically; ``kept`` is that of ``writing``."""
    with writing(path, kept):
        files.write_atomically(path, lambda file: file.write(content))


def save_model(fitted, folder, kept=lambda: None):
    """Write the model and return its path; ``kept()`` says where else it is, or None.

    If the folder cannot be written, it goes to a new one elsewhere.
    """
    path = os.path.join(folder, MODEL)
    with writing(path, lambda: kept() or _rescue(fitted)):
        fitted.save(path)
    return path


def _rescue(fitted):
    """Write the model to a new folder elsewhere, and say where; None if all fail."""
    for place in (tempfile.gettempdir(), os.getcwd(), os.path.expanduser("~")):
        with suppress(OSError):
            folder = tempfile.mkdtemp(prefix="fastsvgp-", dir=place)
            try:
                path = os.path.join(folder, MODEL)
                fitted.save(path)
                return (
                    f"the trained model is kept in {path}, which `fastsvgp predict` can use; move"
                    " it to a place with free space"
                )
            except OSError:
                os.rmdir(folder)
    return None
