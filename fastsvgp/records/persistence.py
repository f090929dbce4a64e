"""Save and load records: one .npz with a JSON header and the leaves by dotted path; no pickle."""

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
from .decorator import is_ours, is_parts, is_record
from .registry import OURS
from .tree import leaves
from .typed import Record

FORMAT = "fastsvgp-record-2"
# key of the extra data that `fastsvgp fit` stores beside a model: scaling, columns, classes
COMMAND_LINE = "command_line"
# errors of zipfile and NumPy for a file of another type, or with lost or changed bytes
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
NUMBERS = "fiub"  # valid kinds of dtypes of a field
FACTORS = "tril", "columns", "symmetric"  # kinds of leaves that use only the lower triangle
# module names of a script or notebook, in the main process and in child processes
SCRIPTS = {"__main__", "__mp_main__"}


def header_of(value):
    """Describe the structure of a record for JSON: class, fields, and values of static fields.

    Arrays are stored separately, by path.
    """
    if is_record(value):
        kind = type(value)
        fields = {n: _field_header(n, k, getattr(value, n)) for n, k in value._record_fields}
        own = {} if is_ours(kind) else {"module": kind.__module__}
        return {"type": kind.__name__, "fields": fields} | own
    if is_parts(value):
        return {"parts": [header_of(v) for v in value]}
    if value is None:
        return None
    # NumPy numbers are arrays here, because their dtype must be kept
    return "float" if type(value) in (int, float) else "array"


def _field_header(name, kind, value):
    if kind == "static" and getattr(value, "ndim", 0):
        raise TypeError(
            f"save: the setting `{name}` holds an array, which would come back as a tuple; give a"
            " tuple of numbers, or declare the field by `fs.records.leaf()`"
        )
    if kind == "tuple" and isinstance(value, tuple):
        return {"parts": [header_of(v) for v in value]}
    return {"static": value} if kind == "static" else header_of(value)


def _plain(value):
    """Convert NumPy numbers and arrays for JSON; ``num_classes=Y.max() + 1`` is one."""
    if not isinstance(value, (np.generic, np.ndarray)):
        raise TypeError(
            f"save: {value!r} cannot be stored; settings must be numbers, text, or lists of these"
        )
    plain = value.tolist()
    # numbers without a Python equivalent, for example long double
    if isinstance(plain, np.generic):
        raise TypeError(
            f"save: {value!r} of dtype {value.dtype} cannot be stored; convert it with float(...)"
        )
    return plain


def as_json(name, value):
    """Return ``value`` after a round trip through JSON; a TypeError calls it ``name``."""
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(
            f"{name} cannot be stored ({error}); it must be numbers, text, or lists and dicts of"
            " these"
        ) from error


def _resolve(header):
    """Return the class of a record in a file.

    A header without a module names a record of fastsvgp, and its module is imported. No other
    module is: a file must not run code of its choice.
    """
    name, module = header["type"], header.get("module")
    if module is None:
        if name not in OURS:
            raise DataFileError(
                f"the file holds a record of type {name!r}, which this version of fastsvgp does not"
                " know; load it with the version that wrote it"
            )
        importlib.import_module(f"fastsvgp.{OURS[name]}")
        return decorator.REGISTRY[f"fastsvgp.{OURS[name]}", name]
    if (module, name) in decorator.REGISTRY:
        return decorator.REGISTRY[module, name]
    # A class can have moved to another module since, and a script has another module name when it
    # is imported. If one class of the user has this name, it is most likely the same; its fields
    # must match the file.
    found = [kind for kind in decorator.REGISTRY.values() if kind.__name__ == name]
    found = [kind for kind in found if not is_ours(kind)]
    if len(found) != 1:
        whose = _whose(module, [kind.__module__ for kind in found])
        raise DataFileError(f"the file holds a record of type {name!r}, {whose}, then load again")
    here = found[0].__module__
    if SCRIPTS.isdisjoint((module, here)):
        warn(
            f"the file holds a record of type {name!r} of the module {module!r}, but the class of"
            f" {here!r} is used; if these differ, discard the result and import the other module"
            " instead"
        )
    return found[0]


def _whose(module, others):
    """Say what to import for a record; ``others`` are modules with a class of its name."""
    if module not in SCRIPTS:
        return f"which the module {module!r} defines; import it first"
    if others:
        return f"which {' and '.join(map(repr, others))} define; import only the right one"
    return "which was defined in a script; define it, or import a module that defines it, first"


def from_header(header, arrays, path=""):
    """Build the record of a header (see ``header_of``); ``arrays`` maps dotted paths to arrays."""
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
        if name not in known:
            raise DataFileError(
                f"the file holds a record of type {cls.__name__!r} with a field {name!r}, but the"
                f" class in {cls.__module__!r} has no such field; load it with the version of that"
                " module that wrote it"
            )
        fields[name] = value
    return cls(**fields)


