"""Immutable records of arrays: models, their parts, and the gradients of both.

A record is a frozen dataclass whose fields are *leaves* (arrays or Python numbers, of a stated kind), other records,
tuples of records, or *static* settings. Nothing is validated here: a gradient is a record of the same type, may be
negative, and holds ``None`` for what nobody asked for.
"""

import dataclasses
import importlib
import json
import math
import os
import tokenize
import zipfile
import zlib
from typing import Any, dataclass_transform

import numpy as np

from .catalogue import GONE, OURS
from .errors import DataFileError, warn
from .files import as_path, write_atomically

FORMAT = "fastsvgp-record-2"
READABLE = ("fastsvgp-record-1", FORMAT)  # the first one does not say which modules define records that are not ours
COMMAND_LINE = "command_line"  # what `fastsvgp fit` stores beside a model: the scaling that it works behind, columns, classes
# what zipfile and NumPy raise for a file that is none of theirs, or that lost or changed some bytes
DAMAGED = (zipfile.BadZipFile, zlib.error, tokenize.TokenError, SyntaxError, EOFError, OSError, LookupError, AttributeError,
           TypeError, ValueError, RuntimeError)  # fmt: skip
SCRIPTS = {"__main__", "__mp_main__"}  # what Python calls the module of a script or notebook; the other in processes of its own
REGISTRY: dict[str, type] = {}
_TYPES: set[type] = set()


def leaf(kind: str = "real", default: Any = dataclasses.MISSING) -> Any:
    """A field that holds numbers. ``kind``: "real", "positive", "tril" (lower factor with a positive diagonal), "columns" (the
    first of its columns, (m, k)), "symmetric" (of which the lower triangle is read).

    Type checkers see a default that is given by its name alone: ``leaf("positive", default=1.0)``.
    """
    return dataclasses.field(default=default, metadata={"kind": kind})


def static(default: Any = dataclasses.MISSING) -> Any:
    """A field that is a setting, not a number to differentiate: it is saved, and kept as it is in gradients."""
    kw_only = dataclasses.MISSING if default is dataclasses.MISSING else True  # without a default as ``KW_ONLY`` says
    return dataclasses.field(default=default, metadata={"kind": "static"}, kw_only=kw_only)


@dataclass_transform(frozen_default=True, field_specifiers=(leaf, static))
def record(cls):
    """Turn a class into a frozen record and make its name known to ``load``.

    ``TypeError`` where a record of that name belongs to another module already, ours that nobody imported yet included: a file
    knows records by their names. The same module may define it again, as a reload or the cell of a notebook does.
    """
    name, module = cls.__name__, cls.__module__
    known = f"{__package__}.{OURS[name]}" if name in OURS else REGISTRY[name].__module__ if name in REGISTRY else module
    if known != module:
        raise TypeError(
            f"record: the module {known!r} has a record {name!r}, and {module!r} defines another of that name, by which files "
            "know it; give one of them a new name, or, where both modules are one file, import it under one name only"
        )
    cls = dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
    cls.__repr__ = _repr
    cls._record_fields = tuple((f.name, f.metadata.get("kind", "record")) for f in dataclasses.fields(cls))
    cls._optional_fields = frozenset(f.name for f in dataclasses.fields(cls) if f.default is None)
    REGISTRY[cls.__name__] = cls
    _TYPES.add(cls)
    return cls


def is_record(x):
    return type(x) in _TYPES


def is_parts(value):
    """Whether this is a tuple of records; any other tuple holds numbers, as a list does."""
    return isinstance(value, tuple) and all(type(part) in _TYPES for part in value)


def leaves(tree, prefix=""):
    """Yield ``(dotted path, kind, value)`` for every leaf, in field order; ``None`` leaves are yielded too.

    Numbers in a field that may hold a record are a leaf as well, a "real" one, and so is a ``None`` there that is no default.
    """
    for name, kind in tree._record_fields:
        value = getattr(tree, name)
        if kind == "static":
            continue
        if kind != "record":
            yield prefix + name, kind, value
        elif is_record(value):
            yield from leaves(value, f"{prefix}{name}.")
        elif is_parts(value):
            for i, part in enumerate(value):
                yield from leaves(part, f"{prefix}{name}.{i}.")
        elif value is not None or name not in tree._optional_fields:
            yield prefix + name, "real", value


