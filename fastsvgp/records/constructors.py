"""Constructor arguments of records: keyword-only settings, and arrays made of lists of numbers."""

import dataclasses
import functools
import inspect

import numpy as np

from ..errors import refuse_unknown


def helpful(cls):
    """Return the constructor of a record, with helpful errors for wrong arguments.

    These are unknown names, and settings with a default passed by position. A setting without a
    default can be passed in the position of its declaration.
    """
    init, fields = cls.__init__, dataclasses.fields(cls)
    settings = {f.name: f.default for f in fields if f.metadata.get("kind") == "static"}
    known = inspect.signature(init).parameters
    takes_any = any(p.kind is p.VAR_KEYWORD for p in known.values())
    # a base that is not a record has its own rules
    records = (base for base in cls.__mro__ if base is cls or "_record_fields" in vars(base))
    declared = {name for base in records for name in inspect.get_annotations(base)}
    required = frozenset(name for name in declared if settings.get(name) is dataclasses.MISSING)
    positional = [f.name for f in fields if not f.kw_only or f.name in required]
    places = sum(not f.kw_only for f in fields)

    @functools.wraps(init)
    def __init__(self, *args, **named):
        if settings and (len(args) > places or args and not required <= named.keys()):
            args, named = _move_to_keywords(cls, args, named, positional, settings, required)
        try:
            init(self, *args, **named)
        except TypeError:
            if len(args) > places and hasattr(cls, "_for_several"):
                raise TypeError(f"{cls.__name__} takes one tuple; {cls._for_several}") from None
            if not takes_any:
                refuse_unknown(cls.__name__, named, known, word="field")
            raise

    return __init__


def _move_to_keywords(cls, args, named, positional, settings, required):
    """Move ``required`` settings passed by position to keywords.

    Raises ``TypeError`` if there are more arguments than ``positional`` names.
    """
    free = [name for name in positional if name not in named]
    by_position, rest = dict(zip(free, args, strict=False)), args[len(free) :]
    moved = {name: value for name, value in by_position.items() if name in required}
    others = (name for name in settings if name not in by_position and name not in named)
    misplaced = moved | dict(zip(others, rest, strict=False))
    if rest and misplaced:
        shown = [f"{name}={value!r:.40}" for name, value in misplaced.items()]
        before = ["..."] * (len(by_position) > len(moved))
        call = f"{cls.__name__}({', '.join(before + shown)})"
        raise TypeError(f"{cls.__name__}: settings are keyword-only: write {call}")
    return ((), by_position | named) if moved else (args, named)


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
