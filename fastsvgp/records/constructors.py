"""Constructor arguments of records: keyword-only settings, and arrays made of lists of numbers."""

import dataclasses
import functools
import inspect

import numpy as np

from ..errors import warn


def keyword_only(cls):
    """Return the constructor of a record, with a helpful error for settings passed by position.

    For now, a setting without a default can still be passed in the position of its declaration;
    this warns.
    """
    init, fields = cls.__init__, dataclasses.fields(cls)
    settings = {f.name: f.default for f in fields if f.metadata.get("kind") == "static"}
    # a base that is not a record has its own rules
    records = (base for base in cls.__mro__ if base is cls or "_record_fields" in vars(base))
    declared = {name for base in records for name in inspect.get_annotations(base)}
    due = frozenset(name for name in declared if settings.get(name) is dataclasses.MISSING)
    in_place = [f.name for f in fields if not f.kw_only or f.name in due]
    places = sum(not f.kw_only for f in fields)
    if not settings:
        return init

    @functools.wraps(init)
    def __init__(self, *args, **named):
        if len(args) > places or args and not due <= named.keys():
            order = [name for name in in_place if name not in named]
            given, rest = dict(zip(order, args, strict=False)), args[len(order) :]
            by_place = {name: value for name, value in given.items() if name in due}
            more = dict(
                zip(
                    (name for name in settings if name not in given and name not in named),
                    rest,
                    strict=False,
                )
            )
            if by_place or more:
                shown = [f"{name}={value!r:.40}" for name, value in (by_place | more).items()]
                line = (
                    f"{cls.__name__}({', '.join(['...'] * (len(given) > len(by_place)) + shown)})"
                )
                if rest:
                    raise TypeError(f"{cls.__name__}: settings are keyword-only: write {line}")
                warn(
                    f"{cls.__name__}: settings are keyword-only: write {line}; other forms will be"
                    " refused",
                    DeprecationWarning,
                )
                args, named = (), given | named
        init(self, *args, **named)

    return __init__


def array_of(values):
    """Convert a list of numbers to an array.

    Anything else is returned unchanged: the public functions refuse it by name.
    """
    if any(isinstance(row, np.ma.MaskedArray) for row in values):
        return values
    try:
        array = np.asarray(values)
    except (TypeError, ValueError, RuntimeError):  # rows of unequal length, or on a device
        return values
    return array if array.dtype.kind in "fiub" else values