def missing(tree, prefix=""):
    """Yield the dotted paths of leaves that are ``None`` in fields whose default is another, or that have none."""
    for name, kind in tree._record_fields:
        value = getattr(tree, name)
        if is_record(value):
            yield from missing(value, f"{prefix}{name}.")
        elif kind == "record" and is_parts(value):
            for i, part in enumerate(value):
                yield from missing(part, f"{prefix}{name}.{i}.")
        elif value is None and kind != "static" and name not in tree._optional_fields:
            yield prefix + name


def tree_map(f, tree, *others):
    """Apply ``f`` to the leaves of records of one shape; a leaf that is ``None`` in any of them stays ``None``."""
    fields = dict(tree.__dict__)
    for name, kind in tree._record_fields:
        if kind != "static":
            fields[name] = _mapped(f, fields[name], [getattr(o, name) for o in others] if others else others)
    new = object.__new__(type(tree))  # past __init__: a frozen dataclass sets its fields one slow call each
    new.__dict__.update(fields)
    return new


def _mapped(f, value, rest):
    if value is None or (rest and any(r is None for r in rest)):
        return None
    if type(value) in _TYPES:
        return tree_map(f, value, *rest)
    if is_parts(value):
        return tuple(tree_map(f, part, *(r[i] for r in rest)) for i, part in enumerate(value))
    return f(value, *rest)


def total(gradients):
    """The sum of records of one shape; None where all are."""
    gradients = [gradient for gradient in gradients if gradient is not None]
    return tree_map(_sum, *gradients) if gradients else None


def _sum(first, *others):
    return sum(others, first)


def plus(new, old):
    """The sum of two gradients of one shape: records, arrays, or tuples of them; ``None`` is nothing."""
    if old is None or new is None:
        return new if old is None else old
    if isinstance(new, tuple):
        return tuple(map(plus, new, old))
    return tree_map(np.add, new, old) if is_record(new) else new + old


def replace(tree, **changes):
    """A copy of a record with some fields changed."""
    return dataclasses.replace(tree, **changes)


