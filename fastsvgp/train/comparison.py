"""Settings and model structure of a training as plain values by dotted names; their differences."""

import dataclasses

import numpy as np

from ..records import is_ours, is_parts, is_record
from ..records.persistence import as_json
from ..runtime.deferred_checks import on_device
from . import data_digests

# of schedules and pauses: a longer training can extend them
LENGTHS = "steps", "after", "closed_form_every"


def settings(*, total, **given):
    """Return the settings of a training of ``total`` steps: arguments as given or as resolved.

    Records, dataclasses and named tuples become one entry per field, and arrays a digest. A
    function becomes "a function", any other object the name of its class. ``fixed`` is left out,
    because ``moved``, the leaves that the optimiser moves, determines it.
    """
    found = {"steps": total}
    for name, value in given.items():
        found |= {name: sorted(value)} if name == "moved" else _plain(name, value)
    return found


def _plain(name, value):
    """Return one value, and its fields or items."""
    value = value.item() if getattr(value, "shape", None) == () else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return {name: value}
    if isinstance(value, np.ndarray) or on_device(value):
        return {name: f"an array {data_digests.digest_text(value)}"}
    kind, fields = _kind_and_fields(value)
    if fields is None:
        return {name: kind}
    if fields.keys() == {"value"}:  # a constant schedule is its number
        return _plain(name, fields["value"])
    found = {name: kind}
    for field, part in fields.items():
        found |= _plain(f"{name}.{field}", part)
    return found


def _kind_and_fields(value):
    """Return a name for the kind of an object, and its fields or items, None if it has none."""
    kind = type(value).__name__.lstrip("_")
    if hasattr(value, "_asdict"):
        return kind, value._asdict()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        compared = [f.name for f in dataclasses.fields(value) if f.compare and f.name != "fixed"]
        return kind, {name: getattr(value, name) for name in compared}
    if isinstance(value, (dict, tuple, list)):
        if isinstance(value, dict) or all(_is_named(item) for item in value):
            fields = dict(value)
            return ", ".join(sorted(map(str, fields))) or "nothing", fields
        return f"{len(value)} parts", dict(enumerate(value))
    functions = "function", "method", "partial", "builtin_function_or_method"
    return "a function" if kind in functions else kind, None


def _is_named(item):
    """Whether an item of a sequence is a pair of a name and a value."""
    return isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], str)


def structure(tree, name="model"):
    """Return the record types, the array shapes and the static settings of a model, by name.

    A leaf that is None has no entry. A record of the user can bear a name of ours.
    """
    kind = type(tree).__name__ if is_ours(type(tree)) else f"own {type(tree).__name__}"
    found, prefix = {name: kind}, "" if name == "model" else f"{name}."
    for field, kind in tree._record_fields:
        found |= _part(prefix + field, kind, getattr(tree, field))
    return found


def _part(name, kind, value):
    if kind == "static":
        try:
            return {name: as_json(name, value)}
        except TypeError:  # a setting that JSON cannot hold
            return {name: type(value).__name__}
    if is_record(value):
        return structure(value, name)
    if kind == "record" and is_parts(value):
        found = {name: f"{len(value)} parts"}
        for i, part in enumerate(value):
            found |= structure(part, f"{name}.{i}")
        return found
    if kind == "tuple" and isinstance(value, tuple):
        return {name: f"{len(value)} arrays"} | {
            f"{name}.{i}": f"of shape {np.shape(array)}" for i, array in enumerate(value)
        }
    if value is None:
        return {name: None} if kind == "record" else {}
    return {name: f"of shape {np.shape(value)}"}


def differences(then, now):
    """List in words which values differ ``now`` from ``then``.

    Names in only one of them are not compared.
    """
    longer, words = then.get("steps") != now.get("steps"), []
    for name in now:
        if name not in then or name == "steps" or longer and name.rpartition(".")[2] in LENGTHS:
            continue
        old, new = then[name], now[name]
        if old == new or old != old and new != new:
            continue
        if name == "moved":
            for one, other, when in (
                (old, new, "then and not now"),
                (new, old, "now and not then"),
            ):
                if lone := [path for path in one if path not in other]:
                    words.append(f"the optimiser moves {', '.join(lone)} {when}")
        else:
            words.append(f"`{name}` {old} then, {new} now")
    return words
