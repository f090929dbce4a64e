"""Records in files: one .npz, a JSON header and the leaves under their dotted paths; no pickle."""

import errno
import importlib
import json
import math
import os
import tokenize
import zipfile
import zlib
from typing import Any

import numpy as np

from ..errors import DataFileError, names_options, warn
from ..files import Path, as_path, write_atomically
from . import decorator
from .decorator import is_parts, is_record
from .registry import GONE, OURS
from .tree import leaves
from .typed import Record

FORMAT = "fastsvgp-record-2"
# the first one does not say which modules define records that are not ours
READABLE = ("fastsvgp-record-1", FORMAT)
# what `fastsvgp fit` stores beside a model: the scaling that it works behind, columns, classes
COMMAND_LINE = "command_line"
# what zipfile and NumPy raise for a file that is none of theirs, or that lost or changed some bytes
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
    SyntaxError,
    EOFError,
    OSError,
    LookupError,
    AttributeError,
    TypeError,
    ValueError,
    RuntimeError,
)
NUMBERS = "fiub"  # kinds of dtypes that a field may have
FACTORS = "tril", "columns", "symmetric"  # kinds of leaves of which the lower triangle alone counts
# what Python calls the module of a script or notebook; the other in processes of its own
SCRIPTS = {"__main__", "__mp_main__"}


def header_of(value):
    """The structure of a record for JSON: its class, its fields, static ones with their values.

    Arrays are stored by path.
    """
    if is_record(value):
        name, fields = (
            type(value).__name__,
            {n: _field_header(k, getattr(value, n)) for n, k in value._record_fields},
        )
        return {"type": name, "fields": fields} | (
            {} if name in OURS else {"module": type(value).__module__}
        )
    if is_parts(value):
        return {"parts": [header_of(v) for v in value]}
    if value is None:
        return None
    # NumPy's numbers have a dtype to keep: they are not weak
    return "float" if type(value) in (int, float) else "array"


def _field_header(kind, value):
    if kind == "tuple" and isinstance(value, tuple):
        return {"parts": [header_of(v) for v in value]}
    return {"static": value} if kind == "static" else header_of(value)


def _plain(value):
    """NumPy's numbers, and arrays of them, for JSON: ``num_classes=Y.max() + 1`` is one."""
    if not isinstance(value, (np.generic, np.ndarray)):
        raise TypeError(
            f"save: {value!r} can not be stored; settings must be numbers, text, or lists of these"
        )
    plain = value.tolist()
    # numbers that Python has no like of, such as those of long double
    if isinstance(plain, np.generic):
        raise TypeError(
            f"save: {value!r} of dtype {value.dtype} can not be stored; convert it with float(...)"
        )
    return plain


def as_json(name, value):
    """``value`` as JSON gives it back; TypeError calls it ``name`` where it can not be stored so."""
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"{name} can not be stored ({error}); it must be numbers, text, or lists and dicts of"
            " these"
        ) from error


def _resolve(header):
    """The class of a record in a file.

    Modules of ours are imported for it and no others: what a file names must not run.
    """
    name, module = header["type"], header.get("module")
    if name in OURS and name not in decorator.REGISTRY:
        importlib.import_module(f"fastsvgp.{OURS[name]}")
    if name not in decorator.REGISTRY:
        if module is None:
            whose = (
                "which this version of fastsvgp does not know; if a module of yours defines it,"
                " import that"
            )
        elif module in SCRIPTS:
            whose = (
                "which the script defined that wrote it; define it, or import a module that does,"
            )
        else:
            whose = f"which the module {module!r} defines; import it"
        raise DataFileError(
            f"the file holds a record of type {name!r}, {whose} first, then load again"
        )
    # A class may have moved since, and there is one of a name at a time, so that the one at hand is
    # most likely meant; its fields must be those of the file. A script is known by other names
    # where it is imported, and that goes without a word.
    here = decorator.REGISTRY[name].__module__
    if module not in (None, here) and SCRIPTS.isdisjoint((module, here)):
        warn(
            f"the file holds a record of type {name!r} of the module {module!r}, and is loaded with"
            f" the one of {here!r}; if these are not the same, do not use it, and import the other"
            " module in place of this one"
        )
    return decorator.REGISTRY[name]