def save(path: Path, tree: Record, **extra: object) -> None:
    """Write a record to ``path`` as .npz, atomically.

    Parameters
    ----------
    path : path-like
        Used exactly as given; no suffix is added.
    tree : record
        Arrays can be on any device; they are stored as NumPy arrays.
    **extra : JSON-serialisable
        Stored with the record; ``load_with_extra`` returns them.

    Raises
    ------
    TypeError, ValueError
        ``path`` is neither text nor path-like, or a field holds something other than real numbers
        (NaN, complex numbers, text, objects).
    OSError
        The file cannot be written, for example because the disk is full. An existing file at
        ``path`` is left unchanged.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fs.save(path, model)
    >>> os.path.exists(path)
    True
    """
    if is_record(path):
        raise TypeError(
            f"save: `path` must be a path, got {type(path).__name__}; write save(path, model)"
        )
    path = as_path("save: `path`", path)
    if not is_record(tree):
        raise TypeError(f"save: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    write_atomically(path, as_npz(tree, extra))


def as_npz(tree, extra):
    """Return a function that writes a record and its extra data to an open file."""
    header = json.dumps({"format": FORMAT, "tree": header_of(tree), "extra": extra}, default=_plain)
    found = [
        (p, kind, v.get() if hasattr(v, "get") else np.asarray(v))
        for p, kind, v in (*leaves(tree), *_data(tree))
        if v is not None
    ]
    for path, kind, array in found:
        if array.dtype == object:  # NumPy would store a pickle, which `load` refuses
            raise TypeError(
                f"save: `{path}` cannot be stored; it must be numbers, a record or a tuple of"
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


def _data(tree, prefix="", inside=False):
    """Yield ``(dotted path, "data", array)`` of each field of data, also in records below."""
    for name, kind in tree._record_fields:
        value, path, held = getattr(tree, name), prefix + name, inside or kind == "data"
        for at, part in (
            [(f"{path}.{i}", part) for i, part in enumerate(value)]
            if is_parts(value)
            else [(path, value)]
        ):
            if is_record(part):
                yield from _data(part, f"{at}.", held)
            elif held and kind != "static":
                yield at, "data", part


def _no_numbers(kind, array):
    """Describe why a leaf of this kind does not hold real numbers; None if it does.

    Numbers above the diagonal of a factor are never read, so they are not checked.
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
    """Refuse a file whose members claim more bytes than the file has, before reading any."""
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise DataFileError(
                f"{path} has compressed members, which fastsvgp.save never writes and which can"
                " grow without limit; if you trust the file, read it with numpy.load and write it"
                " again with numpy.savez"
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
                claimed, stored = math.prod(shape) * dtype.itemsize, member.file_size - part.tell()
            if claimed != stored:
                raise DataFileError(
                    f"{path} is damaged: {member.filename} claims {claimed} bytes of numbers, but"
                    f" holds {stored}"
                )
    stream.seek(0)


def _open(path):
    """Open a file for reading.

    A folder or a loop of links raises ``DataFileError``, as does a file of another type.
    """
    try:
        return open(path, "rb")
    except IsADirectoryError as error:
        raise DataFileError(
            f"{path} is a folder, not a fastsvgp model; give the file in it"
        ) from error
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise DataFileError(f"{path} is a loop of links, not a fastsvgp model") from error
        raise


@names_options
def load_with_extra(path: Path) -> tuple[Record, dict[str, Any]]:
    """Read a record written by ``save``, and its extra data.

    Parameters
    ----------
    path : path-like

    Returns
    -------
    tree : record
    extra : dict
        The keyword arguments of ``save`` after a round trip through JSON: tuples become lists.

    Raises
    ------
    TypeError
        ``path`` is neither text nor path-like.
    OSError
        The file does not exist or cannot be opened.
    DataFileError
        The path is a folder, a loop of links, or a file that ``save`` did not write. The file is
        damaged, has another format version, or has members that claim more bytes than it holds. A
        field holds something other than real numbers (NaN, complex numbers, text), or a record
        belongs to a module that is not imported; the message names the field or the module.

    Examples
    --------
    >>> import os, tempfile
    >>> path = os.path.join(tempfile.mkdtemp(), "model.npz")
    >>> fs.save(path, model, units="metres")
    >>> fs.records.load_with_extra(path)[1]
    {'units': 'metres'}
    """
    path = as_path("load: `path`", path)
    # an error here concerns the path; later ones concern the content
    with _open(path) as stream:
        try:
            _check_sizes(path, stream)
            with np.load(stream, allow_pickle=False) as file:
                if "__fastsvgp__" not in file:
                    raise DataFileError(
                        f"{path} is not a fastsvgp model: it has no header. Write models with"
                        " fastsvgp.save"
                    )
                header = json.loads(str(file["__fastsvgp__"]))
                if header.get("format") != FORMAT:
                    raise DataFileError(
                        f"{path} has format {header.get('format')!r}, but this version of fastsvgp"
                        f" reads {FORMAT!r}; load it with the version that wrote it"
                    )
                tree, extra = from_header(header["tree"], file), header["extra"]
                if not is_record(tree) or not isinstance(extra, dict):
                    raise DataFileError(
                        f"{path} is not a fastsvgp model: its header describes no record"
                    )
                for name, kind, value in (*leaves(tree), *_data(tree)):
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
    """Read a record written by ``save``; ``load_with_extra`` also returns its extra data.

    Warns if `fastsvgp fit` wrote the file: its model works on standardised inputs and targets, and
    ``load_fitted`` loads it with its scaling.

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
            f"{path} was written by `fastsvgp fit`: the model works on standardised inputs and"
            " targets. fastsvgp.load_fitted(path) also loads the scaling and predicts in the units"
            " of the data; its .model is this model"
        )
    return tree