def replace_at(tree, path, value):
    """A copy of a record with the leaf at a dotted path (``"covariance.parts.0.variance"``) changed.

    Raises ``TypeError`` where this is no record or no path, ``ValueError`` where the record has no such field.
    """
    if not is_record(tree):
        raise TypeError(f"replace_at: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    if not isinstance(path, str):
        raise TypeError(f"replace_at: `path` must be a dotted path such as 'covariance.variance', got {path!r}")
    try:
        return _changed(tree, path, value)
    except LookupError:
        has = ", ".join(known for known, _, _ in leaves(tree))
        raise ValueError(f"replace_at: `path` {path!r} is no field of this {type(tree).__name__}; it has {has}") from None


def _changed(tree, path, value):
    head, _, rest = path.partition(".")
    if is_parts(tree):
        parts = dict(zip(map(str, range(len(tree))), tree, strict=True))
        parts[head] = _changed(parts[head], rest, value) if rest else parts[head] and value
        return tuple(parts.values())
    if not is_record(tree) or head not in dict(tree._record_fields):
        raise LookupError
    return replace(tree, **{head: _changed(getattr(tree, head), rest, value) if rest else value})


def matches(path, names):
    """Whether a dotted leaf path is one of ``names`` or lies below one of them."""
    return any(path == name or path.startswith(name + ".") for name in names)


def restricted(tree, names):
    """``tree`` with ``None`` in place of every field, and of every leaf below a field, outside the dotted ``names``."""
    roots = {name.partition(".")[0] for name in names}
    fields = [name for name, kind in tree._record_fields if kind != "static" and name not in roots]
    others = [name for name in fields if getattr(tree, name) is not None]
    if others:
        tree = replace(tree, **dict.fromkeys(others))
    if any("." in name for name in names):
        for path, _, _ in list(leaves(tree)):
            if path not in names and not matches(path, names):
                tree = replace_at(tree, path, None)
    return tree


def _repr(self):
    def show(value):
        if isinstance(value, tuple):
            return "(" + ", ".join(map(show, value)) + ("," if len(value) == 1 else "") + ")"
        if is_record(value) or getattr(value, "ndim", 0) == 0:
            return str(value) if isinstance(value, np.generic) else repr(value)
        return f"<{value.dtype} {value.shape}>" if hasattr(value, "shape") else repr(value)

    return f"{type(self).__name__}({', '.join(f'{n}={show(getattr(self, n))}' for n, _ in self._record_fields)})"


@record
class Blocks:
    """Covariance blocks of inducing inputs Z (M) and a batch X (N): the seam between covariances and posteriors.

    ``Kuu`` (M, M), ``Kuf`` (M, N), ``kff`` (N,) = diag K(X, X); ``Kff`` (N, N) only for full predictive covariances.
    """

    Kuu: Any = leaf()
    Kuf: Any = leaf()
    kff: Any = leaf()
    Kff: Any = leaf(default=None)


@record
class Marginals:
    """Gaussian marginals of the latent function at a batch: ``mean`` and ``var``, both (..., N). The second seam."""

    mean: Any = leaf()
    var: Any = leaf()


# --- persistence: one .npz, a JSON header and the leaves under their dotted paths; no pickle ---------------------------


def header_of(value):
    """The structure of a record for JSON: its class, its fields, static ones with their values. Arrays are stored by path."""
    if is_record(value):
        name, fields = type(value).__name__, {n: _field_header(k, getattr(value, n)) for n, k in value._record_fields}
        return {"type": name, "fields": fields} | ({} if name in OURS else {"module": type(value).__module__})
    if is_parts(value):
        return {"parts": [header_of(v) for v in value]}
    if value is None:
        return None
    return "float" if type(value) in (int, float) else "array"  # NumPy's numbers have a dtype to keep: they are not weak


def _field_header(kind, value):
    return {"static": value} if kind == "static" else header_of(value)


def _plain(value):
    """NumPy's numbers, and arrays of them, for JSON: ``num_classes=Y.max() + 1`` is one."""
    if not isinstance(value, (np.generic, np.ndarray)):
        raise TypeError(f"save: {value!r} can not be stored; settings must be numbers, text, or lists of these")
    plain = value.tolist()
    if isinstance(plain, np.generic):  # numbers that Python has no like of, such as those of long double
        raise TypeError(f"save: {value!r} of dtype {value.dtype} can not be stored; convert it with float(...)")
    return plain


def as_json(name, value):
    """``value`` as JSON gives it back; TypeError calls it ``name`` where it can not be stored so."""
    try:
        return json.loads(json.dumps(value, default=_plain))
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name} can not be stored ({error}); it must be numbers, text, or lists and dicts of these") from error


def _resolve(header):
    """The class of a record in a file. Modules of ours are imported for it and no others: what a file names must not run."""
    name, module = header["type"], header.get("module")
    if name in OURS and name not in REGISTRY:
        importlib.import_module(f"{__package__}.{OURS[name]}")
    if name not in REGISTRY:
        if module is None:
            whose = "which this version of fastsvgp does not know; if a module of yours defines it, import that"
        elif module in SCRIPTS:
            whose = "which the script defined that wrote it; define it, or import a module that does,"
        else:
            whose = f"which the module {module!r} defines; import it"
        raise DataFileError(f"the file holds a record of type {name!r}, {whose} first, then load again")
    # A class may have moved since, and there is one of a name at a time, so that the one at hand is most likely meant; its fields
    # must be those of the file. A script is known by other names where it is imported, and that goes without a word.
    here = REGISTRY[name].__module__
    if module not in (None, here) and SCRIPTS.isdisjoint((module, here)):
        warn(
            f"the file holds a record of type {name!r} of the module {module!r}, and is loaded with the one of {here!r}; if "
            "these are not the same, do not use it, and import the other module in place of this one"
        )
    return REGISTRY[name]


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
            f"the file holds a record of type {cls.__name__!r} with a field {name!r}, which the one of the module "
            f"{cls.__module__!r} does not have; load it with the version of that module that wrote it"
        )
    silent, advice = GONE[cls.__name__][name]
    if value != silent:
        warn(f"the file holds a {cls.__name__} with {name}={value!r}, which is no field of it any more: {advice}")