def from_header(header, arrays, path=""):
    """The record of ``header_of`` and of its arrays, a mapping from dotted paths below ``path``."""
    if header is None:
        return None
    if header in ("float", "array"):
        value = arrays[path]
        return float(value) if header == "float" else value[()] if value.ndim == 0 else value
    if "parts" in header:
        return tuple(from_header(h, arrays, f"{path}.{i}") for i, h in enumerate(header["parts"]))
    cls, fields = _resolve(header), {}
    known = dict(cls._record_fields)
    for name, h in header["fields"].items():
        if isinstance(h, dict) and "static" in h:
            value = tuple(h["static"]) if isinstance(h["static"], list) else h["static"]
        else:
            value = from_header(h, arrays, f"{path}.{name}" if path else name)
        if name in known:
            fields[name] = value
        else:
            _drop(cls, name, value)
    return cls(**fields)


def _drop(cls, name, value):
    """Pass over a setting that this record had in an earlier version, and warn where it mattered; refuse any other field."""
    if name not in GONE.get(cls.__name__, {}):
        raise DataFileError(
            f"the file holds a record of type {cls.__name__!r} with a field {name!r}, which the one"
            f" of the module {cls.__module__!r} does not have; load it with the version of that"
            " module that wrote it"
        )
    silent, advice = GONE[cls.__name__][name]
    if value != silent:
        warn(
            f"the file holds a {cls.__name__} with {name}={value!r}, which is no field of it any"
            f" more: {advice}"
        )


def save(path: Path, tree: Record, **extra: object) -> None:
    """Write a record to ``path`` as .npz: all of it or nothing.

    Parameters
    ----------
    path : path-like
        Written exactly as given; no suffix is added.
    tree : record
        Arrays may be on any device; they are stored as NumPy arrays.
    **extra : JSON-serialisable
        Stored beside it; ``load_with_extra`` gives them back.

    Raises
    ------
    TypeError, ValueError
        ``path`` is neither text nor path-like; a field holds no real numbers (NaN, complex numbers,
        text, objects).
    OSError
        Disk full, no such folder...: an existing file at ``path`` is left as it was.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fs.save(path, model)
    >>> os.path.exists(path)
    True
    """
    path = as_path("save: `path`", path)
    if not is_record(tree):
        raise TypeError(f"save: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    write_atomically(path, as_npz(tree, extra))


def as_npz(tree, extra):
    """A function that writes a record, and what is stored beside it, to an open file."""
    header = json.dumps({"format": FORMAT, "tree": header_of(tree), "extra": extra}, default=_plain)
    found = [
        (p, kind, v.get() if hasattr(v, "get") else np.asarray(v))
        for p, kind, v in leaves(tree)
        if v is not None
    ]
    for path, kind, array in found:
        if array.dtype == object:  # NumPy would store a pickle, which nobody loads
            raise TypeError(
                f"save: `{path}` can not be stored; it must be numbers, a record or a tuple of"
                " records"
            )
        if wrong := _no_numbers(kind, array):
            error = ValueError if array.dtype.kind in NUMBERS else TypeError
            raise error(
                f"save: `{path}` {wrong}, and `load` would refuse it; a field must hold real"
                " numbers"
            )
    arrays = {path: array for path, _, array in found}
    return lambda file: np.savez(file, __fastsvgp__=np.array(header), **arrays)


def _no_numbers(kind, array):
    """Why a leaf of this kind does not hold real numbers, in words; None if it does.

    Nothing reads above a factor's diagonal.
    """
    if array.dtype.kind not in NUMBERS:
        return f"has dtype {array.dtype}"
    wrong = np.isnan(array) if array.dtype.kind == "f" else np.zeros(())
    return (
        "contains NaN"
        if (np.tril(wrong) if kind in FACTORS and wrong.ndim > 1 else wrong).any()
        else None
    )


def _check_sizes(path, stream):
    """Refuse a file whose members claim more memory than the file itself has, before any of them is read."""
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise DataFileError(
                f"{path} has compressed members, which may grow without limit, and fastsvgp.save"
                " makes none; if you trust the file, write what numpy.load finds in it again with"
                " numpy.savez"
            )
        if sum(max(member.file_size, member.compress_size) for member in members) > stream.seek(
            0, os.SEEK_END
        ):
            raise DataFileError(
                f"{path} is damaged: its members claim more bytes than the file has"
            )
        for member in members:
            with archive.open(member) as part:
                read = getattr(
                    np.lib.format, "read_array_header_{}_{}".format(*np.lib.format.read_magic(part))
                )
                shape, _, dtype = read(part)
                claimed, held = math.prod(shape) * dtype.itemsize, member.file_size - part.tell()
            if claimed != held:
                raise DataFileError(
                    f"{path} is damaged: {member.filename} claims {claimed} bytes of numbers, and"
                    f" holds {held}"
                )
    stream.seek(0)


def _opened(path):
    """Open a file to read.

    A folder or a loop of links is a ``DataFileError``, as a file of another kind is.
    """
    try:
        return open(path, "rb")
    except IsADirectoryError as error:
        raise DataFileError(
            f"{path} is a folder, and no fastsvgp model; name the file in it"
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataFileError(f"{path} is a loop of links, and no fastsvgp model") from error
        raise


@names_options
def load_with_extra(path: Path) -> tuple[Record, dict[str, Any]]:
    """Read a record that ``save`` wrote, and what was stored beside it.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    tree : record
    extra : dict
        The keyword arguments of ``save``, as JSON gives them back: tuples have become lists.

    Raises
    ------
    TypeError
        ``path`` is neither text nor path-like.
    OSError
        No such file, or it cannot be opened.
    DataFileError
        A folder, a loop of links, or not a file of ours, damaged, of another format version, or
        with members that claim more than the file holds; a field that holds no real numbers (NaN,
        complex numbers, text); a record of a module that was not imported. The message names the
        field, or the module.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fs.save(path, model, units="metres")
    >>> fs.load_with_extra(path)[1]
    {'units': 'metres'}
    """
    path = as_path("load: `path`", path)
    # an error here is about the place of the file, later ones are about what is in it
    with _opened(path) as stream:
        try:
            _check_sizes(path, stream)
            with np.load(stream, allow_pickle=False) as file:
                if "__fastsvgp__" not in file:
                    raise DataFileError(
                        f"{path} is not a fastsvgp model: it has no header. Write models with"
                        " fastsvgp.save"
                    )
                header = json.loads(str(file["__fastsvgp__"]))
                if header.get("format") not in READABLE:
                    reads = " and ".join(map(repr, READABLE))
                    raise DataFileError(
                        f"{path} has format {header.get('format')!r}; this version reads {reads}"
                    )
                tree, extra = from_header(header["tree"], file), header["extra"]
                if not is_record(tree) or not isinstance(extra, dict):
                    raise DataFileError(
                        f"{path} is not a fastsvgp model: its header describes no record"
                    )
                for name, kind, value in leaves(tree):
                    if value is not None and (wrong := _no_numbers(kind, np.asarray(value))):
                        raise DataFileError(
                            f"{path}: the field `{name}` {wrong}; a field must hold real numbers"
                        )
                return tree, extra
        except DataFileError:
            raise
        except DAMAGED as error:
            raise DataFileError(
                f"{path} is not a fastsvgp model, or it is damaged ({error})"
            ) from error


@names_options
def load(path: Path) -> Record:
    """Read a record that ``save`` wrote. What was stored beside it comes with ``load_with_extra``.

    Warns where `fastsvgp fit` wrote the file: such a model works on standardised inputs and
    targets, and ``load_fitted`` loads it with its scaling.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    record

    Raises
    ------
    TypeError, OSError, DataFileError
        As in ``load_with_extra``.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fs.save(path, model)
    >>> fs.load(path).covariance
    RBF(variance=1.0, lengthscales=<float64 (1,)>)
    """
    tree, extra = load_with_extra(path)
    if COMMAND_LINE in extra:
        warn(
            f"{path} was written by `fastsvgp fit`: its model works on standardised inputs and"
            " targets. fastsvgp.load_fitted(path) loads it with its scaling and predicts in the"
            " units of the data; its .model is this one"
        )
    return tree