def save(path, tree, **extra):
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
    OSError
        Disk full, no such folder...: an existing file at ``path`` is left as it was.
    """
    path = as_path("save: `path`", path)
    if not is_record(tree):
        raise TypeError(f"save: `tree` must be a fastsvgp record, got {type(tree).__name__}")
    write_atomically(path, as_npz(tree, extra))


def as_npz(tree, extra):
    """A function that writes a record, and what is stored beside it, to an open file."""
    header = json.dumps({"format": FORMAT, "tree": header_of(tree), "extra": extra}, default=_plain)
    arrays = {p: v.get() if hasattr(v, "get") else np.asarray(v) for p, _, v in leaves(tree) if v is not None}
    for path, array in arrays.items():
        if array.dtype == object:  # NumPy would store a pickle, which nobody loads
            raise TypeError(f"save: `{path}` can not be stored; it must be numbers, a record or a tuple of records")
    return lambda file: np.savez(file, __fastsvgp__=np.array(header), **arrays)


def _check_sizes(path, stream):
    """Refuse a file whose members claim more memory than the file itself has, before any of them is read."""
    with zipfile.ZipFile(stream) as archive:
        members = archive.infolist()
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise DataFileError(
                f"{path} has compressed members, which may grow without limit, and fastsvgp.save makes none; if you trust the "
                "file, write what numpy.load finds in it again with numpy.savez"
            )
        if sum(max(member.file_size, member.compress_size) for member in members) > stream.seek(0, os.SEEK_END):
            raise DataFileError(f"{path} is damaged: its members claim more bytes than the file has")
        for member in members:
            with archive.open(member) as part:
                read = getattr(np.lib.format, "read_array_header_{}_{}".format(*np.lib.format.read_magic(part)))
                shape, _, dtype = read(part)
                claimed, held = math.prod(shape) * dtype.itemsize, member.file_size - part.tell()
            if claimed != held:
                raise DataFileError(f"{path} is damaged: {member.filename} claims {claimed} bytes of numbers, and holds {held}")
    stream.seek(0)


def load_with_extra(path):
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
    OSError
        No such file, or it cannot be opened.
    DataFileError
        Not a file of ours, damaged, of another format version, or with members that claim more than the file holds; or it holds a
        record of a module that was not imported, which the message names.
    """
    with open(path, "rb") as stream:  # an error here is about the place of the file, later ones are about what is in it
        try:
            _check_sizes(path, stream)
            with np.load(stream, allow_pickle=False) as file:
                if "__fastsvgp__" not in file:
                    raise DataFileError(f"{path} is not a fastsvgp model: it has no header. Write models with fastsvgp.save")
                header = json.loads(str(file["__fastsvgp__"]))
                if header.get("format") not in READABLE:
                    reads = " and ".join(map(repr, READABLE))
                    raise DataFileError(f"{path} has format {header.get('format')!r}; this version reads {reads}")
                tree, extra = from_header(header["tree"], file, ""), header["extra"]
                if not is_record(tree) or not isinstance(extra, dict):
                    raise DataFileError(f"{path} is not a fastsvgp model: its header describes no record")
                return tree, extra
        except DataFileError:
            raise
        except DAMAGED as error:
            raise DataFileError(f"{path} is not a fastsvgp model, or it is damaged ({error})") from error


def load(path):
    """Read a record that ``save`` wrote. What was stored beside it comes with ``load_with_extra``.

    Warns where `fastsvgp fit` wrote the file: such a model works on standardised inputs and targets, and ``load_fitted`` loads it
    with its scaling.

    Raises ``OSError`` and ``DataFileError`` as ``load_with_extra`` does.
    """
    tree, extra = load_with_extra(path)
    if COMMAND_LINE in extra:
        warn(
            f"{path} was written by `fastsvgp fit`: its model works on standardised inputs and targets. "
            "fastsvgp.load_fitted(path) loads it with its scaling and predicts in the units of the data; its .model is this one"
        )
    return tree
